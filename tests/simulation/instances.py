"""Instances: the real holder of tasks over simulated clients and disks, from join to end."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.changelog.restore import restore
from penstock.coordination.members import Member
from penstock.errors import InstanceUnreachableError, KafkaError
from penstock.instance.clients import GroupOffsets
from penstock.instance.holder import Holder
from penstock.instance.process import Lease
from penstock.instance.restores import Restores
from penstock.instance.task import TaskEnvironment
from penstock.stores.contract import StoreIdentity
from tests.simulation.broker import SimLogClients
from tests.simulation.copies import end_followers
from tests.simulation.disk import SimStore
from tests.simulation.peers import SimPeer
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from tests.simulation.application import Application
    from tests.simulation.drivers import DriverProcess


class SimClients:
    """SharedClients."""

    def __init__(self, world: World, timeout_seconds: float) -> None:
        self.world = world
        self.logs = SimLogClients(world)
        self.group = SimpleNamespace(consumer_group_metadata=lambda: None)
        self.timeout_seconds = timeout_seconds
        self.config = SimpleNamespace(exactly_once=True)

    def stable_range(self, topic: str, partition: int) -> tuple[int, int]:
        """A log's start and last stable offset."""
        return 0, self.world.broker.log((topic, partition)).stable_end

    def high_watermark(self, topic: str, partition: int) -> int:
        """A log's end."""
        return self.world.broker.log((topic, partition)).end

    def group_offsets(self, inputs: list[tuple[str, int]]) -> GroupOffsets:
        """The group's offsets, once they are decided."""
        broker, deadline = self.world.broker, self.world.now + self.timeout_seconds
        while any(each in broker.undecided for each in inputs):
            if self.world.now >= deadline or self.world.is_crowded:
                raise KafkaError("simulated: the group's offsets are not stable")
            self.world.reached("waited for the group's offsets")
            self.world.wait(0.1)
        position: dict[str, dict[int, int]] = {}
        for topic, partition in inputs:
            if (topic, partition) in broker.group:
                position.setdefault(topic, {})[partition] = broker.group[topic, partition]
        return GroupOffsets(position=position, metadata={})


class _NoTables:
    """GlobalTables of an application that has none."""

    restores = Restores()
    fault = None

    def __contains__(self, store: str) -> bool:
        return False

    def new_notes(self) -> list[str]:
        return []

    def flush(self) -> None: ...


