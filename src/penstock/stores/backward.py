"""Entries from the last to the first, also of stores that go forwards only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import Protocol, TypeVar, runtime_checkable

from penstock.stores.contract import Entry, KeyValueStore, WindowStore

LOOK_ENTRIES = 100
"""How many entries one look into a store that goes forwards only brings."""

Place = TypeVar("Place", int, bytes)
"""Where an entry stands: its time, or its key."""
Look = Callable[[Place, Place | None, int | None], list[Entry]]
"""At most so many of the entries from one place to before another, in their order; None is open."""


@runtime_checkable
class BackwardStore(Protocol):
    """A store that finds its last entries without reading all that come before."""

    def range_back(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        """At most `limit` entries with lower <= key < upper, the last first; go on below the last
        key that came.
        """
        ...


@runtime_checkable
class BackwardWindowStore(Protocol):
    """A store of windows or sessions that finds a key's last ones without reading the others."""

    def fetch_back(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        """As `fetch`, the last first."""
        ...


def entries_back(
    store: KeyValueStore, lower: bytes | None, upper: bytes | None, *, page_size: int
) -> Iterator[Entry]:
    """The entries with lower <= key < upper, the last first, a page at a time.

    >>> from penstock.stores.memory import MemoryStore
    >>> store = MemoryStore("counts")
    >>> store.apply([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], offset=0)
    >>> [key for key, _ in entries_back(store, b"a", b"c", page_size=1)]
    [b'b', b'a']
    """
    if not isinstance(store, BackwardStore):
        yield from _keys_back(store, lower, upper)
        return
    while True:
        page = store.range_back(lower, upper, limit=page_size)
        yield from page
        if len(page) < page_size:
            return
        upper = page[-1][0]


def page_back(
    store: KeyValueStore, lower: bytes | None, upper: bytes | None, limit: int
) -> list[Entry]:
    """At most so many of the entries with lower <= key < upper, the last first."""
    if isinstance(store, BackwardStore):
        return store.range_back(lower, upper, limit=limit)
    return list(islice(_keys_back(store, lower, upper), limit))


def fetched_back(
    store: WindowStore, key: bytes, first: int, last: int, *, time: Callable[[bytes], int]
) -> Iterator[Entry]:
    """A key's windows or sessions with a time in first..last, the last first; `time` reads it."""
    if isinstance(store, BackwardWindowStore):
        yield from store.fetch_back(key, first, last)
        return

    def look(low: int, high: int | None, limit: int | None) -> list[Entry]:
        return list(islice(store.fetch(key, low, last if high is None else high - 1), limit))

    if first <= last:
        yield from _from_the_end(
            look, lambda entry: time(entry[0]), time_between, first, high=last + 1
        )


def _keys_back(store: KeyValueStore, lower: bytes | None, upper: bytes | None) -> Iterator[Entry]:
    def look(low: bytes, high: bytes | None, limit: int | None) -> list[Entry]:
        # No two entries have one key, so that a stretch can always be parted.
        assert limit is not None
        return store.range(low, high, limit=limit)

    return _from_the_end(look, lambda entry: entry[0], key_between, lower or b"", high=upper)


def _from_the_end(
    look: Look[Place],
    place: Callable[[Entry], Place],
    between: Callable[[Place, Place | None], Place | None],
    low: Place,
    *,
    high: Place | None,
) -> Iterator[Entry]:
    """The entries from `low` to before `high`, the last first.

    A stretch with more than one look brings is parted: behind what was seen in the middle, so that
    the way to the last entry is as long as a key has bits, whatever lies before it.
    """
    parts: list[tuple[Place, Place | None]] = [(low, high)]
    while parts:
        low, high = parts.pop()
        found = look(low, high, LOOK_ENTRIES + 1)
        if len(found) > LOOK_ENTRIES:
            seen = place(found[-1])
            middle = between(seen, high)
            if seen > low:
                parts.append((low, seen))
            elif middle is None:
                # All of one time: there is nothing in between.
                yield from reversed(look(low, high, None))
                continue
            if middle is None:
                parts.append((seen, high))
            else:
                parts += [(seen, middle), (middle, high)]
            continue
        yield from reversed(found)


def time_between(low: int, high: int | None) -> int | None:
    """A time after one and before another; None if there is none.

    >>> time_between(3, 9), time_between(3, 4)
    (6, None)
    """
    assert high is not None
    return (low + high) // 2 if high - low > 1 else None


def key_between(low: bytes, high: bytes | None) -> bytes | None:
    """A short key after one and before another; None if there is none.

    >>> key_between(b"patient-1", b"patient-9"), key_between(b"b", None)
    (b'patient-5', b'\\xb1')
    >>> key_between(b"a", b"b"), key_between(b"a", b"a\\x00")
    (b'a\\x80', None)
    """
    same = zip(low, high or b"", strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], same))
    for length in range(shared + 1, max(len(low), len(high or b"")) + 2):
        after = int.from_bytes(low[:length].ljust(length, b"\x00"))
        before = (
            256**length if high is None else int.from_bytes(high[:length].ljust(length, b"\x00"))
        )
        middle = ((after + before) // 2).to_bytes(length)
        if middle > low and (high is None or middle < high):
            return middle
    next_key = low + b"\x00"
    return next_key if high is None or next_key < high else None
