"""Standbys and warm-ups on real processes: who takes over, with how much to restore."""

from __future__ import annotations

import json
import os
import shutil
import signal
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from penstock.coordination.ids import TaskId
from penstock.coordination.rebalances import Rebalance
from penstock.driver.events import CopiesChanged, Event, Rebalanced
from penstock.observability.crash_points import HOLD, write_whole
from tests.harness import Scene
from tests.in_process import Run, instances_here
from tests.integration.test_restoring import Heard, changelog_offsets, committed

pytestmark = pytest.mark.usefixtures("spark")

PARTITIONS = 4


class Watched(Run):
    """A run of two instances that keeps what is told of who holds what."""

    def __init__(self, scene: Scene, **options: object) -> None:
        defaults = {
            "num_instances": 2,
            # Longer than the test takes: what is noticed is noticed by other means.
            "session_timeout": timedelta(minutes=5),
            "acceptable_recovery_lag": 0,
            "max_warmup_replicas": PARTITIONS,
        }
        super().__init__(scene, **{**defaults, **options})
        self.heard = Heard()
        self.rebalances: list[Rebalance] = []
        self.owners: dict[TaskId, str] = {}
        self.positions: dict[str, dict[TaskId, int]] = {}
        self.app.set_restore_listener(self.heard)
        self.app.on_event(self.hear)

    def hear(self, event: Event) -> None:
        if isinstance(event, Rebalanced):
            self.rebalances.append(event.rebalance)
            for move in event.rebalance.active_moves:
                self.owners[move.task] = move.target
        elif isinstance(event, CopiesChanged):
            self.positions = {name: dict(each) for name, each in event.positions.items()}

    def tasks_of(self, name: str) -> list[TaskId]:
        return sorted(task for task, owner in self.owners.items() if owner == name)

    def wait_followed(self) -> None:
        """Wait until one other instance holds all that is committed of each task."""
        # The group's offsets may be seen a moment before the last records of the changelog.
        records = self.scene.expected().total()
        self.wait_for(
            lambda: sum(map(len, changelog_offsets(self.scene).values())) == records,
            what="all that is committed is seen",
        )
        written = changelog_offsets(self.scene)

        def followed() -> bool:
            names = set(self.owners.values())
            return len(names) == 2 and all(
                self.positions.get(other, {}).get(task, 0) > written[task.partition][-1]
                for task, owner in self.owners.items()
                for other in names - {owner}
            )

        self.wait_for(followed, what="every task was followed")

    def directory(self, name: str) -> Path:
        return self.scene.state_dir / name.partition(".")[0] / self.scene.application_id

    def kill(self, name: str, *, wipe: bool = False) -> None:
        pid = json.loads((self.directory(name) / ".lock").read_text())["pid"]
        assert psutil.Process(pid) in instances_here()
        if wipe:
            # Before its successor can open it.
            os.kill(pid, signal.SIGSTOP)
            shutil.rmtree(self.directory(name))
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=PARTITIONS).create_topics()


def records(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (i % 40), b"v") for i in range(count)]


def test_a_standby_takes_over_with_nothing_to_restore_and_another_is_built(scene: Scene) -> None:
    total = scene.produce(records(2000))
    with Watched(scene, num_standby_replicas=1) as run:
        run.wait_committed(total)
        assert len(set(run.owners.values())) == 2
        run.wait_followed()
        killed = run.owners[TaskId(0, 0)]
        lost = run.tasks_of(killed)
        [survivor] = set(run.owners.values()) - {killed}
        run.heard.ended.clear()
        run.kill(killed)
        run.wait_for(
            lambda: {("counts", task.partition) for task in lost} <= run.heard.ended.keys(),
            what="the standby had taken over",
        )
        # What was committed was followed; nothing was written since.
        assert {run.heard.ended["counts", task.partition] for task in lost} == {0}
        second = next(each for each in run.rebalances if f"instance {killed} was lost" in each.why)
        assert {(move.source, move.target) for move in second.active_moves} == {(killed, survivor)}
        total += scene.produce(records(400))
        run.wait_committed(total)
        # The successor follows what the survivor has, and gets its share back.
        run.wait_for(
            lambda: len(run.tasks_of(survivor)) == PARTITIONS // 2, what="the load was even again"
        )
        run.wait_followed()
        total += scene.produce(records(400))
        run.wait_committed(total)
        run.wait_followed()
    assert scene.counts() == scene.expected()
    assert run.notices == [note for note in run.notices if "lost" in note or "copy" in note]


def test_who_joins_gets_tasks_when_it_has_caught_up_and_all_commit_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = scene.directory / "crash"
    crashes.mkdir()
    monkeypatch.setenv("PENSTOCK_CRASH_DIR", str(crashes))
    # The first task that is warmed up stands still for as long as the test wants.
    write_whole(crashes / "follow.before_catching_up", HOLD)
    held = crashes / "follow.before_catching_up.held"
    total = scene.produce(records(2000))
    with Watched(scene) as run:
        run.wait_committed(total)
        killed = run.owners[TaskId(0, 0)]
        [survivor] = set(run.owners.values()) - {killed}
        run.kill(killed, wipe=True)
        run.wait_for(lambda: len(run.tasks_of(survivor)) == PARTITIONS, what="the other had all")
        run.wait_for(held.exists, what="the successor warmed up")
        # It has one task by now that it caught up with, and not the other.
        run.wait_for(lambda: len(run.tasks_of(survivor)) == PARTITIONS - 1, what="one had moved")
        before = [committed(scene, partition) for partition in range(PARTITIONS)]
        total += scene.produce(records(400))
        run.wait_committed(total)
        after = [committed(scene, partition) for partition in range(PARTITIONS)]
        assert all(now > then for now, then in zip(after, before, strict=True))
        assert len(run.tasks_of(survivor)) == PARTITIONS - 1
        held.unlink()
        run.wait_for(
            lambda: len(run.tasks_of(survivor)) == PARTITIONS // 2, what="the load was even again"
        )
        successor = next(name for name in run.owners.values() if name != survivor)
        moved = [
            (move.task, each)
            for each in run.rebalances
            for move in each.active_moves
            if move.target == successor
        ]
        assert len(moved) == 2
        for task, rebalance in moved:
            assert rebalance.why == (f"instance {successor} has caught up with {task}",)
        total += scene.produce(records(400))
        run.wait_committed(total)
        # Both were followed to their ends before they moved.
        assert {run.heard.ended["counts", task.partition] for task, _ in moved} == {0}
    assert scene.counts() == scene.expected()


def test_the_eager_protocol_stops_all_tasks_to_move_one(scene: Scene) -> None:
    total = scene.produce(records(800))
    with Watched(scene, rebalance_protocol="eager", num_standby_replicas=1) as run:
        run.wait_committed(total)
        run.wait_followed()
        first = dict(run.owners)
        run.heard.ended.clear()
        run.kill(run.owners[TaskId(0, 0)])
        run.wait_for(lambda: run.owners != first, what="the other got all")
        # Also tasks that stay where they are are taken anew, and find their stores as they were.
        run.wait_for(lambda: len(run.heard.ended) == PARTITIONS, what="all were taken anew")
        assert set(run.heard.ended.values()) == {0}
        total += scene.produce(records(400))
        run.wait_committed(total)
    assert scene.counts() == scene.expected()
