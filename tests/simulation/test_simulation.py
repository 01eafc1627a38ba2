"""Many small applications, each with several things going wrong, and none doing wrong."""

from __future__ import annotations

from tests.simulation.run import run_seeds

SEEDS = 500


def test_nothing_is_lost_or_doubled_whatever_goes_wrong() -> None:
    report = run_seeds(0, SEEDS)
    print(report)
    assert report.seeds == SEEDS
    assert report.never == []
    assert report.fewest_faults >= 3


def test_a_seed_is_always_the_same() -> None:
    first, again = (run_seeds(7, 3) for _ in range(2))
    assert first == again
