"""Kill -9 anywhere, again and again, while records come in: no count is ever wrong.

One application is fed without pause. The tests kill its processes at every named point and at
random moments; the last ones look at what Kafka holds. What was killed must have been at work.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from penstock.changelog.topics import commits_name
from penstock.observability.crash_points import POINTS
from tests.crash import processes
from tests.crash.world import KEYS, World, uncommitted_at
from tests.harness import Scene, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

KILLS_PER_POINT = 3
RUNS_POINTS = [point for point in POINTS if not point.startswith("bootstrap.")]
"""A bootstrap is no run; its points are in tests/integration/test_bootstrap.py."""
CLOSING = "restore.close_while_restoring"
HELD_WHILE_CLOSING = "restore.before_running"
"""Where only a task comes by that is taken: in the middle of a batch there are warm-ups too."""
RANDOM_KILLS = ["instance"] * 10 + ["worker"] * 9
"""With a driver among them: twenty."""
WORKERS_POINTS = {
    "batch.after_receive",
    "batch.mid_update",
    "batch.after_update",
    "commit.mid_stream",
    "commit.after_reply_before_spark_commit",
}
LEAVE_ABORTED_RECORDS = ("commit.after_ack", "commit.after_offsets_in_txn")


@pytest.fixture(scope="module")
def world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(Scene(kafka, tmp_path_factory.mktemp("crash")).create_topics())
    try:
        world.app.wait_running()
        world.wait_gone_on()
        yield world
    finally:
        world.close()


def test_kills_at_every_named_point_stop_nothing(world: World) -> None:
    """Three lanes of kills side by side, so that one hits what has not recovered from another.

    Those on the way to serving a task come about through the kills of the second lane.
    """
    points = [point for point in RUNS_POINTS if point != CLOSING]
    taking = [point for point in points if point.startswith(("open.", "restore."))]
    in_workers = [point for point in points if point in WORKERS_POINTS]
    in_instances = [point for point in points if point not in taking + in_workers]
    lanes = [Lane(world, each) for each in (taking, in_instances, in_workers)]
    takes, commits, _ = lanes
    while True:
        going_on = [lane.go_on() for lane in lanes]
        if not any(going_on):
            break
        world.app.check()
        if takes.waits and not commits.waits:
            # Nobody dies any more in whose place a task could be taken.
            for owner in world.owners():
                owner.kill()
            world.app.wait_for(lambda: not takes.waits, what=f"the crash at {takes.point}")
        time.sleep(0.02)
    world.wait_gone_on()


class Lane:
    """Points, armed one after the other, each so many times."""

    def __init__(self, world: World, points: list[str]) -> None:
        self._world = world
        self._left = [point for point in points for _ in range(KILLS_PER_POINT)]
        self.point = ""

    @property
    def waits(self) -> bool:
        """Whether a point is armed at which nobody has died yet."""
        return bool(self.point) and not self._world.app.fired(self.point)

    def go_on(self) -> bool:
        """Arm the next point once the last one has fired; False at the end."""
        if not self.waits:
            self.point = self._left.pop(0) if self._left else ""
            if self.point:
                self._world.app.arm(self.point)
        return bool(self.point)


def test_a_kill_while_a_task_is_closed_during_its_restore_stops_nothing(world: World) -> None:
    for _ in range(KILLS_PER_POINT):
        # Every task is served, so nobody restores yet: the process that will be held is one that
        # takes over, and not one that is killed here.
        world.wait_gone_on()
        world.app.arm(CLOSING)
        held = world.app.hold(HELD_WHILE_CLOSING)
        world.owners()[0].kill()
        world.app.wait_for(
            lambda held=held: held.exists() and held.read_text().isdigit(), what="a restore"
        )
        restoring = int(held.read_text())
        for instance in world.instances():
            if instance.pid == restoring:
                instance.terminate()
        world.app.wait_for(lambda: world.app.fired(CLOSING), what=f"the crash at {CLOSING}")
        held.unlink()
    world.wait_moved(1)


def test_kills_at_random_moments_stop_nothing(world: World) -> None:
    choice = random.Random(11)
    kills = choice.sample(RANDOM_KILLS, len(RANDOM_KILLS))
    kills.insert(len(kills) // 2, "driver")
    for what in kills:
        world.wait_moved(choice.randrange(1, 200))
        if what == "driver":
            world.kill_driver()
            wait_until_alone(world)
            world.restart()
        else:
            world.kill_stalled(what, world.owners if what == "instance" else world.workers)
    world.wait_gone_on()


def test_every_count_is_exact_in_the_end_and_without_the_disk(world: World) -> None:
    world.kill_driver()
    wait_until_alone(world)
    shutil.rmtree(world.scene.state_dir)
    world.restart()
    # One record more of every key: its count goes on from what was restored.
    world.feeder.stop()
    world.app.wait_running()
    world.wait_gone_on()
    assert world.app.stop() == 0
    wait_until_alone(world)
    expected = world.scene.expected()
    assert len(expected) == KEYS
    assert expected.total() == world.feeder.records
    assert world.scene.counts(world.scene.changelog) == expected
    assert breaks(world.scene, expected) == []


def test_every_kill_hit_work_that_was_under_way(world: World) -> None:
    deaths = world.deaths()
    at_points = [death.what for death in deaths if death.what in RUNS_POINTS]
    assert {point: at_points.count(point) for point in RUNS_POINTS} == dict.fromkeys(
        RUNS_POINTS, KILLS_PER_POINT
    )
    assert len(deaths) - len(at_points) == len(RANDOM_KILLS) + 2
    waiting = uncommitted_at(world.scene, deaths)
    assert min(waiting) > 0, [d for d, n in zip(deaths, waiting, strict=True) if n == 0]
    # Transactions that were cut off between their last write and their end left records that
    # nobody may see.
    commits = commits_name(world.scene.application_id)
    every = offsets(world.scene, commits, isolation="read_uncommitted")
    valid = offsets(world.scene, commits, isolation="read_committed")
    assert valid < every
    assert len(every - valid) >= KILLS_PER_POINT * len(LEAVE_ABORTED_RECORDS)


def breaks(scene: Scene, expected: Mapping[bytes, int]) -> list[str]:
    """Where a key's counts do not go on by one, and which keys end too early."""
    last: dict[bytes | None, int] = defaultdict(int)
    found = []
    for row in scene.read(scene.results):
        count = int.from_bytes(row.value or b"", "big")
        if count != last[row.key] + 1:
            found.append(f"{last[row.key]} -> {count} of {row.key!r}: {row}")
        last[row.key] = count
    early = [f"{last[k]} of {n} is the last of {k!r}" for k, n in expected.items() if last[k] != n]
    return found + early


def offsets(scene: Scene, topic: str, *, isolation: str) -> set[tuple[int, int]]:
    return {(row.partition, row.offset) for row in scene.read(topic, isolation=isolation)}


def wait_until_alone(world: World) -> None:
    """Wait until every process of the application is gone; nothing outlives its driver."""
    wait_until(
        lambda: not processes.of_application(world.app.crash_dir), what="all processes had ended"
    )
