"""From a changelog to a store: apply what the store does not hold yet.

The store's own offset says where to begin, and each batch moves it, so a restore that was cut off
goes on where it was. Nothing is ever skipped silently: a changelog that no longer holds what the
store needs next is reported, and the caller wipes the store or stops.
"""

from __future__ import annotations

import contextlib
import enum
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Message, TopicPartition

from penstock.changelog.kafka_failures import kafka_error, unreachable
from penstock.changelog.read_ahead import Reading
from penstock.changelog.reading import (
    LogRange,
    is_out_of_range,
    never,
    position_after,
    read_timeout,
)
from penstock.errors import (
    ChangelogError,
    KafkaError,
    StateForeignError,
    StoreDamagedError,
    TopicMissingError,
)
from penstock.observability.crash_points import crash_point
from penstock.observability.time_of_day import wall_clock_ms
from penstock.stores.contract import ChangeColumns, KeyValueStore, StoreIdentity, VersionedStore

BATCH_RECORDS = 5_000
SILENCE_MAX = timedelta(seconds=60)
TOMBSTONE_RETENTION = timedelta(days=1)
"""Kafka's default of `delete.retention.ms`."""
_RETENTION_SHARE = 0.9
_CLOCKS_MS = 300_000
"""By how much the clocks of hosts may differ on which a disk is opened."""
# `consume` waits this long for a full batch, also when the end was reached.
_POLL_SECONDS = 0.02
_ASK_SECONDS = 10.0
_TIMESTAMP = struct.Struct(">q")
_turn = threading.Lock()
"""Restores of a process take turns with the records that they have: threads that take the
interpreter from each other in between get less done."""

Writing = Callable[[], contextlib.AbstractContextManager[None]]
"""Around each write, for those who read the store meanwhile."""


class RestoreOutcome(enum.Enum):
    """How a restore ended."""

    COMPLETE = "complete"
    """The store holds the changelog up to `until`."""
    STOPPED = "stopped"
    """`stop` said so; what was applied stays, and the next restore goes on from there."""
    TRUNCATED = "truncated"
    """The changelog no longer holds what the store needs next, or may not (its records, or the
    deletions among them): wipe the store, say so, restore again."""


@dataclass(frozen=True)
class RestoreProgress:
    """How far a restore is, told at its start and after each batch.

    It reads offsets `start` up to, not including, `until`; `offset` is the last record's that was
    applied, -1 before the first. `remaining` counts offsets, of which markers are a part.
    """

    restored: int
    remaining: int
    bytes: int
    start: int
    until: int
    offset: int = -1
    full: bool = False
    """Whether the store was empty: then `start` is where the log begins, which may be behind 0."""


@dataclass(frozen=True)
class RestoreResult:
    """What a restore did."""

    outcome: RestoreOutcome
    restored: int
    bytes: int
    outlasted: bool = False
    """Whether it took longer than deletions last: then some may be gone that it came too late for,
    of keys that it had read."""


def ignore_progress(progress: RestoreProgress) -> None:
    """The `on_progress` of a restore that nobody watches."""


def check_identity(store: KeyValueStore, expected: StoreIdentity) -> None:
    """Make sure that a store on disk is this task's, and counts in the changelog that exists now.

    A new store gets the identity. Raises `StateForeignError`, `StoreDamagedError`, or
    `ChangelogError` if the changelog was deleted and made again since.
    """
    found = store.identity()
    where = {"store": expected.store, "task": expected.task}
    if found is None:
        if store.offset() is not None:
            raise StoreDamagedError(
                "The store holds data but does not say whose", where=where, hint=_WIPE
            )
        store.set_identity(expected)
    elif found.application_id != expected.application_id:
        raise StateForeignError(
            f"The store belongs to the application {found.application_id!r}",
            where=where,
            hint="Set state_dir to another directory",
        )
    elif (found.task, found.store) != (expected.task, expected.store):
        raise StoreDamagedError(
            f"The directory holds the store {found.store} of task {found.task}",
            where=where,
            hint=_WIPE,
        )
    elif found.layout != expected.layout:
        raise StoreDamagedError(
            f"The store was written as {found.layout}, and is {expected.layout} now",
            where=where,
            hint=_WIPE,
        )
    elif not (found.changelog_topic_id or found.changelog_topic or expected.changelog_topic):
        store.set_identity(expected)  # From when stores without a changelog did not say of whom.
    elif (found.changelog_topic, found.changelog_topic_id) != (
        expected.changelog_topic,
        expected.changelog_topic_id,
    ):
        raise recreated(
            expected.changelog_topic,
            f"its id is {expected.changelog_topic_id} and the store was made from "
            f"{found.changelog_topic} with id {found.changelog_topic_id}",
            where=where,
            hint=f"{_STARTED_OVER}. Else: {_AFRESH}",
        )


