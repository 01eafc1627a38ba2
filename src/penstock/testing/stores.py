"""A driver's stores, and how a test looks at them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.processors import Entry, Fetched, fetched
from penstock.processors.record_cache import TIMESTAMP_BYTES
from penstock.processors.records import Int64s
from penstock.serdes import Serde, SessionWindowedSerde, Windowed
from penstock.serdes.windowed import (
    SESSION_TAIL_BYTES,
    WINDOW_TAIL_BYTES,
    split_session_key,
    split_window_key,
    window_end,
    window_key,
)
from penstock.stores.contract import split_version_key
from penstock.stores.memory import MemoryStore
from penstock.stores.versioned import VersionsStore
from penstock.topology import StoreSpec, VersionedRecord

K = TypeVar("K")
V = TypeVar("V")
LONG_MAX = 2**63 - 1


class DriverState:
    """The bytes of all stores, as an instance would hold them: 8 bytes of time, then the value."""

    def __init__(self, specs: Mapping[str, StoreSpec]) -> None:
        self._specs = specs
        self._stores: dict[str, dict[bytes, bytes]] = {}
        self._versions: dict[str, VersionsStore] = {}

    def of(self, store: str) -> dict[bytes, bytes]:
        """One store's bytes."""
        return self._stores.setdefault(store, {})

    def versions(self, store: str) -> VersionsStore:
        """A versioned store, which is what an instance has, in memory."""
        if store not in self._versions:
            spec = self._specs[store]
            assert spec.retention_ms is not None
            self._versions[store] = VersionsStore(
                MemoryStore(store), retention_ms=spec.retention_ms, segment_ms=spec.segment_ms
            )
        return self._versions[store]

    def get_many(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Each key's stored bytes, null if absent."""
        held = self.of(store)
        return pa.array([held.get(key) for key in keys.to_pylist()], pa.binary())

    def fetch_many(
        self, store: str, questions: Sequence[tuple[bytes, int, int]]
    ) -> list[list[Entry]]:
        """For each (key, first, last): that key's windows of those times."""
        spec = self._specs[store]
        if spec.kind == "versioned":
            return [list(self.versions(store).versions(*each)) for each in questions]
        tail = SESSION_TAIL_BYTES if spec.kind == "session" else WINDOW_TAIL_BYTES
        by_key: dict[bytes, list[Entry]] = {}
        for entry in self._sorted(store):
            by_key.setdefault(entry[0][:-tail], []).append(entry)
        return [
            [each for each in by_key.get(key, ()) if first <= _time(spec, each) <= last]
            for key, first, last in questions
        ]

    def fetch_columns(
        self, store: str, keys: pa.BinaryArray, first: Int64s, last: Int64s
    ) -> Fetched:
        """As `fetch_many`, in columns."""
        questions = zip(keys.to_pylist(), first.tolist(), last.tolist(), strict=True)
        return fetched(self.fetch_many(store, list(questions)))

    def range_many(
        self, store: str, ranges: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[list[Entry]]:
        """For each (lower, upper): the entries between."""
        return [
            [
                entry
                for entry in self._sorted(store)
                if (lower is None or lower <= entry[0]) and (upper is None or entry[0] < upper)
            ]
            for lower, upper in ranges
        ]

    def fetch_times(self, store: str, first: int, last: int) -> list[Entry]:
        """The entries of first..last; who asks puts them in order."""
        spec = self._specs[store]
        return [each for each in self._sorted(store) if first <= _time(spec, each) <= last]

    def apply(self, changes: pa.RecordBatch) -> None:
        """Write what a slice changed."""
        for store, key, value, timestamp in rows_of(changes):
            held, time = self.of(store), timestamp.to_bytes(TIMESTAMP_BYTES, "big", signed=True)
            if self._specs[store].kind == "versioned":
                stored = None if value is None else time + value
                self.versions(store).apply([(key + time, stored)], offset=None)
            elif value is None:
                held.pop(key, None)
            else:
                held[key] = time + value

    def _sorted(self, store: str) -> list[Entry]:
        return sorted(self.of(store).items())


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """A batch's rows. Arrow makes dictionaries of them, which takes several times as long."""
    if not batch.num_rows:
        return iter(())
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _time(spec: StoreSpec, entry: Entry) -> int:
    """Where in time an entry lies."""
    if spec.kind == "session":
        return split_session_key(entry[0])[2]
    if spec.kind == "window":
        return split_window_key(entry[0])[1]
    return int.from_bytes(entry[1][-TIMESTAMP_BYTES:], "big", signed=True)


class StoreView(Mapping[K, V], Generic[K, V]):
    """A store as a test sees it: a mapping, in the order of the keys' bytes.

    Keys of windows and sessions are `Windowed`. Of a versioned store it has the latest values.
    """

    def __init__(
        self,
        spec: StoreSpec,
        held: dict[bytes, bytes],
        *,
        alive_from: int,
        versions: VersionsStore | None = None,
    ) -> None:
        self._spec = spec
        self._held = held
        self._versions = versions
        self._alive_from = alive_from
        if versions is not None:
            self._held = dict(versions.all())
        elif spec.kind != "key_value":
            alive = (each for each in held.items() if _time(spec, each) >= alive_from)
            self._held = dict(alive)
        self._keys: Serde[Any] = spec.key_serde
        if spec.kind == "session":
            self._keys = SessionWindowedSerde(spec.key_serde)

    def __getitem__(self, key: K) -> V:
        """The value of a key; `KeyError` if it has none."""
        value: V = self._spec.value_serde.deserialize(self._stored(key)[TIMESTAMP_BYTES:])
        return value

    def __iter__(self) -> Iterator[K]:
        """The keys."""
        return (self._key(key) for key in sorted(self._held))

    def __len__(self) -> int:
        """How many keys it holds."""
        return len(self._held)

    def timestamp(self, key: K) -> int:
        """The time of a key's value, in milliseconds since the epoch."""
        return int.from_bytes(self._stored(key)[:TIMESTAMP_BYTES], "big", signed=True)

    def as_of(self, key: K, timestamp: int) -> VersionedRecord | None:
        """What a key of a versioned store was at a time; None also if that is past its history."""
        assert self._versions is not None
        found = list(self._versions.versions(self._keys.serialize(key), timestamp, LONG_MAX))
        times = [split_version_key(name)[1] for name, _ in found]
        at = bisect_right(times, timestamp) - 1
        is_last = at == len(found) - 1
        if at < 0 or len(found[at][1]) < TIMESTAMP_BYTES:
            return None
        if timestamp < self._alive_from and not is_last:
            return None
        value = self._spec.value_serde.deserialize(found[at][1][TIMESTAMP_BYTES:])
        return VersionedRecord(value, times[at], None if is_last else times[at + 1])

    def _key(self, data: bytes) -> Any:
        if self._spec.kind != "window":
            return self._keys.deserialize(data)
        assert self._spec.window_ms is not None
        key, start, _ = split_window_key(data)
        return Windowed(self._keys.deserialize(key), start, window_end(start, self._spec.window_ms))

    def _bytes(self, key: Any) -> bytes:
        if self._spec.kind != "window":
            return self._keys.serialize(key)
        return window_key(self._keys.serialize(key.key), key.start)

    def _stored(self, key: Any) -> bytes:
        stored = self._held.get(self._bytes(key))
        if stored is None:
            raise KeyError(key)
        return stored
