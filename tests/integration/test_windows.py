"""Windows, sessions, joins and suppression through Spark and Kafka, against the test driver."""

from __future__ import annotations

import random
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

import penstock as ps
from penstock.testing import TopologyTestDriver
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

Sent = tuple[str, str, str, int]
"""Topic, key, value, timestamp."""
Out = tuple[bytes | None, bytes | None, int]
"""Key, value, timestamp."""
HOUR_MS = 3_600_000
START = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS - HOUR_MS
"""Of late: brokers delete what is older than a topic's retention."""
OUTPUTS = ("joined", "final", "sessions", "named")


def topology(app: ps.Application, source: str, results: str) -> None:
    left = app.stream(source, key=str, value=str)
    right = app.stream(f"{source}-2", key=str, value=str)
    near = ps.join_window(timedelta(seconds=30), grace=timedelta(seconds=30))
    left.outer_join(right, lambda a, b: f"{a}+{b}", near, value=str).to(f"{results}-joined")
    minutes = ps.tumbling(timedelta(minutes=1), grace=timedelta(seconds=20))
    counts = left.group_by_key().windowed_by(minutes).count("per-minute")
    counts.suppress(ps.until_window_closes()).to_stream().to(f"{results}-final")
    gap = ps.session(timedelta(seconds=25), grace=timedelta(seconds=20))
    right.group_by_key().windowed_by(gap).count("per-session").to_stream().to(f"{results}-sessions")
    names = app.table(f"{source}-names", "names", key=str, value=str)
    left.left_join(names, lambda a, b: f"{a}/{b}", value=str).to(f"{results}-named")


def records(scene: Scene, count: int, *, seed: int, first: int = 0) -> list[Sent]:
    """Records of three topics, a few of them late, in the order in which a task takes them."""
    chance = random.Random(seed)
    sent: list[Sent] = []
    for n in range(first, first + count):
        topic = scene.source + chance.choice(["", "", "-2", "-2", "-names"])
        late = chance.random() < 0.1 and not topic.endswith("-names")
        at = START + n * 2_000 - (chance.randrange(100_000) if late else 0)
        sent.append((topic, f"k{chance.randrange(4)}", f"v{n}", at))
    return by_lowest_head(sent)


def by_lowest_head(sent: list[Sent]) -> list[Sent]:
    queues = [[each for each in sent if each[0] == topic] for topic in {each[0] for each in sent}]
    taken = []
    while queues := [queue for queue in queues if queue]:
        taken.append(min(queues, key=lambda queue: queue[0][3]).pop(0))
    return taken


def produce(scene: Scene, sent: list[Sent]) -> None:
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    for topic, key, value, at in sent:
        producer.produce(topic, value, key, timestamp=at)
    assert producer.flush(30) == 0


def driven(scene: Scene, sent: list[Sent]) -> dict[str, list[Out]]:
    """What the test driver gives for records in this order."""
    app = ps.Application(scene.application_id, statestore_cache_max_bytes=0)
    topology(app, scene.source, scene.results)
    driver = TopologyTestDriver(app)
    names = {each[0] for each in sent}
    topics = {name: driver.input_topic(name, key=str, value=str) for name in names}
    for topic, key, value, at in sent:
        topics[topic].pipe(key, value, timestamp=at)
    found = {}
    for name in OUTPUTS:
        rows = driver.output_topic(f"{scene.results}-{name}", key=bytes, value=bytes).read_all()
        found[name] = [(row.key, row.value, row.timestamp) for row in rows]
    return found


def test_slices_of_any_size_give_what_the_driver_gives_over_a_lost_disk(
    kafka: str, tmp_path: Path
) -> None:
    """One partition, so that both see the records in one order: by time, lowest head first."""
    scene = Scene(kafka, tmp_path, partitions=1)
    inputs = [scene.source, f"{scene.source}-2", f"{scene.source}-names"]
    scene.create_topics(*inputs, *(f"{scene.results}-{name}" for name in OUTPUTS))
    sent: list[Sent] = []
    for part in (records(scene, 120, seed=1), records(scene, 90, seed=2, first=120)):
        produce(scene, part)
        sent += part
        expected = driven(scene, sent)
        wanted = total(expected)
        with Run(scene, topology, slice_records_max=40) as run:
            run.wait_for(lambda n=wanted: total(found(scene)) >= n, what="all came out")
        for name, rows in found(scene).items():
            assert rows, name
            assert rows == expected[name], name
        shutil.rmtree(scene.state_dir)


def found(scene: Scene) -> dict[str, list[Out]]:
    return {
        name: [(r.key, r.value, r.timestamp) for r in scene.read(f"{scene.results}-{name}")]
        for name in OUTPUTS
    }


def total(rows: dict[str, list[Out]]) -> int:
    return sum(map(len, rows.values()))
