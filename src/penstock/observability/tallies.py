"""What was counted, as plain values: they add up, and travel from worker to driver.

Nothing here is called for a single record: a slice, an Arrow batch or a bulk read is one tally.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """Some events of one kind: how many, what they add up to, the least and the most of one.

    >>> Tally.of(2.0) + Tally.of(4.0)
    Tally(count=2.0, total=6.0, least=2.0, most=4.0)
    """

    count: float
    total: float
    least: float
    most: float

    @classmethod
    def nothing(cls) -> Tally:
        """No event yet.

        >>> Tally.nothing() + Tally.of(2.0)
        Tally(count=1.0, total=2.0, least=2.0, most=2.0)
        """
        return cls(0.0, 0.0, math.inf, -math.inf)

    @classmethod
    def of(cls, value: float) -> Tally:
        """One event."""
        return cls(1.0, value, value, value)

    @classmethod
    def many(cls, count: int, total: float) -> Tally:
        """Events that were measured together: each counts as much as the others.

        >>> Tally.many(4, 2.0)
        Tally(count=4.0, total=2.0, least=0.5, most=0.5)
        """
        each = total / count if count else 0.0
        return cls(float(count), total, each, each)

    @classmethod
    def over(cls, values: npt.NDArray[Any]) -> Tally:
        """One event for each of these values, of which there is at least one."""
        if len(values) == 1:
            return cls.of(float(values[0]))
        return cls(
            float(len(values)),
            float(values.sum(dtype=np.float64)),
            float(values.min()),
            float(values.max()),
        )

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.count + other.count,
            self.total + other.total,
            min(self.least, other.least),
            max(self.most, other.most),
        )

    def before(self, now: float) -> Tally:
        """Of times, how long before `now` they were.

        >>> Tally.of(7.0).before(10.0)
        Tally(count=1.0, total=3.0, least=3.0, most=3.0)
        """
        total = self.count * now - self.total
        return Tally(self.count, total, now - self.most, now - self.least)


class Sensor(NamedTuple):
    """What is counted: a group of metrics, a name within it, and the values of the group's tags."""

    group: str
    name: str
    tags: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A tally on its way to another process."""

    group: str
    name: str
    tags: tuple[str, ...]
    tally: Tally


class Tallies:
    """Tallies by what they count; later ones are added to earlier ones.

    >>> tallies = Tallies()
    >>> tallies.add("stream-task-metrics", "process", ("0_1",), Tally.many(3, 1.5))
    >>> tallies.add("stream-task-metrics", "process", ("0_1",), Tally.many(1, 0.5))
    >>> [(entry.name, entry.tally.count) for entry in tallies.entries()]
    [('process', 4.0)]
    """

    def __init__(self) -> None:
        self._tallies: dict[Sensor, Tally] = {}

    def add(self, group: str, name: str, tags: tuple[str, ...], tally: Tally) -> None:
        """Add to what is counted under that name."""
        sensor = Sensor(group, name, tags)
        known = self._tallies.get(sensor)
        self._tallies[sensor] = tally if known is None else known + tally

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Add what another has counted."""
        for entry in entries:
            self.add(entry.group, entry.name, entry.tags, entry.tally)

    def entries(self) -> list[Entry]:
        """All of it, to be sent."""
        return [Entry(*sensor, tally) for sensor, tally in self._tallies.items()]

    def __iter__(self) -> Iterator[tuple[Sensor, Tally]]:
        return iter(self._tallies.items())

    def __len__(self) -> int:
        return len(self._tallies)
