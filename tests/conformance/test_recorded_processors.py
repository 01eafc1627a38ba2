"""Goal: users' processors give the records, order, times, headers and stores of Kafka Streams.

Method: replay recorded cases with processors in Penstock's test driver, then with bugs planted.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.conformance import programs
from tests.conformance.cases import Case, printed
from tests.conformance.compare import Answer, difference, side_by_side
from tests.conformance.mutants import Mutant
from tests.conformance.processor_cases import KINDS
from tests.conformance.processor_mutants import MUTANTS
from tests.conformance.record import recorded_processors


@cache
def _recorded() -> tuple[tuple[Case, Answer], ...]:
    return tuple(recorded_processors())


@pytest.mark.parametrize(
    ("case", "expected"),
    [pytest.param(case, answer, id=f"seed-{case.seed}") for case, answer in _recorded()],
)
def test_penstock_gives_the_recorded_answer(case: Case, expected: Answer) -> None:
    actual = programs.run(case)
    reason = difference(case, expected, actual)
    assert reason is None, (
        f"{reason}\n{printed(case)}\n{side_by_side(case, expected, actual)}\n"
        f"Its smallest form: python -m tests.conformance --only processors 1 {case.seed}"
    )


def test_every_kind_of_processor_is_among_them() -> None:
    assert KINDS.keys() <= {each for case, _ in _recorded() for each in case.operators}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__.strip("_"))
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    wanted = MUTANTS[mutant]
    likely = sorted(_recorded(), key=lambda each: (not wanted(each[0]), len(each[0].steps)))
    for case, expected in likely:
        actual = programs.run(case)
        # That the planted code fails is no proof: any error would do that.
        fails = "error" in actual and actual["at"] != expected.get("at")
        if not fails and difference(case, expected, actual) is not None:
            return
    pytest.fail(f"No recorded case finds it: {mutant.__doc__}")
