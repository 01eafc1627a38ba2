"""Restores of a whole application: who is told, what is restored, and who goes on meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

import penstock as ps
from penstock.observability.crash_points import HOLD, write_whole
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")


class Heard(ps.RestoreListener):
    """What a listener was told, by store and partition."""

    def __init__(self) -> None:
        self.started: dict[tuple[str, int], tuple[int, int]] = {}
        self.batches: Counter[tuple[str, int]] = Counter()
        self.last: dict[tuple[str, int], int] = {}
        self.ended: dict[tuple[str, int], int] = {}
        self.suspended: list[tuple[str, int, int]] = []

    def on_restore_start(
        self, partition: ps.TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        self.started[store, partition.partition] = (starting_offset, ending_offset)

    def on_batch_restored(
        self, partition: ps.TopicPartition, store: str, batch_end_offset: int, num_restored: int
    ) -> None:
        self.batches[store, partition.partition] += num_restored
        self.last[store, partition.partition] = batch_end_offset

    def on_restore_end(self, partition: ps.TopicPartition, store: str, total_restored: int) -> None:
        self.ended[store, partition.partition] = total_restored

    def on_restore_suspended(
        self, partition: ps.TopicPartition, store: str, total_restored: int
    ) -> None:
        self.suspended.append((store, partition.partition, total_restored))


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=2).create_topics()


def changelog_offsets(scene: Scene) -> dict[int, list[int]]:
    """The offsets of a changelog's records, by partition."""
    found: dict[int, list[int]] = defaultdict(list)
    for row in scene.read(scene.changelog):
        found[row.partition].append(row.offset)
    return found


def run_to(scene: Scene, total: int, state_dir: Path) -> Heard:
    """Run until so many records are committed; what its restores told."""
    heard = Heard()
    run = Run(scene, state_dir=state_dir)
    run.app.set_restore_listener(heard)
    with run:
        run.wait_committed(total)
    return heard


def test_a_copied_directory_needs_only_the_tail_and_an_empty_one_everything(scene: Scene) -> None:
    total = scene.produce((b"k%d" % (i % 40), b"v") for i in range(400))
    first = run_to(scene, total, scene.state_dir)
    assert first.started == {("counts", 0): (0, 0), ("counts", 1): (0, 0)}
    assert first.ended == {("counts", 0): 0, ("counts", 1): 0}
    before = changelog_offsets(scene)
    # Whose a store is lies in the store: nothing in the directory names a host.
    copy = scene.directory / "elsewhere"
    shutil.copytree(scene.state_dir, copy)
    total += scene.produce((b"k%d" % (i % 40), b"v") for i in range(300))
    everything = run_to(scene, total, scene.directory / "empty")
    assert everything.started.keys() == everything.ended.keys() == first.ended.keys()
    for partition in (0, 1):
        counts = ("counts", partition)
        start, end = everything.started[counts]
        assert start == 0
        assert end > before[partition][-1]
        assert everything.batches[counts] == everything.ended[counts] == len(before[partition])
    assert everything.suspended == []
    after = changelog_offsets(scene)

    tail = run_to(scene, total, copy)
    for partition in (0, 1):
        counts = ("counts", partition)
        missing = [offset for offset in after[partition] if offset > before[partition][-1]]
        assert tail.started[counts][0] == before[partition][-1] + 1
        assert tail.started[counts][1] > missing[-1]
        assert tail.last[counts] == missing[-1]
        assert tail.batches[counts] == tail.ended[counts] == len(missing) > 0
    assert scene.counts() == scene.expected()


def committed(scene: Scene, partition: int) -> int:
    """The group's offset on one partition of the source."""
    consumer = Consumer({"bootstrap.servers": scene.bootstrap, "group.id": scene.application_id})
    [found] = consumer.committed([KafkaPartition(scene.source, partition)], timeout=30)
    consumer.close()
    return max(found.offset, 0)


def test_other_tasks_go_on_while_one_restores(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = scene.produce((b"k%d" % (i % 40), b"v") for i in range(400))
    run_to(scene, total, scene.state_dir)
    crashes = scene.directory / "crash"
    crashes.mkdir()
    monkeypatch.setenv("PENSTOCK_CRASH_DIR", str(crashes))
    # One restore stands still in the middle for as long as the test wants.
    write_whole(crashes / "restore.mid_batch", HOLD)
    held = crashes / "restore.mid_batch.held"
    heard = Heard()
    run = Run(scene, state_dir=scene.directory / "empty")
    run.app.set_restore_listener(heard)
    starting = threading.Thread(target=run.app.start)
    starting.start()
    try:
        run.wait_for(lambda: held.exists() and len(heard.ended) == 1, what="one had restored")
        [(_, free)] = heard.ended
        rows = [row for row in scene.read(scene.source) if row.partition == free]
        key = rows[0].key
        scene.produce((key, b"more") for _ in range(50))
        ends = len(rows) + 50
        run.wait_for(lambda: committed(scene, free) == ends, what="the other task went on")
        assert held.exists()
        assert len(heard.ended) == 1
        assert run.app.state is ps.ApplicationState.REBALANCING
        assert heard.suspended == []
        # Its instance dies: that restore stops, and the next one begins anew.
        os.kill(int(held.read_text()), signal.SIGKILL)
        run.wait_for(lambda: bool(heard.suspended), what="the restore was suspended")
    finally:
        held.unlink(missing_ok=True)
        starting.join()
    run.wait_committed(total + 50)
    run.app.stop()
    assert heard.suspended == [("counts", 1 - free, 0)]
    assert len(heard.ended) == 2
    assert scene.counts() == scene.expected()


def test_the_copy_of_a_task_that_moved_away_is_deleted(scene: Scene) -> None:
    total = scene.produce((b"k%d" % (i % 40), b"v") for i in range(400))

    def copies() -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for store in scene.state_dir.glob(f"*/{scene.application_id}/0_*/counts"):
            found[store.parent.name].add(store.parts[-4])
        return found

    with Run(scene, num_instances=2, state_cleanup_delay=timedelta(seconds=1)) as run:
        run.wait_committed(total)
        before = copies()
        locks = [
            scene.state_dir / f"instance-{number}" / scene.application_id / ".lock"
            for number in (0, 1)
        ]
        run.wait_for(lambda: all(lock.exists() for lock in locks), what="both instances are there")
        slot = before["0_0"].copy().pop()
        lock = scene.state_dir / slot / scene.application_id / ".lock"
        os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
        # Its tasks go to the other, and a new process takes over its directory.
        run.wait_for(lambda: "is lost" in " ".join(run.notices), what="the loss was noticed")
        total += scene.produce((b"k%d" % (i % 40), b"v") for i in range(100))
        run.wait_committed(total)
        # The first task was on both disks then, and perhaps one of the two moves on from there.
        run.wait_for(
            lambda: [len(places) for places in copies().values()] == [1, 1],
            what="the old copy was deleted",
        )
    assert scene.counts() == scene.expected()
