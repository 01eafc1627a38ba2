"""Kill -9 anywhere, again and again, while records come in: no count is ever wrong.

One application is fed without pause. The tests kill its processes at every named point and at
random moments; the last ones look at what Kafka holds. What was killed must have been at work.
"""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from penstock.changelog.topics import commits_name
from penstock.observability.crash_points import HOLD, POINTS
from tests.crash import processes
from tests.crash.world import KEYS, World, uncommitted_at
from tests.harness import Scene, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

KILLS_PER_POINT = 3
CLOSING = "restore.close_while_restoring"
HELD_WHILE_CLOSING = "restore.mid_batch"
RANDOM_KILLS = ["instance"] * 9 + ["worker"] * 9
LEAVE_ABORTED_RECORDS = ("commit.after_ack", "commit.after_offsets_in_txn")


@pytest.fixture(scope="module")
def world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(Scene(kafka, tmp_path_factory.mktemp("crash")).create_topics())
    try:
        world.wait_running()
        world.wait_gone_on()
        yield world
    finally:
        world.close()


@pytest.mark.parametrize("point", [point for point in POINTS if point != CLOSING])
def test_a_kill_at_a_named_point_stops_nothing(world: World, point: str) -> None:
    for _ in range(KILLS_PER_POINT):
        world.app.arm(point)
        if point.startswith(("open.", "restore.")):
            # These are on the way to serving a task: someone must lose it first.
            world.wait_for(
                lambda: world.app.fired(point) or bool(world.owners()), what="a task had an owner"
            )
            for owner in [] if world.app.fired(point) else world.owners():
                owner.kill()
        world.wait_for(lambda: world.app.fired(point), what=f"the crash at {point}")
    # That every task goes on is seen in the end; the next kill may come before it does.
    world.wait_moved(1)


def test_a_kill_while_a_task_is_closed_during_its_restore_stops_nothing(world: World) -> None:
    held = world.app.crash_dir / f"{HELD_WHILE_CLOSING}.held"
    for _ in range(KILLS_PER_POINT):
        # Every task is served, so nobody restores yet: the process that will be held is one that
        # takes over, and not one that is killed here.
        world.wait_gone_on()
        world.app.arm(CLOSING)
        (world.app.crash_dir / HELD_WHILE_CLOSING).write_text(HOLD)
        world.owners()[0].kill()
        world.wait_for(lambda: held.exists() and bool(held.read_text()), what="a restore")
        restoring = int(held.read_text())
        for instance in world.instances():
            if instance.pid == restoring:
                instance.terminate()
        world.wait_for(lambda: world.app.fired(CLOSING), what=f"the crash at {CLOSING}")
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
    world.wait_running()
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
    at_points = [death.what for death in deaths if death.what in POINTS]
    assert {point: at_points.count(point) for point in POINTS} == dict.fromkeys(
        POINTS, KILLS_PER_POINT
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
