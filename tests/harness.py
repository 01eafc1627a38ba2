"""What tests of the whole path share: topics, records, an application in a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.changelog.kafka_failures import LEADER_ON_ITS_WAY
from penstock.observability.crash_points import HOLD, write_whole

ROOT = Path(__file__).parent
_ENDING_SECONDS_MAX = 0.5
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 0.5


@dataclass(frozen=True)
class Row:
    """A record as a committed reader sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Scene:
    """Topics of one test on a shared broker, with names that no other test has."""

    bootstrap: str
    directory: Path
    partitions: int = 4
    copies: int = 1
    id: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")

    @property
    def source(self) -> str:
        return f"{self.id}-in"

    @property
    def results(self) -> str:
        return f"{self.id}-out"

    @property
    def application_id(self) -> str:
        return f"{self.id}-app"

    @property
    def state_dir(self) -> Path:
        return self.directory / "state"

    @property
    def changelog(self) -> str:
        return f"{self.application_id}-counts-changelog"

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def set_config(self, topic: str, settings: dict[str, str]) -> None:
        """Change a topic's settings, and wait until the broker knows."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self.admin
        admin.incremental_alter_configs([resource])[resource].result()

        def is_known() -> bool:
            found = admin.describe_configs([resource])[resource].result()
            return all(found[name].value == value for name, value in settings.items())

        wait_until(is_known, what="the broker knew the settings")

    def create_topics(self, *names: str) -> Scene:
        wanted = names or (self.source, self.results)
        topics = [NewTopic(name, self.partitions, self.copies) for name in wanted]
        admin = self.admin  # Kept alive until the futures are done: they die with their client.
        # Until it knows the brokers it may drop the connection that a request waits on.
        admin.list_topics(timeout=30)
        for future in admin.create_topics(topics).values():
            future.result()
        return self

    def produce(self, records: Iterable[tuple[Any, Any]], topic: str = "") -> int:
        """Write records with Java's partitioner; returns how many."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5}
        )
        count = 0
        for key, value in records:
            producer.produce(topic or self.source, value, key)
            count += 1
            producer.poll(0)
        assert producer.flush(30) == 0
        return count

    def read(self, topic: str, *, isolation: str = "read_committed") -> list[Row]:
        """Everything that is in a topic now, partition by partition in order of offsets."""
        properties = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"{self.id}-reader",
            "isolation.level": isolation,
            # A topic that was purged starts behind 0.
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            # Where nothing follows, the end is told at once.
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
        }
        consumer = Consumer(properties)
        count = len(consumer.list_topics(topic).topics[topic].partitions)
        if isolation == "read_committed":
            self._let_transactions_end(consumer, [TopicPartition(topic, p) for p in range(count)])
        # While others write, the end may come again and again; what came after is not waited for.
        ends = [_end(consumer, TopicPartition(topic, p)) for p in range(count)]
        consumer.assign([TopicPartition(topic, p, 0) for p in range(count)])
        rows: list[Row] = []
        ended: set[int] = set()
        while len(ended) < count:
            for message in consumer.consume(10_000, 0.02):
                error = message.error()
                if error is not None:
                    # Anything but the end would cut the topic short in silence.
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
                    continue
                if message.offset() >= ends[message.partition()] - 1:
                    ended.add(message.partition())
                    if message.offset() >= ends[message.partition()]:
                        continue
                headers = tuple((k, v) for k, v in message.headers() or ())
                where = (message.partition(), message.offset())
                what = (message.key(), message.value(), message.timestamp()[1])
                rows.append(Row(*where, *what, headers))
        consumer.close()
        return rows

    def _let_transactions_end(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Wait a moment: the group's offsets may be seen before what was written with them."""
        raw = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.id}-reader",
                "isolation.level": "read_uncommitted",
            }
        )
        written = [_end(raw, each) for each in partitions]
        raw.close()
        # One whose process was killed ends after seconds, and what is in it is not asked for.
        deadline = time.monotonic() + _ENDING_SECONDS_MAX
        while time.monotonic() < deadline:
            seen = [_end(consumer, each) for each in partitions]
            if all(now >= then for now, then in zip(seen, written, strict=True)):
                return
            time.sleep(0.02)

    def counts(self, topic: str = "") -> dict[bytes, int]:
        """The last count of each key in a topic of Kafka longs."""
        return {
            row.key: int.from_bytes(row.value, "big", signed=True)
            for row in self.read(topic or self.results)
            if row.key is not None and row.value is not None
        }

    def expected(self) -> Counter[bytes]:
        """How often each key is in the source."""
        return Counter(row.key for row in self.read(self.source) if row.key is not None)

    def expected_sequences(self) -> dict[bytes, list[int]]:
        """What `sequences` must be of counts: each key's go up by one from 1, as often as it is in
        the source."""
        return {key: list(range(1, count + 1)) for key, count in self.expected().items()}

    def sequences(self, topic: str = "") -> dict[bytes, list[int]]:
        """Every count of each key, in order."""
        result: dict[bytes, list[int]] = defaultdict(list)
        for row in self.read(topic or self.results):
            assert row.key is not None
            assert row.value is not None
            result[row.key].append(int.from_bytes(row.value, "big", signed=True))
        return dict(result)

    def committed(self) -> int:
        """The sum of the group's offsets on the source topic."""
        wanted = [TopicPartition(self.source, p) for p in range(self.partitions)]
        found = self._group.committed(wanted, timeout=30)
        return sum(max(each.offset, 0) for each in found)

    @cached_property
    def _group(self) -> Consumer:
        """Kept, because tests ask again and again: making a client costs more than its question."""
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.application_id,
                "isolation.level": "read_committed",
                # It may outlive the broker for a moment, which is no news.
                "log_level": 0,
            }
        )


