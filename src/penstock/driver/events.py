"""What the driver tells those who watch it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.coordination.ids import TaskId
from penstock.coordination.rebalances import Rebalance
from penstock.coordination.states import ApplicationState
from penstock.observability.tallies import Tally

_log = logging.getLogger("penstock.driver")


@dataclass(frozen=True, kw_only=True)
class StateChanged:
    """The application went from one state to another."""

    old: ApplicationState
    new: ApplicationState


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What the application does before it runs, or runs again; told whenever that changes."""

    step: str


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that an operator should know, though the application goes on."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Rebalanced:
    """Tasks get other owners, which begin to take them, or are followed by others."""

    rebalance: Rebalance


@dataclass(frozen=True, kw_only=True)
class CopiesChanged:
    """Instances have more or less of the state of tasks that they do not own."""

    lags: Mapping[str, Mapping[TaskId, int]]
    """By instance and task, how many changelog offsets its copy lacks, as far as it knows."""
    positions: Mapping[str, Mapping[TaskId, int]]
    """The offset that comes next for it; those of several changelogs of a task are added up."""


@dataclass(frozen=True, kw_only=True)
class BatchEnded:
    """A job ended, with what its tasks did."""

    sub_topology: str
    records: int
    changes: int
    outputs: int
    seconds: float
    skipped: int
    steps: Mapping[str, float] = field(default_factory=dict)
    """Where the time went: `seconds`, and what planning it took."""
    latencies: Tally | None = None
    """Of its records, the milliseconds from their timestamps until they were committed."""


class TopicPartition(NamedTuple):
    """A partition of a topic: of a store's changelog, or of the topic of a global table."""

    topic: str
    partition: int


@dataclass(frozen=True, kw_only=True)
class RestoreStarted:
    """A store begins to be restored: offsets start up to, not including, end; 0 is all of it."""

    partition: TopicPartition
    store: str
    starting_offset: int
    ending_offset: int

    @property
    def arguments(self) -> tuple[object, ...]:
        """What a listener is called with."""
        return (self.partition, self.store, self.starting_offset, self.ending_offset)


@dataclass(frozen=True, kw_only=True)
class BatchRestored:
    """More records were applied, the last of them with this offset."""

    partition: TopicPartition
    store: str
    batch_end_offset: int
    num_restored: int

    @property
    def arguments(self) -> tuple[object, ...]:
        """What a listener is called with."""
        return (self.partition, self.store, self.batch_end_offset, self.num_restored)


@dataclass(frozen=True, kw_only=True)
class RestoreEnded:
    """The store holds all of its changelog."""

    partition: TopicPartition
    store: str
    total_restored: int

    @property
    def arguments(self) -> tuple[object, ...]:
        """What a listener is called with."""
        return (self.partition, self.store, self.total_restored)


@dataclass(frozen=True, kw_only=True)
class RestoreSuspended(RestoreEnded):
    """The restore stopped before its end: the task went elsewhere, or the store is made anew."""


RestoreEvent = RestoreStarted | BatchRestored | RestoreEnded
Event = StateChanged | Waiting | Notice | Rebalanced | CopiesChanged | BatchEnded
Listener = Callable[[Event], None]
RestoreHearer = Callable[[RestoreEvent], None]


def give_notice(listener: Listener, text: str) -> None:
    """Tell an operator, in the log and through the application's listeners."""
    _log.warning("%s", text)
    listener(Notice(text=text))


@dataclass
class Totals:
    """What was done since the start."""

    records: int = 0
    changes: int = 0
    outputs: int = 0
    batches: int = 0
    rebalances: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
