"""Whether a store on disk is what its changelog says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition

from penstock.changelog.clients import LogClients
from penstock.changelog.reading import read_committed
from penstock.changelog.restore import RestoreProgress, ignore_progress, recreated, restore
from penstock.instance.inspection import OpenStore
from penstock.instance.open_stores import shaped
from penstock.stores.comparison import Difference, Place, compare, entries_of, history_start
from penstock.stores.contract import KeyValueStore, split_stored_value
from penstock.stores.rocksdb import RocksDBStore

_READ_TIMEOUT = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a comparison of a store with its changelog found."""

    entries: int
    """How many entries the store has, or versions of them."""
    differences: tuple[Difference, ...]
    unjudged: int
    """Keys that differ and were written again after the store's offset. The changelog may have
    been compacted since, and no longer knows what they were; or a crash left the store ahead of
    its offset. Neither is a fault: applying the tail sets them right."""
    forgotten: int = 0
    """Keys that the store alone has, and that are older than the changelog keeps records."""


def verify(
    opened: OpenStore,
    clients: LogClients,
    scratch: Path,
    on_progress: Callable[[RestoreProgress], None] = ignore_progress,
    *,
    kept_since_ms: int | None = None,
) -> Verification:
    """Fold the changelog up to the store's offset, and compare key by key.

    The fold goes through a restore into a store of the same kind below `scratch`, so that what
    expires there expires here. Keys do not: of those the changelog may have forgotten what was
    written before `kept_since_ms`. Raises `ChangelogError`, `KafkaError`.
    """
    assert opened.identity is not None
    inner = RocksDBStore(opened.disk.name, scratch)
    try:
        expected = shaped(inner, opened.order)
        offset = opened.store.offset()
        if offset is not None:
            _fold(expected, opened, clients, until=offset + 1, on_progress=on_progress)
        since = history_start(opened.store, expected)
        counted = _Counted(entries_of(opened.store, since))
        differences = list(compare(counted, entries_of(expected, since)))
    finally:
        inner.close()
    later = _written_after(opened, clients, offset) if differences else set()
    judged = [each for each in differences if each.key not in later]
    expired = _expired(opened, judged, kept_since_ms) if kept_since_ms is not None else set()
    return Verification(
        entries=counted.number,
        differences=tuple(each for each in judged if each.key not in expired),
        unjudged=len(differences) - len(judged),
        forgotten=len(expired),
    )


def _expired(opened: OpenStore, differences: list[Difference], since_ms: int) -> set[bytes]:
    """Those of the keys that the store alone has, and that were written before a moment."""
    if opened.order.kind != "key_value":
        return set()
    extra = [each.key for each in differences if each.kind == "extra"]
    values = zip(extra, opened.store.get_many(extra), strict=True)
    return {key for key, value in values if value and split_stored_value(value)[0] < since_ms}


def _fold(
    store: KeyValueStore,
    opened: OpenStore,
    clients: LogClients,
    *,
    until: int,
    on_progress: Callable[[RestoreProgress], None],
) -> None:
    assert opened.identity is not None
    assert opened.disk.partition is not None
    topic, partition = opened.identity.changelog_topic, opened.disk.partition
    consumer = _UpTo(clients.consumer(), until)
    try:
        watermarks = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), clients.ask_timeout.total_seconds()
        )
        if watermarks is not None and 0 <= watermarks[1] < until:
            detail = f"partition {partition} ends at {watermarks[1]}, the store holds {until - 1}"
            raise recreated(topic, detail)
        restore(
            store,
            topic=topic,
            partition=partition,
            consumer=cast(Consumer, consumer),
            until=until,
            on_progress=on_progress,
            stop=lambda: consumer.is_past,
        )
    finally:
        consumer.close()


def _written_after(opened: OpenStore, clients: LogClients, offset: int | None) -> set[bytes | None]:
    assert opened.identity is not None
    assert opened.disk.partition is not None
    start = 0 if offset is None else offset + 1
    topic, partition = opened.identity.changelog_topic, opened.disk.partition
    messages = read_committed(clients, topic, partition, start=start, timeout=_READ_TIMEOUT)
    return {message.key() for message in messages}


class _UpTo:
    """A consumer that gives nothing from an offset on: a restore reads to the end of a batch."""

    def __init__(self, consumer: Consumer, until: int) -> None:
        self.is_past = False
        self._consumer = consumer
        self._until = until

    def consume(self, number: int, timeout: float) -> list[Message]:
        messages = self._consumer.consume(number, timeout)
        kept = [each for each in messages if each.error() or (each.offset() or 0) < self._until]
        self.is_past = self.is_past or len(kept) < len(messages)
        return kept

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._consumer.assign(partitions)

    def unassign(self) -> None:
        self._consumer.unassign()

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float
    ) -> tuple[int, int] | None:
        return self._consumer.get_watermark_offsets(partition, timeout)

    def close(self) -> None:
        self._consumer.close()


class _Counted:
    """The entries of a store, counted as they go by."""

    def __init__(self, entries: Iterator[tuple[Place, bytes]]) -> None:
        self.number = 0
        self._entries = entries

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> tuple[Place, bytes]:
        entry = next(self._entries)
        self.number += 1
        return entry
