"""A store of versions: what each key is, and what it was for a while before.

A version is valid from its own time until that of the next one; the latest has no end. In the
inner store:

    d  key                                         the latest version, if it is a value
    n  key                                         its time, if it is a deletion
    s  segment of the end, key's length, key, end  a version's time, then 1 and its value, or 0 or 2
    x  segment of the time, key                    nothing; says that `n` may have this key
    t                                              the latest time of all that was ever written

The latest values are together and are read in bulk. All others lie in the segment (end //
segment_ms) of their *end*, so that all of a segment can go when its time is past the retention:
who asks then for what was valid before it has asked too late.

Kafka Streams keeps no record of a deletion that has the very time of the latest value, unless a
version is known to end then: the key becomes what it was before it had the value. Whoever adds to
that key later gets other answers than if it were known, so it is done here too. A deletion that was
the latest is a *gap* (2) when a value comes after it, and no version that ends.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple

from penstock.stores.backward import entries_back
from penstock.stores.contract import (
    GAP,
    NOTHING,
    ByteStore,
    Change,
    Entry,
    pages,
    split_stored_value,
    split_version_key,
    stored_value,
    version_key,
)
from penstock.stores.layered import PAGE_ENTRIES, DataStore, entries_between

_LONG = struct.Struct(">q")
_INT = struct.Struct(">I")
_DELETED = b"n"
_SEGMENT = b"s"
_DELETIONS = b"x"
_TIME = b"t"
_IS_VALUE, _IS_DELETION, _IS_GAP = b"\x01", b"\x00", b"\x02"
_FLAG_AT = _LONG.size
_TIME_MAX = 2**63 - 2
NEVER = -1
"""The latest time of a store into which nothing was written."""


class _Version(NamedTuple):
    """From when on a key was something; None is a deletion."""

    time: int
    value: bytes | None
    gap: bool = False


_Search = Callable[[bytes, int, int], Iterator[tuple[int, _Version]]]


class VersionsStore(DataStore):
    """Versions in a store of bytes, by the keys and the times that they have in the changelog.

    >>> from penstock.stores.memory import MemoryStore
    >>> store = VersionsStore(MemoryStore("prices"), retention_ms=100, segment_ms=20)
    >>> price = lambda time, value: (version_key(b"tea", time), stored_value(time, value))
    >>> store.apply([price(10, b"2"), price(30, b"4"), price(20, b"3")], offset=1)
    >>> [split_stored_value(value) for _, value in store.versions(b"tea", 25, 30)]
    [(20, b'3'), (30, b'4')]
    >>> store.get_many([b"tea"]) == [stored_value(30, b"4")]
    True
    """

    def __init__(self, inner: ByteStore, *, retention_ms: int, segment_ms: int) -> None:
        super().__init__(inner)
        self._retention_ms = retention_ms
        self._segment_ms = segment_ms
        [latest] = inner.get_many([_TIME])
        self._time: int = NEVER if latest is None else _LONG.unpack(latest)[0]
        self._is_tidy = False

    @property
    def latest_time(self) -> int:
        """The latest time of all that was ever written; -1 if nothing was."""
        return self._time

    def all(self, *, page_size: int = PAGE_ENTRIES) -> Iterator[Entry]:
        return pages(self, page_size)

    def approximate_num_entries(self) -> int:
        """About how many versions there are: nobody counts the latest ones alone."""
        return max(self._inner.approximate_num_entries() - 1, 0)

    def versions(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        """What exactly that key was between first and last; see `contract.VersionedStore`."""
        [latest] = self._latest_of([key])
        if latest is None:
            return
        if latest.time > first:
            for end, version in self._ended(key, max(first, NEVER), latest.time):
                if version.time > last:
                    return
                if version.time < end or end == latest.time:
                    yield _entry(key, version)
        if latest.time <= last:
            yield _entry(key, latest)

    def versions_back(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        """The same, the last first."""
        [latest] = self._latest_of([key])
        if latest is None:
            return
        if latest.time <= last:
            yield _entry(key, latest)
        if latest.time <= first:
            return
        if last < latest.time:
            # What was valid at the last moment ended later.
            over = next(self._ended(key, max(last, NEVER), latest.time, page_size=1), None)
            if over is not None and over[1].time <= last:
                yield _entry(key, over[1])
        for end, version in self._ended_back(key, max(first, NEVER), min(last, latest.time)):
            if version.time < end or end == latest.time:
                yield _entry(key, version)

    @property
    def oldest(self) -> int:
        """The time at which the history begins."""
        return max(self._time - self._retention_ms, 0)

    def history(self, since: int) -> Iterator[tuple[bytes, list[Entry]]]:
        """Every key, those that were deleted too, with what it was from a time on."""
        kept = (
            (name[1:] for name, _ in entries_between(self._inner, letter, bytes([letter[0] + 1])))
            for letter in (self.data_key(b""), _DELETED)
        )
        for key, _ in groupby(merge(*kept)):
            yield key, list(self.versions(key, since, _TIME_MAX))

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        versions, time = [], self._time
        for name, value in changes:
            key, since = split_version_key(name)
            # What is past the history was never accepted; or the store holds more than its offset
            # says, and this for long: the key may since have been deleted and forgotten.
            if since >= time - self._retention_ms:
                bare = None if value is None else split_stored_value(value)[1]
                versions.append((key, _Version(since, bare)))
                time = max(time, since)
        rows, last_rows = self._rows(versions)
        if last_rows:
            self._inner.apply(rows, offset=None)
            rows = last_rows
        if time > self._time:
            rows.append((_TIME, _LONG.pack(time)))
        self._inner.apply(rows, offset=offset)
        before, self._time = self._first_segment(self._time), time
        # Last of all: what is past with the last version was not yet when the first one came.
        if self._first_segment(time) > before or not self._is_tidy:
            self._expire(self._first_segment(time))
            # Whatever a crash left behind is gone too.
            self._is_tidy = True

    def _rows(self, versions: list[tuple[bytes, _Version]]) -> tuple[list[Change], list[Change]]:
        """The versions as the inner store has them, what has ended before what has not.

        If a crash parts them, the latest is still there to be ended again when the changelog is
        applied anew. Of keys that forgot a deletion the rows come apart: nothing tells that it was
        applied already, so they must be written with the offset, in one piece.
        """
        keys = list(dict.fromkeys(key for key, _ in versions))
        before = dict(zip(keys, self._latest_of(keys), strict=True))
        latest = dict(before)
        ended = _Ended(self._ended, before, self._segment_ms)
        for key, version in versions:
            latest[key] = ended.put(key, version, latest[key])
        rows: list[Change] = []
        last_rows: list[Change] = []
        for key, name, row in ended.written:
            (last_rows if key in ended.forgetful else rows).append((name, row))
        for key, last in latest.items():
            if last != before[key]:
                into = last_rows if key in ended.forgetful else rows
                into += self._latest_rows(key, last)
        return rows, last_rows

    def _latest_rows(self, key: bytes, latest: _Version | None) -> list[Change]:
        if latest is None:
            return [(self.data_key(key), None), (_DELETED + key, None)]
        if latest.value is not None:
            stored = stored_value(latest.time, latest.value)
            return [(self.data_key(key), stored), (_DELETED + key, None)]
        segment = latest.time // self._segment_ms
        return [
            (_DELETIONS + _LONG.pack(segment) + key, b""),
            (_DELETED + key, _LONG.pack(latest.time)),
            (self.data_key(key), None),
        ]

    def _latest_of(self, keys: Sequence[bytes]) -> list[_Version | None]:
        """Each key's latest version, which may be a deletion."""
        count = len(keys)
        names = [self.data_key(key) for key in keys] + [_DELETED + key for key in keys]
        found = self._inner.get_many(names)
        result: list[_Version | None] = []
        for value, deleted in zip(found[:count], found[count:], strict=True):
            if value is not None:
                result.append(_Version(*split_stored_value(value)))
            elif deleted is not None:
                result.append(_Version(_LONG.unpack(deleted)[0], None))
            else:
                result.append(None)
        return result

    def _ended(
        self, key: bytes, after: int, until: int, *, page_size: int = PAGE_ENTRIES
    ) -> Iterator[tuple[int, _Version]]:
        """A key's versions that ended after one time and not after another, with their ends."""
        for lower, upper in self._stretches(key, after, until):
            for name, data in pages(self._inner, page_size, lower=lower, upper=upper):
                yield _end(name), _version(data)

    def _ended_back(self, key: bytes, after: int, until: int) -> Iterator[tuple[int, _Version]]:
        """The same, the last first."""
        for lower, upper in reversed(self._stretches(key, after, until)):
            for name, data in entries_back(self._inner, lower, upper, page_size=PAGE_ENTRIES):
                yield _end(name), _version(data)

    def _stretches(self, key: bytes, after: int, until: int) -> list[tuple[bytes, bytes]]:
        """Where in each segment lies what ended after one time and not after another."""
        first = max(after // self._segment_ms, self._first_segment(self._time))
        prefixes = (
            _segment_prefix(segment, key) for segment in range(first, until // self._segment_ms + 1)
        )
        return [(p + _LONG.pack(after + 1), p + _LONG.pack(until + 1)) for p in prefixes]

    def _expire(self, first_segment: int) -> None:
        """Drop all segments before this one. From the very start, not from the last time: so that
        one that a crash left behind goes with the next.
        """
        self._inner.delete_range(_SEGMENT + _LONG.pack(0), _SEGMENT + _LONG.pack(first_segment))
        start, end = _DELETIONS + _LONG.pack(0), _DELETIONS + _LONG.pack(first_segment)
        oldest = first_segment * self._segment_ms
        rows = entries_between(self._inner, start, end)
        while page := list(islice(rows, PAGE_ENTRIES)):
            names = [_DELETED + name[len(start) :] for name, _ in page]
            found = zip(names, self._inner.get_many(names), strict=True)
            # The key may have been written again, or deleted once more.
            gone = [n for n, time in found if time is not None and _LONG.unpack(time)[0] < oldest]
            self._inner.apply([(name, None) for name in gone], offset=None)
        self._inner.delete_range(start, end)

    def _first_segment(self, time: int) -> int:
        """The first segment with a version that may still be asked for."""
        return max(time - self._retention_ms, 0) // self._segment_ms


class _Ended:
    """The versions with an end that a batch of changes makes, laid over those that are stored.

    `written` has all rows one after the other, so that after each of them the store is as if the
    changes had ended there. Stored versions that end after a key's stored latest one are what a
    crash left of this batch, and count for nothing.
    """

    def __init__(
        self, stored: _Search, latest: Mapping[bytes, _Version | None], segment_ms: int
    ) -> None:
        self.written: list[tuple[bytes, bytes, bytes | None]] = []
        self.forgetful: set[bytes] = set()
        self._stored = stored
        self._latest = latest
        self._segment_ms = segment_ms
        self._rows: dict[bytes, bytes | None] = {}
        self._ends: dict[bytes, list[int]] = {}

    def put(self, key: bytes, version: _Version, latest: _Version | None) -> _Version | None:
        """Write a version; returns the latest one after that, None if it is forgotten."""
        if latest is None:
            return version
        if version.time < latest.time:
            self._insert(key, version, latest.time)
            return latest
        if version.time > latest.time:
            is_gap = latest.value is None and version.value is not None
            self._add(key, latest._replace(gap=is_gap), version.time)
        elif (version.value is None) != (latest.value is None):
            return self._replace(key, version)
        return version

    def _replace(self, key: bytes, version: _Version) -> _Version | None:
        """A value takes the place of a deletion of the same time, or the other way round."""
        before = self._ending_at(key, version.time)
        if version.value is not None:
            if before is None:
                # That there was a deletion stays known.
                self._add(key, _Version(version.time, None), version.time)
            return version
        if before is not None and not before.gap:
            return version
        self.forgetful.add(key)
        if before is None:
            return None
        self._remove(key, version.time)
        return _Version(before.time, None)

    def _add(self, key: bytes, version: _Version, end: int) -> None:
        """Write a version that ends."""
        ends = self._ends.setdefault(key, [])
        if end not in ends:
            insort(ends, end)
        self._write(key, end, _row(version))

    def _remove(self, key: bytes, end: int) -> None:
        if end in self._ends.get(key, ()):
            self._ends[key].remove(end)
        self._write(key, end, None)

    def _write(self, key: bytes, end: int, row: bytes | None) -> None:
        name = self._name(key, end)
        self._rows[name] = row
        self.written.append((key, name, row))

    def _name(self, key: bytes, end: int) -> bytes:
        return _segment_prefix(end // self._segment_ms, key) + _LONG.pack(end)

    def _insert(self, key: bytes, version: _Version, latest: int) -> None:
        """Write a version that is older than the latest: it ends where the next one begins."""
        found = self._ending_after(key, version.time, latest)
        if found is None:
            self._add(key, version, latest)
            return
        end, present = found
        if present.time > version.time:
            self._add(key, version, present.time)
            return
        if present.time < version.time:
            self._add(key, present, version.time)
        self._add(key, version, end)

    def _ending_at(self, key: bytes, end: int) -> _Version | None:
        """The version that ends at a time."""
        found = self._ending_after(key, end - 1, end)
        return None if found is None else found[1]

    def _ending_after(self, key: bytes, time: int, latest: int) -> tuple[int, _Version] | None:
        """The version that was valid at a time, or else the next one, with its end."""
        before, ends = self._latest[key], self._ends.get(key, ())
        found = self._stored(key, time, min(latest, NEVER if before is None else before.time))
        # What was removed here is still there.
        there = (
            each for each in found if self._rows.get(self._name(key, each[0]), b"") is not None
        )
        stored = next(there, None)
        at = bisect_right(ends, time)
        if at == len(ends) or (stored is not None and stored[0] < ends[at]):
            return stored
        row = self._rows[self._name(key, ends[at])]
        assert row is not None
        return ends[at], _version(row)


def history_ms(inner: ByteStore, segment_ms: int) -> int:
    """A retention that covers every version which is still there, if nobody knows the real one."""
    first = inner.range(_SEGMENT, bytes([_SEGMENT[0] + 1]), limit=1)
    [latest] = inner.get_many([_TIME])
    if not first or latest is None:
        return 0
    segment: int = _LONG.unpack_from(first[0][0], len(_SEGMENT))[0]
    time: int = _LONG.unpack(latest)[0]
    return time - segment * segment_ms


def _end(name: bytes) -> int:
    return int.from_bytes(name[-_LONG.size :])


def _segment_prefix(segment: int, key: bytes) -> bytes:
    # With its length before it no key is the beginning of another.
    return _SEGMENT + _LONG.pack(segment) + _INT.pack(len(key)) + key


def _row(version: _Version) -> bytes:
    if version.value is None:
        return _LONG.pack(version.time) + (_IS_GAP if version.gap else _IS_DELETION)
    return _LONG.pack(version.time) + _IS_VALUE + version.value


def _version(row: bytes) -> _Version:
    (time,) = _LONG.unpack_from(row)
    flag = row[_FLAG_AT : _FLAG_AT + 1]
    return _Version(time, row[_FLAG_AT + 1 :] if flag == _IS_VALUE else None, flag == _IS_GAP)


def _entry(key: bytes, version: _Version) -> Entry:
    value = GAP if version.gap else NOTHING
    if version.value is not None:
        value = stored_value(version.time, version.value)
    return version_key(key, version.time), value
