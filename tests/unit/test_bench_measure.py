"""Rates and progress, from samples that are written down instead of measured."""

from __future__ import annotations

import pytest

from bench.errors import BenchError
from bench.measure import Sample, first_at, rate, sample_until


class Alive:
    def check(self) -> None:
        return


class Dead:
    def check(self) -> None:
        raise BenchError("ended")


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_rate_counts_the_records_between_the_two_commits_that_were_seen() -> None:
    samples = [Sample(0.0, 0), Sample(1.0, 120), Sample(2.0, 300), Sample(4.0, 720)]
    assert rate(samples, warmup=100, measured=500) == pytest.approx(600 / 3)


def test_time_before_the_warmup_ends_and_after_the_measured_part_does_not_count() -> None:
    steady = [Sample(10.0, 100), Sample(11.0, 200)]
    slow_start = [Sample(0.0, 0), *steady]
    slow_end = [*steady, Sample(500.0, 250)]
    assert rate(slow_start, warmup=100, measured=100) == 100
    assert rate(slow_end, warmup=100, measured=100) == 100


def test_one_commit_over_the_whole_measured_part_is_no_rate() -> None:
    with pytest.raises(BenchError, match="more records"):
        rate([Sample(0.0, 0), Sample(1.0, 1000)], warmup=100, measured=500)


def test_a_count_that_was_never_reached_is_an_error() -> None:
    with pytest.raises(BenchError, match="never committed"):
        first_at([Sample(0.0, 10)], 11)


def test_only_progress_is_kept_and_sampling_ends_with_the_last_record() -> None:
    clock = Clock()
    answers = iter([0, 0, 5, 5, 9])
    seen: list[int] = []
    samples = sample_until(
        lambda: next(answers),
        9,
        alive=Alive(),
        stall_seconds=60,
        on_progress=seen.append,
        clock=clock,
        sleep=clock.sleep,
    )
    assert [sample.records for sample in samples] == [0, 5, 9]
    assert seen == [5, 9]


def test_a_system_that_stands_still_is_named() -> None:
    clock = Clock()
    with pytest.raises(BenchError, match="at 3 of 9"):
        sample_until(
            lambda: 3,
            9,
            alive=Alive(),
            stall_seconds=1,
            on_progress=lambda _: None,
            clock=clock,
            sleep=clock.sleep,
        )


def test_a_system_that_ended_is_not_waited_for() -> None:
    clock = Clock()
    with pytest.raises(BenchError, match="ended"):
        sample_until(
            lambda: 0,
            9,
            alive=Dead(),
            stall_seconds=1e9,
            on_progress=lambda _: None,
            clock=clock,
            sleep=clock.sleep,
        )
