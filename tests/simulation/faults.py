"""What goes wrong: which faults there are, and when they strike."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.application import INPUT, Application
from tests.simulation.checks import last_record
from tests.simulation.network import FAULTS as NETWORK
from tests.simulation.world import World

ARMED = (
    "outcome unknown, lost",
    "outcome unknown, done",
    "outcome unknown, late",
    "records not acknowledged",
    "offsets refused",
    "slice runs twice",
    "job fails",
    "job ends late",
    "worker hangs",
    "worker dies in its stream",
    "store damaged in use",
    "order lost",
)
POINTS = (
    "broker",
    "open.after_lock",
    "open.after_db_open",
    "open.after_identity_check",
    "commit.before_changelog_send",
    "commit.after_send_before_ack",
    "commit.after_ack",
    "commit.after_offsets_in_txn",
    "commit.txn_unknown",
    "commit.after_txn_before_store",
    "commit.mid_store_write",
    "commit.after_store_before_reply",
    "restore.mid_batch",
    "restore.before_running",
)
MORE_POINTS = (*POINTS, "follow.before_catching_up")
"""Those of the seeds in which instances are told what to follow."""
PEER_POINTS = (*MORE_POINTS, "copy.half")
"""Those of the seeds in which they get copies from each other, too."""
FAULTS_MIN = 3
"""So many there are in every seed."""
LASTING_SECONDS = 20.0
"""Faults strike within so long; afterwards everything works."""


def _instance_crash(world: World, application: Application) -> None:
    victims = [each for each in application.instances if not each.dead]
    if victims:
        world.fired("instance crash")
        world.random.choice(victims).die()


def _instance_pause(world: World, application: Application) -> None:
    if application.instances:
        victim = world.random.choice(application.instances)
        victim.paused_until = world.now + world.random.uniform(1.0, 12.0)
        world.fired("instance pause")


def _instance_leaves(world: World, application: Application) -> None:
    members = [each for each in application.instances if each.is_member]
    if members:
        victim = world.random.choice(members)
        world.fired("instance leaves")
        victim.after(0.0, victim.leave)


def _instance_joins(world: World, application: Application) -> None:
    application.slots += 1
    application.start_instance(application.slots - 1)
    world.fired("instance joins")


def _second_of_one_id(world: World, application: Application) -> None:
    """Someone starts an instance whose id another one has."""
    from tests.simulation.instances import InstanceProcess

    members = [each for each in application.instances if each.is_member and each.is_static]
    if members and application.driver is not None:
        slot = world.random.choice(members).slot
        InstanceProcess(application.driver, application, slot)
        world.fired("second instance of one id")


def _driver_crash(world: World, application: Application) -> None:
    if application.driver is not None:
        world.fired("driver crash")
        application.driver.die()


def _driver_pause(world: World, application: Application) -> None:
    if application.driver is not None:
        driver = application.driver
        driver.paused_until = world.now + world.random.uniform(1.0, 12.0)
        world.fired("driver pause")
        if world.random.random() < 0.7:
            world.at(world.now + world.random.uniform(0.5, 8.0), application.start_driver)


def _driver_cut_off(world: World, application: Application) -> None:
    """The broker that would tell a driver of the next one cannot be reached by it."""
    if application.driver is not None:
        application.driver.cut_off_until = world.now + world.random.uniform(3.0, 10.0)
        world.fired("driver cut off")
        world.at(world.now + world.random.uniform(0.1, 2.0), application.start_driver)


def _second_driver(world: World, application: Application) -> None:
    world.fired("second driver")
    application.start_driver()


def _disk_lost(world: World, application: Application) -> None:
    if application.instances:
        victim = world.random.choice(application.instances)
        world.fired("disk lost")
        victim.die()
        world.disk.wipe(victim.directory.name)


def _store_damaged(world: World, application: Application) -> None:
    if application.instances:
        victim = world.random.choice(application.instances)
        if world.disk.damage(victim.directory.name):
            world.fired("store damaged")
            victim.die()


def _group_offsets_lost(world: World, application: Application) -> None:
    """Kafka forgets the offsets of a group that nobody was in for long: no driver is at work."""
    partition = world.random.randrange(application.partitions)
    if not _is_level(world, partition):
        return  # Another program's offsets are all that is known of the task.
    if application.driver is not None:
        application.driver.die()
    world.fired("group offsets lost")
    world.broker.group.pop((INPUT, partition), None)


def _is_level(world: World, partition: int) -> bool:
    """Whether the group's offset says what the commit record says."""
    record = last_record(world, partition)
    return (
        record is not None
        and (INPUT, partition) not in world.broker.undecided
        and world.broker.group.get((INPUT, partition)) == record.position[INPUT][partition]
    )


