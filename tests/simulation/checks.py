"""What must hold whatever goes wrong."""

from __future__ import annotations

from penstock.changelog.commit_record import CommitRecord
from penstock.coordination.tasks import Entry
from penstock.instance.standby import Followed
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask
from tests.simulation.application import CHANGELOG, INPUT, OUTPUT, Application, next_value
from tests.simulation.world import ViolationError, World

Expected = tuple[list[tuple[bytes, bytes]], dict[bytes, bytes]]


def last_record(world: World, partition: int) -> CommitRecord | None:
    """Where a task stands by its commit record."""
    entries = list(world.broker.log(_commits(partition)).committed(0))
    value = entries[-1][1].value if entries else None
    return None if value is None else CommitRecord.decode(value)


def _commits(partition: int) -> tuple[str, int]:
    """The task's partition of the commits topic; tasks are numbered in order, from 1."""
    return "app-commits", partition + 1


def check_chain(world: World, application: Application, partition: int) -> CommitRecord | None:
    """Each commit follows on the one before it, under an epoch that one process writes under."""
    last: CommitRecord | None = None
    writers: dict[tuple[int, int], object] = {}
    for _, entry in world.broker.log(_commits(partition)).committed(0):
        assert entry.value is not None
        record = CommitRecord.decode(entry.value)
        epoch = tuple(record.epoch)
        assert entry.transaction is not None
        writer = writers.setdefault(record.epoch, entry.transaction.writer)
        if writer is not entry.transaction.writer:
            raise ViolationError(f"task 0_{partition}: two writers under epoch {epoch}")
        if last is not None and epoch < tuple(last.epoch):
            raise ViolationError(f"task 0_{partition}: epoch {epoch} after {last.epoch}")
        if record.n != (last.n if last else 0) + 1:
            raise ViolationError(f"task 0_{partition}: commit {record.n} after {last}")
        goes_on = last is None or record.previous == last.position
        if last is not None and not goes_on:
            at, begins = (each[INPUT][partition] for each in (last.position, record.previous))
            goes_on = (at, begins) in application.moved[partition]
        if not goes_on and application.is_logged:
            raise ViolationError(f"task 0_{partition}: commit {record.n} begins elsewhere")
        last = record
    return last


def expected(world: World, partition: int, end: int) -> Expected:
    """The outputs and the state that the input up to there makes."""
    outputs: list[tuple[bytes, bytes]] = []
    state: dict[bytes, bytes] = {}
    for _, entry in world.broker.log((INPUT, partition)).committed(0, end):
        assert entry.key is not None
        assert entry.value is not None
        state[entry.key] = next_value(state.get(entry.key), entry.value)
        outputs.append((entry.key, state[entry.key]))
    return outputs, state


def check_results(world: World, application: Application) -> None:
    """Outputs and state are what the input makes, each record once, in its order."""
    for partition in range(application.partitions):
        record = check_chain(world, application, partition)
        end = world.broker.log((INPUT, partition)).end
        at = record.position[INPUT][partition] if record else 0
        if not _is_ours(world, partition, at):
            at = world.broker.group[INPUT, partition]
        if at != end:
            raise ViolationError(f"task 0_{partition} stands at {at}, and its input ends at {end}")
        outputs, state = expected(world, partition, end)
        log = world.broker.log((OUTPUT, partition))
        found = [(entry.key, entry.value) for _, entry in log.committed(0)]
        if found != outputs:
            raise ViolationError(f"task 0_{partition}: outputs {found}, not {outputs}")
        if application.is_logged:
            changelog = world.broker.log((CHANGELOG, partition))
            told = {entry.key: entry.value for _, entry in changelog.committed(0)}
            if told != state:
                raise ViolationError(f"task 0_{partition}: changelog {told}, not {state}")
        check_store(application, partition, state)


def _is_ours(world: World, partition: int, at: int) -> bool:
    """Whether the group stands where the last commit left it: another program may have gone on."""
    return world.broker.group.get((INPUT, partition), at) == at


def check_store(application: Application, partition: int, state: dict[bytes, bytes]) -> None:
    """The store of the one owner holds that state, and so do the copies that are followed."""
    [owner] = _servers(application, partition)
    _check_entries(f"task 0_{partition}", owner.stores, state)
    end = application.world.broker.log((CHANGELOG, partition)).stable_end
    for name, followed in copies_of(application, partition):
        # Of those that nobody waits for any more some are on their way.
        if followed.positions.get(CHANGELOG) == end:
            _check_entries(f"the copy of 0_{partition} on {name}", followed.stores, state)


