"""Entries from the last key to the first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from penstock.stores.contract import Entry, KeyValueStore, pages

_PAGE_ENTRIES = 10_000


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
        page_size = max(page_size, _PAGE_ENTRIES)
    while True:
        page = page_back(store, lower, upper, page_size)
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
    # A store that a user brought, or a database keeps: all that comes before is read.
    last = deque(pages(store, _PAGE_ENTRIES, lower=lower, upper=upper), maxlen=limit)
    return list(reversed(last))
