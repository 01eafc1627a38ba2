"""What travels with a job to the workers, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import msgspec

from penstock.coordination.ids import Range
from penstock.instance.protocol import Fault, Message, Positions
from penstock.instance.tls import Trust
from penstock.observability.tallies import Entry
from penstock.processors import Limits


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where an instance can be reached: by socket on its own host, by TCP from others."""

    host: str
    unix_location: str
    tcp_location: str


@dataclass(frozen=True, kw_only=True)
class SliceOrder:
    """One task's part of a batch."""

    task: str
    epoch: tuple[int, int]
    n: int
    start: Positions
    end: Positions
    address: Address
    metadata: dict[str, str] = field(default_factory=dict)
    """What the operators said in the task's last commit."""
    more: frozenset[tuple[str, int]] = frozenset()
    """Inputs (topic, partition) that have more in Kafka than is read here."""
    reads_again: bool = False
    """Whether the task makes lost stores anew from its input."""

    @property
    def ranges(self) -> list[Range]:
        """The ranges that hold anything."""
        return [
            Range(topic, partition, self.start[topic][partition], end)
            for topic, partitions in self.end.items()
            for partition, end in partitions.items()
            if end > self.start[topic][partition]
        ]


@dataclass(frozen=True, kw_only=True)
class BatchOrder:
    """One job's work, as the workers see it. Spark's own closure carries it to them."""

    application_id: str
    sub_topology: bytes
    """The user's functions among it, pickled by Spark's own pickler."""
    slices: dict[int, SliceOrder]
    """By partition: a task's inputs all have the task's partition number."""
    limits: Limits
    token: str = field(repr=False)
    trust: Trust | None = None
    """By what workers know instances on other hosts; None without TLS."""
    timeout_seconds: float
    now_ms: int = 0
    """The driver's wall clock as the batch was planned, for users' processors."""

    def limits_of(self, slice_order: SliceOrder) -> Limits:
        """What bounds a slice. One that makes stores anew has no record cache: that would keep back
        deletions of keys that are made in the same slice, and in a changelog such a key may live,
        from before or from a recovery that was cut off.
        """
        if not slice_order.reads_again:
            return self.limits
        return replace(self.limits, cache_max_bytes=0, reads_again=True)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics that are read. Of several, a row says by its number which it is from."""
        return tuple(sorted({r.topic for each in self.slices.values() for r in each.ranges}))

    @property
    def ticks(self) -> tuple[int, ...]:
        """The partitions of the tasks that have no records and are run all the same."""
        return tuple(number for number, each in self.slices.items() if not each.ranges)


class Outcome(Message, frozen=True):
    """What became of one task's slice."""

    task: str
    status: Literal["committed", "skipped", "failed"]
    n: int = 0
    position: Positions = msgspec.field(default_factory=dict)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    records: int = 0
    size_bytes: int = 0
    changes: int = 0
    outputs: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    metrics: list[Entry] = msgspec.field(default_factory=list)
    """What the worker counted; of tags those that tell the task and its owner are missing."""
    worked: tuple[float, float] = (0.0, 0.0)
    """From when to when its worker was at this and other slices, in seconds since 1970."""
    reason: str = ""
    unanswered: bool = False
    """It was skipped because the task's owner did not answer."""
    fault: Fault | None = None