def restore(
    store: KeyValueStore,
    *,
    topic: str,
    partition: int,
    consumer: Consumer,
    until: int,
    log_start: int | None = None,
    on_progress: Callable[[RestoreProgress], None] = ignore_progress,
    stop: Callable[[], bool] = never,
    silence_max: timedelta = SILENCE_MAX,
    tombstone_retention: timedelta = TOMBSTONE_RETENTION,
    now_ms: Callable[[], int] = wall_clock_ms,
    writing: Writing = contextlib.nullcontext,
    reading: Reading = lambda records: contextlib.nullcontext(),
    markers: int = 0,
) -> RestoreResult:
    """Apply the changelog to the store, from what it holds up to, not including, offset `until`.

    Behind what a store holds lie so many `markers`: one, where commits are transactions. A log that
    lost no more than those lost nothing.

    `until` is an end that `wait_stable` gave, and `log_start` where the log begins, if the caller
    has just asked. The consumer comes from `LogClients.consumer` and is used for this partition
    alone meanwhile. Raises `ChangelogError` if the changelog ends before what the store holds,
    `KafkaError` if it gives nothing for `silence_max`.
    """
    began_ms = now_ms()
    held = store.offset()
    known = log_start if held is None or held < until else None
    log = _log_range(consumer, topic, partition, until, known)
    start = _start(held, log, markers, topic, partition)
    missed_nothing = held is not None and held + 1 + markers >= until
    if start is None or (not missed_nothing and _outlived(store, began_ms, tombstone_retention)):
        return RestoreResult(RestoreOutcome.TRUNCATED, 0, 0)
    if store.offset() is None:
        # A store that is cut off on its way was never complete; its age counts from here.
        store.set_caught_up_at(began_ms)
    remaining = max(0, until - start)
    full = held is None and remaining > 0
    progress = RestoreProgress(
        restored=0, remaining=remaining, bytes=0, start=start, until=until, full=full
    )
    on_progress(progress)
    outcome = RestoreOutcome.COMPLETE
    # What it holds is from then; or else from when the first records came.
    since = last = began_ms if held is None else store.caught_up_at() or began_ms
    versioned = isinstance(store, VersionedStore)
    with reading(remaining), _assigned(consumer, topic, partition, start):
        heard = time.monotonic()
        while progress.remaining > 0 and outcome is RestoreOutcome.COMPLETE:
            messages = consumer.consume(BATCH_RECORDS, _POLL_SECONDS)
            with _turn:
                batch = _decode(messages, topic, partition, versioned=versioned)
            if batch.position is not None:
                heard, last = time.monotonic(), now_ms() if batch.records else last
                since = last if held is None and not progress.restored else since
                with writing():
                    progress = _apply(store, batch, progress, until)
                on_progress(progress)
            elif time.monotonic() - heard > silence_max.total_seconds():
                raise read_timeout(topic, partition, until - progress.remaining, until)
            if batch.truncated:
                outcome = RestoreOutcome.TRUNCATED
            elif progress.remaining > 0 and stop():
                outcome = RestoreOutcome.STOPPED
    if outcome is RestoreOutcome.COMPLETE:
        store.set_caught_up_at(began_ms)
    outlasted = is_too_old(since, now_ms=last, lasting=tombstone_retention)
    return RestoreResult(outcome, progress.restored, progress.bytes, outlasted)


