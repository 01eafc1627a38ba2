"""A driver's stores, and how a test looks at them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.processors import Entry
from penstock.processors.record_cache import TIMESTAMP_BYTES
from penstock.serdes import Serde, SessionWindowedSerde, Windowed
from penstock.serdes.windowed import (
    SESSION_TAIL_BYTES,
    WINDOW_TAIL_BYTES,
    split_session_key,
    split_window_key,
    window_end,
    window_key,
)
from penstock.stores.contract import NOTHING, split_stored_value, split_version_key
from penstock.topology import StoreSpec, VersionedRecord

K = TypeVar("K")
V = TypeVar("V")
LONG_MAX = 2**63 - 1


class DriverState:
    """The bytes of all stores, as an instance would hold them: 8 bytes of time, then the value."""

    def __init__(self, specs: Mapping[str, StoreSpec]) -> None:
        self._specs = specs
        self._stores: dict[str, dict[bytes, bytes]] = {}

    def of(self, store: str) -> dict[bytes, bytes]:
        """One store's bytes."""
        return self._stores.setdefault(store, {})

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
            return [versions_between(self.of(store), *each) for each in questions]
        tail = SESSION_TAIL_BYTES if spec.kind == "session" else WINDOW_TAIL_BYTES
        by_key: dict[bytes, list[Entry]] = {}
        for entry in self._sorted(store):
            by_key.setdefault(entry[0][:-tail], []).append(entry)
        return [
            [each for each in by_key.get(key, ()) if first <= _time(spec, each) <= last]
            for key, first, last in questions
        ]

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
        for change in changes.to_pylist():
            held, value = self.of(change["store"]), change["value"]
            time = change["timestamp"].to_bytes(TIMESTAMP_BYTES, "big", signed=True)
            if self._specs[change["store"]].kind == "versioned":
                held[change["key"] + time] = NOTHING if value is None else time + value
            elif value is None:
                held.pop(change["key"], None)
            else:
                held[change["key"]] = time + value

    def _sorted(self, store: str) -> list[Entry]:
        return sorted(self.of(store).items())


def versions_between(held: Mapping[bytes, bytes], key: bytes, first: int, last: int) -> list[Entry]:
    """What a key was from first to last, in order of time; `held` has versions of any keys."""
    own = sorted((n, data) for n, data in held.items() if n[:-TIMESTAMP_BYTES] == key)
    times = [split_version_key(name)[1] for name, _ in own]
    return own[max(bisect_right(times, first) - 1, 0) : bisect_right(times, last)]


def _time(spec: StoreSpec, entry: Entry) -> int:
    """Where in time an entry lies."""
    if spec.kind == "session":
        return split_session_key(entry[0])[2]
    if spec.kind == "window":
        return split_window_key(entry[0])[1]
    return int.from_bytes(entry[1][-TIMESTAMP_BYTES:], "big", signed=True)


def _latest(versions: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The last version of each key that is not a deletion."""
    last: dict[bytes, tuple[int, bytes]] = {}
    for name, data in versions.items():
        key, time = split_version_key(name)
        if key not in last or time > last[key][0]:
            last[key] = time, data
    return {key: data for key, (_, data) in last.items() if data != NOTHING}


class StoreView(Mapping[K, V], Generic[K, V]):
    """A store as a test sees it: a mapping, in the order of the keys' bytes.

    Keys of windows and sessions are `Windowed`. Of a versioned store it has the latest values.
    """

    def __init__(self, spec: StoreSpec, held: dict[bytes, bytes], *, alive_from: int) -> None:
        self._spec = spec
        self._held = self._versions = held
        self._alive_from = alive_from
        if spec.kind == "versioned":
            self._held = _latest(held)
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
        name = self._keys.serialize(key)
        found = versions_between(self._versions, name, timestamp, LONG_MAX)
        is_latest = len(found) == 1
        valid = [data for key, data in found[:1] if split_version_key(key)[1] <= timestamp]
        if valid in ([], [NOTHING]) or (timestamp < self._alive_from and not is_latest):
            return None
        time, value = split_stored_value(valid[0])
        valid_to = None if is_latest else split_version_key(found[1][0])[1]
        return VersionedRecord(self._spec.value_serde.deserialize(value), time, valid_to)

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
