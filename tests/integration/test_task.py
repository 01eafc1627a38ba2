"""One task on an instance, on a real broker and without Spark: taken, read, committed, moved."""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import ANY

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.changelog.commit_record import ChangelogEnd, CommitRecord
from penstock.changelog.offset_metadata import OffsetMetadata
from penstock.changelog.reading import read_last
from penstock.changelog.restore import RestoreResult, restore
from penstock.changelog.snapshots import (
    Manifest,
    Snapshot,
    SnapshotFile,
    SnapshotSource,
    read_files,
)
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topic_plan import ConfigChange
from penstock.changelog.topics import TopicSpec, changelog_topic, commits_name, commits_topic
from penstock.config import Config, Guarantee
from penstock.instance import protocol, state
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import (
    CommitHeader,
    InputOrder,
    Question,
    ReadHeader,
    Reply,
    StoreOrder,
    TakeOrder,
)
from penstock.instance.task import OpenTask, TaskEnvironment
from penstock.observability.time_of_day import wall_clock_ms
from penstock.serdes.windowed import window_key
from penstock.stores.contract import StoreIdentity, stored_value
from penstock.stores.directory import StateDirectory
from penstock.stores.failures import damaged
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from tests.harness import wait_until

Rows = list[tuple[bytes, bytes | None, int]]


@dataclass
class World:
    """An application of one task with its topics; `take` makes the next owner."""

    kafka: str
    directory: Path
    application: str = field(default_factory=lambda: f"app-{uuid.uuid4().hex[:8]}")
    owners: int = 0
    snapshots: Sequence[SnapshotSource] = ()
    guarantee: Guarantee = "exactly_once"

    def __post_init__(self) -> None:
        self.config = Config(bootstrap_servers=self.kafka, processing_guarantee=self.guarantee)
        self.admin = TopicAdmin(self.config)
        specs = [
            TopicSpec(self.input, 1, {}),
            commits_topic(self.application, partitions=2),
            changelog_topic(self.application, "counts", partitions=1),
        ]
        self.admin.create(specs)
        self.topics = self.admin.describe(spec.name for spec in specs)
        self.clients = SharedClients(self.config, self.application)
        self.state = StateDirectory.open(self.directory, self.application)

    @property
    def input(self) -> str:
        return f"{self.application}-in"

    @contextlib.contextmanager
    def disk_as_it_was(self) -> Iterator[None]:
        """What happens in the block, the task's disk knows nothing of afterwards."""
        directory, copy = self.state.path / "0_0", self.directory / "copy"
        shutil.copytree(directory, copy)
        yield
        shutil.rmtree(directory)
        copy.rename(directory)

    @property
    def changelog(self) -> str:
        return f"{self.application}-counts-changelog"

    def store_order(self, **kind: Any) -> StoreOrder:
        return StoreOrder(
            name="counts",
            changelog=self.changelog,
            changelog_id=self.topics[self.changelog].id,
            **kind,
        )

    def offset(self) -> int:
        """The end of the changelog."""
        return self.clients.high_watermark(self.changelog, 0)

    def take(self, store: StoreOrder | None = None, *, generation: int = 1) -> OpenTask:
        """The task under its next owner, running."""
        task = self.try_to_take(store, generation=generation)
        assert task.status().state == "running", task.status()
        return task

    def try_to_take(self, store: StoreOrder | None = None, *, generation: int = 1) -> OpenTask:
        """The task under its next owner, however that ended."""
        task = self.give(store, generation=generation)
        task.take()
        return task

    def give(self, store: StoreOrder | None = None, *, generation: int = 1) -> OpenTask:
        """The task under its next owner, who is still to take it."""
        self.owners += 1
        order = TakeOrder(
            task="0_0",
            name="counts-0",
            epoch=(generation, self.owners),
            first_taking=self.owners == 1,
            inputs=[
                InputOrder(
                    topic=self.input,
                    partition=0,
                    topic_id=self.topics[self.input].id,
                    partitions=1,
                    reset="earliest",
                )
            ],
            stores=[store or self.store_order()],
            commits_partition=1,
            closes={"counts": ["step:closed"]},
        )
        environment = TaskEnvironment(
            application_id=self.application,
            config=self.config,
            directory=self.state,
            clients=self.clients,
            lease_holds=lambda: True,
            snapshots=self.snapshots,
        )
        return OpenTask(order, environment)

    def produce(self, count: int) -> None:
        """Records in the input, so that positions in it exist."""
        producer = Producer({"bootstrap.servers": self.kafka})
        for _ in range(count):
            producer.produce(self.input, b"v", b"k", partition=0)
        assert producer.flush(30) == 0

    def write_commit(self, record: CommitRecord) -> None:
        """A commit record as someone else left it."""
        producer = Producer({"bootstrap.servers": self.kafka})
        producer.produce(commits_name(self.application), record.encode(), b"counts-0", 1)
        assert producer.flush(30) == 0

    def move_group(self, offset: int, metadata: OffsetMetadata | None = None) -> None:
        """What a reset tool does, or a Java application, which says something beside it."""
        consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": self.application})
        at = TopicPartition(self.input, 0, offset, metadata=(metadata or OffsetMetadata()).encode())
        consumer.commit(offsets=[at], asynchronous=False)
        consumer.close()

    def beside_the_offset(self) -> OffsetMetadata:
        """What the group's offset of the input says besides itself."""
        [found] = self.clients.group_offsets([(self.input, 0)]).metadata.values()
        return found

    def close(self) -> None:
        self.state.close()
        self.clients.close()


