"""Whether a commit applies, and where a task stands when someone takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.coordination.ids import Position

Verdict = Literal["apply", "done", "refuse"]


def judge(*, n: int, start: Position, last: int, position: Position) -> Verdict:
    """Whether the commit numbered n that begins at `start` applies to a task that stands here.

    A number that was used is done: a job that Spark ran twice finds its work finished. Anything but
    the next number, or another start, was planned from a stale view and may not be applied.

    >>> judge(n=3, start={"a": {0: 7}}, last=2, position={"a": {0: 7}})
    'apply'
    >>> judge(n=2, start={"a": {0: 7}}, last=2, position={"a": {0: 9}})
    'done'
    >>> judge(n=3, start={"a": {0: 7}}, last=2, position={"a": {0: 9}})
    'refuse'
    """
    if n <= last:
        return "done"
    if n == last + 1 and _plain(start) == _plain(position):
        return "apply"
    return "refuse"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a task goes on, and what to tell the user about how that was found."""

    position: dict[str, dict[int, int]]
    moved_by_group: bool
    """Someone else moved the consumer group (a Java application, a reset tool)."""
    group_is_stale: bool
    """The group's offsets are absent or behind, and are to be written again."""


def settle(
    *,
    recorded: Position | None,
    previous: Position | None,
    group: Position,
    resets: Position,
    first_taking: bool,
    exactly_once: bool,
) -> Standing:
    """Where a task stands, from its commit record, the group's offsets and the reset positions.

    The two are compared only in the first taking after a driver start; later the record alone
    counts. Under at-least-once the driver writes the group after the record, so a group that shows
    the record's previous position means a crash in between, not a move.
    """
    position: dict[str, dict[int, int]] = {}
    moved_by_group = group_is_stale = False
    for topic, partitions in resets.items():
        for partition, reset in partitions.items():
            here = _at(recorded, topic, partition)
            there = _at(group, topic, partition)
            settled = reset if here is None and there is None else here
            if there is None:
                group_is_stale = group_is_stale or here is not None
            elif there != here and (first_taking or here is None):
                crashed = not exactly_once and there == _at(previous, topic, partition)
                group_is_stale = group_is_stale or crashed
                if not crashed:
                    settled = there
                    moved_by_group = moved_by_group or here is not None
            assert settled is not None
            position.setdefault(topic, {})[partition] = settled
    return Standing(position=position, moved_by_group=moved_by_group, group_is_stale=group_is_stale)


def _at(position: Position | None, topic: str, partition: int) -> int | None:
    return None if position is None else position.get(topic, {}).get(partition)


def _plain(position: Position) -> dict[str, dict[int, int]]:
    return {topic: dict(partitions) for topic, partitions in position.items()}
