"""A broker: logs, transactions with producer epochs, markers that land later, group offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import KafkaError as NativeError

from penstock.changelog.read_ahead import Readers
from tests.simulation.world import World

Partition = tuple[str, int]
GROUP: Partition = ("__consumer_offsets", 0)


class Entry(NamedTuple):
    """A record; a marker has no key and no value and is of no transaction."""

    key: bytes | None
    value: bytes | None
    time: int
    transaction: Transaction | None
    is_marker: bool = False

    @property
    def is_decided(self) -> bool:
        """Whether it is a record that counts."""
        committed = self.transaction is None or self.transaction.state == "commit"
        return committed and not self.is_marker


@dataclass(eq=False)
class Transaction:
    """What a producer writes together."""

    state: str = "open"
    unmarked: set[Partition] = field(default_factory=set)
    """Partitions that it wrote to and whose marker has not landed."""
    offsets: dict[Partition, int] = field(default_factory=dict)
    writer: object = None


class Log:
    """A partition."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.open: dict[Transaction, int] = {}
        """Where the transactions begin whose marker has not landed."""

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min(self.open.values(), default=self.end)

    def append(self, key: bytes, value: bytes, time: int, transaction: Transaction | None) -> None:
        """Write a record."""
        if transaction is not None:
            self.open.setdefault(transaction, self.end)
        self.entries.append(Entry(key, value, time, transaction))

    def mark(self, transaction: Transaction) -> None:
        """The transaction's marker lands."""
        if self.open.pop(transaction, None) is not None:
            self.entries.append(Entry(None, None, 0, None, is_marker=True))

    def committed(self, start: int, end: int | None = None) -> Iterator[tuple[int, Entry]]:
        """What committed readers get."""
        for offset in range(start, min(self.stable_end, self.end if end is None else end)):
            entry = self.entries[offset]
            if entry.is_decided:
                yield offset, entry

    @property
    def last_committed(self) -> int:
        """The offset of the last record that will be seen by all, though its marker may be late."""
        found = [offset for offset, entry in enumerate(self.entries) if entry.is_decided]
        return found[-1] if found else -1

    def state_at(self, offset: int) -> dict[bytes, bytes]:
        """What the records up to there make, without those that are not committed."""
        found: dict[bytes, bytes] = {}
        for entry in self.entries[: offset + 1]:
            if entry.is_decided:
                assert entry.key is not None
                assert entry.value is not None
                found[entry.key] = entry.value
        return found


@dataclass
class _Id:
    """A transactional id."""

    epoch: int = -1
    transaction: Transaction | None = None
    completing: Transaction | None = None


class FencedProducerError(Exception):
    """The broker has a newer producer of that id."""


class Broker:
    """All topics, producers' ids and the group."""

    def __init__(self, world: World, *, transaction_timeout: float) -> None:
        self.world = world
        self.logs: dict[Partition, Log] = {}
        self.ids: dict[str, _Id] = {}
        self.group: dict[Partition, int] = {}
        self.undecided: dict[Partition, Transaction] = {}
        """Group offsets that a transaction may still change."""
        self.marker_seconds = (0.0, 0.0)
        self.hang_until = 0.0
        self._timeout = transaction_timeout

    def log(self, where: Partition) -> Log:
        """A partition, made when it is first asked for."""
        return self.logs.setdefault(where, Log())

    def init(self, name: str) -> int:
        """A new producer of that id: fences the older ones and ends their transaction."""
        known = self.ids.setdefault(name, _Id())
        known.epoch += 1
        if known.transaction is not None:
            self._end(known, "abort")
        return known.epoch

    def is_newest(self, name: str, epoch: int) -> bool:
        """Whether no later producer of that id has fenced this one."""
        return self.ids[name].epoch == epoch

    def is_completing(self, name: str) -> bool:
        """Whether markers of the id's last transaction are on their way."""
        return self.ids[name].completing is not None

    def check(self, name: str, epoch: int) -> _Id:
        """The id, for its newest producer only."""
        if not self.is_newest(name, epoch):
            raise FencedProducerError
        return self.ids[name]

    def write(
        self, name: str, epoch: int, records: Iterable[tuple[Partition, Any]], writer: object
    ) -> None:
        """Records of a transaction arrive."""
        known = self.check(name, epoch)
        for where, (key, value, time) in records:
            transaction = self._transaction(known, writer)
            transaction.unmarked.add(where)
            self.log(where).append(key, value, time, transaction)

    def add_offsets(self, name: str, epoch: int, offsets: dict[Partition, int]) -> None:
        """Group offsets of a transaction arrive."""
        known = self.check(name, epoch)
        transaction = self._transaction(known, None)
        transaction.unmarked.add(GROUP)
        transaction.offsets.update(offsets)
        for where in offsets:
            self.undecided[where] = transaction

    def end(self, name: str, epoch: int, state: str) -> None:
        """A producer ends its transaction, whichever is open."""
        known = self.check(name, epoch)
        if known.transaction is not None:
            self._end(known, state)

    def foreign(self, where: Partition, records: list[Any], offsets: dict[Partition, int]) -> None:
        """Someone with another id wrote a transaction that is decided; its markers come later."""
        transaction = Transaction(state="commit")
        for key, value, time in records:
            transaction.unmarked.add(where)
            self.log(where).append(key, value, time, transaction)
        transaction.unmarked.add(GROUP)
        transaction.offsets.update(offsets)
        for each in offsets:
            self.undecided[each] = transaction
        self._send_markers(transaction, _Id())

    def _transaction(self, known: _Id, writer: object) -> Transaction:
        if known.transaction is None:
            transaction = known.transaction = Transaction(writer=writer)
            self.world.at(self.world.now + self._timeout, lambda: self._expire(known, transaction))
        known.transaction.writer = known.transaction.writer or writer
        return known.transaction

    def _expire(self, known: _Id, transaction: Transaction) -> None:
        if known.transaction is transaction:
            self.world.reached("the broker ended a transaction that took too long")
            known.epoch += 1
            self._end(known, "abort")

    def _end(self, known: _Id, state: str) -> None:
        transaction, known.transaction = known.transaction, None
        assert transaction is not None
        transaction.state = state
        known.completing = transaction
        self._send_markers(transaction, known)

    def _send_markers(self, transaction: Transaction, known: _Id) -> None:
        low, high = self.marker_seconds
        for where in sorted(transaction.unmarked):
            if high == 0.0:
                self._land(transaction, where, known)
                continue
            self.world.fired("late marker")
            when = self.world.now + self.world.random.uniform(low, high)
            self.world.at(when, lambda where=where: self._land(transaction, where, known))
        if not transaction.unmarked:
            known.completing = None

    def _land(self, transaction: Transaction, where: Partition, known: _Id) -> None:
        transaction.unmarked.discard(where)
        if where == GROUP:
            for each, offset in transaction.offsets.items():
                if self.undecided.get(each) is transaction:
                    del self.undecided[each]
                if transaction.state == "commit":
                    self.group[each] = offset
        else:
            self.log(where).mark(transaction)
        if not transaction.unmarked and known.completing is transaction:
            known.completing = None