@pytest.fixture
def world(kafka: str, tmp_path: Path) -> Iterator[World]:
    world = World(kafka, tmp_path)
    yield world
    world.close()


def commit(
    task: OpenTask,
    rows: Rows,
    *,
    to: int,
    metadata: dict[str, str],
    time: int | None = None,
    numbered: bool = False,
) -> Reply:
    """The task's next commit: these changes of its store, and the input up to `to`."""
    status = task.status()
    [(topic, _)] = status.position.items()
    header = CommitHeader(
        task="0_0",
        epoch=status.epoch,
        n=status.n + 1,
        start=status.position,
        end={topic: {0: to}},
        stores=["counts"],
        topics=[],
        rows=len(rows),
        metadata=metadata,
        times={} if time is None else {topic: {0: time}},
        numbered=numbered,
    )
    return task.commit(header, iter([changes(rows)] if rows else []))


def changes(rows: Rows) -> pa.RecordBatch:
    keys, values, times = zip(*rows, strict=True)
    count = len(rows)
    columns = [
        pa.array([protocol.CHANGE] * count, pa.uint8()),
        pa.array([0] * count, pa.int16()),
        pa.array([-1] * count, pa.int32()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(times, pa.int64()),
        pa.nulls(count, protocol.HEADERS),
    ]
    return pa.record_batch(columns, schema=protocol.ROWS)


def read(task: OpenTask, question: Question, *rows: tuple[Any, ...]) -> list[Any]:
    """What a worker of the task's next slice hears: batches, and a reply."""
    status = task.status()
    schema = protocol.QUESTIONS[question]
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), schema.types, strict=True)]
    header = ReadHeader(
        task="0_0", epoch=status.epoch, n=status.n + 1, store="counts", question=question
    )
    return list(task.read(header, pa.table(columns, schema=schema)))