def _another_program(world: World, application: Application) -> None:
    """The application is stopped; another program goes on with its group, and gives it back."""
    if not application.is_logged or application.is_down:
        return
    application.shut_down()

    def run() -> None:
        # All that was under way is decided by now; producers without an owner were timed out.
        for partition in range(application.partitions):
            settled = not any(log.open for log in world.broker.logs.values())
            if settled and _is_level(world, partition):
                world.fired("another program ran meanwhile")
                application.run_elsewhere(partition)
        application.is_down = False
        application.start_driver()
        if world.random.random() < 0.8:
            # Before anything is committed: the next owner must not go on where we once were.
            world.point_faults.append(("commit.after_send_before_ack", "crash at a point", 0.0))

    world.at(world.now + 8.0, run)


def _late_markers(world: World, application: Application) -> None:
    world.broker.marker_seconds = (0.0, world.random.choice([0.5, 4.0]))
    world.at(world.now + world.random.uniform(1.0, 6.0), lambda: _markers_in_time(world))


def _markers_in_time(world: World) -> None:
    world.broker.marker_seconds = (0.0, 0.0)


def _broker_hangs(world: World, application: Application) -> None:
    world.broker.hang_until = world.now + world.random.uniform(0.5, 6.0)


def _crash_at_point(world: World, application: Application) -> None:
    world.point_faults.append((_some_point(world, application), "crash at a point", 0.0))


def _some_point(world: World, application: Application) -> str:
    if application.shape.peers:
        return world.random.choice(PEER_POINTS)
    return world.random.choice(POINTS if application.shape.copies is None else MORE_POINTS)


def _pause_at_point(world: World, application: Application) -> None:
    seconds = world.random.choice([1.0, 4.0, 9.0])
    world.point_faults.append((_some_point(world, application), "pause at a point", seconds))


def _pause_before_an_answer_is_read(world: World, application: Application) -> None:
    """For longer than the session timeout: what the answer grants is over then."""
    world.point_faults.append(("beat.answered", "pause before an answer is read", 9.0))


def _arm(name: str) -> Callable[[World, Application], None]:
    def arm(world: World, application: Application) -> None:
        world.armed[name] = world.armed.get(name, 0) + world.random.randint(1, 3)
        if name == "store damaged in use":
            # A run that read before, and commits after the task has gone back to its beginning.
            world.armed["slice runs twice"] = 4

    return arm


def _bad_network(name: str) -> Callable[[World, Application], None]:
    def begin(world: World, application: Application) -> None:
        world.network.bad[name] = world.now + world.random.uniform(1.0, 6.0)

    return begin


SCHEDULED: dict[str, Callable[[World, Application], None]] = {
    "instance crash": _instance_crash,
    "instance pause": _instance_pause,
    "instance leaves": _instance_leaves,
    "instance joins": _instance_joins,
    "second instance of one id": _second_of_one_id,
    "driver crash": _driver_crash,
    "driver pause": _driver_pause,
    "driver cut off": _driver_cut_off,
    "second driver": _second_driver,
    "disk lost": _disk_lost,
    "store damaged": _store_damaged,
    "group offsets lost": _group_offsets_lost,
    "another program ran meanwhile": _another_program,
    "late marker": _late_markers,
    "broker hangs": _broker_hangs,
    "crash at a point": _crash_at_point,
    "pause at a point": _pause_at_point,
    **{name: _arm(name) for name in ARMED},
    **{name: _bad_network(name) for name in NETWORK},
}
MORE = {**SCHEDULED, "pause before an answer is read": _pause_before_an_answer_is_read}
"""Those of the seeds in which instances are told what to follow."""
CLASSES = (*MORE, "late marker of another program")


def schedule(world: World, application: Application) -> None:
    """Decide what goes wrong in this world: three to seven things, some of them close together."""
    names = list(SCHEDULED if application.shape.copies is None else MORE)
    start = world.now
    when = start + world.random.uniform(0.5, 4.0)
    for _ in range(world.random.randint(4, 8)):
        name = world.random.choice(names)
        _at(world, application, when, MORE[name])
        when += world.random.choice([0.05, 0.5, 2.0, 4.0]) * world.random.random() * 2
        when = min(when, start + LASTING_SECONDS - 1.0)


def _at(
    world: World,
    application: Application,
    when: float,
    strike: Callable[[World, Application], None],
) -> None:
    world.at(when, lambda: strike(world, application))


def stop(world: World) -> None:
    """From now on nothing goes wrong."""
    world.armed.clear()
    world.point_faults.clear()
    world.network.bad.clear()
    world.broker.marker_seconds = (0.0, 0.0)
    world.broker.hang_until = 0.0
    for process in world.processes:
        process.paused_until = min(process.paused_until, world.now)


def top_up(world: World, application: Application) -> None:
    """A seed in which too little went wrong gets what is missing."""
    for _ in range(60):
        if sum(world.faults.values()) >= FAULTS_MIN:
            return
        _instance_crash(world, application)
        world.run_until(world.now + 0.7)
