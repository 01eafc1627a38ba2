"""Stores in memory through Spark and Kafka: nothing is on disk, and each run restores them all."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

import penstock as ps
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

MINUTE = timedelta(minutes=1)
DAY_MS = 24 * 60 * 60 * 1000
TODAY = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS
"""All records are in one window, of late: brokers delete what is older than a topic's retention."""
STORES = ("counts", "sums")


def topology(app: ps.Application, source: str, results: str) -> None:
    grouped = app.stream(source, key=str, value=int).group_by_key()
    grouped.count("counts").to_stream().to(results)
    grouped.count("seen", logging=False)
    windows = grouped.windowed_by(ps.tumbling(timedelta(days=1), grace=MINUTE)).sum("sums")
    windows.to_stream().map(lambda window, total: (window.key, total), key=str, value=int).to(
        f"{results}-windows"
    )


def send(scene: Scene, *rows: tuple[str, int]) -> None:
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    for key, value in rows:
        data = value.to_bytes(8, "big", signed=True)
        producer.produce(scene.source, data, key, timestamp=TODAY)
    assert producer.flush(30) == 0


def numbers(scene: Scene, topic: str) -> list[int]:
    return [int.from_bytes(row.value or b"", "big", signed=True) for row in scene.read(topic)]


def test_a_restart_restores_what_memory_held(
    kafka: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.driver")
    scene = Scene(kafka, tmp_path, partitions=1)
    windows = f"{scene.results}-windows"
    scene.create_topics(scene.source, scene.results, windows)
    restored: list[tuple[str, int]] = []

    send(scene, ("a", 1), ("b", 10), ("a", 2))
    with Run(scene, topology, dsl_store="memory") as run:
        run.wait_committed(3)
    send(scene, ("a", 3), ("b", 20))
    again = Run(scene, topology, dsl_store="memory")
    again.app.on_restore_end(lambda where, store, total: restored.append((store, total)))
    with again:
        again.wait_committed(5)

    assert numbers(scene, scene.results) == [1, 1, 2, 3, 2]
    assert numbers(scene, windows) == [1, 10, 3, 6, 30]
    assert sorted(restored) == [("counts", 3), ("sums", 3)]
    # What is not restored is told, at each start.
    said = [text for text in caplog.messages if "ephemeral" in text]
    assert len(said) == 2
    assert said[0].startswith("Store seen is ephemeral (logging=False): no changelog, no standbys")
    # Every RocksDB has a file of this name.
    assert not [path for path in scene.state_dir.rglob("CURRENT") if path.parent.name in STORES]