# What the project sees of it, in the shapes of confluent_kafka.


def _failed(code: int) -> KafkaException:
    """As librdkafka tells it: what took too long may be asked for again, a fenced one may not."""
    fenced = code == NativeError._FENCED
    return KafkaException(NativeError(code, "simulated", fatal=fenced, retriable=not fenced))


class SimProducer:
    """confluent_kafka.Producer, as far as it is used with transactions."""

    world: World

    def __init__(self, properties: dict[str, Any]) -> None:
        self._world = SimProducer.world
        self._broker = self._world.broker
        self._process = self._world.current
        self._id: str = properties["transactional.id"]
        self._epoch = -1
        self._waiting: list[tuple[Partition, Any]] = []

    @property
    def has_fenced(self) -> bool:
        """Whether it has fenced those before it."""
        return self._epoch >= 0

    def list_topics(self, topic: str, timeout: float) -> None:
        self._reach(timeout)

    def init_transactions(self, timeout: float) -> None:
        self._reach(timeout)
        self._epoch = self._broker.init(self._id)
        self._await_markers(timeout)
        # A still newer one may have come meanwhile.
        self._guard(lambda: self._broker.check(self._id, self._epoch))

    def begin_transaction(self) -> None:
        self._waiting.clear()

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, *rest: Any) -> None:
        time = rest[2] if len(rest) > 2 else 1
        self._waiting.append(((topic, partition), (key, value, time)))

    def poll(self, timeout: float) -> None: ...

    def purge(self) -> None:
        self._waiting.clear()

    def flush(self, timeout: float) -> int:
        if not self._waiting:
            return 0
        records, self._waiting = self._waiting, []
        try:
            self._reach(timeout)
            self._await_markers(timeout)
        except KafkaException:
            return len(records)
        id_, epoch, writer = self._id, self._epoch, self._process

        def write() -> None:
            self._broker.write(id_, epoch, records, writer)

        if self._strikes("records not acknowledged"):
            self._perhaps_late(write)
            return len(records)
        self._guard(write)
        return 0

    def send_offsets_to_transaction(
        self, offsets: list[Any], metadata: object, timeout: float
    ) -> None:
        self._reach(timeout)
        self._await_markers(timeout)
        found = {(each.topic, each.partition): each.offset for each in offsets}
        if self._world.strikes("offsets refused"):
            raise KafkaException(
                NativeError(NativeError._TIMED_OUT, "simulated", txn_requires_abort=True)
            )
        self._guard(lambda: self._broker.add_offsets(self._id, self._epoch, found))

    def commit_transaction(self, timeout: float) -> None:
        if self.flush(timeout):
            raise _failed(NativeError._TIMED_OUT)
        self._end("commit", timeout)

    def abort_transaction(self, timeout: float) -> None:
        self._waiting.clear()
        self._end("abort", timeout)

    def _end(self, state: str, timeout: float) -> None:
        id_, epoch = self._id, self._epoch

        def end() -> None:
            self._broker.end(id_, epoch, state)

        if self._strikes("outcome unknown, lost"):
            raise _failed(NativeError._TIMED_OUT)
        if self._strikes("outcome unknown, late"):
            self._later(end)
            raise _failed(NativeError._TIMED_OUT)
        self._reach(timeout)
        self._guard(end)
        if self._strikes("outcome unknown, done"):
            raise _failed(NativeError._TIMED_OUT)

    def _strikes(self, fault: str) -> bool:
        """Whether a fault happens here; mostly it is kept for a task, not for a driver's beat."""
        spared = self._id.endswith("-driver") and self._world.random.random() < 0.8
        return not spared and self._world.strikes(fault)

    def _reach(self, timeout: float) -> None:
        """Get through to the broker, which may take its time, or too long."""
        self._world.point("broker")
        hang = self._broker.hang_until - self._world.now
        if hang > 0:
            self._world.fired("broker hangs")
            self._world.wait(min(hang, timeout))
            if hang > timeout:
                raise _failed(NativeError._TIMED_OUT)

    def _await_markers(self, timeout: float) -> None:
        deadline = self._world.now + timeout
        while self._broker.is_completing(self._id):
            if self._world.now >= deadline or self._world.is_crowded:
                raise _failed(NativeError._TIMED_OUT)
            self._world.reached("waited for markers of the last transaction")
            self._world.wait(0.1)

    def _guard(self, call: Any) -> None:
        try:
            call()
        except FencedProducerError:
            raise _failed(NativeError._FENCED) from None

    def _perhaps_late(self, write: Any) -> None:
        if self._world.random.random() < 0.5:
            self._later(write)

    def _later(self, call: Any) -> None:
        def land() -> None:
            try:
                call()
            except FencedProducerError:
                self._world.reached("a late request of a fenced producer was refused")

        self._world.at(self._world.now + self._world.random.uniform(0.05, 4.0), land)


