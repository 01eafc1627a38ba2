"""How much a run must cover to count: results in nearly all cases, every pair of operators, and
every kind of processor.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tests.conformance.cases import STATEFUL, Case, make_case, matrix

OUTPUT_SHARE_MIN = 0.9
# Of so few cases the share is a matter of luck.
CASES_MIN = 100
PAIR_SEEDS_MIN = 20
FULL_RUN = 5000
# Each kind of processor is in one of so many cases at least.
KIND_SHARE = 25


def pair_seeds_needed(seeds: int) -> int:
    """How many cases each pair of stateful operators must have in a run of so many seeds.

    >>> pair_seeds_needed(5000), pair_seeds_needed(500), pair_seeds_needed(100)
    (20, 2, 0)
    """
    return min(PAIR_SEEDS_MIN, PAIR_SEEDS_MIN * seeds // FULL_RUN)


def cases_of(first: int, seeds: int) -> Iterator[Case]:
    """The cases of a run, and then those of later seeds that pairs which had too few still need."""
    cells, needed = matrix([]), pair_seeds_needed(seeds)
    for seed in range(first, first + seeds):
        case = make_case(seed)
        cells.update(case.pairs)
        yield case
    for pair in itertools.product(STATEFUL, STATEFUL):
        later = _seeds_of(pair, first + seeds)
        while cells[pair] < needed:
            case = make_case(next(later))
            if pair in case.pairs:
                cells.update(case.pairs)
                yield case


def _seeds_of(pair: tuple[str, str], first: int) -> Iterator[int]:
    """The seeds that stand for a pair."""
    size = len(STATEFUL)
    place = STATEFUL.index(pair[0]) + size * STATEFUL.index(pair[1])
    return itertools.count(first + (place - first) % (size * size), size * size)


def shortfalls(asked: int, seeds: int, with_output: float, fewest: int) -> list[str]:
    """What a run lacks to count, in sentences.

    >>> shortfalls(5000, 5003, 0.93, 20)
    []
    >>> shortfalls(5000, 5000, 0.85, 19)
    ['only 85.0 % of the seeds gave output, not 90 %', 'a pair has 19 seeds, not 20']
    """
    lacking = []
    if seeds >= CASES_MIN and with_output < OUTPUT_SHARE_MIN:
        lacking.append(
            f"only {with_output:.1%} of the seeds gave output, not {OUTPUT_SHARE_MIN:.0%}".replace(
                "%", " %"
            )
        )
    if fewest < pair_seeds_needed(asked):
        lacking.append(f"a pair has {fewest} seeds, not {pair_seeds_needed(asked)}")
    return lacking


def shortfalls_of_kinds(seeds: int, with_output: float, kinds: Mapping[str, int]) -> list[str]:
    """What a run of cases with processors lacks to count, in sentences.

    >>> shortfalls_of_kinds(2500, 0.95, {"counter": 300, "walker": 99})
    ['a kind of processor has 99 seeds, not 100']
    """
    lacking = shortfalls(0, seeds, with_output, 0)
    fewest, needed = min(kinds.values()), seeds // KIND_SHARE
    if fewest < needed:
        lacking.append(f"a kind of processor has {fewest} seeds, not {needed}")
    return lacking