def _end(consumer: Consumer, where: TopicPartition) -> int:
    """Where a log ends; a new topic's leader may be on its way to some of the brokers' clients."""
    found: list[int] = []

    def is_told() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(where, timeout=30)[1])
        except KafkaException as error:
            if error.args[0].code() not in LEADER_ON_ITS_WAY:
                raise
        return bool(found)

    wait_until(is_told, what=f"{where} had a leader")
    return found[0]


class AppProcess:
    """An application in a process of its own, which a test may kill."""

    def __init__(self, scene: Scene, *, topology: str = "count", **options: Any) -> None:
        self.scene = scene
        self.crash_dir = scene.directory / "crash"
        self.crash_dir.mkdir(exist_ok=True)
        self.log = scene.directory / f"app-{uuid.uuid4().hex[:6]}.log"
        order = {
            "topology": topology,
            "application_id": scene.application_id,
            "source": scene.source,
            "results": scene.results,
            "options": {
                "bootstrap_servers": scene.bootstrap,
                "state_dir": str(scene.state_dir),
                **options,
            },
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "application_process.py"), json.dumps(order)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PENSTOCK_CRASH_DIR": str(self.crash_dir)},
                start_new_session=True,
            )

    def text(self) -> str:
        """What the application printed so far."""
        return self.log.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], bool], *, what: str, seconds: float = 200) -> None:
        """Wait until something is so; fail with the log if it does not come."""
        deadline = time.monotonic() + seconds
        for is_so in asked(condition):
            if is_so:
                return
            self.check(what=f"before {what}")
            if time.monotonic() > deadline:
                raise AssertionError(f"Time is over before {what}:\n{self.text()[-6000:]}")

    def check(self, what: str = "by itself") -> None:
        """Fail with the log if the application has ended."""
        if self.process.poll() is not None:
            raise AssertionError(f"The application ended {what}:\n{self.text()[-6000:]}")

    def wait_running(self) -> AppProcess:
        self.wait_for(lambda: "state running" in self.text(), what="it was running")
        return self

    def wait_committed(self, total: int) -> AppProcess:
        """Wait until the group's offsets on the source add up to this."""
        self.wait_for(lambda: self.scene.committed() >= total, what=f"{total} were committed")
        return self

    def arm(self, point: str, *, hit: int = 1) -> None:
        """Have the process that comes by this point for the n-th time die there."""
        write_whole(self.crash_dir / point, str(hit))

    def hold(self, point: str) -> Path:
        """Have the process that comes by this point stand still; the file will hold its number."""
        write_whole(self.crash_dir / point, HOLD)
        return self.crash_dir / f"{point}.held"

    def fired(self, point: str) -> bool:
        return not (self.crash_dir / point).exists()

    def stop(self) -> int:
        """Stop in order and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Kill the driver, as the kernel would: no goodbye to anyone."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(scene: Scene, *, topology: str = "count", **options: Any) -> Iterator[AppProcess]:
    """An application that is running when the block begins and has ended when it ends."""
    app = AppProcess(scene, topology=topology, **options)
    try:
        yield app.wait_running()
    finally:
        if app.process.poll() is None:
            app.process.terminate()
            try:
                app.process.wait(60)
            except subprocess.TimeoutExpired:
                app.kill()
                raise


class Stream:
    """Sends records all the while, of one key after the other."""

    def __init__(self, scene: Scene, keys: Sequence[bytes]) -> None:
        self.sent = 0
        self._scene = scene
        self._keys = itertools.cycle(keys)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send nothing more: what was sent is known from now on."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            self.sent += self._scene.produce((next(self._keys), b"v") for _ in range(21))


def wait_until(condition: Callable[[], bool], *, what: str, seconds: float = 60) -> None:
    """Wait until something is so, or fail."""
    deadline = time.monotonic() + seconds
    for is_so in asked(condition):
        if is_so:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"Time is over before {what}")


def asked(condition: Callable[[], bool]) -> Iterator[bool]:
    """The answers of a question that is asked again and again.

    Between two of them passes twice the time that the last one took, at the least: what is waited
    for is done by the same cores, and questions that read whole topics would take half of them.
    """
    while True:
        began = time.monotonic()
        yield condition()
        took = time.monotonic() - began
        time.sleep(min(max(_PAUSE_SECONDS, 2 * took), _PAUSE_SECONDS_MAX))