def ask(task: OpenTask, question: Question, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """What the task's store answers."""
    *batches, reply = read(task, question, *rows)
    assert isinstance(reply, Reply)
    assert reply.status == "ok", reply
    return [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]


def test_a_read_while_a_commit_is_written_does_not_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may run a slice twice at once; one of the two commits while the other reads."""
    world.produce(1)
    task = world.take(world.store_order(persistent=False))
    replies: list[Reply] = []
    apply = MemoryStore.apply

    def slow(store: MemoryStore, changes: Any, *, offset: int | None) -> None:
        apply(store, changes, offset=offset)
        if offset is not None:
            replies.append(read(task, "get", (b"a",))[-1])

    monkeypatch.setattr(MemoryStore, "apply", slow)
    assert commit(task, [(b"a", b"1", 7)], to=1, metadata={}).status == "ok"
    assert [reply.status for reply in replies] == ["lost"]
    assert ask(task, "get", (b"a",)) == [(stored_value(7, b"1"),)]
    task.close()


@pytest.mark.parametrize("filled_min", [0, 1_000_000])
def test_a_store_is_the_same_however_an_empty_disk_is_filled(
    world: World, monkeypatch: pytest.MonkeyPatch, filled_min: int
) -> None:
    monkeypatch.setattr(state, "FILLED_MIN", filled_min)
    world.produce(2)
    task = world.take()
    rows: Rows = [(b"%d" % n, b"%d" % n, n + 1) for n in range(3000)]
    assert commit(task, rows, to=1, metadata={}).status == "ok"
    assert commit(task, [(b"1", None, 9), (b"2", b"new", 9)], to=2, metadata={}).status == "ok"
    task.close()
    shutil.rmtree(world.state.path / "0_0")
    task = world.take()
    asked = [(b"0",), (b"1",), (b"2",), (b"2999",)]
    found = [stored_value(1, b"0"), None, stored_value(9, b"new"), stored_value(3000, b"2999")]
    assert [value for (value,) in ask(task, "get", *asked)] == found
    assert len(ask(task, "range", (None, None))) == 2999
    task.close()


WINDOWS = {"kind": "window", "retention_ms": 100, "segment_ms": 60, "time_index": "window_start"}


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("lost_disk", [True, False])
def test_windows_move_to_the_next_owner_and_the_expired_stay_behind(
    world: World, persistent: bool, lost_disk: bool
) -> None:
    world.produce(2)
    order = world.store_order(persistent=persistent, **WINDOWS)
    task = world.take(order)
    first = [(window_key(b"a", start), b"%d" % start, start) for start in (0, 70, 130)]
    assert commit(task, first, to=1, metadata={}).status == "ok"
    late = [(window_key(b"a", 300), b"300", 300), (window_key(b"b", 10), b"late", 310)]
    assert commit(task, late, to=2, metadata={}).status == "ok"
    expected = [(0, window_key(b"a", 300), stored_value(300, b"300"))]
    for _ in range(2):
        assert ask(task, "fetch", (b"a", 0, 1000)) == expected
        assert ask(task, "range", (None, None)) == expected
        assert ask(task, "times", (0, 1000)) == expected
        assert ask(task, "get", (window_key(b"a", 70),), (window_key(b"a", 300),)) == [
            (None,),
            (stored_value(300, b"300"),),
        ]
        task.close()
        if lost_disk:
            shutil.rmtree(world.state.path / "0_0")
        task = world.take(order)
    assert world.offset() >= 5
    task.close()


def test_a_store_that_lies_otherwise_than_it_should_is_rebuilt(world: World) -> None:
    world.produce(1)
    task = world.take(world.store_order(**WINDOWS))
    commit(task, [(window_key(b"a", 70), b"x", 70)], to=1, metadata={})
    task.close()
    task = world.take(world.store_order(**{**WINDOWS, "segment_ms": 90, "time_index": None}))
    assert [note for note in task.status().notes if "index=window_start" in note]
    assert ask(task, "fetch", (b"a", 0, 100)) == [(0, window_key(b"a", 70), stored_value(70, b"x"))]
    task.close()


@pytest.mark.parametrize("persistent", [True, False])
def test_a_store_without_a_changelog_starts_empty_with_each_owner(
    world: World, persistent: bool
) -> None:
    world.produce(2)
    order = StoreOrder(name="counts", persistent=persistent)
    task = world.take(order)
    assert commit(task, [(b"a", b"1", 7)], to=1, metadata={}).status == "ok"
    assert ask(task, "get", (b"a",)) == [(stored_value(7, b"1"),)]
    assert world.offset() == 0
    task.flush()
    task.close()
    task = world.take(order)
    assert ask(task, "get", (b"a",)) == [(None,)]
    assert task.status().position == {world.input: {0: 1}}
    task.close()


def test_each_slice_finds_what_the_last_commit_said(world: World) -> None:
    world.produce(3)
    task = world.take()
    assert task.status().metadata == {}
    said = {"stream-time": "7"}
    reply = commit(task, [(b"a", b"1", 7)], to=1, metadata=said)
    assert (reply.status, reply.metadata) == ("ok", said)
    # The answer to a job that Spark ran twice: the commit is long done.
    status = task.status()
    again = CommitHeader(
        task="0_0",
        epoch=status.epoch,
        n=1,
        start={},
        end={},
        stores=[],
        topics=[],
        rows=0,
        metadata={"stream-time": "0"},
    )
    reply = task.commit(again, iter([]))
    assert (reply.status, reply.metadata) == ("done", said)
    # The next owner, here or elsewhere, reads it from the commit record.
    task.close()
    task = world.take()
    assert task.status().metadata == said
    # A commit without rows says again what the one before it said.
    commit(task, [], to=3, metadata=task.status().metadata)
    task.close()
    task = world.take()
    assert (task.status().metadata, task.status().n) == (said, 2)
    task.close()


def test_who_moves_the_group_moves_time_too(world: World) -> None:
    world.produce(3)
    task = world.take()
    commit(task, [(b"a", b"1", 7)], to=3, metadata={"stream-time": "7"})
    task.close()
    world.move_group(1)
    world.owners = 0
    task = world.take(generation=2)
    status = task.status()
    assert (status.position, status.metadata) == ({world.input: {0: 1}}, {})
    task.close()


def test_a_java_application_would_find_our_times_beside_the_offsets(world: World) -> None:
    world.produce(3)
    task = world.take()
    assert commit(task, [], to=1, metadata={"step:closed": "-1"}).status == "ok"
    assert world.beside_the_offset() == OffsetMetadata()
    assert commit(task, [], to=2, metadata={"step:closed": "40"}, time=70).status == "ok"
    assert world.beside_the_offset() == OffsetMetadata(time=70, kept={"counts": 40})
    task.close()
    # The next owner goes on from there; an earlier record does not turn the time back.
    task = world.take()
    assert commit(task, [], to=3, metadata={"step:closed": "40"}, time=60).status == "ok"
    assert world.beside_the_offset() == OffsetMetadata(time=70, kept={"counts": 40})
    task.close()


def test_we_find_a_java_applications_times_beside_its_offsets(world: World) -> None:
    world.produce(3)
    # Once without a commit of ours, and once after one.
    world.move_group(1, OffsetMetadata(time=70, kept={"counts": 40, "not-ours": 1}))
    task = world.take()
    assert task.status().position == {world.input: {0: 1}}
    assert task.status().metadata == {"stream-time": "70", "step:closed": "40"}
    assert commit(task, [], to=2, metadata={"stream-time": "71"}).status == "ok"
    task.close()
    world.move_group(3, OffsetMetadata(time=90, kept={"counts": 80}))
    world.owners = 0
    task = world.take(generation=2)
    assert task.status().metadata == {"stream-time": "90", "step:closed": "80"}
    task.close()


def test_a_changelog_that_lost_its_end_is_not_taken_for_all_there_is(world: World) -> None:
    """A disk would tell by its own offset; where it is lost too, the last commit does."""
    world.produce(2)
    task = world.take()
    commit(task, [(b"a", b"1", 7)], to=1, metadata={})
    commit(task, [(b"b", b"1", 8)], to=2, metadata={})
    task.close()
    shutil.rmtree(world.state.path / "0_0")
    committed = read_last(world.clients.logs, commits_name(world.application), 1)
    assert committed is not None
    record = CommitRecord.decode(committed)
    ahead = ChangelogEnd(id=record.changelogs["counts"].id, end=world.offset())
    world.write_commit(msgspec.structs.replace(record, changelogs={"counts": ahead}))
    task = world.try_to_take()
    fault = task.status().fault
    assert fault is not None
    assert fault.kind == "ChangelogError"
    assert f"ends at {ahead.end}, and offset {ahead.end} was committed" in fault.message
    assert fault.where["topic"] == world.changelog
    task.close()
    world.write_commit(record)
    # So it does where the topic is another one.
    other = msgspec.structs.replace(world.store_order(), changelog_id="another")
    task = world.try_to_take(other)
    fault = task.status().fault
    assert fault is not None
    assert "its id is another and the last commit was written to" in fault.message
    task.close()
    # What was committed is there: then all is well.
    task = world.take()
    assert ask(task, "get", (b"a",), (b"b",)) == [
        (stored_value(7, b"1"),),
        (stored_value(8, b"1"),),
    ]
    task.close()


@pytest.mark.parametrize("recovers", [False, True])
def test_what_a_changelog_that_was_made_again_left_on_a_disk_is_rebuilt_from_the_new_one(
    world: World, *, recovers: bool
) -> None:
    """The last commit tells which of the two counts; without one nobody knows."""
    world.produce(2)
    order = world.store_order(recovers=recovers)
    before = msgspec.structs.replace(order, changelog_id="before")
    left_behind(world, before)
    task = world.try_to_take()
    fault = task.status().fault
    assert fault is not None
    assert "was deleted and made again" in fault.message
    # A disk alone does not tell whether it is too old, or its changelog was lost.
    assert "penstock reset app.py --state-only --execute" in fault.hint
    assert "Else: State and positions no longer belong together" in fault.hint
    assert (fault.where["topic"], fault.where["store"]) == (world.changelog, "counts")
    task.close()
    shutil.rmtree(world.state.path / "0_0")
    task = world.take(order)
    commit(task, [(b"a", b"1", 7)], to=1, metadata={})
    task.close()
    # The task moves to an instance that had it before the changelog was made again.
    left_behind(world, before)
    task = world.take(order)
    [note] = task.status().notes
    assert f"has store counts of task 0_0 from before {world.changelog} was made again" in note
    assert task.status().position == {world.input: {0: 1}}
    assert ask(task, "get", (b"a",), (b"left",)) == [(stored_value(7, b"1"),), (None,)]
    task.close()


def left_behind(world: World, order: StoreOrder) -> None:
    """A disk with a store of that order, which was written and closed."""
    shutil.rmtree(world.state.path / "0_0", ignore_errors=True)
    (world.state.path / "0_0").mkdir()
    store = RocksDBStore("counts", world.state.path / "0_0" / "counts")
    identity = StoreIdentity(
        application_id=world.application,
        task="0_0",
        store="counts",
        changelog_topic=order.changelog,
        changelog_topic_id=order.changelog_id,
        layout=order.layout,
    )
    store.set_identity(identity)
    store.apply([(b"left", stored_value(1, b"x"))], offset=0)
    store.close()


def test_a_disk_that_was_away_when_its_store_was_made_anew_is_rebuilt(
    world: World, tmp_path: Path
) -> None:
    """Though its changelog goes on from there, and no deletion tells what is gone."""
    world.produce(3)
    task = world.take()
    commit(task, [(b"a", b"1", 7), (b"left", b"1", 7)], to=1, metadata={})
    task.close()
    shutil.copytree(world.state.path / "0_0" / "counts", tmp_path / "copy")
    committed = read_last(world.clients.logs, commits_name(world.application), 1)
    assert committed is not None
    record = CommitRecord.decode(committed)
    end = msgspec.structs.replace(record.changelogs["counts"], start=world.offset())
    world.write_commit(msgspec.structs.replace(record, changelogs={"counts": end}))
    task = world.take()
    [note] = task.status().notes
    assert "as it was before the store was made anew" in note
    assert ask(task, "get", (b"a",), (b"left",)) == [(None,), (None,)]
    commit(task, [(b"a", b"2", 8)], to=2, metadata={})
    task.close()
    # From now on the disk is of that store; a copy from before is not.
    task = world.take()
    assert task.status().notes == []
    commit(task, [(b"b", b"1", 9)], to=3, metadata={})
    task.close()
    world.snapshots = [Copied(tmp_path / "copy", offset=1)]
    for purged_to in (0, end.start):
        world.admin.alter([ConfigChange(world.changelog, "cleanup.policy", "", "compact,delete")])
        world.admin.delete_records({(world.changelog, 0): purged_to})
        shutil.rmtree(world.state.path / "0_0")
        task = world.take()
        # All that the store holds is behind what was removed.
        assert task.status().notes == []
        assert ask(task, "get", (b"a",), (b"left",), (b"b",)) == [
            (stored_value(8, b"2"),),
            (None,),
            (stored_value(9, b"1"),),
        ]
        task.close()


def test_what_a_recovery_from_the_input_does_not_make_again_comes_back_on_no_disk(
    world: World,
) -> None:
    """A function that comes to another result than before leaves no deletion of the old one."""
    world.produce(1)
    order = world.store_order(recovers=True)
    task = world.take(order)
    commit(task, [(b"a", b"1", 7), (b"left", b"1", 7)], to=1, metadata={})
    task.close()
    committed = read_last(world.clients.logs, commits_name(world.application), 1)
    assert committed is not None
    record = CommitRecord.decode(committed)
    other = ChangelogEnd(id="another", end=1)
    world.write_commit(msgspec.structs.replace(record, changelogs={"counts": other}))
    with world.disk_as_it_was():
        task = world.take(order)
        [note] = task.status().notes
        assert "the task reads its input again" in note
        commit(task, [(b"a", b"2", 7)], to=1, metadata={})
        task.close()
    task = world.take(order)
    [note] = task.status().notes
    assert "as it was before the store was made anew" in note
    kept = [(stored_value(7, b"2"),), (None,)]
    assert ask(task, "get", (b"a",), (b"left",)) == kept
    task.close()
    shutil.rmtree(world.state.path / "0_0")
    task = world.take(order)
    assert task.status().notes == []
    assert ask(task, "get", (b"a",), (b"left",)) == kept
    task.close()


def test_a_changelog_that_expires_may_begin_where_its_retention_explains_it(world: World) -> None:
    world.produce(2)
    world.admin.alter([ConfigChange(world.changelog, "cleanup.policy", "", "compact,delete")])
    # All times are long ago, and a day is what Kafka keeps, or it keeps everything.
    order = world.store_order(**WINDOWS, expires=True, kept_ms=86_400_000)
    for_ever = msgspec.structs.replace(order, kept_ms=-1)
    task = world.take(for_ever)
    commit(task, [(window_key(b"a", 70), b"x", 70)], to=1, metadata={})
    purged_to = world.offset()
    commit(task, [(window_key(b"a", 130), b"y", 130)], to=2, metadata={})
    task.close()
    shutil.rmtree(world.state.path / "0_0")
    world.admin.delete_records({(world.changelog, 0): purged_to})
    # One that keeps everything lost what the store would still show.
    task = world.try_to_take(for_ever)
    fault = task.status().fault
    assert fault is not None
    assert (fault.kind, fault.where["topic"]) == ("ChangelogError", world.changelog)
    task.close()
    task = world.take(msgspec.structs.replace(for_ever, allow_truncated=True))
    [note] = task.status().notes
    assert f"begins at offset {purged_to} in partition 0: windows that were only before" in note
    task.close()
    shutil.rmtree(world.state.path / "0_0")
    task = world.take(order)
    assert task.status().notes == []
    assert ask(task, "fetch", (b"a", 0, 1000)) == [
        (0, window_key(b"a", 130), stored_value(130, b"y"))
    ]
    task.close()
    # Another kind of store may not.
    shutil.rmtree(world.state.path / "0_0")
    task = world.try_to_take(world.store_order(**WINDOWS))
    fault = task.status().fault
    assert fault is not None
    assert (fault.kind, fault.where["topic"]) == ("ChangelogError", world.changelog)
    assert f"begins at offset {purged_to}, and an empty store needs more of it" in fault.message
    task.close()
    # Unless its changelog was told to forget what is old: then that is told.
    shutil.rmtree(world.state.path / "0_0")
    task = world.take(world.store_order(expires=True, kept_ms=86_400_000))
    [note] = task.status().notes
    assert f"begins at offset {purged_to} in partition 0: it forgets what is old" in note
    task.close()


class Copied:
    """A store that was closed, as a snapshot."""

    def __init__(self, directory: Path, *, offset: int) -> None:
        self._directory, self._offset = directory, offset

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        (self._directory / "LOCK").unlink(missing_ok=True)
        files = read_files(self._directory)
        yield Snapshot(Manifest(identity=wanted, offset=self._offset, files=files), self._pour)

    def _pour(self, file: SnapshotFile, target: Path) -> Iterator[None]:
        shutil.copy(self._directory / file.name, target)
        yield


@pytest.mark.parametrize("windows", [True, False])
def test_a_store_that_missed_nothing_is_whole_though_its_changelog_is_empty(
    world: World, tmp_path: Path, *, windows: bool
) -> None:
    world.produce(2)
    world.admin.alter([ConfigChange(world.changelog, "cleanup.policy", "", "compact,delete")])
    more = {**WINDOWS, "expires": True, "kept_ms": -1} if windows else {}
    order = world.store_order(**more)
    key = window_key(b"a", 70) if windows else b"a"
    task = world.take(order)
    commit(task, [(key, b"x", 70)], to=1, metadata={})
    task.close()
    # The application was away for long: Kafka has removed everything, and deletions last no time.
    world.admin.delete_records({(world.changelog, 0): world.offset()})
    task = world.take(msgspec.structs.replace(order, tombstones_ms=0, kept_ms=60_000))
    notes = task.status().notes
    assert [note for note in notes if "is whole on this disk" not in note] == []
    assert len(notes) == (0 if windows else 1)
    found = ask(task, "fetch", (b"a", 0, 1000)) if windows else ask(task, "get", (b"a",))
    assert [row[-1] for row in found] == [stored_value(70, b"x")]
    task.close()
    # Nobody else has it, and a log that keeps everything did not lose it by its age.
    (world.state.path / "0_0" / "counts").rename(tmp_path / "copy")
    shutil.rmtree(world.state.path / "0_0")
    task = world.try_to_take(order)
    fault = task.status().fault
    assert fault is not None
    assert (fault.kind, fault.where["topic"]) == ("ChangelogError", world.changelog)
    task.close()
    # A copy of it does, though not a record is left behind that.
    world.snapshots = [Copied(tmp_path / "copy", offset=0)]
    task = world.take(order)
    assert "comes from a snapshot" in task.status().notes[0]
    found = ask(task, "fetch", (b"a", 0, 1000)) if windows else ask(task, "get", (b"a",))
    assert [row[-1] for row in found] == [stored_value(70, b"x")]
    task.close()


def test_a_store_that_could_not_be_rebuilt_is_not_wiped(world: World) -> None:
    world.produce(1)
    task = world.take()
    commit(task, [(b"a", b"1", 7)], to=1, metadata={})
    task.close()
    with world.disk_as_it_was():
        task = world.take()
        commit(task, [(b"b", b"2", 8)], to=1, metadata={})
        task.close()
    world.admin.alter([ConfigChange(world.changelog, "cleanup.policy", "", "compact,delete")])
    world.admin.delete_records({(world.changelog, 0): 1})
    # Deletions last no time at all: the store may have missed some, and should be rebuilt.
    task = world.try_to_take(world.store_order(tombstones_ms=0))
    fault = task.status().fault
    assert fault is not None
    assert fault.kind == "ChangelogError"
    assert "The changelog lost its start: it begins at offset 1" in fault.message
    task.close()
    task = world.take()
    assert ask(task, "get", (b"a",)) == [(stored_value(7, b"1"),)]
    (note,) = task.status().notes
    assert "is whole on this disk, and could not be rebuilt" in note
    task.close()


def test_a_store_that_missed_deletions_is_rebuilt_though_they_last_longer_now(
    world: World,
) -> None:
    world.produce(2)
    task = world.take()
    commit(task, [(b"a", b"1", 7)], to=1, metadata={})
    task.close()
    with world.disk_as_it_was():
        task = world.take(world.store_order(tombstones_ms=0))
        commit(task, [(b"b", b"2", 8)], to=2, metadata={})
        task.close()
    task = world.take()
    [note] = task.status().notes
    assert "rebuilding the store from the changelog's start" in note
    task.close()


def test_a_restore_that_took_longer_than_deletions_last_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*given: Any, **more: Any) -> RestoreResult:
        return replace(restore(*given, **more), outlasted=True)

    monkeypatch.setattr(state, "restore", slow)
    task = world.take()
    [note] = task.status().notes
    assert f"took longer than {world.changelog} keeps deletions (delete.retention.ms)" in note
    task.close()


class Endless:
    """A copy of a store that never comes to an end."""

    def __init__(self) -> None:
        self.is_under_way = threading.Event()

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        files = [SnapshotFile("a.sst", 2**40, None)]
        yield Snapshot(Manifest(identity=wanted, offset=0, files=files), self._pour)

    def _pour(self, file: SnapshotFile, target: Path) -> Iterator[None]:
        target.write_bytes(b"a")
        self.is_under_way.set()
        while True:
            yield


def test_a_task_is_closed_while_a_copy_of_its_store_is_on_its_way(world: World) -> None:
    world.produce(1)
    task = world.take()
    commit(task, [(b"a", b"1", 7)], to=1, metadata={})
    task.close()
    shutil.rmtree(world.state.path / "0_0")
    # The second one is not even asked.
    first, second = Endless(), Endless()
    world.snapshots = [first, second]
    task = world.give()
    taking = threading.Thread(target=task.take)
    taking.start()
    assert first.is_under_way.wait(60)
    task.close()
    taking.join()
    assert (task.status().state, task.status().fault) == ("closed", None)
    assert not second.is_under_way.is_set()
    assert not list((world.state.path / "0_0").glob(".*.incoming"))
    world.snapshots = ()
    task = world.take()
    assert ask(task, "get", (b"a",)) == [(stored_value(7, b"1"),)]
    task.close()


class Another:
    """Copies whose files are those of a store with another identity than their manifests say."""

    def __init__(self, directory: Path, **other: str) -> None:
        self._directory, self._other = directory, other

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        store = RocksDBStore("counts", self._directory / "store")
        store.set_identity(msgspec.structs.replace(wanted, **self._other))
        store.apply([(b"a", stored_value(1, b"not ours"))], offset=0)
        store.checkpoint(self._directory / "files")
        store.close()
        files = read_files(self._directory / "files")
        yield Snapshot(Manifest(identity=wanted, offset=0, files=files), self._pour)

    def _pour(self, file: SnapshotFile, target: Path) -> Iterator[None]:
        shutil.copy(self._directory / "files" / file.name, target)
        yield


def test_a_copy_of_another_store_is_not_taken_for_this_one(world: World, tmp_path: Path) -> None:
    world.produce(1)
    task = world.take()
    commit(task, [(b"a", b"1", 7)], to=1, metadata={})
    task.close()
    shutil.rmtree(world.state.path / "0_0")
    others = ({"application_id": "else"}, {"changelog_topic_id": "else"}, {"task": "0_1"})
    world.snapshots = [Another(tmp_path / f"copy-{n}", **o) for n, o in enumerate(others)]
    task = world.take()
    assert ask(task, "get", (b"a",)) == [(stored_value(7, b"1"),)]
    assert (
        len([note for note in task.status().notes if "is rebuilt from its changelog" in note]) == 3
    )
    task.close()


@pytest.mark.parametrize("guarantee", get_args(Guarantee))
def test_a_change_that_kafka_does_not_take_is_said_and_its_commit_is_none(
    kafka: str, tmp_path: Path, guarantee: Guarantee
) -> None:
    world = World(kafka, tmp_path, guarantee=guarantee)
    world.produce(2)
    task = world.take()
    large = (b"k", bytes(1_100_000), 1)
    rows = [(b"a", b"1", 1), large]
    # Which one it is costs time to know: the worker asks for it.
    assert commit(task, rows, to=1, metadata={}) == Reply(status="rejected", reason=ANY)
    reply = commit(task, rows, to=1, metadata={}, numbered=True)
    assert [(each.topic, each.reason, each.row) for each in reply.rejected] == [
        (world.changelog, "MSG_SIZE_TOO_LARGE", 1)
    ]
    assert ask(task, "get", (b"a",)) == [(None,)]
    # Whoever takes it next finds no commit either.
    task.close()
    task = world.take()
    assert task.status().n == 0
    assert commit(task, [(b"b", b"2", 1)], to=1, metadata={}).status == "ok"
    assert ask(task, "get", (b"b",)) == [(stored_value(1, b"2"),)]
    task.close()
    world.close()


def test_a_store_that_a_flush_finds_damaged_is_rebuilt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(1)
    task = world.take()
    commit(task, [(b"a", b"1", 7)], to=1, metadata={})

    def fail(store: RocksDBStore) -> None:
        raise damaged("Corruption: block checksum mismatch", store="counts", path=store.path)

    with monkeypatch.context() as patched:
        patched.setattr(RocksDBStore, "flush", fail)
        task.flush()
        wait_until(lambda: task.is_running, what="it was rebuilt")
    [note] = task.status().notes
    assert "checksum mismatch" in note
    assert f"rebuilding it from {world.changelog}" in note
    assert ask(task, "get", (b"a",)) == [(stored_value(7, b"1"),)]
    # An owner's store misses no deletion, however long ago it was restored.
    now = wall_clock_ms()
    task.flush()
    assert (task.stores.get("counts").caught_up_at() or 0) >= now
    task.close()