class InstanceProcess(Process):
    """One run of an instance."""

    def __init__(self, driver: DriverProcess, application: Application, slot: int) -> None:
        world = driver.world
        self.driver = driver
        self.application = application
        self.slot = slot
        self.is_static = application.is_static
        self.member_id = f"m{world.next_number()}"
        name = f"s{slot}" if self.is_static else f"i{slot}.{self.member_id}"
        super().__init__(world, name)
        self.holder: Holder | None = None
        self.directory = world.disk.take_free(self)
        self.is_member = False
        self._stopping = False
        self.lease = Lease(application.session_timeout)
        self.may_serve_until = 0.0
        """By what its driver was heard to say; not by its own reckoning."""
        driver.children.append(self)
        self.after(world.random.uniform(0.05, 0.3), self._join)

    def _member(self) -> Member:
        return Member(
            name=self.name,
            host="host",
            pid=self.number,
            unix_location=str(self.number),
            tcp_location="",
            last_beat=self.world.now,
            member_id=self.member_id,
            is_static=self.is_static,
        )

    def _join(self) -> None:
        members = self.driver.coordinator.members
        self.lease = Lease(self.application.session_timeout)
        self.may_serve_until = self.world.now + self.application.session_timeout
        try:
            if self.holder is None:
                verdict = self.world.network.call(
                    self.driver, lambda: members.claim(self._member())
                )
                if verdict.status == "joined":
                    self._open()
            if self.holder is not None:
                verdict = self.world.network.call(self.driver, lambda: members.join(self._member()))
        except InstanceUnreachableError:
            self._end("its driver does not answer")
            return
        self.world.note(f"join: {verdict.status}")
        if verdict.status == "refused":
            self.world.reached("a second member of one id was refused")
            self._end("refused")
        elif verdict.status == "wait":
            self.world.reached("a member waited for a sign of life of the one before")
            self.after(self.application.heartbeat / 4, self._join)
        else:
            self.is_member = True
            self.after(self.application.heartbeat, self._beat)
            self.after(1.0, self._follow)

    def _open(self) -> None:
        environment = TaskEnvironment(
            application_id="app",
            config=self.application.config,
            directory=self.directory,  # type: ignore[arg-type]
            clients=SimClients(self.world, self.application.session_timeout / 2),  # type: ignore[arg-type]
            lease_holds=self.lease_holds,
            peer=partial(SimPeer, self.application),
        )
        self.holder = Holder(environment, _NoTables())  # type: ignore[arg-type]

    def lease_holds(self) -> bool:
        """Whether this instance may serve."""
        holds = self.lease.holds()
        if not holds:
            self.world.reached("an instance without a lease refused to serve")
        return holds

    def _beat(self) -> None:
        members, asked_at = self.driver.coordinator.members, self.world.now
        if self._stopping:
            return
        try:
            known = self.world.network.call(
                self.driver,
                lambda: members.beat(self.name, self.member_id, self.world.now),
            )
        except InstanceUnreachableError:
            if not self.lease.holds():
                self.world.reached("an instance ended with its lease")
                self._end("no lease")
                return
        else:
            if not known:
                self.world.reached("an instance learnt that nobody counts on it")
                self._end("not known")
                return
            # Whoever is stopped here reads an answer that is old.
            self.world.point("beat.answered")
            self.lease.renew(asked_at)
            self.may_serve_until = asked_at + self.application.session_timeout
        if self.world.random.random() < 0.2 and self.holder is not None:
            self.holder.flush()
        self.after(self.application.heartbeat, self._beat)

    def leave(self) -> None:
        """Say goodbye, close all tasks, end."""
        members = self.driver.coordinator.members
        self._stopping = True
        try:
            self.world.network.call(self.driver, lambda: members.leave(self.name, self.member_id))
        except InstanceUnreachableError:
            self.world.note("the goodbye was lost")
        self._end("left")

    def driver_died(self) -> None:
        """Its standard input closes: a child ends with its parent."""
        if not self._stopping:
            self._stopping = True
            self._end("its driver died")

    def _end(self, why: str) -> None:
        """End as a process should: close all tasks, then go."""
        self._stopping = True
        if self.busy:
            self.after(0.1, lambda: self._end(why))
            return
        self.world.note(f"ends: {why}")
        if self.holder is not None:
            tasks = list(self.holder._tasks.values())
            self.holder._tasks.clear()
            for task in tasks:
                task.close()
            end_followers(self.holder._standbys)
        self.die()

    def die(self) -> None:
        if not self.dead:
            super().die()
            self.driver.children.remove(self)
            self.application.instance_ended(self)

    # Standbys.

    def _follow(self) -> None:
        """Follow changelogs of tasks that are not held here, on the disk that a take would use."""
        application = self.application
        if self._stopping or application.shape.copies is not None:
            return
        for partition in range(application.partitions):
            task = f"0_{partition}"
            follows = application.standbys and (partition + self.slot) % 2 == 0
            held = self.holder is not None and task in self.holder._tasks
            if follows and application.is_logged and not held:
                self._follow_task(task, partition)
        self.after(1.5, self._follow)

    def _follow_task(self, task: str, partition: int) -> None:
        topic = self.application.changelog
        log = self.world.broker.log((topic, partition))
        if task in self.directory.locked:
            return
        directory = self.directory.lock_task(task)
        files = directory.store_path("counts")
        if files.offset is not None and next(log.committed(files.offset + 1), None) is None:
            directory.unlock()
            return
        if files.is_damaged:
            directory.wipe_store("counts")
            files = directory.store_path("counts")
        try:
            store: Any = SimStore("counts", files, self.world)
            if store.identity() is None:
                store.set_identity(
                    StoreIdentity(
                        application_id="app",
                        task=task,
                        store="counts",
                        changelog_topic=topic,
                        changelog_topic_id="c",
                    )
                )
            consumer: Any = SimLogClients(self.world).consumer()
            until = log.stable_end
            restore(store, topic=topic, partition=partition, consumer=consumer, until=until)
            store.flush()
            files.is_standby = True
            self.world.reached("a standby followed its changelog")
        finally:
            directory.unlock()
