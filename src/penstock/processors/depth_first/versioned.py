"""Versioned stores: what each key is, and what it was at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.processors.depth_first.handed_out import HandedOut
from penstock.processors.depth_first.record import Record, Shared
from penstock.processors.depth_first.state import FAR, TIME_BYTES, Row, Stored
from penstock.processors.depth_first.steps import Step, Value
from penstock.processors.records import GAP, Entry, ScanReader
from penstock.processors.settling import copying
from penstock.serdes import Change
from penstock.topology import VALID_TO_UNDEFINED, StoreSpec, VersionedRecord


class Version(NamedTuple):
    """What a key was from the stored value's time on, until before another; None is for ever."""

    stored: Stored
    valid_to: int | None


class _Versions:
    """One key's versions, as far back as they were read: `values[i]` is valid from `times[i]`."""

    __slots__ = ("first", "follows", "times", "values")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.values: list[bytes | None] = []
        self.first = FAR + 1
        # Whether a version is known to end where the latest value begins; None is not read yet.
        self.follows: bool | None = None

    def read(self, first: int, entries: list[Entry]) -> None:
        """Know what is stored from a time on; what is known already may be newer than that."""
        times = [int.from_bytes(name[-TIME_BYTES:], "big", signed=True) for name, _ in entries]
        for time, (_, data) in zip(times, entries, strict=True):
            if time < self.first:
                self._set(time, data[TIME_BYTES:] if len(data) >= TIME_BYTES else None)
        if self.follows is None and times and times[-1] > first:
            self.follows = len(entries) > 1 and entries[-2][1] != GAP
        self.first = first

    def is_latest(self, time: int) -> bool:
        """Whether the latest version is a value of this time."""
        return bool(self.times) and self.times[-1] == time and self.values[-1] is not None

    def put(self, time: int, value: bytes | None) -> None:
        """Set what the key was from a time on; `penstock.stores.versioned` says how, and why so."""
        latest = self.times[-1] if self.times else None
        if latest is None or time > latest:
            self.follows = value is None or (latest is not None and self.values[-1] is not None)
        elif time < latest:
            if self.times[bisect_right(self.times, time)] == latest:
                self.follows = True
        elif value is None and self.values[-1] is not None and not self.follows:
            del self.times[-1], self.values[-1]
            return
        elif value is not None and self.values[-1] is None:
            self.follows = True
        self._set(time, value)

    def _set(self, time: int, value: bytes | None) -> None:
        at = bisect_left(self.times, time)
        if at < len(self.times) and self.times[at] == time:
            self.values[at] = value
        else:
            self.times.insert(at, time)
            self.values.insert(at, value)


class VersionedState:
    """A versioned store during a slice."""

    def __init__(
        self, spec: StoreSpec, shared: Shared, reader: ScanReader, rows: list[Row]
    ) -> None:
        assert spec.retention_ms is not None
        self.store = spec.name
        self._shared = shared
        self._reader = reader
        self._rows = rows
        self._retention = spec.retention_ms
        self._keys: dict[bytes, _Versions] = {}
        self._stream_time = shared.recall(f"{spec.name}:time", -1)

    def prefetch(self, questions: Iterable[tuple[bytes, int]]) -> None:
        """Read many keys' versions at once, each from that of the earliest time asked for."""
        wanted: dict[bytes, int] = {}
        for key, time in questions:
            wanted[key] = min(time, wanted.get(key, FAR))
        missing = [
            (key, time)
            for key, time in wanted.items()
            if key not in self._keys or self._keys[key].first > time
        ]
        if missing:
            self._read(missing)

    def get(self, key: bytes) -> Stored | None:
        """The latest value."""
        known = self._of(key, FAR)
        if not known.times or known.values[-1] is None:
            return None
        return Stored(known.values[-1], known.times[-1])

    def get_as_of(self, key: bytes, time: int) -> Version | None:
        """What a key was at a time; None also if that is past the history.

        As in Kafka Streams the latest value is found at any time since it is valid.
        """
        latest = self.get(key)
        if latest is not None and latest.timestamp <= time:
            return Version(latest, None)
        if time < self._stream_time - self._retention:
            return None
        known = self._of(key, time)
        at = bisect_right(known.times, time) - 1
        value = known.values[at] if at >= 0 else None
        if value is None:
            return None
        ends = known.times[at + 1] if at + 1 < len(known.times) else None
        return Version(Stored(value, known.times[at]), ends)

    def put(self, key: bytes, value: bytes | None, time: int) -> int | None:
        """Set what a key was from a time on, in the store and in its changelog.

        Returns until when; None if the time is past the history: then nothing was set.
        """
        if time < self._stream_time - self._retention:
            return None
        self._stream_time = max(self._stream_time, time)
        known = self._of(key, time)
        if value is None and known.is_latest(time) and known.follows is None:
            known = self._of(key, time - 1)
        known.put(time, value)
        self._rows.append((self.store, key, value, time))
        after = bisect_right(known.times, time)
        return known.times[after] if after < len(known.times) else VALID_TO_UNDEFINED

    def finish(self) -> None:
        """Leave what the next slice needs."""
        self._shared.keep(f"{self.store}:time", self._stream_time)

    def _of(self, key: bytes, time: int) -> _Versions:
        """A key's versions from that of a time on."""
        known = self._keys.get(key)
        if known is None or known.first > time:
            self._read([(key, time)])
            known = self._keys[key]
        return known

    def _read(self, missing: list[tuple[bytes, int]]) -> None:
        answers = self._reader.fetch_many(self.store, [(key, time, FAR) for key, time in missing])
        for (key, time), entries in zip(missing, answers, strict=True):
            self._keys.setdefault(key, _Versions()).read(time, entries)