@contextlib.contextmanager
def _assigned(consumer: Consumer, topic: str, partition: int, start: int) -> Iterator[None]:
    consumer.assign([TopicPartition(topic, partition, start)])
    try:
        yield
    finally:
        consumer.unassign()


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What some messages of a changelog did to its store."""

    records: int
    position: int | None
    """Where the consumer stands after them; None if they say nothing of it."""
    at_end: bool
    """Whether the log had no more."""
    truncated: bool
    """The changelog no longer holds what the store needs next."""


def apply_messages(
    store: KeyValueStore,
    messages: list[Message],
    *,
    topic: str,
    partition: int,
    writing: Writing = contextlib.nullcontext,
) -> Applied:
    """Apply what a consumer that follows a changelog was given; the store's offset moves with it.

    Raises `ChangelogError`, `KafkaError`, and what the store raises.
    """
    batch = _decode(messages, topic, partition, versioned=isinstance(store, VersionedStore))
    if batch.changes:
        with writing():
            store.apply(batch.changes, offset=batch.last_offset)
    return Applied(
        records=batch.records,
        position=batch.position,
        at_end=bool(messages) and messages[-1].error() is not None and not batch.truncated,
        truncated=batch.truncated,
    )


def _start(held: int | None, log: LogRange, markers: int, topic: str, partition: int) -> int | None:
    """The first offset to read; None if the log lacks it."""
    if held is None:
        return log.start
    if held + 1 > log.end:
        raise recreated(topic, f"partition {partition} ends at {log.end}, the store holds {held}")
    return max(held + 1, log.start) if log.start <= held + 1 + markers else None


def _outlived(store: KeyValueStore, now_ms: int, tombstone_retention: timedelta) -> bool:
    """Whether deletions that the store has not seen may be gone from the changelog.

    Compaction drops a tombstone some time after it was written. A store that was away for longer
    would keep the deleted keys for ever, though its offset is still in the log.
    """
    caught_up_at = store.caught_up_at()
    if store.offset() is None or caught_up_at is None:
        return False
    return is_too_old(caught_up_at, now_ms=now_ms, lasting=tombstone_retention)


def is_too_old(caught_up_at: int, *, now_ms: int, lasting: timedelta) -> bool:
    """Whether deletions since that moment may be gone from a log in which they last so long.

    >>> hour = timedelta(hours=1)
    >>> [is_too_old(10_000_000, now_ms=now, lasting=hour) for now in (9_999_000, 13_000_000)]
    [False, False]
    >>> [is_too_old(10_000_000, now_ms=now, lasting=hour) for now in (13_500_000, 9_000_000)]
    [True, True]
    """
    age_ms = now_ms - caught_up_at
    # A moment to come shows that a clock was wrong, and then nobody knows the age.
    return age_ms > lasting.total_seconds() * 1000 * _RETENTION_SHARE or age_ms < -_CLOCKS_MS


_AFRESH = (
    "State and positions no longer belong together. Start afresh: delete the application's "
    "internal topics, consumer group and state directory, or use another id"
)
_STARTED_OVER = (
    "If the application was started over since, the machine that was given the task has state from "
    "before: `penstock reset app.py --state-only --execute` removes it there"
)


def recreated(
    topic: str, detail: str, *, where: Mapping[str, object] | None = None, hint: str = _AFRESH
) -> ChangelogError:
    """The error of a changelog that is not the one the store was made from."""
    return ChangelogError(
        f"The changelog was deleted and made again, or lost its end: {detail}",
        where={"topic": topic, **(where or {})},
        hint=hint,
    )


@contextlib.contextmanager
def noticing_deletion() -> Iterator[None]:
    """Have a changelog that does not exist told as one that is lost, by `ChangelogError`.

    It was there when the driver looked; making it again would not bring the state back.
    """
    try:
        yield
    except TopicMissingError as error:
        raise recreated(str(error.where.get("topic", "")), "it does not exist") from error


def check_end(topic: str, partition: int, log: LogRange, known_end: int) -> None:
    """Make sure that a changelog still holds the offset that the last commit knew of.

    Raises `ChangelogError`: a store on an empty disk would be rebuilt without what is missing.
    """
    if log.end <= known_end:
        detail = f"partition {partition} ends at {log.end}, and offset {known_end} was committed"
        raise recreated(topic, detail)


def truncated(topic: str, partition: int, log: LogRange, held: int | None) -> ChangelogError:
    """The error of a changelog that lost records which a store needs, and has nowhere else."""
    needs = "an empty store needs more of it" if held is None else f"the store holds up to {held}"
    return ChangelogError(
        f"The changelog lost its start: it begins at offset {log.start}, and {needs}. Keys that "
        "were not written since would be lost",
        where={"topic": topic, "partition": partition},
        hint="Bring back the state directory that was there, or start afresh: delete the "
        "application's internal topics, consumer group and state directory. To go on with what is "
        "left: allow_truncated_changelog=True",
    )


def outrun(topic: str, partition: int) -> KafkaError:
    """The error of a changelog whose start goes again and again while it is read: what is empty by
    then must not pass for restored. The task is taken again.
    """
    return KafkaError(
        "The changelog lost its start again while it was read",
        where={"topic": topic, "partition": partition},
        hint="Kafka removes records by their age (retention.ms) faster than they are read, or "
        "somebody deletes them; keep them longer",
    )


@dataclass(frozen=True)
class _Batch:
    """What one fetch gave; `position` is None if it gave neither records nor an end."""

    changes: ChangeColumns
    records: int
    last_offset: int | None
    position: int | None
    truncated: bool


def _apply(
    store: KeyValueStore, batch: _Batch, progress: RestoreProgress, until: int
) -> RestoreProgress:
    if batch.changes:
        store.apply(batch.changes, offset=batch.last_offset)
        crash_point("restore.mid_batch")
    return replace(
        progress,
        restored=progress.restored + batch.records,
        remaining=max(0, until - (batch.position or 0)),
        bytes=progress.bytes + _size(batch.changes),
        offset=progress.offset if batch.last_offset is None else batch.last_offset,
    )


def _decode(
    messages: list[Message], topic: str, partition: int, *, versioned: bool = False
) -> _Batch:
    """The last change of each key, or every one of a versioned store, and where they end."""
    records, ends = _parted(messages)
    truncated = any(is_out_of_range(message) for message in ends)
    if truncated:
        ends = []
    # Reading an end may raise: nothing of the batch is applied then.
    positions = [position_after(message) for message in (*records[-1:], *ends)]
    # Of each key the last record, without a line of Python for each: restores live on this.
    last = dict(zip(map(Message.key, records), records, strict=True))
    if None in last:
        raise _keyless(topic, partition, next(m.offset() for m in records if m.key() is None))
    return _Batch(
        _versions(records) if versioned else _changes(last),
        records=len(records),
        last_offset=records[-1].offset() if records else None,
        position=max(positions, default=None),
        truncated=truncated,
    )


def _parted(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """The records, and what is none."""
    if not any(map(Message.error, messages)):
        return messages, []
    records = [message for message in messages if message.error() is None]
    return records, [message for message in messages if message.error() is not None]


def _changes(last: Mapping[Any, Message]) -> ChangeColumns:
    """The stored value of each key, by its last record."""
    values: list[bytes | None] = []
    messages = last.values()
    now: int | None = None
    prefix = b""
    for value, (_, timestamp) in zip(
        map(Message.value, messages), map(Message.timestamp, messages), strict=True
    ):
        if timestamp != now:
            # Records of a slice mostly have one time.
            now, prefix = timestamp, _TIMESTAMP.pack(timestamp)
        values.append(None if value is None else prefix + value)
    return ChangeColumns(list(last), values)


def _size(changes: ChangeColumns) -> int:
    values = filter(None, changes.value_column)
    return sum(map(len, changes.key_column)) + sum(map(len, values))


def _versions(records: list[Message]) -> ChangeColumns:
    """What each record writes to a versioned store: its keys end with the time."""
    changes = ChangeColumns([], [])
    for message in records:
        key, value, time_ = message.key(), message.value(), _TIMESTAMP.pack(message.timestamp()[1])
        assert key is not None
        changes.key_column.append(key + time_)
        changes.value_column.append(None if value is None else time_ + value)
    return changes


def _keyless(topic: str, partition: int, offset: int | None) -> ChangelogError:
    return ChangelogError(
        "A changelog record has no key",
        where={"topic": topic, "partition": partition, "offset": offset},
        hint="Another program wrote to the changelog; see who may",
    )


def _log_range(
    consumer: Consumer, topic: str, partition: int, until: int, known: int | None
) -> LogRange:
    """What the log holds, up to `until` at the least; its start may be `known`."""
    if known is not None:
        # To ask takes a new client most of a second now and then, while the processor is busy.
        return LogRange(known, until)
    where = {"topic": topic, "partition": partition}
    try:
        # None when the time is over, which the client's stubs do not know.
        found: tuple[int, int] | None = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), _ASK_SECONDS
        )
    except confluent_kafka.KafkaException as error:
        raise kafka_error(error, doing="say what the changelog holds", where=where) from error
    if found is None or found[1] < 0:
        # No error, but no offset either: the partition's broker has just gone.
        raise unreachable()
    return LogRange(found[0], max(found[1], until))


_WIPE = "Wipe the store's directory; its changelog rebuilds it"
