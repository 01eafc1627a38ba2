"""A store of windows or sessions, divided into segments that expire whole.

An entry's *time* is its window's start or its session's end. In the inner store:

    d  segment id (time // segment_ms, 8 bytes)  changelog key    the stored value
    i  time, and the rest of the changelog key                    nothing; only with an index
    t                                                             the latest time ever written

The store goes by the latest time that was written, whatever was written: segments that lie wholly
before that time less the retention leave the disk, and a write into one is dropped. Of what is
left, entries older than the retention are no longer found, as in Kafka Streams.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal

from penstock.errors import ChangelogError, InstanceError
from penstock.serdes.windowed import SESSION_TAIL_BYTES, TIME_BYTES, WINDOW_TAIL_BYTES
from penstock.stores.backward import entries_back
from penstock.stores.contract import ByteStore, Change, Entry, pages
from penstock.stores.layered import PAGE_ENTRIES, LayeredStore, entries_between, ranges_of

_LONG = struct.Struct(">q")
_LONG_MAX = 2**63 - 1
_DATA, _DATA_END = b"d", b"e"
_INDEX = b"i"
_LATEST = b"t"
_PREFIX_BYTES = len(_DATA) + _LONG.size
FETCH_QUESTIONS = 500
"""How many questions are asked of the inner store at once."""
NEVER = -1
"""The latest time of a store into which nothing was written."""


@dataclass(frozen=True)
class KeyLayout:
    """Where the time is in a changelog key: the first 8 bytes of its tail."""

    tail_bytes: int
    index_by_tail: bool
    """Whether equal times are ordered by the rest of the tail, and only then by the key."""

    def time(self, key: bytes) -> bytes:
        """The time's bytes, which order as the times do: no time is negative."""
        return key[len(key) - self.tail_bytes : len(key) - self.tail_bytes + TIME_BYTES]

    def latest(self, keys: Iterable[bytes]) -> int:
        """The latest time of all keys, -1 if there are none.

        >>> LAYOUTS["window"].latest([b"a" + bytes(7) + b"\\x05" + bytes(4)])
        5
        """
        time = max(map(self.time, keys), default=None)
        return NEVER if time is None else int.from_bytes(time)

    def index_row(self, key: bytes) -> bytes:
        """Time first, in the order in which Kafka Streams keeps entries by time."""
        inner, tail = key[: -self.tail_bytes], key[-self.tail_bytes :]
        time, rest = tail[:TIME_BYTES], tail[TIME_BYTES:]
        return time + rest + inner if self.index_by_tail else time + inner + rest

    def key_of_row(self, row: bytes) -> bytes:
        """The changelog key of an index row."""
        rest = self.tail_bytes - TIME_BYTES
        time, row = row[:TIME_BYTES], row[TIME_BYTES:]
        if self.index_by_tail:
            return row[rest:] + time + row[:rest]
        return row[:-rest] + time + row[-rest:]


LAYOUTS = {
    "window": KeyLayout(WINDOW_TAIL_BYTES, index_by_tail=False),
    "session": KeyLayout(SESSION_TAIL_BYTES, index_by_tail=True),
}


