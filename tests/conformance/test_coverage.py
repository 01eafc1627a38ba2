"""A run of the generator covers what a run must, whatever its first seed."""

from __future__ import annotations

import pytest

from tests.conformance.cases import matrix
from tests.conformance.coverage import (
    PAIR_SEEDS_MIN,
    cases_of,
    pair_seeds_needed,
    shortfalls,
    shortfalls_of_kinds,
)
from tests.conformance.processor_cases import KINDS, make_processor_case


@pytest.mark.parametrize(("first", "seeds"), [(0, 500), (90_123, 1000)])
def test_every_pair_of_operators_has_its_share_of_the_seeds(first: int, seeds: int) -> None:
    cases = list(cases_of(first, seeds))
    assert [case.seed for case in cases[:seeds]] == list(range(first, first + seeds))
    assert len({case.seed for case in cases}) == len(cases)
    assert min(matrix(cases).values()) >= pair_seeds_needed(seeds) > 0


def test_a_run_that_covers_too_little_does_not_pass() -> None:
    assert shortfalls(5000, 5000, 0.9, PAIR_SEEDS_MIN) == []
    assert len(shortfalls(5000, 5000, 0.899, PAIR_SEEDS_MIN)) == 1
    assert len(shortfalls(5000, 5000, 0.9, PAIR_SEEDS_MIN - 1)) == 1
    # A handful of seeds, to look at one of them, is no run.
    assert shortfalls(3, 3, 0.0, 0) == []


def test_every_kind_of_processor_has_its_share_of_the_seeds() -> None:
    cases = [make_processor_case(seed) for seed in range(7, 7 + len(KINDS))]
    assert KINDS.keys() <= {each for case in cases for each in case.operators}
    assert make_processor_case(7) == cases[0]
    assert shortfalls_of_kinds(500, 0.95, dict.fromkeys(KINDS, 20)) == []
    assert len(shortfalls_of_kinds(500, 0.85, {**dict.fromkeys(KINDS, 20), "walker": 19})) == 2
