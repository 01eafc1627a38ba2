"""Copies that catch up give way, and never hold up who takes their task."""

from __future__ import annotations

import threading

from penstock.instance.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Waits(threading.Event):
    """An event whose waits take no time, and are noted."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.rests: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.rests.append(timeout)
        self.clock.now += timeout
        return self.is_set()


def test_a_quarter_of_the_time_is_worked_while_tasks_are_served() -> None:
    clock = Clock()
    event = Waits(clock)
    check = Pace(lambda: True, clock=clock).stop_check(event)
    for _ in range(4):
        clock.now += 1.0
        assert not check()
    assert event.rests == [3.0] * 4


def test_several_that_catch_up_share_the_quarter() -> None:
    clock = Clock()
    pace = Pace(lambda: True, clock=clock)
    clock.now = 1.0
    assert [pace.piece_ended(0.0) for _ in range(3)] == [3.0, 6.0, 9.0]


def test_an_instance_that_serves_nothing_hurries() -> None:
    clock = Clock()
    event = Waits(clock)
    check = Pace(lambda: False, clock=clock).stop_check(event)
    clock.now += 1.0
    assert not check()
    assert event.rests == [0.0]


def test_whoever_is_to_stop_does_not_rest_to_the_end() -> None:
    event = threading.Event()
    check = Pace(lambda: True, clock=Clock()).stop_check(event)
    event.set()
    assert check()