def _servers(application: Application, partition: int) -> list[OpenTask]:
    """Those who serve the task as the driver says."""
    known = _entry(application, partition)
    held = [
        task
        for instance in application.instances
        if instance.holder is not None
        and known.owner == instance.name
        and (task := instance.holder.task(f"0_{partition}")) is not None
    ]
    return [task for task in held if known.epoch == tuple(task.order.epoch)]


def _check_entries(whose: str, stores: TaskStores, state: dict[bytes, bytes]) -> None:
    found = {key: value[8:] for key, value in stores.get("counts").all()}
    if found != state:
        raise ViolationError(f"{whose}: the store holds {found}, not {state}")


def _entry(application: Application, partition: int) -> Entry:
    driver = application.driver
    assert driver is not None
    assert driver.driver is not None
    entries = driver.driver.book.entries.values()
    return next(each for each in entries if each.task.partition == partition)


def copies_of(application: Application, partition: int) -> list[tuple[str, Followed]]:
    """Who follows the task, by what it was told, and how far it is."""
    return [
        (instance.name, followed)
        for instance in application.instances
        if instance.holder is not None
        and (followed := instance.holder._standbys.get(f"0_{partition}")) is not None
    ]


def _are_placed(application: Application) -> bool:
    """Whether everybody holds what the assignor says: nobody more, as many standbys as there are
    to be, and the load even.
    """
    copies, driver = application.shape.copies, application.driver
    if copies is None or not application.is_logged:
        return True
    assert driver is not None
    assert driver.driver is not None
    owners = driver.driver.owners
    members = driver.coordinator.names()
    if owners._placements.warming or owners._pending:
        return False
    standbys = min(copies.standbys, len(members) - 1)
    for partition in range(application.partitions):
        held = [(name, each) for name, each in copies_of(application, partition) if name in members]
        if len(held) != standbys or any(each.state != "following" for _, each in held):
            return False
        log = application.world.broker.log((CHANGELOG, partition))
        if any(each.status().positions[CHANGELOG] != log.stable_end for _, each in held):
            return False
    counts = dict.fromkeys(members, 0)
    for instance in application.instances:
        if instance.holder is not None and instance.name in counts:
            counts[instance.name] += len(instance.holder._tasks)
    is_even = max(counts.values()) - min(counts.values()) <= 1
    return is_even and sum(counts.values()) == application.partitions


def is_done(world: World, application: Application) -> bool:
    """Whether all that there is has been processed, and everybody is at rest."""
    driver = application.driver
    if driver is None or driver.driver is None or not driver.settled or driver.driver._running:
        return False
    if driver.is_fenced:
        return False  # One that died after it fenced this one, which has not heard of it yet.
    for entry in driver.driver._book.entries.values():
        log = world.broker.log((INPUT, entry.task.partition))
        at = entry.position.get(INPUT, {}).get(entry.task.partition)
        if entry.state != "ready" or at != log.end:
            return False
        # Its owner may be dead, and the driver has not heard of it yet.
        if len(_servers(application, entry.task.partition)) != 1:
            return False
    decided = not any(log.open for log in world.broker.logs.values())
    return decided and not world.broker.undecided and _are_placed(application)


def where_it_stands(world: World, application: Application) -> str:
    """What everybody thinks, for whoever looks at a world without progress."""
    driver = application.driver
    lines = [f"driver {driver and driver.name}"]
    if driver is not None and driver.driver is not None:
        lines += [f"settled {driver.settled}, members {driver.coordinator.names()}"]
        lines += [f"follow {driver.driver.owners._placements.following}"]
        lines += [f"pending {driver.driver.owners._pending}"]
        lines += [str(entry) for entry in driver.driver._book.entries.values()]
        lines += [f"running {batch}" for batch, _ in driver.driver._running]
    for instance in application.instances:
        tasks = instance.holder._tasks.values() if instance.holder else []
        lines += [f"{instance.name} busy {instance.busy}", *(str(t.status()) for t in tasks)]
        lines += [str(copy) for copy in (instance.holder._standbys.status() if tasks else [])]
    for (topic, partition), log in world.broker.logs.items():
        lines.append(f"{topic}-{partition} {log.stable_end}/{log.end}")
    return "\n".join(lines)
