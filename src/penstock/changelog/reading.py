"""Reading an internal topic up to a point that is known to be final.

Transaction markers take offsets without being records, so an end is recognised by the consumer's
position (its end-of-partition event), never by the last record's offset.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import confluent_kafka
from confluent_kafka import Consumer, IsolationLevel, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not re-exported

from penstock.changelog.clients import LogClients
from penstock.changelog.kafka_failures import LEADER_ON_ITS_WAY, code_of, kafka_error
from penstock.errors import KafkaError

STABLE_TIMEOUT = timedelta(seconds=60)
"""Longer than a transaction may last: its owner is gone by then, or the broker ended it."""
BATCH_RECORDS = 10_000
_STABLE_PAUSE_SECONDS = 0.05
_POLL_SECONDS = 0.02
ATTEMPT_SECONDS = 2.5
"""A broker that died leaves a question to it without an answer; its successor would have one."""
_SOON_SECONDS = 1.0
# librdkafka's own codes have no public names.
_TIMED_OUT = confluent_kafka.KafkaError._TIMED_OUT  # noqa: SLF001
# What it says of leaders that it knows no more, without looking for their successors by itself.
_NO_LEADERS = confluent_kafka.KafkaError._NOENT  # noqa: SLF001
_ASK_AGAIN = (*LEADER_ON_ITS_WAY, _TIMED_OUT, _NO_LEADERS)
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NO_LEADER = confluent_kafka.KafkaError(confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE)
_EOF = confluent_kafka.KafkaError._PARTITION_EOF  # noqa: SLF001
_OUT_OF_RANGE = confluent_kafka.KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001


@dataclass(frozen=True)
class LogRange:
    """What a partition's log holds: offsets `start` up to, not including, `end`."""

    start: int
    end: int


def never() -> bool:
    """The `stop` of a call that is not to be stopped."""
    return False


def wait_stable(
    clients: LogClients,
    partitions: Iterable[tuple[str, int]],
    *,
    timeout: timedelta = STABLE_TIMEOUT,
    stop: Callable[[], bool] = never,
) -> dict[tuple[str, int], LogRange]:
    """The ranges of these logs, once nothing in them belongs to an open transaction.

    The ends are captured first and waited for; what is written later is not. Raises `KafkaError`
    when the time is over or `stop` says so.
    """
    wanted = list(partitions)
    deadline = time.monotonic() + timeout.total_seconds()
    starts = log_offsets(clients, wanted, EARLIEST, IsolationLevel.READ_UNCOMMITTED)
    ends = log_offsets(clients, wanted, LATEST, IsolationLevel.READ_UNCOMMITTED)
    pending = wanted
    while True:
        stable = log_offsets(clients, pending, LATEST, IsolationLevel.READ_COMMITTED)
        pending = [one for one in pending if stable[one] < ends[one]]
        if not pending:
            return {one: LogRange(starts[one], ends[one]) for one in wanted}
        if stop() or time.monotonic() > deadline:
            topic, partition = pending[0]
            raise KafkaError(
                "A transaction is still open in a log that must be read to its end",
                where={"topic": topic, "partition": partition, "open from": stable[pending[0]]},
                hint="Wait until the broker ends it (transaction.timeout.ms of its producer)",
            )
        time.sleep(_STABLE_PAUSE_SECONDS)


def read_last(
    clients: LogClients,
    topic: str,
    partition: int,
    *,
    timeout: timedelta = STABLE_TIMEOUT,
    stop: Callable[[], bool] = never,
) -> bytes | None:
    """The value of a partition's last committed record; None if there is none.

    Everything that was in the log when the call began is decided when it returns: an open
    transaction is waited for.
    """
    last: bytes | None = None
    for message in read_committed(clients, topic, partition, timeout=timeout, stop=stop):
        last = message.value()
    return last


def read_latest(
    clients: LogClients, topic: str, partition: int, *, timeout: timedelta = STABLE_TIMEOUT
) -> dict[bytes | None, bytes | None]:
    """The value of the last committed record of each key in a partition; as `read_last`."""
    messages = read_committed(clients, topic, partition, timeout=timeout)
    return {message.key(): message.value() for message in messages}


def read_committed(
    clients: LogClients,
    topic: str,
    partition: int,
    *,
    start: int = 0,
    timeout: timedelta = STABLE_TIMEOUT,
    stop: Callable[[], bool] = never,
) -> Iterator[Message]:
    """Every committed record of a partition from `start` on, up to where the log ends now."""
    deadline = time.monotonic() + timeout.total_seconds()
    log = wait_stable(clients, [(topic, partition)], timeout=timeout, stop=stop)[topic, partition]
    part = LogRange(max(start, log.start), log.end)
    yield from _read(clients, topic, partition, part, stop=lambda: stop() or _is_over(deadline))


def read_part(
    clients: LogClients, topic: str, partition: int, part: LogRange, *, timeout: timedelta
) -> Iterator[Message]:
    """The committed records of a part of a partition; its end is a stable one, as it was told."""
    deadline = time.monotonic() + timeout.total_seconds()
    return _read(clients, topic, partition, part, stop=lambda: _is_over(deadline))


def _is_over(deadline: float) -> bool:
    return time.monotonic() > deadline


