"""Copies begin to be built when it is clear that nobody comes back who has them."""

from __future__ import annotations

from penstock.coordination.beginnings import AGAIN_SECONDS, REPLACED_SECONDS, Beginnings
from penstock.coordination.ids import TaskId

A, B = TaskId(0, 0), TaskId(0, 1)
FIRST = {"x": frozenset({A})}
BOTH = {"x": frozenset({A, B}), "y": frozenset({A})}


def test_what_is_followed_goes_on_and_nothing_begins_until_the_replacement_is_there() -> None:
    beginnings = Beginnings()
    assert beginnings.may_follow(FIRST, replacing=False, now=0.0) == FIRST
    assert beginnings.may_follow(BOTH, replacing=True, now=1.0) == {**FIRST, "y": frozenset()}
    assert not beginnings.are_due(replacing=True, now=2.0)
    assert beginnings.are_due(replacing=False, now=2.0)
    assert beginnings.may_follow(BOTH, replacing=False, now=2.0) == BOTH
    assert not beginnings.are_due(replacing=False, now=3.0)


def test_what_is_no_longer_to_be_followed_ends_at_once() -> None:
    beginnings = Beginnings()
    beginnings.may_follow(BOTH, replacing=False, now=0.0)
    assert beginnings.may_follow(FIRST, replacing=True, now=1.0) == FIRST
    # What ended would have to begin again.
    assert beginnings.may_follow(BOTH, replacing=True, now=2.0)["x"] == {A}


def test_a_replacement_that_never_comes_is_not_waited_for() -> None:
    beginnings = Beginnings()
    beginnings.may_follow(FIRST, replacing=False, now=0.0)
    beginnings.may_follow(BOTH, replacing=True, now=1.0)
    late = 1.0 + REPLACED_SECONDS
    assert beginnings.are_due(replacing=True, now=late)
    assert beginnings.may_follow(BOTH, replacing=True, now=late) == BOTH


def test_one_that_dies_again_and_again_keeps_nobody_from_beginning() -> None:
    beginnings = Beginnings()
    beginnings.may_follow(FIRST, replacing=False, now=0.0)
    # It is lost, and back, and lost again: those who are to follow in its place do so now.
    assert beginnings.may_follow(BOTH, replacing=True, now=1.0) != BOTH
    assert beginnings.may_follow(FIRST, replacing=False, now=4.0) == FIRST
    assert beginnings.may_follow(BOTH, replacing=True, now=5.0) == BOTH
    assert not beginnings.are_due(replacing=True, now=6.0)
    # Much later it is another loss.
    assert beginnings.may_follow(FIRST, replacing=False, now=7.0) == FIRST
    assert beginnings.may_follow(BOTH, replacing=True, now=1.0 + AGAIN_SECONDS) != BOTH


def test_where_nothing_is_to_begin_nothing_is_held_back() -> None:
    beginnings = Beginnings()
    beginnings.may_follow(BOTH, replacing=False, now=0.0)
    assert beginnings.may_follow(BOTH, replacing=True, now=1.0) == BOTH
    assert not beginnings.are_due(replacing=False, now=2.0)