class VersionedTable:
    """A table's versioned store: it has no cache, and says of each row whether it is the latest."""

    def __init__(
        self, step: Step, spec: StoreSpec, versions: VersionedState, *, sends_old: bool
    ) -> None:
        self._step = step
        self._shared = step.shared
        self._spec = spec
        self._versions = versions
        self._sends_old = sends_old
        self.before = copying(spec.value_serde, needed=sends_old)

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        """The latest row of a key; each was passed on at once."""
        return self._value(key, self._versions.get(self._key(key)))

    def work(self, key: Any) -> Value | None:
        """The latest row of a key, for its own step."""
        return self.get(key)

    def get_as_of(self, key: Any, time: int) -> Value | None:
        """The row that a key had at a time."""
        found = self._versions.get_as_of(self._key(key), time)
        return None if found is None else self._value(key, found.stored)

    def put(self, record: Record, new: Any, timestamp: int, *, old: Any) -> None:
        """Write a row at its time, and tell of it unless that is past the history."""
        value = self._shared.encode(self._step.name, self._spec.value_serde, new, "value")
        valid_to = self._versions.put(self._key(record.key), value, timestamp)
        if valid_to is None:
            self._shared.drop("expired")
            return
        is_latest = valid_to == VALID_TO_UNDEFINED
        change = Change(new, old if self._sends_old else None, is_latest)
        self._step.forward(Record(record.key, change, timestamp, record.headers))

    def _key(self, key: Any) -> bytes:
        data = self._shared.encode(self._step.name, self._spec.key_serde, key, "key")
        assert data is not None
        return data

    def _value(self, key: Any, stored: Stored | None) -> Value | None:
        if stored is None:
            return None
        spec, decode = self._spec, self._shared.decode
        value = decode(self._step.name, spec.name, spec.value_serde, stored.value, key)
        return Value(value, stored.timestamp)


class UserVersionedStore:
    """A versioned store in a processor's hands."""

    def __init__(
        self,
        shared: Shared,
        spec: StoreSpec,
        state: VersionedState,
        handed: HandedOut | None = None,
    ) -> None:
        self._shared = shared
        self._spec = spec
        self._state = state
        self._handed = handed
        self._writes: Counter[bytes] = Counter()

    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
        """Set what a key was from a time on; returns until when."""
        data = self._shared.encode(self._spec.name, self._spec.value_serde, value, "value")
        name = self.key_bytes(key)
        self._writes[name] += 1
        valid_to = self._state.put(name, data, timestamp)
        if valid_to is None:
            self._shared.drop("expired")
        elif self._handed is not None and data is not None:
            stored, serde = Stored(data, timestamp), self._spec.value_serde
            current = self._unless_written(name, stored)
            self._handed.take(self._spec.name, key, value, stored, serde, current)
        return valid_to

    def get(self, key: Any, as_of_timestamp: int | None = None) -> VersionedRecord | None:
        """The latest value of a key, or the one of a time."""
        name = self.key_bytes(key)
        if as_of_timestamp is not None:
            return self._record(key, name, self._state.get_as_of(name, as_of_timestamp))
        latest = self._state.get(name)
        return None if latest is None else self._record(key, name, Version(latest, None))

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Set that a key was nothing from a time on; returns what it was."""
        name = self.key_bytes(key)
        before = self._state.get_as_of(name, timestamp)
        self._writes[name] += 1
        if self._state.put(name, None, timestamp) is None:
            self._shared.drop("expired")
            return None
        return self._record(key, name, before)

    def key_bytes(self, key: Any) -> bytes:
        """A key's bytes."""
        data = self._shared.encode(self._spec.name, self._spec.key_serde, key, "key")
        if data is None:
            raise TypeError(f"the store {self._spec.name!r} has no entry without a key")
        return data

    def _record(self, key: Any, name: bytes, version: Version | None) -> VersionedRecord | None:
        if version is None:
            return None
        stored, serde = version.stored, self._spec.value_serde
        if self._handed is None:
            value = serde.deserialize(stored.value)
        else:
            current = self._unless_written(name, stored)
            value = self._handed.give(self._spec.name, key, stored, serde, current)
        return VersionedRecord(value, stored.timestamp, version.valid_to)

    def _unless_written(self, name: bytes, stored: Stored) -> Callable[[], Stored | None]:
        # A write of any time puts a value back: which one becomes the latest is not asked.
        writes = self._writes[name]
        return lambda: stored if self._writes[name] == writes else None
