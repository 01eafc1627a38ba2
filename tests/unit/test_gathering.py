"""When the first assignment is made."""

from __future__ import annotations

from penstock.coordination.gathering import Gathering


def test_nobody_is_too_few_for_ever() -> None:
    gathering = Gathering(expected=None, delay_seconds=3.0)
    assert not gathering.is_over(1_000_000.0, 0)


def test_all_who_are_to_come_are_enough_at_once() -> None:
    gathering = Gathering(expected=3, delay_seconds=3.0)
    assert not gathering.is_over(1.0, 1)
    assert not gathering.is_over(1.1, 2)
    assert gathering.is_over(1.2, 3)


def test_one_who_fails_to_come_is_not_waited_for_for_ever() -> None:
    gathering = Gathering(expected=2, delay_seconds=0.0)
    assert not gathering.is_over(1.0, 1)
    assert not gathering.is_over(30.9, 1)
    assert gathering.is_over(31.0, 1)


def test_where_nobody_knows_each_newcomer_is_waited_for_anew() -> None:
    gathering = Gathering(expected=None, delay_seconds=3.0)
    assert not gathering.is_over(1.0, 1)
    assert not gathering.is_over(3.9, 2)
    assert not gathering.is_over(6.8, 2)
    assert gathering.is_over(6.9, 2)


def test_newcomers_without_end_do_not_hold_up_the_start() -> None:
    gathering = Gathering(expected=None, delay_seconds=3.0)
    over = [now for now in range(100) if gathering.is_over(float(now), now + 1)]
    assert over[0] == 15


def test_without_a_delay_the_first_one_is_enough() -> None:
    assert Gathering(expected=None, delay_seconds=0.0).is_over(5.0, 1)
