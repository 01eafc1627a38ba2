"""A task's stores during a slice: what is stored, with the slice's own writes laid over it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.processors.records import ScanReader
from penstock.serdes.windowed import (
    session_key,
    split_session_key,
    split_window_key,
    window_key,
)
from penstock.topology import StoreSpec

TIME_BYTES = 8
FAR = 2**62
# Longer than what follows the key in the bytes of a window or a session.
_TAIL_MAX = 17


class Stored(NamedTuple):
    """A value's bytes and its timestamp."""

    value: bytes
    timestamp: int


Row = tuple[str, bytes, bytes | None, int]
"""A changelog record: store, key, value, timestamp."""


def as_stored(data: bytes | None) -> Stored | None:
    """What a store's bytes mean."""
    if data is None:
        return None
    return Stored(data[TIME_BYTES:], int.from_bytes(data[:TIME_BYTES], "big", signed=True))


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with a prefix; None if there can be none.

    >>> after_prefix(b"ab"), after_prefix(b"a\\xff"), after_prefix(b"\\xff")
    (b'ac', b'b', None)
    """
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


class KeyValueState:
    """A key-value store; an absent key that was read once is known to be absent."""

    def __init__(self, store: str, reader: ScanReader, rows: list[Row]) -> None:
        self.store = store
        self._reader = reader
        self._rows = rows
        self._known: dict[bytes, Stored | None] = {}
        self._written: set[bytes] = set()
        self._written_in_order: list[bytes] | None = None
        """Kept from the first question for a range on."""
        self._ranges: dict[
            tuple[bytes | None, bytes | None], list[tuple[bytes, Stored | None]]
        ] = {}

    def prefetch(self, keys: Iterable[bytes]) -> None:
        """Read many keys at once, so that each `get` is a look into memory."""
        missing = list(dict.fromkeys(key for key in keys if key not in self._known))
        if missing:
            found = self._reader.get_many(self.store, pa.array(missing, pa.binary()))
            self._known.update(zip(missing, map(as_stored, found.to_pylist()), strict=True))

    def get(self, key: bytes) -> Stored | None:
        """The present value."""
        try:
            return self._known[key]
        except KeyError:
            self.prefetch([key])
            return self._known[key]

    def peek(self, key: bytes) -> Stored | None:
        """What is known of a key that was read or written before; this is no use of it."""
        return self._known.get(key)

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Set or delete a key, for readers only; `log` writes it."""
        self._known[key] = None if value is None else Stored(value, timestamp)
        if key not in self._written:
            self._written.add(key)
            if self._written_in_order is not None:
                insort(self._written_in_order, key)

    def log(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write to the changelog and to the store."""
        self._rows.append((self.store, key, value, timestamp))

    def prefetch_ranges(self, ranges: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Read many ranges at once, so that each `range` of these is a look into memory."""
        missing = [each for each in dict.fromkeys(ranges) if each not in self._ranges]
        if missing:
            found = self._reader.range_many(self.store, missing)
            for each, entries in zip(missing, found, strict=True):
                self._ranges[each] = [(key, as_stored(data)) for key, data in entries]
                for key, data in self._ranges[each]:
                    # What this slice wrote is newer than what was stored before it.
                    self._known.setdefault(key, data)

    def range(self, lower: bytes | None, upper: bytes | None) -> Iterator[tuple[bytes, Stored]]:
        """The entries with lower <= key < upper, by key."""
        if lower is not None and upper is not None and lower >= upper:
            return
        self.prefetch_ranges([(lower, upper)])
        entries = dict(self._ranges[lower, upper])
        entries.update((key, self._known[key]) for key in self._written_between(lower, upper))
        for key in sorted(entries):
            stored = entries[key]
            if stored is not None:
                yield key, stored

    def _written_between(self, lower: bytes | None, upper: bytes | None) -> list[bytes]:
        if self._written_in_order is None:
            self._written_in_order = sorted(self._written)
        order = self._written_in_order
        first = 0 if lower is None else bisect_left(order, lower)
        return order[first : len(order) if upper is None else bisect_left(order, upper)]


class _KeyRows:
    """One key's windows: what is known of them, and which times were read."""

    __slots__ = ("first", "last", "order", "rows")

    def __init__(self) -> None:
        # (start, sequence) of windows, (end, start) of sessions.
        self.rows: dict[tuple[int, int], Stored | None] = {}
        self.order: list[tuple[int, int]] = []
        self.first = FAR
        self.last = -FAR

    def set(self, numbers: tuple[int, int], stored: Stored | None) -> None:
        """Know an entry, or that there is none."""
        if numbers not in self.rows:
            insort(self.order, numbers)
        self.rows[numbers] = stored

    def between(self, first: int, last: int) -> list[tuple[tuple[int, int], Stored]]:
        """The entries whose first number is in first..last, in order."""
        rows, order = self.rows, self.order
        lower, upper = bisect_left(order, (first, -FAR)), bisect_left(order, (last + 1, -FAR))
        found = []
        for numbers in order[lower:upper]:
            stored = rows[numbers]
            if stored is not None:
                found.append((numbers, stored))
        return found


_TimedRow = tuple[bytes, int, int, Stored | None]
"""A key, two numbers, and what is stored there."""
TimedEntry = tuple[bytes, int, int, Stored]
"""A key, two numbers, and what is stored there: something."""
_Scanned = dict[tuple[bytes, int, int], Stored | None]


class _Timeline:
    """All keys' entries in order of time, up to a time."""

    def __init__(self, rows: Mapping[tuple[Any, ...], _TimedRow], until: int) -> None:
        self._rows = dict(rows)
        self._order = sorted(rows)
        self.until = until

    def set(self, place: tuple[Any, ...], row: _TimedRow) -> None:
        """Know an entry, or that there is none."""
        if place not in self._rows:
            insort(self._order, place)
        self._rows[place] = row

    def between(self, first: int, last: int) -> list[tuple[bytes, int, int, Stored]]:
        """The entries of first..last; a place begins with its time."""
        lower, upper = bisect_left(self._order, (first,)), bisect_left(self._order, (last + 1,))
        found = []
        for place in self._order[lower:upper]:
            key, time, second, stored = self._rows[place]
            if stored is not None:
                found.append((key, time, second, stored))
        return found


class TimedState:
    """What window and session stores have in common: entries of a key, ordered by two numbers."""

    def __init__(self, spec: StoreSpec, reader: ScanReader, rows: list[Row]) -> None:
        assert spec.retention_ms is not None
        self.store = spec.name
        self._reader = reader
        self._log = rows
        self._retention = spec.retention_ms
        self._alive = spec.alive_ms
        self._segment = spec.segment_ms
        self._keys: dict[bytes, _KeyRows] = {}
        self._timeline: _Timeline | None = None
        self._scanned: dict[tuple[bytes | None, bytes | None], _Scanned] = {}
        self.in_memory = not spec.persistent
        self.stream_time = -1

    def store_key(self, key: bytes, first: int, second: int) -> bytes:
        """The bytes under which an entry is stored."""
        raise NotImplementedError

    def split(self, data: bytes) -> tuple[bytes, int, int]:
        """The key and the two numbers of an entry's bytes."""
        raise NotImplementedError

    def prefetch_ranges(self, questions: Iterable[tuple[bytes, int, int]]) -> None:
        """Read many keys' ranges of time at once."""
        wanted: dict[bytes, tuple[int, int]] = {}
        for key, first, last in questions:
            known = wanted.get(key, (first, last))
            wanted[key] = min(first, known[0]), max(last, known[1])
        missing = [(k, *times) for k, times in wanted.items() if k not in self._keys]
        if missing:
            self._read(missing)

    def prefetch_entries(self, entries: Iterable[tuple[bytes, int, int]]) -> None:
        """Read many single entries at once."""
        missing = [
            each
            for each in dict.fromkeys(entries)
            if each[0] not in self._keys or each[1:] not in self._keys[each[0]].rows
        ]
        if missing:
            names = pa.array([self.store_key(*each) for each in missing], pa.binary())
            found = self._reader.get_many(self.store, names).to_pylist()
            for (key, first, second), data in zip(missing, found, strict=True):
                self._of(key).set((first, second), as_stored(data))

    def get(self, key: bytes, first: int, second: int) -> Stored | None:
        """One entry; None if it is not there or has expired."""
        if first < self.stream_time - self._alive:
            return None
        known = self._of(key)
        stored = known.rows.get((first, second))
        if stored is None and (first, second) not in known.rows:
            if known.first <= first <= known.last:
                return None
            self.prefetch_entries([(key, first, second)])
            return known.rows[first, second]
        return stored

    def entries(self, key: bytes, first: int, last: int) -> list[tuple[tuple[int, int], Stored]]:
        """A key's entries whose first number is in first..last, in order, without expired ones."""
        first = max(first, self.stream_time - self._alive)
        if first > last:
            return []
        known = self._of(key)
        if known.first > first or known.last < last:
            self._read([(key, min(first, known.first), max(last, known.last))])
        return known.between(first, last)

    def put(self, key: bytes, first: int, second: int, value: bytes | None, timestamp: int) -> bool:
        """Set or delete an entry for readers; False if it comes too late to be kept."""
        self.stream_time = max(self.stream_time, first)
        if self._has_gone(first):
            return False
        stored = None if value is None else Stored(value, timestamp)
        self._of(key).set((first, second), stored)
        if self._timeline is not None:
            self._timeline.set(self.place(key, first, second), (key, first, second, stored))
        return True

    def _has_gone(self, first: int) -> bool:
        """Whether an entry has expired: one by one in memory, on disk with all of its segment."""
        oldest = self.stream_time - self._retention
        if self.in_memory:
            return first <= oldest
        return first // self._segment < oldest // self._segment

    def log(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write an entry's bytes to the changelog and to the store."""
        self._log.append((self.store, key, value, timestamp))

    def times(
        self, first: int, last: int, until: int, *, kept: bool
    ) -> list[tuple[bytes, int, int, Stored]]:
        """All keys' entries of first..last, by first number and key.

        `until` is the latest time that this slice may ask for, so that it is read only once. Only
        those that the store is to keep are found if they must be `kept`.
        """
        if kept:
            first = max(first, self._oldest_time())
        if self._timeline is None or self._timeline.until < last:
            self._timeline = self._read_timeline(first, max(last, until))
        return self._timeline.between(first, last)

    def scan(
        self, first: int, last: int, lower: bytes | None = None, upper: bytes | None = None
    ) -> list[TimedEntry]:
        """The entries of first..last of keys from lower to upper, in the order of the store.

        A store on disk has them by segment and then by their bytes, one in memory by time.
        """
        if lower is not None and upper is not None and lower > upper:
            return []
        rows = dict(self._read_keys(lower, upper))
        for key, known in self._keys.items():
            rows.update(((key, *numbers), stored) for numbers, stored in known.rows.items())
        first = max(first, self.stream_time - self._alive)
        found = [
            (*place, stored)
            for place, stored in rows.items()
            if stored is not None
            and first <= place[1] <= last
            and (lower is None or lower <= place[0])
            and (upper is None or place[0] <= upper)
        ]
        if self.in_memory:
            return sorted(found, key=lambda row: self.memory_place(*row[:3]))
        return sorted(found, key=lambda row: (row[1] // self._segment, self.store_key(*row[:3])))

    def _read_keys(self, lower: bytes | None, upper: bytes | None) -> _Scanned:
        """What is stored of these keys, and perhaps of some more; read once."""
        if (None, None) in self._scanned:
            return self._scanned[None, None]
        if (lower, upper) not in self._scanned:
            # Behind the key come its times: all entries of the last key end before this.
            end = None if upper is None else upper + b"\xff" * _TAIL_MAX
            [entries] = self._reader.range_many(self.store, [(lower, end)])
            read = {self.split(data): as_stored(stored) for data, stored in entries}
            self._scanned[lower, upper] = read
        return self._scanned[lower, upper]

    def place(self, key: bytes, first: int, second: int) -> tuple[Any, ...]:
        """Where an entry stands among those of all keys, in order of time."""
        raise NotImplementedError

    def memory_place(self, key: bytes, first: int, second: int) -> tuple[Any, ...]:
        """Where an entry stands among those of all keys in a store that is kept in memory."""
        raise NotImplementedError

    def _oldest_time(self) -> int:
        """The first time that is found by time alone."""
        raise NotImplementedError

    def _read_timeline(self, first: int, last: int) -> _Timeline:
        rows: dict[tuple[Any, ...], _TimedRow] = {}
        for data, stored in self._reader.fetch_times(self.store, first, last):
            key, time, second = self.split(data)
            rows[self.place(key, time, second)] = (key, time, second, as_stored(stored))
        for key, known in self._keys.items():
            for (time, second), row in known.rows.items():
                rows[self.place(key, time, second)] = (key, time, second, row)
        return _Timeline(rows, last)

    def _read(self, questions: list[tuple[bytes, int, int]]) -> None:
        answers = self._reader.fetch_many(self.store, questions)
        for (key, first, last), entries in zip(questions, answers, strict=True):
            known = self._of(key)
            for data, stored in entries:
                _, one, two = self.split(data)
                # What this slice wrote is newer than what was stored before it.
                if (one, two) not in known.rows:
                    known.set((one, two), as_stored(stored))
            known.first, known.last = min(known.first, first), max(known.last, last)

    def _of(self, key: bytes) -> _KeyRows:
        known = self._keys.get(key)
        if known is None:
            known = self._keys[key] = _KeyRows()
        return known


class WindowState(TimedState):
    """A window store: an entry's numbers are its start and its sequence number."""

    def store_key(self, key: bytes, first: int, second: int) -> bytes:
        return window_key(key, first, second)

    def place(self, key: bytes, first: int, second: int) -> tuple[Any, ...]:
        return first, key + second.to_bytes(4, "big")

    def memory_place(self, key: bytes, first: int, second: int) -> tuple[Any, ...]:
        return first, key, second

    def split(self, data: bytes) -> tuple[bytes, int, int]:
        return split_window_key(data)

    def _oldest_time(self) -> int:
        return self.stream_time - self._alive


class SessionState(TimedState):
    """A session store: an entry's numbers are its end and its start."""

    def store_key(self, key: bytes, first: int, second: int) -> bytes:
        return session_key(key, second, first)

    def place(self, key: bytes, first: int, second: int) -> tuple[Any, ...]:
        return first, second, key

    def memory_place(self, key: bytes, first: int, second: int) -> tuple[Any, ...]:
        # As in Kafka Streams: of sessions that end together the one that began last comes first.
        return first, key, -second

    def split(self, data: bytes) -> tuple[bytes, int, int]:
        key, start, end = split_session_key(data)
        return key, end, start

    def _oldest_time(self) -> int:
        # As in Kafka Streams, sessions are found by time as long as their segment is there.
        return (self.stream_time - self._retention) // self._segment * self._segment
