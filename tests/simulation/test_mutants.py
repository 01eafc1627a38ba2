"""Bugs that are planted on purpose are found."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import SeedError, run_seeds

SEEDS_MAX = 2000
NEAR = {
    "an_old_owners_word_counts_for_the_new_one": 1840,
    "a_copy_that_takes_over_is_thought_to_be_whole": 310,
    "a_copy_that_came_early_is_thought_to_be_whole": 820,
    "who_did_not_get_ready_is_not_told_again": 1250,
}
"""Where the search begins for those that show in one seed of hundreds."""


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 15


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    with pytest.raises(SeedError) as caught:
        run_seeds(NEAR.get(name, 0), SEEDS_MAX, mutant=MUTANTS[name])
    print(f"{name}: {str(caught.value).splitlines()[0][:200]}")
