"""One driver per application: it holds a transactional id, a generation, and the consumer group.

Three locks that work together. The transactional id fences an older driver's writes. The
generation, written with it, fences an older driver's instances. The group membership keeps out
tools and Java applications that would move the group meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer

from penstock.changelog.clients import LogClients
from penstock.changelog.commit_record import (
    BOOTSTRAP_KEY,
    DRIVER_KEY,
    DRIVER_PARTITION,
    TOPOLOGY_KEY,
    BootstrapRecord,
    DriverRecord,
)
from penstock.changelog.groups import live_members
from penstock.changelog.kafka_failures import refusals_named, transactions_refused
from penstock.changelog.reading import STABLE_TIMEOUT, read_latest, wait_stable
from penstock.changelog.topics import commits_name
from penstock.changelog.transactions import init_transactions
from penstock.config import Config
from penstock.coordination.ids import Position
from penstock.coordination.layout import commits_partitions
from penstock.driver.member import GroupMember
from penstock.driver.process_id import is_alive, process_start
from penstock.driver.writer import DriverWriter
from penstock.errors import AnotherDriverError, FencedError, GroupInUseError, KafkaError

_log = logging.getLogger("penstock.driver")

_BEATS_WITHOUT_SIGN = 3
_GOODBYE_SECONDS = 5.0
_PEEK = timedelta(seconds=1)


class DriverLease:
    """The right to be the driver of an application."""

    def __init__(self, application_id: str, config: Config, logs: LogClients) -> None:
        self._application_id = application_id
        self._config = config
        self._logs = logs
        self._topic = commits_name(application_id)
        self._id = f"{application_id}-driver"
        self._beat_seconds = config.heartbeat_interval.total_seconds()
        self._silence_seconds = _BEATS_WITHOUT_SIGN * self._beat_seconds
        self._timeout = config.session_timeout.total_seconds() / 2
        # What the tasks' producers would refuse is refused here, before anything was begun.
        with refusals_named():
            self._producer = self._new_producer()
            self._writer = DriverWriter(self._producer, self._topic)
            self._member = GroupMember(
                application_id, self._topic, config, is_driver=self._is_driver
            )
        # One transaction at a time: beats come from a thread of their own.
        self._lock = threading.Lock()
        self._beating = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._checked = time.monotonic()
        self.renewed = 0.0
        """When the last beat began that Kafka took: until then nobody had taken over."""
        self.record = DriverRecord(generation=0, host="", pid=0, process_start=0.0, beat=0)
        self.topology: bytes | None = None
        """The topology that the driver before this one ran, once the lease is had."""
        self.bootstrap: BootstrapRecord | None = None
        """The store that was last filled from history, once the lease is had."""
        self.lost: KafkaError | None = None
        """Why this driver must stop, once it must."""

    def check(self) -> None:
        """Raise `FencedError` if another driver took over; to be called again and again.

        If that was long ago, this one stood still: Kafka is asked first, for its orders would
        disturb the other one's instances.
        """
        if time.monotonic() - self._checked > self._silence_seconds:
            self._look()
        self._checked = time.monotonic()
        if self.lost is not None:
            raise self.lost

    def _look(self) -> None:
        """Beat, but wait no longer for Kafka than from one beat to the next.

        The driver's loop waits meanwhile: if Kafka is gone, instances are to be heard all the same.
        """
        if not self._beating.acquire(timeout=self._beat_seconds):
            return
        try:
            if self.lost is None:
                self._count_beat()
                self._write_beat(self._beat_seconds)
        except FencedError as error:
            # If nobody else was written down, the next beat of the other thread goes on from here.
            with contextlib.suppress(KafkaError):
                if self._is_replaced(_PEEK):
                    self._lose(str(error))
        except KafkaError as error:
            _log.warning("%s", error)
        finally:
            self._beating.release()

    def holds(self) -> bool:
        """Whether nobody can have taken over of whom this driver has not heard.

        One that stood still, or that is cut off from Kafka, knows only of its own silence.
        """
        return self.lost is None and time.monotonic() - self.renewed < self._silence_seconds

    def holds_since(self, moment: float) -> bool:
        """The same, or whether Kafka took a beat since: if it is slow, it takes each too late."""
        return self.holds() or (self.lost is None and self.renewed > moment)

    def check_free(self) -> None:
        """Make sure that nobody else works under this application id.

        Raises `GroupInUseError` or `AnotherDriverError`. A driver that died is told from one that
        lives by its process if it was here, and by its beats if it was elsewhere.
        """
        self._check_driver_dead(was_member=self.check_group())

    def check_group(self) -> bool:
        """Make sure that nobody else is in the consumer group; whether a driver is in it.

        Raises `GroupInUseError`.
        """
        members = live_members(
            self._logs.admin, self._application_id, timeout_seconds=self._timeout
        )
        others = [m for m in members if m.group_instance_id != self._id]
        if others:
            names = ", ".join(sorted({f"{m.client_id} on {m.host}" for m in others}))
            raise GroupInUseError(
                f"The consumer group {self._application_id!r} has live members: {names}",
                hint="Stop them, or use another application id; one that was killed counts until "
                "its session.timeout.ms is over",
            )
        return bool(members)

    def acquire(self) -> None:
        """Fence any older driver and write the next generation."""
        try:
            init_transactions(self._producer, topic=self._topic, timeout_seconds=self._timeout)
        except KafkaException as error:
            raise transactions_refused(error, topic=self._topic) from error
        latest = read_latest(self._logs, self._topic, DRIVER_PARTITION)
        data = latest.get(DRIVER_KEY)
        previous = None if data is None else DriverRecord.decode(data)
        self.topology = latest.get(TOPOLOGY_KEY)
        filled = latest.get(BOOTSTRAP_KEY)
        self.bootstrap = None if filled is None else BootstrapRecord.decode(filled)
        self.record = DriverRecord(
            generation=previous.generation + 1 if previous else 1,
            host=socket.gethostname(),
            pid=os.getpid(),
            process_start=process_start(os.getpid()),
            beat=0,
            tasks=previous.tasks if previous else {},
            inputs=previous.inputs if previous else {},
        )

    def name_tasks(self, names: list[str], topology: bytes) -> Mapping[str, int]:
        """Give every task its partition of the commits topic, for good, and start to beat.

        `topology` is kept beside the record, for the next start to compare itself with.
        """
        tasks = commits_partitions(self.record.tasks, names)
        self.record = msgspec.structs.replace(self.record, tasks=tasks)
        self._write_beat(topology=topology)
        self._member.join()
        thread = threading.Thread(target=self._beat_loop, name="driver-beat", daemon=True)
        thread.start()
        self._threads.append(thread)
        return tasks

    def write_group(self, position: Position) -> None:
        """Write the group's offsets; for at-least-once, where no transaction carries them."""
        self._member.write(position)

    def write(
        self,
        records: Iterable[tuple[int, bytes, bytes]],
        *,
        group: Consumer | None = None,
        position: Position | None = None,
    ) -> None:
        """Write records (partition, key, value) of the commits topic, and the group's offsets.

        All or nothing. Raises `FencedError` if this is no longer the driver, `KafkaError`.
        """
        with self._lock:
            self._writer.write(records, self._timeout, group=group, position=position)

    def release(self, leave: Callable[[str], None]) -> None:
        """Stop beating, leave the group (`leave` gets the member's id), say that nobody is here.

        In this order: whoever reads that nobody is at work may join the group.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join(self._timeout)
        self._member.close()
        if self._threads and self.lost is None:
            leave(self._id)
            self.record = msgspec.structs.replace(self.record, host="", pid=0, process_start=0.0)
            # Whoever comes next waits for our beats then, and takes over all the same.
            with contextlib.suppress(KafkaError):
                self._write_beat(_GOODBYE_SECONDS)
        # A producer that was fenced says so once more.
        with contextlib.suppress(KafkaException):
            self._producer.flush(1)

    def _new_producer(self) -> Producer:
        milliseconds = int(self._config.transaction_timeout.total_seconds() * 1000)
        return Producer(
            self._config.client_properties(
                transactional_id=self._id, transaction_timeout_ms=milliseconds
            )
        )

    def _check_driver_dead(self, *, was_member: bool) -> None:
        data = read_latest(self._logs, self._topic, DRIVER_PARTITION).get(DRIVER_KEY)
        record = None if data is None else DriverRecord.decode(data)
        if record is None or not record.pid:
            return
        where = {"host": record.host, "process": record.pid}
        hint = "Stop it first, or use another application id"
        error = AnotherDriverError(
            f"A driver of {self._application_id!r} is at work", where=where, hint=hint
        )
        if record.host == socket.gethostname():
            if is_alive(record.pid, record.process_start):
                raise error
            return
        if not was_member:
            # The group has given it up, so it has been silent for a session timeout.
            return
        before = self._driver_end()
        deadline = time.monotonic() + self._silence_seconds
        _log.info("A driver on %s was seen last; waiting for a sign of life", record.host)
        while time.monotonic() < deadline:
            if self._driver_end() > before:
                raise error
            time.sleep(min(0.2, self._beat_seconds))

    def _driver_end(self) -> int:
        where = (self._topic, DRIVER_PARTITION)
        return wait_stable(self._logs, [where])[where].end

    def _beat_loop(self) -> None:
        while not self._stop.wait(self._beat_seconds) and self.lost is None:
            self.beat()

    def beat(self) -> None:
        """Say that this driver is at work; `lost` tells if it is the driver no more."""
        asked = time.monotonic()
        with self._beating:
            # Another thread's beat, that was waited for, says the same.
            if self.lost is None and self.renewed < asked:
                self._beat()

    def _beat(self) -> None:
        self._count_beat()
        try:
            try:
                self._write_beat()
            except FencedError as error:
                self._reclaim(error)
        except KafkaError as error:
            _log.warning("%s", error)

    def _count_beat(self) -> None:
        self.record = msgspec.structs.replace(self.record, beat=self.record.beat + 1)

    def _reclaim(self, fenced: FencedError) -> None:
        """Go on as the driver if nobody else has become it.

        Kafka refuses a producer too whose transaction outlasted its time limit, or whose end it
        had confirmed to nobody, while the coordinator died. If two drivers fence each other here,
        the one that was written down last stays. Raises `KafkaError`; then the next beat does it.
        """
        # While a transaction of the old producer is open nothing can be read, and nobody else
        # can have ended it.
        with contextlib.suppress(KafkaError):
            if self._is_replaced(_PEEK):
                self._lose(str(fenced))
                return
        producer = self._new_producer()
        try:
            init_transactions(producer, topic=self._topic, timeout_seconds=self._timeout)
        except KafkaException as error:
            raise KafkaError(f"The driver's lease cannot be had again: {error}") from error
        if self._is_replaced(STABLE_TIMEOUT):
            self._lose(str(fenced))
            return
        _log.warning("The driver's producer was refused and is made anew: %s", fenced)
        with self._lock:
            self._producer = producer
            self._writer = DriverWriter(producer, self._topic)

    def _is_replaced(self, timeout: timedelta) -> bool:
        """Whether a driver was written down after this one. Raises `KafkaError`."""
        latest = read_latest(self._logs, self._topic, DRIVER_PARTITION, timeout=timeout)
        data = latest.get(DRIVER_KEY)
        return data is None or DriverRecord.decode(data).generation != self.record.generation

    def _write_beat(
        self, timeout_seconds: float | None = None, *, topology: bytes | None = None
    ) -> None:
        records = [] if topology is None else [(DRIVER_PARTITION, TOPOLOGY_KEY, topology)]
        records.append((DRIVER_PARTITION, DRIVER_KEY, self.record.encode()))
        with self._lock:
            began = time.monotonic()
            self._writer.write(records, timeout_seconds or self._timeout)
            self.renewed = began

    def _is_driver(self) -> bool:
        """Whether Kafka says that this is still the driver."""
        asked = time.monotonic()
        self.beat()
        return self.lost is None and self.renewed >= asked

    def _lose(self, reason: str) -> None:
        self.lost = FencedError(
            f"Another driver of {self._application_id!r} took over: {reason}",
            hint="This one has stopped; nothing that it had under way becomes visible",
        )
