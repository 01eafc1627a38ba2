"""Filling a store from history, as a driver that runs one job and no stream.

1. Look: the store, the columns, what there is of its tasks. Whatever is refused is refused here.
2. Encode: all rows become entries of the store. Nothing is written yet.
3. Begin: a record says that the store is half filled from now on. No application starts over it.
4. Write the changelog, each partition under its task's transactional id.
5. Fence those ids, and finish: positions, the group's offsets and the record's end, all or nothing.

Who dies between 3 and 5 leaves a store that no start takes for whole; running it again repairs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not re-exported

from penstock.changelog.clients import LogClients
from penstock.changelog.commit_record import (
    BOOTSTRAP_KEY,
    DRIVER_PARTITION,
    BootstrapRecord,
    ChangelogEnd,
    CommitRecord,
    InputTopic,
)
from penstock.changelog.reading import LogRange, log_offsets, read_last, wait_stable
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import commits_name
from penstock.config import Config
from penstock.coordination.commits import settle
from penstock.coordination.history import (
    Columns,
    Found,
    Input,
    check_columns,
    check_free,
    check_offsets,
    check_others,
    check_windows,
    feeding,
    fillable,
    joined,
    parse_offsets,
    refuse_half_filled,
)
from penstock.coordination.ids import Position
from penstock.coordination.layout import TaskLayout, commits_partitions
from penstock.driver.last_run import read_last_run
from penstock.driver.lease import DriverLease
from penstock.driver.setup import Prepared, check_broker, prepare
from penstock.instance.clients import SharedClients
from penstock.instance.writer import Writer
from penstock.local.jars import SPARK_KAFKA, ensure
from penstock.observability.crash_points import crash_point
from penstock.observability.time_of_day import wall_clock_ms
from penstock.pipeline.group import leave_group
from penstock.pipeline.history import Entries, History, HistoryOrder, Tally, describe_store
from penstock.pipeline.session import Session, open_session
from penstock.processors import STREAM_TIME
from penstock.topology import StoreSpec, SubTopology, Topology
from penstock.topology.naming import changelog_topic
from penstock.topology.placement import placement_of

_log = logging.getLogger("penstock.driver")

_ASKS_AT_ONCE = 16
_TRANSACTION_TIMEOUT = timedelta(seconds=60)
Offsets = Mapping[Input, int] | datetime | str | None
"""By topic and partition; a time, in UTC if it does not say where; or `earliest`, `latest`,
`topic:partition=offset,...`."""


@dataclass(frozen=True, kw_only=True)
class BootstrapOrder:
    """What is to be filled, from what, and where the stream goes on."""

    application_id: str
    config: Config
    topology: Topology
    store: str
    history: Any
    """A Spark DataFrame; or `parquet:PATH`, `table:NAME`, `topic:NAME`."""
    columns: Columns
    offsets: Offsets
    replace: bool


@dataclass(frozen=True, kw_only=True)
class BootstrapResult:
    """What a bootstrap did."""

    store: str
    entries: int
    """Records in the changelog: one for each key, deletions included."""
    position: Position
    """Where the stream goes on."""
    empty_stores: tuple[str, ...]
    """Other stores of the same tasks that hold nothing yet."""
    seconds: float


def bootstrap(order: BootstrapOrder) -> BootstrapResult:
    """Fill a store. Raises `BootstrapError`, `AnotherDriverError`, `GroupInUseError`."""
    sub, store = fillable(order.topology, order.store)
    check_windows(store, order.columns, is_topic=_is_topic(order.history))
    check_broker(order.config)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        filling = _Filling(order, sub.number, stack)
        history = filling.look()
        entries = filling.encode(history)
        written = filling.write(entries)
        filling.finish(entries.tallies)
        return BootstrapResult(
            store=store.name,
            entries=written,
            position=filling.position,
            empty_stores=filling.empty_stores,
            seconds=time.monotonic() - began,
        )


class _Filling:
    """One bootstrap, step by step; `stack` closes what it opened."""

    def __init__(self, order: BootstrapOrder, sub_number: int, stack: contextlib.ExitStack) -> None:
        self._order = order
        self._stack = stack
        config, application_id = order.config, order.application_id
        self._logs = LogClients(config, application_id)
        admin = TopicAdmin(config, admin=self._logs.admin)
        self._lease = DriverLease(application_id, config, self._logs)
        if read_last_run(application_id, self._logs, admin).topology is None:
            # A group that stands somewhere, without the state up to there: that is what we bring.
            config = dataclasses.replace(config, allow_topology_change=True)
        self._prepared = prepare(order.topology, application_id, config, self._logs, admin)
        self._admin = admin
        self._clients = SharedClients(config, application_id)
        stack.callback(self._clients.close)
        tasks = self._prepared.layout.tasks
        own = next(each.sub_topology for each in tasks if each.task.sub_topology == sub_number)
        self._store: StoreSpec = own.store(order.store)
        topology = _topology(self._prepared)
        self._placement = placement_of(self._store, own, topology)
        subs = feeding(topology, own, application_id)
        numbers = {each.number for each in subs}
        self._tasks = [each for each in tasks if each.task.sub_topology in numbers]
        self._own_tasks = [each for each in tasks if each.task.sub_topology == own.number]
        self._records: dict[str, CommitRecord] = {}
        self._commits: Mapping[str, int] = {}
        self._changelogs: dict[Input, LogRange] = {}
        self._replaces = False
        self.position: dict[str, dict[int, int]] = {}
        self.empty_stores: tuple[str, ...] = ()

    # 1. Look.

    def look(self) -> _History:
        """Everything that may be refused, before anything is changed."""
        order, lease = self._order, self._lease
        lease.check_free()
        session = open_session(order.application_id, order.config, ensure(SPARK_KAFKA))
        self._stack.callback(session.close)
        self._stack.callback(lease.release, lambda member: self._leave(session, member))
        lease.acquire()
        refuse_half_filled(lease.bootstrap, store=self._store.name)
        # Before any log is asked for its end: what was left open would hold that up.
        self._fence()
        history = History(session.spark, order.config, order.application_id)
        topic = order.history.removeprefix("topic:") if _is_topic(order.history) else ""
        logs = self._logs_of(topic)
        ends = {partition: log.end for (name, partition), log in logs.items() if name == topic}
        frame = order.history
        if isinstance(frame, str):
            frame = history.read(frame, ends)
        check_columns(self._store, order.columns, history.types(frame))
        found = self._find()
        check_free(found, replace=order.replace)
        self.position = self._choose(found, logs)
        check_others(found, self.position)
        return _History(history, frame, is_topic=bool(topic))

    def _leave(self, session: Session, member: str) -> None:
        order = self._order
        leave_group(session, order.config, group=order.application_id, member=member)

    def _logs_of(self, topic: str) -> dict[Input, LogRange]:
        """What the inputs hold, and the topic that history comes from."""
        partitions = {each for task in self._tasks for each in task.inputs}
        if topic:
            count = self._admin.require([topic])[topic].partitions
            partitions |= {(topic, partition) for partition in range(count)}
        return wait_stable(self._logs, sorted(partitions))

    def _fence(self) -> None:
        """End what owners or an earlier bootstrap left open, and let none of them write again."""
        config = _transactional(self._order.config)
        names = [f"{self._order.application_id}-{task.name}" for task in self._tasks]

        def fence(name: str) -> None:
            writer = Writer(config, transactional_id=name, group=None)
            writer.open(commits_name(self._order.application_id))
            writer.discard()

        _all(fence, names)

    def _find(self) -> Found:
        prepared, commits = self._prepared, commits_name(self._order.application_id)
        names = [task.name for task in prepared.layout.tasks]
        self._commits = commits_partitions(self._lease.record.tasks, names)

        def read(task: TaskLayout) -> tuple[str, bytes | None]:
            return task.name, read_last(self._logs, commits, self._commits[task.name])

        read_all = dict(_all(read, self._tasks))
        self._records = {
            name: CommitRecord.decode(data) for name, data in read_all.items() if data is not None
        }
        self._changelogs = self._changelog_ranges()
        filled = {name for name, log in self._changelogs.items() if log.end > log.start}
        changelog = self._changelog(self._store.name)
        stores = {self._changelog(each.name): each.name for each in self._logged_stores()}
        others = {stores[name] for name, _ in filled if name != changelog}
        last = self._lease.bootstrap
        is_filled = any(name == changelog for name, _ in filled)
        is_unfinished = last is not None and not last.finished
        self._replaces = is_filled
        self.empty_stores = tuple(sorted(set(stores.values()) - others - {self._store.name}))
        return Found(
            store=self._store.name,
            is_filled=is_filled,
            is_unfinished=is_unfinished,
            # Owners count from 1 in each generation; a bootstrap commits as number 0.
            was_run=any(each.epoch[1] > 0 for each in self._records.values()),
            others=tuple(sorted(others)),
            standing=self._standing(),
        )

    def _standing(self) -> Position:
        """Where the tasks stand, as whoever took them now would find."""
        group = self._clients.group_offsets(
            sorted({each for task in self._tasks for each in task.inputs})
        ).position
        return joined(self._settled(task, group) for task in self._tasks)

    def _settled(self, task: TaskLayout, group: Position) -> Position:
        record = self._records.get(task.name)
        resets: dict[str, dict[int, int]] = {}
        layout, otherwise = self._prepared.layout, self._order.config.auto_offset_reset
        for topic, partition in task.inputs:
            start, end = self._clients.stable_range(topic, partition)
            latest = layout.reset(topic, otherwise) == "latest"
            resets.setdefault(topic, {})[partition] = end if latest else start
        return settle(
            recorded=record.position if record else None,
            previous=record.previous if record else None,
            group={t: p for t, p in group.items() if t in resets},
            resets=resets,
            first_taking=True,
            exactly_once=self._order.config.exactly_once,
        ).position

    def _choose(self, found: Found, logs: Mapping[Input, LogRange]) -> dict[str, dict[int, int]]:
        """Where the stream goes on: as asked, else where the tasks stand."""
        offsets = self._order.offsets
        inputs = {each for task in self._tasks for each in task.inputs}
        if offsets is None:
            return {topic: dict(partitions) for topic, partitions in found.standing.items()}
        internal = {each for each in inputs if each[0] in self._prepared.layout.repartitions}
        given = self._resolved(offsets, inputs - internal, logs)
        position = check_offsets(given, inputs - internal, logs)
        # What waits between sub-topologies was made of records before these offsets.
        for topic, partition in internal:
            position.setdefault(topic, {})[partition] = logs[topic, partition].end
        return position

    def _resolved(
        self, offsets: Offsets, inputs: set[Input], logs: Mapping[Input, LogRange]
    ) -> Mapping[Input, int]:
        if isinstance(offsets, Mapping):
            return offsets
        if offsets == "earliest":
            return {each: logs[each].start for each in inputs}
        if offsets == "latest":
            return {each: logs[each].end for each in inputs}
        at = _in_utc(offsets) if isinstance(offsets, datetime) else _time(str(offsets))
        if at is None:
            return parse_offsets(str(offsets))
        spec = OffsetSpec.for_timestamp(int(at.timestamp() * 1000))
        asked = log_offsets(self._logs, sorted(inputs), spec, IsolationLevel.READ_COMMITTED)
        # A log without a record that late says -1.
        return {each: at if at >= 0 else logs[each].end for each, at in asked.items()}

    # 2. Encode.

    def encode(self, history: _History) -> Entries:
        """All entries, kept on Spark's disks; rows that cannot be encoded end it here."""
        order, prepared = self._order, self._prepared
        # From here on this takes long: beat, so that others see that somebody is at work.
        names = [task.name for task in prepared.layout.tasks]
        self._commits = self._lease.name_tasks(names, prepared.manifest.encode())
        own = self._changelog(self._store.name)
        job = HistoryOrder(
            config=_transactional(order.config),
            store=describe_store(self._store),
            changelog=own,
            tasks=tuple(task.name for task in self._own_tasks),
            application_id=order.application_id,
            now_ms=wall_clock_ms(),
            is_timed=history.is_topic or order.columns.timestamp is not None,
            unplacing=self._placement.unplacing,
        )
        ends = {
            partition: log.end for (name, partition), log in self._changelogs.items() if name == own
        }
        entries = history.history.entries(
            history.frame,
            order.columns,
            job,
            is_topic=history.is_topic,
            replaced=ends if self._replaces else None,
        )
        self._stack.callback(entries.close)
        return entries

    # 3. Begin, and 4. write.

    def write(self, entries: Entries) -> int:
        """Write the changelog, after the record that says so."""
        self._mark(finished=False)
        return entries.write()

    # 5. Finish.

    def finish(self, tallies: Mapping[int, Tally]) -> None:
        """Make the store count: positions, the group's offsets, and the record, or nothing."""
        self._fence()
        crash_point("bootstrap.before_finish")
        logs = self._changelog_ranges()
        records = [
            (
                self._commits[task.name],
                task.name.encode(),
                self._commit_record(task, logs, tallies).encode(),
            )
            for task in self._tasks
        ]
        self._mark(finished=True, records=records)

    def _mark(self, *, finished: bool, records: Iterable[tuple[int, bytes, bytes]] = ()) -> None:
        marker = BootstrapRecord(store=self._store.name, finished=finished)
        own = (DRIVER_PARTITION, BOOTSTRAP_KEY, marker.encode())
        if finished:
            group = self._clients.group
            self._lease.write([*records, own], group=group, position=self.position)
        else:
            self._lease.write([own])

    def _commit_record(
        self, task: TaskLayout, logs: Mapping[Input, LogRange], tallies: Mapping[int, Tally]
    ) -> CommitRecord:
        last = self._records.get(task.name)
        position: dict[str, dict[int, int]] = {}
        for topic, partition in task.inputs:
            position.setdefault(topic, {})[partition] = self.position[topic][partition]
        filled = task in self._own_tasks
        if last is not None and not filled and last.position == position:
            # Nothing changes for who feeds the store: its own stores are of that commit.
            return last
        topics = self._prepared.topics
        partition = task.task.partition
        own = tallies.get(partition) if filled else None
        return CommitRecord(
            n=last.n + 1 if last else 1,
            epoch=(self._lease.record.generation, 0),
            position=position,
            previous=position,
            inputs={
                topic: InputTopic(id=topics[topic].id, partitions=topics[topic].partitions)
                for topic in position
            },
            changelogs={
                store.name: self._changelog_end(store, partition, last, logs, tallies)
                for store in task.sub_topology.stores
                if store.logging
            },
            begun=(last.begun if last else {}) or position,
            until=position if last and last.until else {},
            from_history=filled or bool(last and last.from_history),
            metadata=self._metadata(last, position) or stream_time(own),
        )

    def _changelog_end(
        self,
        store: StoreSpec,
        partition: int,
        last: CommitRecord | None,
        logs: Mapping[Input, LogRange],
        tallies: Mapping[int, Tally],
    ) -> ChangelogEnd:
        changelog = self._changelog(store.name)
        log, topic_id = logs[changelog, partition], self._prepared.topics[changelog].id
        if store.name != self._store.name:
            return kept_end(last.changelogs.get(store.name) if last else None, topic_id, log)
        found = tallies.get(partition)
        since = self._changelogs[changelog, partition].end
        return filled_end(topic_id, log, -1 if found is None else found.window, since=since)

    def _metadata(self, last: CommitRecord | None, position: Position) -> dict[str, str]:
        """What operators had seen, if the stream goes on where it was."""
        stays = last is not None and last.position == position
        return dict(last.metadata) if last is not None and stays else {}

    # What there is.

    def _changelog(self, store: str) -> str:
        return changelog_topic(self._order.application_id, store)

    def _logged_stores(self) -> Iterator[StoreSpec]:
        subs = {task.task.sub_topology: task.sub_topology for task in self._tasks}
        for sub in subs.values():
            yield from (store for store in sub.stores if store.logging)

    def _changelog_ranges(self) -> dict[Input, LogRange]:
        partitions = [
            (self._changelog(store.name), task.task.partition)
            for task in self._tasks
            for store in task.sub_topology.stores
            if store.logging
        ]
        return wait_stable(self._logs, partitions)


