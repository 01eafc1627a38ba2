"""What a task's store costs, by where it is kept: RocksDB, memory, PostgreSQL.

    PYTHONPATH=src:. python -m bench.store_kinds [--keys 200000] [--rounds 15]

One task in this process, as an instance holds it, on a real Kafka and a real PostgreSQL of this
machine, without Spark: a bulk read is what a worker asks of an instance, and a commit is all that
an instance does for one (changelog, commit record and transaction in Kafka; the database's
transaction). PostgreSQL is as Debian has it, durable; Kafka relies on its replicas, of which there
is one here, and RocksDB on Kafka. Kinds take turns. The least and the median of each are shown, as
whatever else runs on the machine only adds to it: where the two are far apart it did, and the
load of the machine is printed too. It needs PostgreSQL's programs: on Debian, apt-get install
postgresql.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TopicSpec, changelog_topic, commits_topic
from penstock.config import Config
from penstock.instance import protocol
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import (
    CommitHeader,
    DatabaseOrder,
    InputOrder,
    ReadHeader,
    Reply,
    StoreOrder,
    TakeOrder,
)
from penstock.instance.task import OpenTask, TaskEnvironment
from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.stores.directory import StateDirectory
from tests.postgres_server import PostgresServer, programs

KINDS = ("rocksdb", "memory", "postgresql")
SIZES = (100, 10_000)
"""How many keys a read asks for, and a commit changes."""
STORE, TASK, INPUT = "counts", "0_0", "store-kinds-input"
VALUE_BYTES = 64
DSN_VARIABLE = "PENSTOCK_BENCH_DSN"
_FILL_ROWS = 20_000
_TAKES = 5
Found = dict[str, dict[str, tuple[float, float]]]
"""By kind and by what was done: the least and the median, in milliseconds."""


class Kept:
    """A task whose store is of one kind; `take` makes the next owner."""

    def __init__(self, kind: str, config: Config, directory: Path) -> None:
        self.kind = kind
        self._application_id = f"store-kinds-{kind}"
        self._config = config
        self._clients = SharedClients(config, self._application_id)
        self._directory = directory / kind
        self._owners = 0
        admin = TopicAdmin(config)
        specs = [commits_topic(self._application_id, partitions=2)]
        if kind != "postgresql":
            specs.append(changelog_topic(self._application_id, STORE, partitions=1))
        found = admin.ensure(specs)
        self._input_id = admin.describe([INPUT])[INPUT].id
        database = DatabaseOrder(dsn_variable=DSN_VARIABLE, table=["counts"], outbox=False)
        self._store = StoreOrder(name=STORE, database=database)
        if kind != "postgresql":
            log = found[specs[-1].name]
            self._store = StoreOrder(
                name=STORE,
                changelog=log.name,
                changelog_id=log.id,
                persistent=kind == "rocksdb",
            )
        self._task: OpenTask | None = None

    def take(self, *, empty_disk: bool = False) -> float:
        """Give the task to a new owner; how long it took until it served."""
        self.close()
        if empty_disk:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._state = StateDirectory.open(self._directory, self._application_id)
        self._owners += 1
        order = TakeOrder(
            task=TASK,
            name="counts-0",
            epoch=(1, self._owners),
            first_taking=self._owners == 1,
            inputs=[
                InputOrder(
                    topic=INPUT,
                    partition=0,
                    topic_id=self._input_id,
                    partitions=1,
                    reset="earliest",
                )
            ],
            stores=[self._store],
            commits_partition=1,
        )
        environment = TaskEnvironment(
            application_id=self._application_id,
            config=self._config,
            directory=self._state,
            clients=self._clients,
            lease_holds=lambda: True,
        )
        began = time.perf_counter()
        task = OpenTask(order, environment)
        task.take()
        took = time.perf_counter() - began
        if task.status().state != "running":
            raise SystemExit(f"{self.kind}: the task was not taken: {task.status()}")
        self._task = task
        return took

    def commit(self, keys: Sequence[bytes]) -> float:
        """Give these keys new values; how long that took."""
        task, count = self._open(), len(keys)
        batch = pa.record_batch(
            [
                pa.array([protocol.CHANGE] * count, pa.uint8()),
                pa.array([0] * count, pa.int16()),
                pa.array([-1] * count, pa.int32()),
                pa.array(keys, pa.binary()),
                pa.array([os.urandom(VALUE_BYTES) for _ in keys], pa.binary()),
                pa.array([time.time_ns() // 1_000_000] * count, pa.int64()),
                pa.nulls(count, protocol.HEADERS),
            ],
            schema=protocol.ROWS,
        )
        status = task.status()
        header = CommitHeader(
            task=TASK,
            epoch=status.epoch,
            n=status.n + 1,
            start=status.position,
            end=status.position,
            stores=[STORE],
            topics=[],
            rows=count,
            metadata={},
        )
        began = time.perf_counter()
        reply = task.commit(header, iter([batch]))
        took = time.perf_counter() - began
        if reply.status != "ok":
            raise SystemExit(f"{self.kind}: a commit was refused: {reply}")
        return took

    def read(self, keys: Sequence[bytes]) -> float:
        """Ask for these keys, all of which are there; how long that took."""
        task = self._open()
        status = task.status()
        header = ReadHeader(task=TASK, epoch=status.epoch, n=status.n + 1, store=STORE)
        questions = pa.table([pa.array(keys, pa.binary())], schema=protocol.QUESTIONS["get"])
        began = time.perf_counter()
        *batches, reply = task.read(header, questions)
        took = time.perf_counter() - began
        values = [batch.column(0) for batch in batches if isinstance(batch, pa.RecordBatch)]
        found = sum(len(each) - each.null_count for each in values)
        if not isinstance(reply, Reply) or reply.status != "ok" or found != len(keys):
            raise SystemExit(f"{self.kind}: {found} of {len(keys)} keys were read: {reply}")
        return took

    def close(self) -> None:
        """The owner goes away."""
        if self._task is not None:
            self._task.close()
            self._state.close()
            self._task = None

    def end(self) -> None:
        """Let everything go."""
        self.close()
        self._clients.close()

    def _open(self) -> OpenTask:
        assert self._task is not None
        return self._task


def measure(kept: Sequence[Kept], keys: int, rounds: int) -> Found:
    """How long each kind takes."""
    found: dict[str, dict[str, list[float]]] = {each.kind: {} for each in kept}

    def note(kind: str, what: str, seconds: float) -> None:
        found[kind].setdefault(what, []).append(seconds * 1000)

    everything = [b"key-%010d" % number for number in range(keys)]
    for each in kept:
        each.take()
        for part in _parts(everything, _FILL_ROWS):
            each.commit(part)
    chosen = random.Random(7)
    for number in range(rounds):
        for each in (*kept[number % len(kept) :], *kept[: number % len(kept)]):
            for size in SIZES:
                note(each.kind, f"read {size} keys", each.read(chosen.sample(everything, size)))
                note(each.kind, f"commit {size} keys", each.commit(chosen.sample(everything, size)))
    for _ in range(_TAKES):
        for each in kept:
            note(each.kind, "new owner, same machine", each.take())
            note(each.kind, "new owner, empty disk", each.take(empty_disk=True))
    return {
        kind: {
            what: (round(min(times), 2), round(statistics.median(times), 2))
            for what, times in of_kind.items()
        }
        for kind, of_kind in found.items()
    }


def _parts(keys: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


def main() -> None:
    """Measure, and print what was found as JSON and as a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    postgres = programs()
    if postgres is None:
        sys.exit("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    server = PostgresServer(postgres, durable=True)
    try:
        os.environ[DSN_VARIABLE] = server.create_database("store_kinds")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory)
            with EmbeddedKafka(KafkaOptions(directory=path / "kafka")) as kafka:
                config = Config(bootstrap_servers=kafka.bootstrap_servers)
                TopicAdmin(config).create([TopicSpec(INPUT, 1, {})])
                kept = [Kept(kind, config, path / "state") for kind in KINDS]
                found = measure(kept, asked.keys, asked.rounds)
                for each in kept:
                    each.end()
    finally:
        server.close()
    load = round(os.getloadavg()[1], 1)
    print(json.dumps({"keys": asked.keys, "rounds": asked.rounds, "load": load, "ms": found}))
    print(table(found))


def table(found: Found) -> str:
    """What was found as the page has it.

    >>> print(table({"rocksdb": {"read 100 keys": (0.5, 0.7)}}))
    | in ms: least (median) | rocksdb |
    | --- | --- |
    | read 100 keys | 0.5 (0.7) |
    """
    heads = ["in ms: least (median)", *found]
    rows = []
    for what in next(iter(found.values())):
        pairs = [of_kind[what] for of_kind in found.values()]
        rows.append([what, *(f"{least:,.1f} ({median:,.1f})" for least, median in pairs)])
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    main()
