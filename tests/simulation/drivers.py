"""Drivers: the real driver and its lease over a simulated coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.coordination.members import Change, Member, Members
from penstock.coordination.planning import Batch
from penstock.coordination.rebalances import Rebalance
from penstock.driver.driver import Driver
from penstock.driver.events import Rebalanced, Totals
from penstock.driver.lease import DriverLease
from penstock.driver.monitor import Monitor
from penstock.driver.questions import Asked, asked_as
from penstock.errors import (
    FencedError,
    InstanceError,
    InstanceUnreachableError,
    KafkaError,
    PenstockError,
)
from penstock.instance import protocol
from penstock.instance.protocol import CommitHeader, Message, Reply
from penstock.queries.catalogue import Catalogue
from penstock.queries.freshness import EndsSeen
from tests.simulation.application import CHANGELOG, INPUT
from tests.simulation.broker import SimLogClients
from tests.simulation.copies import SimCopyWatch
from tests.simulation.jobs import Job
from tests.simulation.world import Process, ViolationError, World

if TYPE_CHECKING:
    from tests.simulation.application import Application
    from tests.simulation.instances import InstanceProcess

STEP_SECONDS = 0.2


class SimCoordinator:
    """Coordinator: the real book of members, and calls over the simulated network."""

    token = "t"
    trust = None

    def __init__(self, driver: DriverProcess, application: Application) -> None:
        self._driver = self.driver = driver
        self._application = application
        self.members = Members(
            session_timeout_seconds=application.session_timeout,
            heartbeat_seconds=application.heartbeat,
        )

    def names(self) -> list[str]:
        return self.members.names

    def away(self) -> frozenset[str]:
        return self.members.away

    def member(self, name: str) -> Member | None:
        return self.members.get(name)

    def peers(self, name: str) -> list[str]:
        if not self._application.shape.peers:
            return []
        others = [self.members.get(each) for each in self.members.names if each != name]
        return [each.unix_location for each in others if each is not None]

    def changes(self) -> list[Change]:
        world = self._driver.world
        if self._application.shape.children:
            for member in [self.members.get(name) for name in self.members.names]:
                # A child that ended is noticed at once.
                if member is not None and self._is_dead(member):
                    self.members.die(member.name)
        if self.members.expire(world.now):
            world.reached("a member was lost by its silence")
        changes = self.members.take_changes()
        for change in changes:
            world.reached(f"a member {change.kind}")
        return changes

    def _is_dead(self, member: Member) -> bool:
        try:
            self._application.find(member.unix_location)
        except InstanceUnreachableError:
            return True
        return False

    def restart_children(self, *, others_take_over: bool) -> None: ...

    def awaits_children(self) -> bool:
        shape = self._application.shape
        if shape.copies is None or not shape.children:
            return False  # Copies are modelled apart, or instances come from somewhere else.
        return len(self.members.names) < self._application.slots

    def is_silent(self, name: str) -> bool:
        return self.members.is_silent(name, self._driver.world.now)

    def doubt(self, name: str, error: InstanceError) -> None:
        world = self._driver.world
        if not self._application.shape.children:
            self.members.doubt(name, world.now, is_gone=world.random.random() < 0.5)
            world.reached("a member was doubted")

    def call(self, name: str, action: str, message: Message, reply: type[Any]) -> Any:
        body = protocol.encode(message)

        def work() -> Message:
            holder = target.holder
            if holder is None:
                raise InstanceUnreachableError("simulated: not open yet")
            return holder.actions[action](body)

        target = self._target(name)
        if action == "take":
            self._on_order(protocol.decode(body, protocol.TakeOrder), target)
        return self._driver.world.network.call(target, work)

    def status(self, name: str, asked: Asked) -> Any:
        if isinstance(asked, protocol.StatusQuestion):
            asked = protocol.StatusQuestion()  # Nobody waits for news by the real clock.
        if isinstance(asked, protocol.PrepareOrder):
            self._driver.world.reached("an instance got ready for a task that another served")
        return self.call(name, asked_as(asked), asked, protocol.StatusReply)

    def commit_nothing(self, name: str, header: CommitHeader) -> Reply:
        target = self._target(name)

        def work() -> Reply:
            assert target.holder is not None
            return target.holder.commit(header, iter([]))

        self._driver.world.reached("a range without records was committed")
        return self._driver.world.network.call(target, work)

    def _target(self, name: str) -> InstanceProcess:
        member = self.members.get(name)
        if member is None:
            raise InstanceUnreachableError("simulated: no such instance")
        return self._application.find(member.unix_location)

    def _on_order(self, order: protocol.TakeOrder, target: InstanceProcess) -> None:
        holds_older = target.holder is not None and order.task in target.holder.tasks()
        if holds_older and self._driver.world.strikes("order lost"):
            raise InstanceUnreachableError("simulated: lost")
        known = self._application.epochs.setdefault((order.task, tuple(order.epoch)), target)
        if known is not target:
            raise ViolationError(f"epoch {order.epoch} of {order.task} was given to two processes")


class SimDriver(Driver):
    """Driver, with jobs that are events."""

    process: DriverProcess

    def _submit(self, batch: Batch, *, since: float) -> None:
        del since  # Plans take no time here.
        self._batches += 1
        order = self._order(batch)
        started = self.process.world.now
        self._running.append((batch, started))
        Job(self.process, order, batch, started, self._ended).begin()

    def _next_ended(self, timeout_seconds: float) -> Any:
        while not self._ended.empty():
            ended = self._ended.get_nowait()
            if ended is not None:  # It is looked again and again here without being woken.
                return ended
        return None

    def _watch_copies(self, commits: Mapping[str, int]) -> Any:
        coordinator: Any = self._parts.coordinator
        SimCopyWatch.driver = coordinator.driver
        if coordinator.driver.application.shape.copies is None:
            return SimCopies()
        return super()._watch_copies(commits)

    def take_in_all(self) -> None:
        """Take in what jobs have ended."""
        while (ended := self._next_ended(0.0)) is not None:
            self._take_in(ended)


class SimCopies:
    """CopyWatch of instances that have nothing but what they own: copies are modelled apart."""

    def __init__(self) -> None:
        self.ends_seen = EndsSeen()

    def want(self, wanted: object) -> None: ...

    def has_heard(self, names: object) -> bool:
        return True

    def new_lags(self) -> None: ...

    def catching_up(self) -> set[Any]:
        return set()

    def records(self) -> dict[Any, int]:
        return {}

    def new_notes(self) -> list[str]:
        return []

    def close(self) -> None: ...


class SimInputs:
    """InputLogs."""

    def __init__(self, world: World, topic: str, partitions: int) -> None:
        self._world = world
        self._topic = topic
        self._partitions = partitions

    def ends(self) -> dict[tuple[str, int], int]:
        if self._world.broker.hang_until > self._world.now:
            raise KafkaError("simulated: the broker does not answer")
        wheres = [(self._topic, partition) for partition in range(self._partitions)]
        return {where: self._world.broker.log(where).stable_end for where in wheres}


class DriverProcess(Process):
    """One run of a driver."""

    def __init__(self, world: World, application: Application) -> None:
        super().__init__(world, f"driver{len(application.drivers) + 1}")
        self.application = application
        self.children: list[InstanceProcess] = []
        self.coordinator = SimCoordinator(self, application)
        self.totals = Totals()
        self.driver: SimDriver | None = None
        self.lease: DriverLease | None = None
        self.settled = False
        self.cut_off_until = 0.0

    @property
    def is_fenced(self) -> bool:
        """Whether another driver took over, be it that this one knows or not."""
        producer: Any = self.lease and self.lease._producer
        return not self.world.broker.is_newest("app-driver", producer._epoch)

    def begin(self) -> None:
        """Get the lease, then loop."""
        self._guarded(self._start)

    def _start(self) -> None:
        logs: Any = SimLogClients(self.world)
        lease = self.lease = DriverLease("app", self.application.config, logs)
        lease.acquire()
        names = [each.name for each in self.application.prepared.layout.tasks]
        commits = lease.name_tasks(names, b"{}")
        self.world.note(f"generation {lease.record.generation}")
        self.driver = self._new_driver(commits)
        self.after(0.05, self._step)

    def _new_driver(self, commits: Mapping[str, int]) -> SimDriver:
        warm: Future[Any] = Future()
        warm.set_result(SimpleNamespace(jobs=None, cores=2, check=lambda: None))
        parts: Any = SimpleNamespace(
            prepared=self.application.prepared,
            lease=self.lease,
            coordinator=self.coordinator,
            inputs=SimInputs(self.world, INPUT, self.application.partitions),
            changelogs=SimInputs(self.world, CHANGELOG, self.application.partitions),
            watch=SimpleNamespace(check=lambda now, book, ends: []),
            spark=warm,
            monitor=Monitor("app", self.application.config),
            hear_restore=lambda event: None,
            is_paused=lambda: False,
            visit_executors=lambda: None,
            catalogue=Catalogue([]),
        )
        driver = SimDriver(parts, commits, self._hear, self.totals)
        driver.process = self
        return driver

    def _hear(self, event: object) -> None:
        name = type(event).__name__
        if isinstance(event, Rebalanced):
            self._count_moves(event.rebalance)
        if name in ("Rebalanced", "Notice"):
            self.world.note(str(getattr(event, "text", "") or getattr(event, "rebalance", "")))

    def _count_moves(self, rebalance: Rebalance) -> None:
        self.world.reached("a rebalance")
        has_warmed_up = any("has caught up with" in why for why in rebalance.why)
        for move in rebalance.moves:
            if move.role == "warm_up":
                self.world.reached("an instance began to warm a task up")
            elif move.role == "active" and move.why in ("balance", "lag"):
                self.world.reached("a task moved between two slices")
                if has_warmed_up:
                    self.world.reached("a task moved to one that had warmed up")

    def start_beating(self) -> None:
        """Beat like the thread that the lease starts."""

        def beat() -> None:
            assert self.lease is not None
            if self.lease.lost is None:
                if self.world.now >= self.cut_off_until:
                    self.lease.beat()
                self.after(self.application.heartbeat, beat)

        self.after(self.application.heartbeat, beat)

    def _step(self) -> None:
        self._guarded(self._loop)

    def _loop(self) -> None:
        assert self.driver is not None
        self.driver.step(self._hear_settled)
        self.driver.take_in_all()
        self.after(STEP_SECONDS, self._step)

    def _hear_settled(self, settled: bool) -> None:
        self.settled = settled

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FencedError as error:
            self.world.reached("a fenced driver stopped")
            self._end(error)
        except PenstockError as error:
            expected = type(error) is KafkaError or "Spark jobs failed" in str(error)
            if not expected:
                raise ViolationError(f"the driver gave up: {error!r}") from error
            self.world.reached("a driver gave up, and was started again")
            self._end(error)

    def _end(self, error: PenstockError) -> None:
        self.world.note(f"ends: {error}")
        self.die()

    def die(self) -> None:
        if not self.dead:
            if self.driver is not None and self.driver.owners._pending:
                self.world.reached("a driver ended while tasks were to move")
            super().die()
            self.application.driver_ended(self)
