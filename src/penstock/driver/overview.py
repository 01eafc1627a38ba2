"""A running application in one message: what it is, who is there, where every task stands.

Built when somebody asks, in the thread that answers: what the driver's thread changes meanwhile may
be seen before or after the change, and nothing is decided by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.changelog.commit_record import DriverRecord
from penstock.coordination.ids import Position
from penstock.coordination.tasks import Entry, State
from penstock.driver.driver import Driver
from penstock.driver.events import Totals
from penstock.driver.parts import DriverParts
from penstock.driver.setup import Prepared
from penstock.errors import KafkaError
from penstock.instance.protocol import Message, Positions, RestoreStatus

UNKNOWN = -1
Ends = Mapping[tuple[str, int], int]


class OverviewRequest(Message, frozen=True):
    """Somebody wants to know."""


class CopyOverview(Message, frozen=True):
    """A copy of a task's state on an instance that does not own the task."""

    instance: str
    role: Literal["standby", "warm-up"]
    lag: int
    """How many changelog offsets it lacks; -1 while that is not known."""


class TaskOverview(Message, frozen=True):
    """A task, and how far it is."""

    task: str
    sub_topology: str
    state: State
    owner: str
    epoch: tuple[int, int]
    commits: int
    position: Positions
    lag: int
    """How many offsets of its input are to be read; -1 while that is not known."""
    copies: list[CopyOverview]
    restores: list[RestoreStatus]
    """Those that are under way."""


class InstanceOverview(Message, frozen=True):
    """An instance, and how much it has to do."""

    name: str
    host: str
    pid: int
    is_static: bool
    is_away: bool
    tags: dict[str, str]
    active: int
    standby: int
    warm_up: int


class Overview(Message, frozen=True):
    """A running application."""

    application_id: str
    state: str
    is_paused: bool
    host: str
    pid: int
    generation: int
    processing_guarantee: str
    bootstrap_servers: str
    records: int
    changes: int
    outputs: int
    batches: int
    rebalances: int
    dropped: dict[str, int]
    instances: list[InstanceOverview]
    tasks: list[TaskOverview]
    kafka_silent_seconds: float = 0.0
    """For how long Kafka has not answered; 0 while it does."""
    waits_for: str = ""
    """What it does before it runs; nothing while it does."""


def starting(prepared: Prepared, record: DriverRecord, *, state: str, waits_for: str) -> Overview:
    """What there is to tell of a driver that is being opened."""
    return Overview(
        application_id=prepared.application_id,
        state=state,
        is_paused=False,
        host=record.host,
        pid=record.pid,
        generation=record.generation,
        processing_guarantee=prepared.config.processing_guarantee,
        bootstrap_servers=prepared.config.bootstrap_servers,
        records=0,
        changes=0,
        outputs=0,
        batches=0,
        rebalances=0,
        dropped={},
        instances=[],
        tasks=[],
        waits_for=waits_for,
    )


@dataclass(frozen=True, kw_only=True)
class Overviews:
    """Answers those who ask for the overview of one driver."""

    parts: DriverParts
    driver: Driver
    totals: Totals
    state: Callable[[], str]

    def __call__(self) -> Overview:
        """How things stand now."""
        parts = self.parts
        record, config = parts.lease.record, parts.prepared.config
        tasks = self._tasks()
        return Overview(
            application_id=parts.prepared.application_id,
            state=self.state(),
            is_paused=parts.is_paused(),
            host=record.host,
            pid=record.pid,
            generation=record.generation,
            processing_guarantee=config.processing_guarantee,
            bootstrap_servers=config.bootstrap_servers,
            records=self.totals.records,
            changes=self.totals.changes,
            outputs=self.totals.outputs,
            batches=self.totals.batches,
            rebalances=self.totals.rebalances,
            dropped=dict(self.totals.dropped),
            instances=self._instances(tasks),
            tasks=tasks,
            kafka_silent_seconds=parts.monitor.pulse.silence,
            waits_for=parts.monitor.waits_for,
        )

    def lag(self) -> int | None:
        """How many offsets of its inputs are to be read; None while that is not known."""
        ends = self._ends()
        lags = [
            input_lag(entry.position, ends) for entry in list(self.driver.book.entries.values())
        ]
        return None if UNKNOWN in lags else sum(lags)

    def processes(self) -> list[tuple[str, int]]:
        """The hosts and processes of the instances."""
        coordinator = self.parts.coordinator
        found = [coordinator.member(name) for name in coordinator.names()]
        return [(member.host, member.pid) for member in found if member is not None]

    def _ends(self) -> Ends:
        # Who asks how things stand is not to wait for Kafka in vain, too.
        if not self.parts.monitor.pulse.silence:
            with contextlib.suppress(KafkaError):
                return self.parts.inputs.recent_ends()
        return {}

    def _tasks(self) -> list[TaskOverview]:
        ends = self._ends()
        subs = {each.task: each.sub_topology.name for each in self.parts.prepared.layout.tasks}
        owners = self.driver.owners
        copies = owners.copies()
        return [
            _task(entry, subs[task], ends, copies.get(task, []), owners.restores_of(task))
            for task, entry in sorted(self.driver.book.entries.items())
        ]

    def _instances(self, tasks: list[TaskOverview]) -> list[InstanceOverview]:
        coordinator = self.parts.coordinator
        away = coordinator.away()
        copies = [copy for task in tasks for copy in task.copies]

        def follows(name: str, role: str) -> int:
            return sum(copy.instance == name and copy.role == role for copy in copies)

        found = [coordinator.member(name) for name in sorted(coordinator.names())]
        return [
            InstanceOverview(
                name=member.name,
                host=member.host,
                pid=member.pid,
                is_static=member.is_static,
                is_away=member.name in away,
                tags=dict(member.tags),
                active=sum(task.owner == member.name for task in tasks),
                standby=follows(member.name, "standby"),
                warm_up=follows(member.name, "warm-up"),
            )
            for member in found
            if member is not None
        ]


def _task(
    entry: Entry,
    sub_topology: str,
    ends: Ends,
    copies: list[tuple[str, bool, int]],
    restores: list[RestoreStatus],
) -> TaskOverview:
    position = {topic: dict(partitions) for topic, partitions in entry.position.items()}
    return TaskOverview(
        task=str(entry.task),
        sub_topology=sub_topology,
        state=entry.state,
        owner=entry.owner,
        epoch=(entry.epoch.generation, entry.epoch.number),
        commits=entry.n,
        position=position,
        lag=input_lag(position, ends),
        copies=[
            CopyOverview(instance=name, role="warm-up" if warms else "standby", lag=lag)
            for name, warms, lag in sorted(copies)
        ],
        restores=restores,
    )


def input_lag(position: Position, ends: Ends) -> int:
    """How much there is to read behind a position; -1 if that is not known.

    >>> input_lag({"beats": {0: 5}}, {("beats", 0): 12})
    7
    >>> input_lag({}, {("beats", 0): 12}), input_lag({"beats": {0: 5}}, {})
    (-1, -1)
    """
    inputs = [(t, p, offset) for t, parts in position.items() for p, offset in parts.items()]
    if not inputs or any((topic, partition) not in ends for topic, partition, _ in inputs):
        return UNKNOWN
    return sum(max(ends[topic, partition] - offset, 0) for topic, partition, offset in inputs)
