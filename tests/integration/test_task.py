"""One task on an instance, on a real broker and without Spark: taken, read, committed, moved."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TopicSpec, changelog_topic, commits_topic
from penstock.config import Config
from penstock.instance import protocol
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import CommitHeader, InputOrder, Reply, StoreOrder, TakeOrder
from penstock.instance.task import OpenTask, TaskEnvironment
from penstock.stores.directory import StateDirectory

Rows = list[tuple[bytes, bytes | None, int]]


@dataclass
class World:
    """An application of one task with its topics; `take` makes the next owner."""

    kafka: str
    directory: Path
    application: str = field(default_factory=lambda: f"app-{uuid.uuid4().hex[:8]}")
    owners: int = 0

    def __post_init__(self) -> None:
        self.config = Config(bootstrap_servers=self.kafka)
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

    @property
    def changelog(self) -> str:
        return f"{self.application}-counts-changelog"

    def store_order(self) -> StoreOrder:
        return StoreOrder(
            name="counts", changelog=self.changelog, changelog_id=self.topics[self.changelog].id
        )

    def take(self, store: StoreOrder | None = None, *, generation: int = 1) -> OpenTask:
        """The task under its next owner, running."""
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
        )
        environment = TaskEnvironment(
            application_id=self.application,
            config=self.config,
            directory=self.state,
            clients=self.clients,
            lease_holds=lambda: True,
        )
        task = OpenTask(order, environment)
        task.take()
        assert task.status().state == "running", task.status()
        return task

    def produce(self, count: int) -> None:
        """Records in the input, so that positions in it exist."""
        producer = Producer({"bootstrap.servers": self.kafka})
        for _ in range(count):
            producer.produce(self.input, b"v", b"k", partition=0)
        assert producer.flush(30) == 0

    def move_group(self, offset: int) -> None:
        """What a reset tool does."""
        consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": self.application})
        consumer.commit(offsets=[TopicPartition(self.input, 0, offset)], asynchronous=False)
        consumer.close()

    def close(self) -> None:
        self.state.close()
        self.clients.close()


@pytest.fixture
def world(kafka: str, tmp_path: Path) -> Iterator[World]:
    world = World(kafka, tmp_path)
    yield world
    world.close()


def commit(task: OpenTask, rows: Rows, *, to: int, metadata: dict[str, str]) -> Reply:
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