class SegmentedStore(LayeredStore):
    """Windows or sessions in a store of bytes, by the keys that they have in the changelog.

    >>> from penstock.serdes.windowed import window_key
    >>> from penstock.stores.memory import MemoryStore
    >>> store = SegmentedStore(
    ...     MemoryStore("hourly"), kind="window", retention_ms=100, segment_ms=60
    ... )
    >>> store.apply([(window_key(b"a", 0), b"1"), (window_key(b"a", 60), b"2")], offset=1)
    >>> [value for _, value in store.fetch(b"a", 0, 1000)]
    [b'1', b'2']
    >>> store.apply([(window_key(b"b", 230), b"3")], offset=2)
    >>> [value for _, value in store.fetch(b"a", 0, 1000)]
    []
    """

    def __init__(
        self,
        inner: ByteStore,
        *,
        kind: Literal["window", "session"],
        retention_ms: int,
        segment_ms: int,
        indexed: bool = False,
    ) -> None:
        super().__init__(inner)
        self._layout = LAYOUTS[kind]
        # As in Kafka Streams, stores that emit at the close find windows a millisecond longer, and
        # sessions, by their time, as long as their segment is there.
        self._alive_ms = retention_ms if indexed and kind == "window" else retention_ms - 1
        self._times_by_segment = kind == "session"
        self._retention_ms = retention_ms
        self._segment_ms = segment_ms
        self._indexed = indexed
        [latest] = inner.get_many([_LATEST])
        self._latest: int = NEVER if latest is None else _LONG.unpack(latest)[0]

    @property
    def latest_time(self) -> int:
        """The latest time of all that was ever written; -1 if nothing was."""
        return self._latest

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._inner.get_many([self._disk_key(key) for key in keys])
        oldest = _LONG.pack(self._oldest())
        time = self._layout.time
        return [
            value if time(key) >= oldest else None for key, value in zip(keys, found, strict=True)
        ]

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        tail, time_at = self._layout.tail_bytes, _LONG.unpack_from
        # Where there is no room for a time, `_time` says so.
        timed: list[tuple[bytes, bytes | None, int]] = [
            (key, value, time_at(key, len(key) - tail)[0] if len(key) >= tail else self._time(key))
            for key, value in changes
        ]
        latest = max((time for _, _, time in timed), default=NEVER)
        before = self._first_segment(self._latest)
        latest = max(latest, self._latest)
        first = self._first_segment(latest)
        if first > before:
            self._expire(first)
        oldest = first * self._segment_ms
        rows = self._rows(timed if oldest <= 0 else [row for row in timed if row[2] >= oldest])
        if latest > self._latest:
            rows.append((_LATEST, _LONG.pack(latest)))
        self._inner.apply(rows, offset=offset)
        self._latest = latest

    def fetch(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        """The windows of exactly that key that start in first..last, or the sessions that end
        there, by time.
        """
        first, last = max(first, self._oldest()), min(last, self._latest)
        length = len(key) + self._layout.tail_bytes
        # Keys are of any length, so another key's entries may lie between: they are left out.
        lower, upper = key + _LONG.pack(first), key + _after(last)
        for segment in self._segments(first, last):
            prefix = _data_prefix(segment)
            for disk_key, value in entries_between(self._inner, prefix + lower, prefix + upper):
                found = disk_key[_PREFIX_BYTES:]
                if len(found) == length and found.startswith(key):
                    yield found, value

    def fetch_back(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        """The same, the last first."""
        first, last = max(first, self._oldest()), min(last, self._latest)
        length = len(key) + self._layout.tail_bytes
        lower, upper = key + _LONG.pack(first), key + _after(last)
        for segment in reversed(self._segments(first, last)):
            for found, value in self._segment_entries(segment, lower, upper, back=True):
                if len(found) == length and found.startswith(key):
                    yield found, value

    def fetch_all(
        self, questions: Iterable[tuple[bytes, int, int]]
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """As `fetch` for many (key, first, last), each entry behind the number of its question."""
        numbered = enumerate(questions)
        while chunk := list(islice(numbered, FETCH_QUESTIONS)):
            yield from self._fetch_some(chunk)

    def _fetch_some(
        self, chunk: Iterable[tuple[int, tuple[bytes, int, int]]]
    ) -> Iterator[tuple[int, bytes, bytes]]:
        oldest, latest, tail = self._oldest(), self._latest, self._layout.tail_bytes
        asked: list[tuple[int, bytes]] = []
        bounds: list[tuple[bytes, bytes]] = []
        for number, (key, since, until) in chunk:
            first, last = max(since, oldest), min(until, latest)
            lower, upper = key + _LONG.pack(first), key + _after(last)
            for segment in self._segments(first, last) if first <= last else ():
                prefix = _data_prefix(segment)
                asked.append((number, key))
                bounds.append((prefix + lower, prefix + upper))
        found = ranges_of(self._inner, bounds, limit=PAGE_ENTRIES)
        for (number, key), (_, end), page in zip(asked, bounds, found, strict=True):
            entries: Iterable[Entry] = page
            if len(page) == PAGE_ENTRIES:
                more = entries_between(self._inner, page[-1][0] + b"\x00", end)
                entries = chain(page, more)
            for disk_key, value in entries:
                # As in `fetch`: another key's entries may lie between.
                name = disk_key[_PREFIX_BYTES:]
                if len(name) == len(key) + tail and name.startswith(key):
                    yield number, name, value

    def fetch_times(self, first: int, last: int) -> Iterator[Entry]:
        """The entries with a time in first..last, by time; the index must have been asked for."""
        if not self._indexed:
            raise InstanceError("The store has no index of times", where={"store": self.name})
        oldest = self._oldest()
        if self._times_by_segment:
            oldest = max(self._first_segment(self._latest), 0) * self._segment_ms
        first, last = max(first, oldest), min(last, self._latest)
        if first > last:
            return
        rows = entries_between(self._inner, _INDEX + _LONG.pack(first), _INDEX + _after(last))
        while page := list(islice(rows, PAGE_ENTRIES)):
            keys = [self._layout.key_of_row(row[len(_INDEX) :]) for row, _ in page]
            found = self._inner.get_many([self._disk_key(key) for key in keys])
            yield from (
                (k, value) for k, value in zip(keys, found, strict=True) if value is not None
            )

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        """At most `limit` entries with lower <= changelog key < upper, by that key."""
        return self._between(lower, upper, limit)

    def range_back(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        """As `backward.BackwardStore` says."""
        return self._between(lower, upper, limit, back=True)

    def _between(
        self, lower: bytes | None, upper: bytes | None, limit: int, *, back: bool = False
    ) -> list[Entry]:
        oldest = _LONG.pack(self._oldest())
        per_segment = [
            self._segment_entries(segment, lower, upper, back=back)
            for segment in self._segments(self._oldest(), self._latest)
        ]
        merged = heapq.merge(*per_segment, reverse=back)
        return list(islice((e for e in merged if self._layout.time(e[0]) >= oldest), limit))

    def all(self, *, page_size: int = PAGE_ENTRIES) -> Iterator[Entry]:
        return pages(self, page_size)

    def approximate_num_entries(self) -> int:
        rows = self._inner.approximate_num_entries()
        return max(rows - 1, 0) // (2 if self._indexed else 1)

    def _rows(self, changes: list[tuple[bytes, bytes | None, int]]) -> list[Change]:
        """The changes as the inner store has them. An index row comes before its entry: if a crash
        parts them, applying the changelog again finds both where they belong.
        """
        segment = self._segment_ms
        numbers = {time // segment for _, _, time in changes}
        by_segment = {number: _data_prefix(number) for number in numbers}
        if not self._indexed:
            return [(by_segment[time // segment] + key, value) for key, value, time in changes]
        rows: list[Change] = []
        for key, value, time in changes:
            rows.append((_INDEX + self._layout.index_row(key), None if value is None else b""))
            rows.append((by_segment[time // segment] + key, value))
        return rows

    def _expire(self, first_segment: int) -> None:
        """Drop all segments before this one. From the very start, not from the last time: so that
        one that a crash left behind goes with the next.
        """
        self._inner.delete_range(_data_prefix(0), _data_prefix(first_segment))
        if self._indexed:
            times = _LONG.pack(first_segment * self._segment_ms)
            self._inner.delete_range(_INDEX + _LONG.pack(0), _INDEX + times)

    def _segment_entries(
        self, segment: int, lower: bytes | None, upper: bytes | None, *, back: bool
    ) -> Iterator[Entry]:
        prefix = _data_prefix(segment)
        start = prefix + (lower or b"")
        end = _data_prefix(segment + 1) if upper is None else prefix + upper
        entries = (
            entries_back(self._inner, start, end, page_size=PAGE_ENTRIES)
            if back
            else entries_between(self._inner, start, end)
        )
        for key, value in entries:
            yield key[_PREFIX_BYTES:], value

    def _segments(self, first: int, last: int) -> Sequence[int]:
        return range(first // self._segment_ms, last // self._segment_ms + 1)

    def _first_segment(self, latest: int) -> int:
        """The first segment that may still be written."""
        return max(latest - self._retention_ms, 0) // self._segment_ms

    def _oldest(self) -> int:
        """The earliest time that is still found."""
        return max(self._latest - self._alive_ms, 0)

    def _time(self, key: bytes) -> int:
        if len(key) < self._layout.tail_bytes:
            raise ChangelogError(
                f"A key of store {self.name} has {len(key)} bytes and no room for its time",
                where={"store": self.name},
                hint="Another program wrote to the changelog, or the store was of another kind",
            )
        time: int = _LONG.unpack(self._layout.time(key))[0]
        return time

    def _disk_key(self, key: bytes) -> bytes:
        return _data_prefix(self._time(key) // self._segment_ms) + key


def kept_ms(inner: ByteStore, segment_ms: int) -> int:
    """A retention that covers every segment which is still there, if nobody knows the real one."""
    first = inner.range(_DATA, _DATA_END, limit=1)
    [latest] = inner.get_many([_LATEST])
    if not first or latest is None:
        return segment_ms
    segment: int = _LONG.unpack_from(first[0][0], len(_DATA))[0]
    time: int = _LONG.unpack(latest)[0]
    # An entry is alive for less than the retention.
    return time - segment * segment_ms + 1


def _data_prefix(segment: int) -> bytes:
    return _DATA + _LONG.pack(segment)


def _after(time: int) -> bytes:
    """What comes after all tails that begin with this time."""
    return _LONG.pack(time + 1) if time < _LONG_MAX else b"\xff"
