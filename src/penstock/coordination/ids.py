"""The identities that every part speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Position = Mapping[str, Mapping[int, int]]
"""A task's next offset for each of its input partitions: topic, then partition."""


class TaskId(NamedTuple):
    """A task as Kafka Streams prints it: `1_3` is partition 3 of sub-topology 1."""

    sub_topology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.sub_topology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """The task id of its printed form.

        >>> TaskId.parse("1_3")
        TaskId(sub_topology=1, partition=3)
        """
        sub_topology, partition = text.split("_")
        return cls(int(sub_topology), int(partition))


class Epoch(NamedTuple):
    """The number of a task's owner; under an older one nothing can be read or written."""

    generation: int
    number: int


class Range(NamedTuple):
    """Offsets `[start, end)` of one input partition."""

    topic: str
    partition: int
    start: int
    end: int


def durable_name(sub_topology_name: str, partition: int) -> str:
    """A task's name in everything that outlives a topology's numbering: topics, transactions."""
    return f"{sub_topology_name}-{partition}"


def moved(position: Position, ranges: tuple[Range, ...]) -> dict[str, dict[int, int]]:
    """The position after these ranges.

    >>> moved({"a": {0: 5}}, (Range("a", 0, 5, 9),))
    {'a': {0: 9}}
    """
    result = {topic: dict(partitions) for topic, partitions in position.items()}
    for each in ranges:
        result.setdefault(each.topic, {})[each.partition] = each.end
    return result