def filled_end(topic_id: str, log: LogRange, latest: int, *, since: int) -> ChangelogEnd:
    """What is known of the changelog of a store that was filled: it is all there since then.

    `latest` is the time of its latest window, -1 if it has none.
    """
    return ChangelogEnd(id=topic_id, end=log.end - 1, start=since, latest=latest)


def stream_time(filled: Tally | None) -> dict[str, str]:
    """What operators are told of the time: that of the latest row, if rows say theirs.

    The wall clock is not it: timers would stand, and records be late, until the stream passes it.
    """
    return {} if filled is None or filled.time < 0 else {STREAM_TIME: str(filled.time)}


def kept_end(known: ChangelogEnd | None, topic_id: str, log: LogRange) -> ChangelogEnd:
    """What is known of another store's changelog: what the last commit knew, whatever it lost."""
    return known or ChangelogEnd(id=topic_id, end=log.end - 1, start=log.start)


@dataclass(frozen=True)
class _History:
    history: History
    frame: Any
    is_topic: bool


def _topology(prepared: Prepared) -> Topology:
    """The topology as it is laid out: names kept, patterns resolved."""
    subs: dict[int, SubTopology] = {
        task.task.sub_topology: task.sub_topology for task in prepared.layout.tasks
    }
    return Topology(sub_topologies=tuple(subs.values()))


def _transactional(config: Config) -> Config:
    """Under at-least-once too: a writer that Spark has forgotten must not come back.

    Spark may let a writer wait for its next rows. Who comes after a dead one ends what it left
    open, so nobody waits for the time-out.
    """
    timeout = max(config.transaction_timeout, _TRANSACTION_TIMEOUT)
    return dataclasses.replace(
        config, processing_guarantee="exactly_once", transaction_timeout=timeout
    )


def _is_topic(history: object) -> bool:
    return isinstance(history, str) and history.startswith("topic:")


def _time(text: str) -> datetime | None:
    """A point in time as people write it, or None."""
    if text.isdigit():
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    with contextlib.suppress(ValueError):
        return _in_utc(datetime.fromisoformat(text))
    return None


def _in_utc(moment: datetime) -> datetime:
    """A time that does not say where it is one is the same wherever the program runs."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _all(call: Any, things: Iterable[Any]) -> list[Any]:
    """Call with each of these, many at once: each mostly waits for Kafka."""
    with ThreadPoolExecutor(_ASKS_AT_ONCE) as pool:
        return list(pool.map(call, things))