def _read(
    clients: LogClients, topic: str, partition: int, part: LogRange, *, stop: Callable[[], bool]
) -> Iterator[Message]:
    position, end = part.start, part.end
    if position >= end:
        return
    with clients.lent_consumer(topic) as consumer:
        consumer.assign([TopicPartition(topic, partition, position)])
        while position < end:
            if stop():
                raise read_timeout(topic, partition, position, end)
            for message in come(consumer, BATCH_RECORDS, _POLL_SECONDS):
                where = message.topic(), message.partition()
                if where[0] is not None and where != (topic, partition):
                    continue  # Left from what it read before.
                position = position_after(message)
                if message.error() is None:
                    yield message


def come(consumer: Consumer, records: int, seconds: float) -> list[Message]:
    """What has come for a consumer, as soon as there is something, and none if nothing comes.

    `consume` alone waits until there are so many records, or the time is over.
    """
    first = consumer.consume(1, seconds)
    return [*first, *consumer.consume(records - 1, 0)] if first else []


def position_after(message: Message) -> int:
    """Where the consumer stands after this message, be it a record or the end of the partition."""
    error = message.error()
    offset = message.offset()
    if error is None:
        return (offset or 0) + 1
    if error.code() == _EOF:
        return offset or 0
    raise kafka_error(
        error,
        doing="let the log be read",
        where=_place(message),
    )


def _place(message: Message) -> dict[str, object]:
    """Where an error was met; one of the client as a whole has no topic."""
    topic = message.topic()
    return {} if topic is None else {"topic": topic, "partition": message.partition()}


def is_out_of_range(message: Message) -> bool:
    """Whether this message says that the log does not hold the offset asked for."""
    error = message.error()
    return error is not None and error.code() == _OUT_OF_RANGE


def read_timeout(topic: str, partition: int, position: int, end: int) -> KafkaError:
    """The error of a log that stops giving records before its end."""
    return KafkaError(
        f"The log gave nothing more at offset {position}, and its end is {end}",
        where={"topic": topic, "partition": partition},
        hint="Check that the partition has a leader",
    )


def log_offsets(
    clients: LogClients,
    partitions: Iterable[tuple[str, int]],
    spec: OffsetSpec,
    isolation_level: IsolationLevel,
) -> dict[tuple[str, int], int]:
    """One offset of each of these logs: its start, or its end as seen at that isolation level.

    A partition whose leader is on its way (a new topic, a broker that left) is asked again for as
    long as one question may take. Raises `KafkaError`.
    """
    pending = set(partitions)
    found: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + clients.ask_timeout.total_seconds()
    while True:
        told, failed = _ask_offsets(clients, pending, spec, isolation_level, ATTEMPT_SECONDS)
        found.update(told)
        pending = set(failed)
        if not pending:
            return found
        for where, error in failed.items():
            if time.monotonic() > deadline:
                # It may be the client that does not find the leader, and would not in an hour.
                clients.renew_admin()
                raise _no_offset(clients, where, error) from error
        time.sleep(_STABLE_PAUSE_SECONDS)


def first_offset(clients: LogClients, topic: str, partition: int) -> int:
    """Where a log begins now. Raises `KafkaError`."""
    where = (topic, partition)
    return log_offsets(clients, [where], EARLIEST, IsolationLevel.READ_UNCOMMITTED)[where]


def told_offsets(
    clients: LogClients,
    partitions: Iterable[tuple[str, int]],
    spec: OffsetSpec,
    isolation_level: IsolationLevel,
) -> dict[tuple[str, int], int]:
    """As `log_offsets`, of those logs only whose leaders answer soon. Raises `KafkaError`."""
    wanted = set(partitions)
    return _ask_offsets(clients, wanted, spec, isolation_level, _SOON_SECONDS)[0] if wanted else {}


def _ask_offsets(
    clients: LogClients,
    partitions: set[tuple[str, int]],
    spec: OffsetSpec,
    isolation_level: IsolationLevel,
    timeout_seconds: float,
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], confluent_kafka.KafkaException]]:
    """What is told, and what may be asked again, of a leader that is known by then."""
    found: dict[tuple[str, int], int] = {}
    failed: dict[tuple[str, int], confluent_kafka.KafkaException] = {}
    # Held until the answers are here: they die with their client, which others may renew.
    admin = clients.admin
    futures = admin.list_offsets(
        {TopicPartition(topic, partition): spec for topic, partition in partitions},
        isolation_level=isolation_level,
        request_timeout=min(timeout_seconds, clients.ask_timeout.total_seconds()),
    )
    for where, future in futures.items():
        try:
            offset = future.result().offset
            if offset == confluent_kafka.OFFSET_INVALID:
                # The client says so, and no error, of a partition whose broker has just gone.
                raise confluent_kafka.KafkaException(_NO_LEADER)  # noqa: TRY301
            found[where.topic, where.partition] = offset
        except confluent_kafka.KafkaException as error:
            if code_of(error) not in _ASK_AGAIN:
                raise _no_offset(clients, (where.topic, where.partition), error) from error
            failed[where.topic, where.partition] = error
    for topic in {topic for topic, _ in failed}:
        # Else the client goes on asking the leader that it knows, under the epoch it knows.
        with contextlib.suppress(confluent_kafka.KafkaException):
            admin.list_topics(topic, timeout=timeout_seconds)
    return found, failed


def _no_offset(
    clients: LogClients, where: tuple[str, int], error: confluent_kafka.KafkaException
) -> KafkaError:
    return kafka_error(
        error,
        bootstrap_servers=clients.config.bootstrap_servers,
        doing="say where a log ends",
        where={"topic": where[0], "partition": where[1]},
    )
