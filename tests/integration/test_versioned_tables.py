"""Versioned tables through Spark and Kafka: their history outlives the disk."""

from __future__ import annotations

import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

import penstock as ps
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

START = time.time_ns() // 1_000_000 - 3_600_000
"""Of late: brokers delete what is older than a topic's retention."""
HISTORY = timedelta(minutes=10)


def topology(app: ps.Application, source: str, results: str) -> None:
    prices = app.table(
        f"{source}-prices",
        ps.versioned_store("prices", history_retention=HISTORY),
        key=str,
        value=str,
    )
    orders = app.stream(source, key=str, value=str)
    orders.left_join(prices, lambda a, b: f"{a} at {b}", value=str, name="at-once").to(results)
    waiting = orders.join(
        prices, lambda a, b: f"{a} at {b}", value=str, grace=timedelta(minutes=1), name="waiting"
    )
    waiting.to(f"{results}-waited")


def send(scene: Scene, topic: str, *rows: tuple[str, str | None, int]) -> None:
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    for key, value, second in rows:
        producer.produce(topic, value, key, timestamp=START + second * 1000)
    assert producer.flush(30) == 0


def values(scene: Scene, topic: str) -> list[str]:
    return [(row.value or b"").decode() for row in scene.read(topic)]


def test_the_history_is_restored_from_the_changelog(kafka: str, tmp_path: Path) -> None:
    """Prices first, orders in a later run: the store must know what the prices were before."""
    scene = Scene(kafka, tmp_path, partitions=1)
    prices, waited = f"{scene.source}-prices", f"{scene.results}-waited"
    scene.create_topics(scene.source, prices, scene.results, waited)
    send(
        scene,
        prices,
        ("tea", "2", 100),
        ("tea", "4", 300),
        ("tea", "3", 200),
        ("milk", "1", 100),
        ("milk", None, 250),
    )
    # One order says that the prices before it are in the store.
    send(scene, scene.source, ("tea", "first", 301))
    with Run(scene, topology) as run:
        run.wait_for(lambda: len(values(scene, scene.results)) == 1, what="an order came out")
    assert values(scene, scene.results) == ["first at 4"]
    assert values(scene, waited) == []

    shutil.rmtree(scene.state_dir)
    send(
        scene,
        scene.source,
        ("tea", "a", 150),
        ("tea", "b", 250),
        ("tea", "c", 350),
        ("tea", "d", 50),
        ("milk", "e", 200),
        ("milk", "f", 260),
        ("none", "g", 361),
    )
    with Run(scene, topology) as run:
        run.wait_for(lambda: len(values(scene, scene.results)) == 8, what="all orders came out")
    assert values(scene, scene.results)[1:] == [
        "a at 2",
        "b at 3",
        "c at 4",
        "d at None",
        "e at 1",
        "f at None",
        "g at None",
    ]
    # What waited before the disk was lost comes out; what is too late to wait is joined at once.
    assert sorted(values(scene, waited)) == ["a at 2", "b at 3", "e at 1", "first at 4"]
    assert changelog_setting(scene, "cleanup.policy") == "compact"
    day = timedelta(days=1)
    lag = int((HISTORY + day) / timedelta(milliseconds=1))
    assert changelog_setting(scene, "min.compaction.lag.ms") == str(lag)


def changelog_setting(scene: Scene, name: str) -> str:
    topic = f"{scene.application_id}-prices-changelog"
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    found = admin.describe_configs([resource])[resource].result(30)
    return str(found[name].value)
