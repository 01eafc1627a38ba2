"""A Java application is killed in the middle of its work; we go on exactly there, and it after us.

Changelogs, repartition topic, group offsets and what lies beside them are Kafka Streams' own.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import penstock as ps
from tests.harness import Scene, wait_until
from tests.in_process import Run
from tests.integration.test_interop import JavaProgram, is_empty

pytestmark = pytest.mark.usefixtures("spark")

TAKE_OVER = Path(__file__).parent / "data" / "TakeOver.java"
WINDOW_MS = 10_000
START = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS - 3_600_000
"""Of late: brokers delete what is older than a topic's retention."""
Counts = dict[bytes, list[int]]


def topology(app: ps.Application, source: str, results: str) -> None:
    stream = app.stream(source, key=str, value=str)
    windows = ps.tumbling(timedelta(milliseconds=WINDOW_MS), grace=timedelta(seconds=5))
    counts = stream.group_by_key().windowed_by(windows).count("windowed")
    counts.to_stream().to(f"{results}-windowed")
    words = stream.group_by(lambda key, value: value, key=str, name="words")
    words.count("rekeyed").to_stream().to(f"{results}-rekeyed")


class World:
    """The application's topics, and what is right by what its source holds."""

    def __init__(self, kafka: str, directory: Path) -> None:
        self.scene = Scene(kafka, directory, partitions=2)
        self.windowed, self.rekeyed = (
            f"{self.scene.results}-{name}" for name in ("windowed", "rekeyed")
        )
        self.scene.create_topics(self.scene.source, self.windowed, self.rekeyed)
        self._program = JavaProgram(TAKE_OVER, directory / "classes")
        self.sent = 0

    @property
    def repartition(self) -> str:
        return f"{self.scene.application_id}-words-repartition"

    def produce(self, count: int) -> None:
        """Records of five keys and three words, ten a window, in order of time."""
        producer = Producer({"bootstrap.servers": self.scene.bootstrap})
        for n in range(self.sent, self.sent + count):
            key, word = n * 7 % 5, n * 5 % 3
            where = (f"w{word}", f"k{key}", key % 2)
            producer.produce(self.scene.source, *where, timestamp=START + n * 1_000)
        assert producer.flush(30) == 0
        self.sent += count

    def java(self, *, halt_after: int = 0) -> dict[tuple[str, int], int]:
        """The application in Java, to the end of its input, or until it dies.

        Returns the times that it found beside the group's offsets on the source.
        """
        scene = self.scene
        names = (scene.application_id, scene.source, self.windowed, self.rekeyed)
        lines = self._program.run(
            "run", scene.bootstrap, *names, scene.directory / "j", halt_after
        ).splitlines()
        told = [line.split() for line in lines]
        return {
            (topic, int(partition)): int(at)
            for topic, partition, at in told
            if topic == scene.source
        }

    def penstock(self) -> None:
        """The application in Python, to the end of its input."""
        expected = self.expected()
        with Run(self.scene, topology) as run:
            run.wait_for(lambda: self.found() == expected, what="all was counted")

    def wait_until_nobody_runs(self) -> None:
        """Wait until the group has given its last member up: Java's says no goodbye."""
        wait_until(lambda: is_empty(self.scene), what="the group was empty")

    def found(self) -> tuple[Counts, Counts]:
        """Every count that was written, of windows and of words."""
        return self.scene.sequences(self.windowed), self.scene.sequences(self.rekeyed)

    def expected(self) -> tuple[Counts, Counts]:
        windows: Counter[bytes] = Counter()
        words: Counter[bytes] = Counter()
        for row in self.scene.read(self.scene.source):
            assert row.key is not None
            assert row.value is not None
            start = row.timestamp // WINDOW_MS * WINDOW_MS
            windows[row.key + start.to_bytes(8, "big")] += 1
            words[row.value] += 1
        windowed, rekeyed = (
            {key: list(range(1, count + 1)) for key, count in counts.items()}
            for counts in (windows, words)
        )
        return windowed, rekeyed

    def left_in_repartition(self) -> int:
        """How many records that were sent on were not counted yet."""
        properties = {
            "bootstrap.servers": self.scene.bootstrap,
            "group.id": self.scene.application_id,
        }
        consumer = Consumer(properties)
        wanted = [TopicPartition(self.repartition, p) for p in range(2)]
        committed = {each.partition: each.offset for each in consumer.committed(wanted)}
        consumer.close()
        rows = self.scene.read(self.repartition)
        return sum(row.offset >= committed[row.partition] for row in rows)

    def latest(self) -> dict[tuple[str, int], int]:
        """The latest timestamp in each input partition that still has records."""
        found: dict[tuple[str, int], int] = defaultdict(int)
        for row in self.scene.read(self.scene.source):
            where = self.scene.source, row.partition
            found[where] = max(found[where], row.timestamp)
        return found


def test_java_is_killed_we_go_on_and_java_after_us(kafka: str, tmp_path: Path) -> None:
    world = World(kafka, tmp_path)
    world.produce(60)
    world.java()
    world.wait_until_nobody_runs()
    assert world.found() == world.expected()

    # It dies at the fifth of 40 more: what it sent on and did not count stays for us.
    world.produce(40)
    world.java(halt_after=5)
    world.wait_until_nobody_runs()
    assert world.left_in_repartition() > 0
    world.produce(50)
    world.penstock()
    world.wait_until_nobody_runs()
    assert world.found() == world.expected()
    latest = world.latest()

    # Java goes on from our state and offsets; what it had itself is older, or was never finished.
    world.produce(50)
    assert world.java() == latest
    expected = world.expected()
    # It ends before the markers of its last transaction are there.
    wait_until(lambda: world.found() == expected, what="Java's counts were committed")
