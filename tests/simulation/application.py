"""A small application: what it reads, what it must make of it, and who runs it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.config import Config
from penstock.coordination.assignment import TaskFacts
from penstock.coordination.ids import Epoch, TaskId
from penstock.errors import InstanceUnreachableError
from penstock.instance.protocol import FollowOrder, InputOrder, StoreOrder, TakeOrder
from tests.simulation.broker import Log, Partition, Transaction
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.drivers import DriverProcess
    from tests.simulation.instances import InstanceProcess

INPUT, OUTPUT, CHANGELOG, STORE = "in", "out", "app-counts-changelog", "counts"
KEYS = [b"a", b"b", b"c"]


def next_value(old: bytes | None, record: bytes) -> bytes:
    """What a record makes of its key's state: the count, and a digest of all that came so far.

    So that a record that is missing, doubled or out of its order shows in every later value.
    """
    count = 1 if old is None else int(old.split(b":")[0]) + 1
    digest = hashlib.blake2b((old or b"") + record, digest_size=4).hexdigest()
    return f"{count}:{digest}".encode()


@dataclass(frozen=True, kw_only=True)
class Copies:
    """What the assignor goes by."""

    standbys: int
    acceptable_lag: int
    warm_ups: int
    eager: bool


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What differs between seeds."""

    partitions: int
    instances: int
    is_static: bool
    is_logged: bool
    standbys: bool
    children: bool
    """Whether instances end with their driver; else they live until their lease ends."""
    input_has_transactions: bool
    foreign_start: bool
    """Another program, with producers of its own, ran the application before."""
    peers: bool
    """Whether instances get copies of stores from each other."""
    copies: Copies | None
    """How instances follow what the driver says; without it they follow some tasks by themselves,
    on the disk that a take would use, and the assignor knows nothing of it."""


def shape_of(world: World) -> Shape:
    """A shape by chance."""
    chance = world.random.random
    is_logged = chance() < 0.75
    return Shape(
        partitions=world.random.randint(2, 4),
        instances=world.random.randint(1, 3),
        is_static=chance() < 0.35,
        is_logged=is_logged,
        standbys=chance() < 0.6,
        children=chance() < 0.5,
        input_has_transactions=chance() < 0.5,
        foreign_start=is_logged and chance() < 0.3,
        peers=has_peers(world.seed),
        copies=_copies_of(world.seed),
    )


def has_peers(seed: int) -> bool:
    """In every fourth seed: the others stay what they were."""
    return seed % 4 == 1


def _copies_of(seed: int) -> Copies | None:
    """Of every other seed, by a chance of its own: the others stay what they were."""
    if seed % 2 == 0:
        return None
    own = random.Random(f"copies of {seed}")
    # Where nobody follows a task, or has to have caught up, it goes to those who have nothing.
    return Copies(
        standbys=own.choice([0, 0, 0, 1] if has_peers(seed) else [0, 1, 1, 2]),
        acceptable_lag=own.choice([0, 100, 100] if has_peers(seed) else [0, 1, 4]),
        warm_ups=own.choice([1, 2]),
        eager=own.random() < 0.2,
    )


def _options(copies: Copies | None) -> dict[str, Any]:
    if copies is None:
        return {}
    return {
        "num_standby_replicas": copies.standbys,
        "acceptable_recovery_lag": copies.acceptable_lag,
        "max_warmup_replicas": copies.warm_ups,
        "probing_rebalance_interval": timedelta(minutes=1),
        "rebalance_protocol": "eager" if copies.eager else "cooperative",
    }