class SimMessage:
    """confluent_kafka.Message."""

    def __init__(self, where: Partition, offset: int, entry: Entry | None) -> None:
        self.where = self._where = where
        self._offset = offset
        self._entry = entry

    def error(self) -> NativeError | None:
        return None if self._entry is not None else NativeError(NativeError._PARTITION_EOF)

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return self._where[0]

    def partition(self) -> int:
        return self._where[1]

    def key(self) -> bytes | None:
        assert self._entry is not None
        return self._entry.key

    def value(self) -> bytes | None:
        assert self._entry is not None
        return self._entry.value

    def timestamp(self) -> tuple[int, int]:
        assert self._entry is not None
        return 1, self._entry.time


class SimConsumer:
    """A consumer of committed records that is told what to read."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._where: Partition = ("", 0)
        self._next = 0
        self._left: list[SimMessage] = []
        """What it fetched before it was told to read something else."""

    def assign(self, partitions: list[Any]) -> None:
        [one] = partitions
        self._where, self._next = (one.topic, one.partition), one.offset

    def unassign(self) -> None:
        log = self._world.broker.log(self._where)
        self._left = [SimMessage(self._where, *each) for each in log.committed(0)]

    def close(self) -> None: ...

    def get_watermark_offsets(self, where: Any, timeout: float) -> tuple[int, int]:
        return 0, self._world.broker.log((where.topic, where.partition)).stable_end

    def consume(self, count: int, timeout: float) -> list[SimMessage]:
        left, self._left = self._left, []
        return [each for each in left if each.where != self._where] + self._fetched()

    def _fetched(self) -> list[SimMessage]:
        log = self._world.broker.log(self._where)
        found = list(log.committed(self._next))
        fetched = found[: self._world.fetch_max]
        messages = [SimMessage(self._where, offset, entry) for offset, entry in fetched]
        if len(fetched) < len(found):
            self._next = fetched[-1][0] + 1
            return messages
        self._next = max(self._next, log.stable_end)
        return [*messages, SimMessage(self._where, self._next, None)]


class SimLogClients:
    """LogClients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.readers, self.followers = Readers(1), Readers(1)
        self._idle: list[SimConsumer] = []

    def consumer(self) -> SimConsumer:
        """A consumer."""
        return SimConsumer(self.world)

    @contextlib.contextmanager
    def lent_consumer(self, topic: str) -> Iterator[SimConsumer]:
        """A consumer, which may have read before."""
        consumer = self._idle.pop() if self._idle else self.consumer()
        yield consumer
        consumer.unassign()
        self._idle.append(consumer)


def sim_log_offsets(
    clients: SimLogClients, partitions: Iterable[Partition], spec: Any, level: IsolationLevel
) -> dict[Partition, int]:
    """penstock.changelog.reading.log_offsets; the starts of logs are not simulated."""
    committed = level == IsolationLevel.READ_COMMITTED
    logs = {where: clients.world.broker.log(where) for where in partitions}
    if spec == "earliest":
        return dict.fromkeys(logs, 0)
    return {where: log.stable_end if committed else log.end for where, log in logs.items()}
