"""Goal: Penstock gives the records, order, times and stores that Kafka Streams gave.

Method: replay the recorded cases and known tables in Penstock's test driver; no Java runs here.
"""

from __future__ import annotations

import pytest

from penstock.processors import choice
from tests.conformance import programs
from tests.conformance.cases import Case, printed
from tests.conformance.compare import Answer, difference, side_by_side
from tests.conformance.known import KNOWN
from tests.conformance.known_case import Known
from tests.conformance.record import recorded, recorded_windowed


@pytest.fixture(autouse=True)
def columns_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few records be joined as many are."""
    monkeypatch.setattr(choice, "FEW_RECORDS", 0)


@pytest.mark.parametrize(
    ("case", "expected"),
    [pytest.param(case, answer, id=f"seed-{case.seed}") for case, answer in recorded()],
)
def test_penstock_gives_the_recorded_answer(case: Case, expected: Answer) -> None:
    _compare(case, expected, "")


@pytest.mark.parametrize(
    ("case", "expected"),
    [pytest.param(case, answer, id=f"seed-{case.seed}") for case, answer in recorded_windowed()],
)
def test_so_it_does_where_keys_stay_windowed(case: Case, expected: Answer) -> None:
    _compare(case, expected, "--only windowed ")


def _compare(case: Case, expected: Answer, part: str) -> None:
    actual = programs.run(case)
    reason = difference(case, expected, actual)
    assert reason is None, (
        f"{reason}\n{printed(case)}\n{side_by_side(case, expected, actual)}\n"
        f"Its smallest form: python -m tests.conformance {part}1 {case.seed}"
    )


@pytest.mark.parametrize("known", KNOWN, ids=lambda each: each.name)
def test_penstock_gives_the_known_results(known: Known) -> None:
    answer = programs.run(known.case)
    assert known.shown(answer) == known.expected
    assert known.shown_store(answer) == known.held