class Application:
    """The application of one seed."""

    session_timeout = 6.0
    heartbeat = 2.0
    changelog = CHANGELOG

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.partitions = shape.partitions
        self.is_static = shape.is_static
        self.is_logged = shape.is_logged
        self.standbys = shape.standbys
        self.drivers: list[DriverProcess] = []
        self.slots = shape.instances
        self.produced = 0
        self.is_down = False
        self.moved: list[set[tuple[int, int]]] = [set() for _ in range(self.partitions)]
        """By partition: from where to where another program went on."""
        self.epochs: dict[tuple[str, tuple[int, int]], object] = {}
        """Which process a driver gave an epoch of a task to."""
        self.config = Config(
            session_timeout=timedelta(seconds=self.session_timeout),
            heartbeat_interval=timedelta(seconds=self.heartbeat),
            transaction_timeout=timedelta(seconds=8),
            slice_records_max=8,
            auto_offset_reset="earliest",
            **_options(shape.copies),
        )
        self.sub_topology: Any = SimpleNamespace(name="sub", has_processors=False, sources=())
        self.prepared: Any = SimpleNamespace(
            application_id="app",
            config=self.config,
            partition_counts={},
            take_order=self.take_order,
            follow_order=self.follow_order,
            changelogs=self.changelogs,
            task_facts=self.task_facts,
            layout=SimpleNamespace(
                tasks=[
                    SimpleNamespace(
                        task=TaskId(0, number), name=f"sub-{number}", sub_topology=self.sub_topology
                    )
                    for number in range(self.partitions)
                ]
            ),
        )

    def task_facts(self) -> list[TaskFacts]:
        """Prepared.task_facts."""
        tasks = [TaskId(0, number) for number in range(self.partitions)]
        return [TaskFacts(task=task, stateful=True, standbys=self.is_logged) for task in tasks]

    def take_order(
        self,
        task: TaskId,
        *,
        epoch: Epoch,
        first_taking: bool,
        commits_partition: int,
        peers: list[str],
    ) -> TakeOrder:
        """Prepared.take_order."""
        return TakeOrder(
            task=str(task),
            name=f"sub-{task.partition}",
            epoch=epoch,
            first_taking=first_taking,
            inputs=[
                InputOrder(
                    topic=INPUT,
                    partition=task.partition,
                    topic_id="t",
                    partitions=self.partitions,
                    reset="earliest",
                )
            ],
            stores=[self._store()],
            commits_partition=commits_partition,
            peers=peers,
        )

    def follow_order(
        self, task: TaskId, *, commits_partition: int, peers: list[str]
    ) -> FollowOrder:
        """Prepared.follow_order."""
        return FollowOrder(
            task=str(task),
            name=f"sub-{task.partition}",
            stores=[self._store()],
            commits_partition=commits_partition,
            peers=peers,
        )

    def changelogs(self) -> dict[TaskId, list[Partition]]:
        """Prepared.changelogs."""
        if not self.is_logged:
            return {}
        return {TaskId(0, number): [(CHANGELOG, number)] for number in range(self.partitions)}

    def _store(self) -> StoreOrder:
        return StoreOrder(
            name=STORE,
            changelog=CHANGELOG if self.is_logged else "",
            changelog_id="c" if self.is_logged else "",
            recovers=not self.is_logged,
        )

    # Input.

    def begin(self) -> None:
        """What is there before the application runs."""
        for partition in range(self.partitions):
            log = self.world.broker.log((INPUT, partition))
            for _ in range(self.world.random.randint(0, 6)):
                self._append(partition, None)
            if self.shape.foreign_start and log.end:
                self.run_elsewhere(partition)

    def run_elsewhere(self, partition: int) -> None:
        """Another program processes what is there, and goes; its markers are on their way."""
        broker = self.world.broker
        state = {entry.key: entry.value for _, entry in self._changelog(partition).committed(0)}
        changes = []
        start = broker.group.get((INPUT, partition), 0)
        end = broker.log((INPUT, partition)).stable_end
        for _, entry in broker.log((INPUT, partition)).committed(start, end):
            assert entry.value is not None
            assert entry.key is not None
            value = state[entry.key] = next_value(state.get(entry.key), entry.value)
            broker.log((OUTPUT, partition)).append(entry.key, value, 1, None)
            changes.append((entry.key, value, 1))
        before, broker.marker_seconds = broker.marker_seconds, (0.1, 6.0)
        broker.foreign((CHANGELOG, partition), changes, {(INPUT, partition): end})
        broker.marker_seconds = before
        self.moved[partition].add((start, end))
        self.world.fired("late marker of another program")

    def _changelog(self, partition: int) -> Log:
        return self.world.broker.log((CHANGELOG, partition))

    def shut_down(self) -> None:
        """Everybody ends, and nobody starts anyone until `is_down` is False again."""
        self.is_down = True
        for process in [*self.instances, *self.drivers]:
            process.die()

    def produce(self) -> None:
        """Someone writes a few records, sometimes in a transaction that takes a while or fails."""
        world = self.world
        partition = world.random.randrange(self.partitions)
        transaction = None
        if self.shape.input_has_transactions and world.random.random() < 0.4:
            transaction = Transaction()
        for _ in range(world.random.randint(1, 5)):
            self._append(partition, transaction)
        if transaction is None:
            return
        log = world.broker.log((INPUT, partition))

        def end() -> None:
            transaction.state = "commit" if world.random.random() < 0.6 else "abort"
            log.mark(transaction)

        world.at(world.now + world.random.uniform(0.0, 1.5), end)

    def _append(self, partition: int, transaction: Transaction | None) -> None:
        self.produced += 1
        key = self.world.random.choice(KEYS)
        value = str(self.produced).encode()
        self.world.broker.log((INPUT, partition)).append(key, value, 1, transaction)

    # Who runs it.

    @property
    def driver(self) -> DriverProcess | None:
        """The newest driver that lives."""
        return next((each for each in reversed(self.drivers) if not each.dead), None)

    @property
    def instances(self) -> list[InstanceProcess]:
        """All instances that live, of whichever driver."""
        return [each for driver in self.drivers for each in driver.children if not each.dead]

    def start_driver(self) -> None:
        """A driver starts, with instances of its own for slots that none is at work for."""
        from tests.simulation.drivers import DriverProcess

        if self.is_down:
            return
        driver = DriverProcess(self.world, self)
        self.drivers.append(driver)
        driver.after(0.0, driver.begin)
        for slot in range(self.slots):
            self.start_instance(slot)

    def driver_ended(self, driver: DriverProcess) -> None:
        """Someone starts it again, unless another one is at work."""
        world = self.world

        def restart() -> None:
            if self.driver is None:
                self.start_driver()

        world.at(world.now + world.random.uniform(0.5, 3.0), restart)
        if self.shape.children:
            for each in list(driver.children):
                each.after(0.01, each.driver_died)

    def instance_ended(self, instance: InstanceProcess) -> None:
        """Whatever looks after instances starts it again."""
        world = self.world
        slot = instance.slot
        delay = world.random.choice([0.2, 1.0, 3.0, 8.0])
        world.at(world.now + delay, lambda: self.start_instance(slot))

    def start_instance(self, slot: int) -> None:
        """Start an instance for a slot that none is at work for."""
        from tests.simulation.instances import InstanceProcess

        driver = self.driver
        if driver is None:
            return
        if all(each.slot != slot or each.dead for each in driver.children):
            InstanceProcess(driver, self, slot)

    def find(self, number: str) -> InstanceProcess:
        """The instance at that address."""
        for process in self.world.processes:
            if str(process.number) == number and not process.dead:
                return process  # type: ignore[return-value]
        raise InstanceUnreachableError("simulated: nobody there")
