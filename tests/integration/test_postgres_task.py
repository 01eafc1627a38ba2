"""One task whose state PostgreSQL keeps, on a real server and a real broker, without Spark."""

from __future__ import annotations

import os
import random
import re
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TopicSpec, commits_topic
from penstock.config import Config
from penstock.errors import ExternalStoreError, ExternalStoreUnreachableError, PenstockError
from penstock.instance import protocol
from penstock.instance.clients import SharedClients
from penstock.instance.external import ExternalStores
from penstock.instance.protocol import (
    CommitHeader,
    DatabaseOrder,
    InputOrder,
    ReadHeader,
    Reply,
    StoreOrder,
    TakeOrder,
    error_of,
)
from penstock.instance.task import OpenTask, TaskEnvironment
from penstock.instance.writer import Writer
from penstock.stores.contract import stored_value
from penstock.stores.directory import StateDirectory
from penstock.stores.memory import MemoryStore
from penstock.stores.postgres import BATCH_ROWS, Database, PostgresStore
from penstock.stores.postgres_commits import CommitTable, OutboxRow
from tests.harness import Row, Scene, wait_until
from tests.postgres_server import PASSWORD, PostgresServer

VARIABLE = "PENSTOCK_TEST_DSN"
PAGE = Path(__file__).parents[2] / "docs" / "external-stores.md"


@dataclass
class World:
    """An application of one task, with a database of its own; `take` makes the next owner."""

    scene: Scene
    server: PostgresServer
    outbox: bool
    database: str = field(default_factory=lambda: f"d{uuid.uuid4().hex[:8]}")
    owners: int = 0

    def __post_init__(self) -> None:
        self.dsn = self.server.create_database(self.database)
        self.config = Config(bootstrap_servers=self.scene.bootstrap)
        names = [self.scene.source, self.scene.results]
        specs = [
            # The records are of 1970, which is longer ago than topics usually keep anything.
            *(TopicSpec(name, 1, {"retention.ms": "-1"}) for name in names),
            commits_topic(self.scene.application_id, partitions=2),
        ]
        admin = TopicAdmin(self.config)
        admin.create(specs)
        self.topic_id = admin.describe(names)[self.scene.source].id
        self.scene.produce([(b"k", b"v")] * 5)
        self.clients = SharedClients(self.config, self.scene.application_id)
        self.state = StateDirectory.open(self.scene.state_dir, self.scene.application_id)

    def give(self, *, owner: int | None = None) -> OpenTask:
        """The task under its next owner, or under an older one that is late."""
        self.owners += owner is None
        source = self.scene.source
        order = TakeOrder(
            task="0_0",
            name="counts-0",
            epoch=(1, self.owners if owner is None else owner),
            first_taking=self.owners == 1,
            inputs=[
                InputOrder(
                    topic=source,
                    partition=0,
                    topic_id=self.topic_id,
                    partitions=1,
                    reset="earliest",
                )
            ],
            stores=[
                StoreOrder(
                    name="counts",
                    database=DatabaseOrder(
                        dsn_variable=VARIABLE, table=["counts"], outbox=self.outbox
                    ),
                )
            ],
            commits_partition=1,
        )
        environment = TaskEnvironment(
            application_id=self.scene.application_id,
            config=self.config,
            directory=self.state,
            clients=self.clients,
            lease_holds=lambda: True,
        )
        return OpenTask(order, environment)

    def take(self, **how: Any) -> OpenTask:
        task = self.give(**how)
        task.take()
        assert task.status().state == "running", task.status()
        return task

    def fails(self, **how: Any) -> PenstockError:
        """Why the task cannot be taken."""
        task = self.give(**how)
        task.take()
        fault = task.status().fault
        task.close()
        assert fault is not None
        return error_of(fault)

    def commit(self, task: OpenTask, number: int) -> Reply:
        """The task's next commit: `k` becomes the number, and an output says so."""
        value = b"%d" % number
        status = task.status()
        rows = [(protocol.CHANGE, -1, b"k", value), (protocol.OUTPUT, 0, b"k", value)]
        batches = [
            pa.record_batch(
                [
                    pa.array([kind], pa.uint8()),
                    pa.array([0], pa.int16()),
                    pa.array([partition], pa.int32()),
                    pa.array([key], pa.binary()),
                    pa.array([value], pa.binary()),
                    pa.array([number], pa.int64()),
                    pa.array([[{"key": "h", "value": b"\xff"}]], protocol.HEADERS),
                ],
                schema=protocol.ROWS,
            )
            for kind, partition, key, value in rows
        ]
        [(topic, partitions)] = status.position.items()
        header = CommitHeader(
            task="0_0",
            epoch=status.epoch,
            n=status.n + 1,
            start=status.position,
            end={topic: {0: partitions[0] + 1}},
            stores=["counts"],
            topics=[self.scene.results],
            rows=2,
            metadata={"step": str(number)},
        )
        return task.commit(header, iter(batches))

    def value(self, task: OpenTask) -> bytes | None:
        """What the store has for `k`."""
        status = task.status()
        header = ReadHeader(task="0_0", epoch=status.epoch, n=status.n + 1, store="counts")
        table = pa.table([pa.array([b"k"], pa.binary())], schema=protocol.QUESTIONS["get"])
        *batches, reply = task.read(header, table)
        assert isinstance(reply, Reply)
        assert reply.status == "ok", reply
        [[value]] = [batch.column(0).to_pylist() for batch in batches]
        return None if value is None else bytes(value)

    def outputs(self, count: int) -> list[bytes | None]:
        """What is in the topic once there is so much: a commit is seen a moment after it."""
        rows: list[Row] = []

        def are_there() -> bool:
            rows[:] = self.scene.read(self.scene.results)
            return len(rows) >= count

        wait_until(are_there, what=f"{count} outputs")
        assert all(row.headers == (("h", b"\xff"),) for row in rows)
        return [row.value for row in rows]

    def close(self) -> None:
        self.state.close()
        self.clients.close()


