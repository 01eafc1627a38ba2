"""A key-value store whose entries are found by a time that stands at the end of their values.

d  key                 the stored value; its last 8 bytes are the time
i  time  key           nothing
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice

from penstock.stores.contract import Change, Entry, pages
from penstock.stores.layered import PAGE_ENTRIES, DataStore, entries_between

_LONG = struct.Struct(">q")
_ORDERED = struct.Struct(">Q")
_BIAS = 2**63
_INDEX, _INDEX_END = b"i", b"j"
_ROW_BYTES = len(_INDEX) + _ORDERED.size


class TimeIndexedKeyValueStore(DataStore):
    """Keys and values in a store of bytes, with an index of times.

    >>> from penstock.stores.memory import MemoryStore
    >>> store = TimeIndexedKeyValueStore(MemoryStore("waiting"))
    >>> store.apply([(b"a", b"x" + _LONG.pack(7)), (b"b", b"y" + _LONG.pack(5))], offset=1)
    >>> store.apply([(b"a", b"z" + _LONG.pack(3))], offset=2)
    >>> [key for key, _ in store.fetch_times(0, 6)]
    [b'a', b'b']
    """

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        # The last change of each key: only the value that is there now has an index row.
        last = dict(changes)
        rows: list[Change] = []
        for (key, value), old in zip(last.items(), self.get_many(list(last)), strict=True):
            # Index rows first: if a crash parts them from the entry, the old value is still there
            # to say which row to delete when the changelog is applied again.
            if old is not None and old[-_LONG.size :] != (value or b"")[-_LONG.size :]:
                rows.append((_row(old, key), None))
            if value is not None:
                rows.append((_row(value, key), b""))
            rows.append((self.data_key(key), value))
        self._inner.apply(rows, offset=offset)

    def fetch_times(self, first: int, last: int) -> Iterator[Entry]:
        """The entries with a time in first..last, by time and then by key."""
        if first > last:
            return
        lower = _INDEX + _ORDERED.pack(first + _BIAS)
        upper = _INDEX_END if last == _BIAS - 1 else _INDEX + _ORDERED.pack(last + 1 + _BIAS)
        rows = entries_between(self._inner, lower, upper)
        while page := list(islice(rows, PAGE_ENTRIES)):
            keys = [row[_ROW_BYTES:] for row, _ in page]
            for key, value in zip(keys, self.get_many(keys), strict=True):
                if value is not None:
                    yield key, value

    def all(self, *, page_size: int = PAGE_ENTRIES) -> Iterator[Entry]:
        return pages(self, page_size)

    def approximate_num_entries(self) -> int:
        return self._inner.approximate_num_entries() // 2


def _row(value: bytes, key: bytes) -> bytes:
    (time,) = _LONG.unpack(value[-_LONG.size :])
    return _INDEX + _ORDERED.pack(time + _BIAS) + key
