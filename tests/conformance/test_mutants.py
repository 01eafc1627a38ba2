"""Goal: the recorded answers find bugs. Method: plant one at a time, and replay until it shows.

A bug shows in other records, or in other contents of a store. That the planted code fails is no
proof: any error would do that. What is so rare that chance recorded none is in the known tables.
"""

from __future__ import annotations

from functools import cache

import pytest

from penstock.processors import choice
from tests.conformance import programs
from tests.conformance.cases import Case
from tests.conformance.compare import Answer, difference
from tests.conformance.known import KNOWN
from tests.conformance.mutants import MUTANTS, Mutant
from tests.conformance.record import recorded


@cache
def _recorded() -> tuple[tuple[Case, Answer], ...]:
    """Read once, and not for every bug: nobody changes them."""
    return tuple(recorded())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__.strip("_"))
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    # The bugs are in the steps that run by record; columns would pass them by.
    monkeypatch.setattr(choice, "runs_in_columns", lambda _: False)
    mutant(monkeypatch)
    likely = set(MUTANTS[mutant])
    if not likely:
        answers = ((known, programs.run(known.case)) for known in KNOWN)
        assert any(known.shown(answer) != known.expected for known, answer in answers)
        return

    def promise(each: tuple[Case, object]) -> tuple[bool, int]:
        operators = each[0].operators
        return not likely & set(operators), len(operators)

    for case, expected in sorted(_recorded(), key=promise):
        actual = programs.run(case)
        fails = "error" in actual and actual["at"] != expected.get("at")
        if not fails and difference(case, expected, actual) is not None:
            return
    pytest.fail(f"No recorded case finds it: {mutant.__doc__}")
