"""A task that makes its lost stores anew by reading its input again, from where it began.

`begun` is where the task's first commit started, `until` the position that it had when its stores
were lost; both are in every commit record, so whoever takes the task in the middle knows. Below
`until` outputs were given out before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.coordination.ids import Position
from penstock.errors import InputLostError

Positions = dict[str, dict[int, int]]


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Where a task's state begins, and up to where it is being made anew; empty if it is not."""

    begun: Position = field(default_factory=dict)
    until: Position = field(default_factory=dict)
    from_history: bool = False
    """A store of the task was filled with what its input does not hold."""

    def with_inputs(self, position: Position) -> Recovery:
        """The same; the task begins here with inputs that it did not have before."""
        begun: Positions = {topic: dict(parts) for topic, parts in position.items()}
        for topic, partitions in self.begun.items():
            begun.setdefault(topic, {}).update(partitions)
        return replace(self, begun=begun)

    def after(self, position: Position) -> Recovery:
        """The same after a commit that ended here."""
        return replace(self, until={}) if reached(position, self.until) else self

    def restarted(
        self,
        position: Position,
        logs: Mapping[tuple[str, int], tuple[int, int]],
        *,
        task: str,
        lost: str,
    ) -> Recovery:
        """The recovery of a task whose stores were lost while it stood at `position`.

        `logs` are the starts and ends of its inputs. Raises `InputLostError` if they do not hold
        all that the state was made from.
        """
        if self.from_history:
            raise InputLostError(
                f"{lost}, and a store of the task was filled from history, which is not in its "
                "input",
                where={"task": task},
                hint="Fill the stores of a new application id from history, with their changelogs",
            )
        # A task that stops in the middle stands below where it was when it lost its stores.
        until = {**position, **self.until}
        if reached(self.begun, until):
            return replace(self, until={})
        for (topic, partition), (start, end) in sorted(logs.items()):
            first, last = self.begun[topic][partition], until[topic][partition]
            if start > first and last > first:
                raise _gone(lost, task, topic, partition, (first, min(start, last)))
            if end < last:
                raise _gone(lost, task, topic, partition, (end, last))
        return replace(self, until={topic: dict(parts) for topic, parts in until.items()})


def reached(position: Position, until: Position) -> bool:
    """Whether a position is at or behind another in every input.

    >>> reached({"a": {0: 5}}, {"a": {0: 5}}), reached({"a": {0: 4}}, {"a": {0: 5}})
    (True, False)
    """
    return all(
        position.get(topic, {}).get(partition, 0) >= offset
        for topic, partitions in until.items()
        for partition, offset in partitions.items()
    )


def passes(end: Position, until: Position) -> bool:
    """Whether a slice would end behind the recovery's end in some input: half of its outputs would
    be new.

    >>> passes({"a": {0: 6}}, {"a": {0: 5}}), passes({"a": {0: 6}}, {})
    (True, False)
    """
    return any(
        end.get(topic, {}).get(partition, 0) > offset
        for topic, partitions in until.items()
        for partition, offset in partitions.items()
    )


def _gone(
    lost: str, task: str, topic: str, partition: int, missing: tuple[int, int]
) -> InputLostError:
    first, end = missing
    return InputLostError(
        f"{lost}, and cannot be made anew from the input: records {first} to {end - 1} are gone",
        where={"task": task, "topic": topic, "partition": partition},
        hint="Let the topic keep its records, or the store a changelog; to start afresh, reset the "
        "application or use another id",
    )