@pytest.fixture(params=[False, True], ids=["plain", "outbox"])
def world(
    kafka: str,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[World]:
    world = World(Scene(kafka, tmp_path, partitions=1), postgres, outbox=request.param)
    monkeypatch.setenv(VARIABLE, world.dsn)
    yield world
    world.close()


def test_the_next_owner_finds_data_position_and_number_in_the_database(world: World) -> None:
    task = world.take()
    assert world.value(task) is None
    assert world.commit(task, 1).status == "ok"
    assert world.commit(task, 2).status == "ok"
    task.close()
    task = world.take()
    assert (task.status().n, task.status().position) == (2, {world.scene.source: {0: 2}})
    assert task.status().metadata == {"step": "2"}
    assert world.value(task) == stored_value(2, b"2")
    assert world.outputs(2) == [b"1", b"2"]
    assert world.scene.committed() == 2
    assert not (world.state.path / "0_0").exists()
    task.close()


def test_a_crash_between_the_database_and_the_record_loses_and_repeats_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = world.take()
    assert world.commit(task, 1).status == "ok"

    class Killed(BaseException):
        """What no handler catches: the process ends here."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "send_record", die)
        with pytest.raises(Killed):
            world.commit(task, 2)
    assert world.scene.committed() == 1
    late = task
    task = world.take()
    assert (task.status().n, task.status().position) == (2, {world.scene.source: {0: 2}})
    assert task.status().metadata == {"step": "2"}
    assert world.value(task) == stored_value(2, b"2")
    assert world.scene.committed() == 2
    assert world.commit(task, 3).status == "ok"
    assert world.outputs(3) == [b"1", b"2", b"3"]
    late.close()
    task.close()


def test_an_older_owner_can_neither_write_nor_take_the_task_back(world: World) -> None:
    old = world.take()
    assert world.commit(old, 1).status == "ok"
    new = world.take()
    assert world.commit(old, 7).status == "lost"
    assert old.status().state == "failed"
    assert old.status().fault is not None
    assert error_of(old.status().fault).code == "fenced"
    assert world.fails(owner=1).code == "fenced"
    assert world.value(new) == stored_value(1, b"1")
    new.close()
    new = world.take()
    assert world.commit(new, 2).status == "ok"
    assert world.outputs(2) == [b"1", b"2"]
    new.close()


def test_the_database_alone_fences_where_kafka_does_not(world: World) -> None:
    """Under at-least-once there is no other fence."""
    world.config = Config(
        bootstrap_servers=world.scene.bootstrap, processing_guarantee="at_least_once"
    )
    old = world.take()
    new = world.take()
    assert world.commit(old, 7).status == "lost"
    assert old.status().fault is not None
    assert "in the database" in old.status().fault.message
    assert world.value(new) is None
    assert world.commit(new, 1).status == "ok"
    # Without a transaction, and without an outbox, the old owner's output is there.
    expected = [b"1"] if world.outbox else [b"7", b"1"]
    assert world.outputs(len(expected)) == expected
    new.close()


def test_a_server_that_stops_fails_the_task_until_it_is_back(world: World) -> None:
    task = world.take()
    assert world.commit(task, 1).status == "ok"
    world.server.stop()
    try:
        assert world.commit(task, 2).status == "lost"
        assert task.status().fault is not None
        assert isinstance(error_of(task.status().fault), ExternalStoreUnreachableError)
        error = world.fails()
        assert isinstance(error, ExternalStoreUnreachableError)
        assert PASSWORD not in str(error)
    finally:
        world.server.start()
    task = world.take()
    assert world.value(task) == stored_value(1, b"1")
    assert world.commit(task, 2).status == "ok"
    # Without an outbox the output was written before the database was.
    expected = [b"1", b"2"] if world.outbox else [b"1", b"2", b"2"]
    assert world.outputs(len(expected)) == expected
    task.close()


def test_a_database_or_a_topic_that_forgot_commits_is_not_gone_on_with(world: World) -> None:
    task = world.take()
    for number in (1, 2, 3):
        assert world.commit(task, number).status == "ok"
    task.close()
    world.server.query(world.dsn, "UPDATE penstock_commits SET n = 2")
    assert "database lacks commits" in str(world.fails())
    world.server.query(world.dsn, "UPDATE penstock_commits SET n = 9")
    assert "Kafka lacks commits" in str(world.fails())


def test_a_table_belongs_to_one_application(world: World) -> None:
    world.take().close()
    another = ExternalStores(world.give().order, "another", timeout_seconds=10)
    with pytest.raises(ExternalStoreError, match="belongs to store 'counts' of application"):
        another.open(None)
    another.close()


def test_a_user_who_may_make_no_tables_is_told_and_goes_on_with_those_of_the_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"r{world.database}"
    world.server.query(world.dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'weak'")
    monkeypatch.setenv(VARIABLE, world.server.dsn(world.database, user=role, password="weak"))
    error = world.fails()
    assert type(error) is ExternalStoreError
    assert "permission denied" in str(error)
    assert "GRANT" in error.hint
    tables, select = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    tables = tables.replace("TO penstock;", f"TO {role};")
    for statement in tables.replace("balances", "counts").split(";")[:-1]:
        world.server.query(world.dsn, statement)
    task = world.take()
    assert world.commit(task, 1).status == "ok"
    task.close()
    [(name, _)] = world.server.query(world.dsn, select.replace("FROM balances", "FROM counts"))
    assert name == "k"


@pytest.fixture
def database(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """Where rows are found without an index: they come as they were written last."""
    monkeypatch.setenv(VARIABLE, postgres.create_database(f"d{uuid.uuid4().hex[:8]}"))
    database = Database(VARIABLE, timeout_seconds=10)
    database.connect(first=True)
    database.execute("SET enable_indexscan = off")
    database.execute("SET enable_bitmapscan = off")
    yield database
    database.close()


def test_a_server_that_stands_still_is_given_up(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, postgres.dsn())
    database = Database(VARIABLE, timeout_seconds=0)
    database.connect(first=True)
    [(process,)] = database.execute("SELECT pg_backend_pid()")
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(ExternalStoreUnreachableError, match="it said nothing for 2 seconds"):
            database.execute("SELECT 1")
        # Its late answer is nobody's.
        with pytest.raises(ExternalStoreUnreachableError):
            database.execute("SELECT 2")
    finally:
        os.kill(process, signal.SIGCONT)
        database.close()


def test_outputs_that_wait_come_in_their_order(database: Database) -> None:
    commits = CommitTable(database, application_id="app", task="0_0")
    commits.prepare(outbox=True)
    rows = [OutboxRow("out", 0, b"k", b"%d" % n, n, None) for n in range(3)]
    commits.put(1, rows)
    database.execute("UPDATE penstock_outbox SET timestamp = timestamp WHERE index = 0")
    assert commits.waiting(1) == rows


def test_the_store_answers_as_others_do(database: Database) -> None:
    store, other = (
        PostgresStore("a", database, table=["a"], partition=partition) for partition in (0, 1)
    )
    store.prepare()
    other.apply([(b"a", stored_value(1, b"other"))], offset=None)
    plain = MemoryStore("a")
    some = random.Random(0)
    for _ in range(30):
        changes = [
            (
                bytes(some.choices(b"\0ab\xff", k=some.randint(0, 3))),
                None
                if some.random() < 0.3
                else stored_value(some.randint(-1, 2**50), some.randbytes(some.randint(0, 4))),
            )
            for _ in range(10)
        ]
        store.apply(changes, offset=None)
        plain.apply(changes, offset=None)
        keys = [key for key, _ in changes]
        assert store.get_many(keys) == plain.get_many(keys)
        assert store.range(b"a", b"b", limit=2) == plain.range(b"a", b"b", limit=2)
        assert store.range(b"\xff", None, limit=9) == plain.range(b"\xff", None, limit=9)
        assert list(store.all(page_size=3)) == list(plain.all())
        assert store.approximate_num_entries() == plain.approximate_num_entries()
    many = [(b"%d" % i, stored_value(i, b"v")) for i in range(BATCH_ROWS + 1)]
    store.apply(many, offset=None)
    assert store.get_many([key for key, _ in many]) == [value for _, value in many]
    store.apply([(key, None) for key, _ in store.all()], offset=None)
    assert list(store.all()) == []
    assert list(other.all()) == [(b"a", stored_value(1, b"other"))]
