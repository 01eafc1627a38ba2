"""All of a topic in one store: what lies there, and how far each partition was read.

d  key                 the stored value
p  partition           the next offset to read of that partition
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from penstock.stores.contract import Change, Entry, pages
from penstock.stores.layered import PAGE_ENTRIES, DataStore, entries_between

LAYOUT = "whole topic"
"""What the identity of such a store says of how its entries lie."""
_NEXT = struct.Struct(">q")
_PARTITION = struct.Struct(">i")
_POSITION, _POSITION_END = b"p", b"q"


class WholeTopicStore(DataStore):
    """Keys and values in a store of bytes, with the positions that they were read up to.

    >>> from penstock.stores.memory import MemoryStore
    >>> store = WholeTopicStore(MemoryStore("teams"))
    >>> store.apply_read([(b"a", b"1"), (b"b", b"2")], {0: 2, 1: 7})
    >>> store.get_many([b"a", b"c"]), store.positions()
    ([b'1', None], {0: 2, 1: 7})
    """

    def apply_read(self, changes: Iterable[Change], positions: Mapping[int, int]) -> None:
        """Write changes and then the positions behind them; never a position without its data.

        In one step if they are few: what was read is then never there without its position, so
        that a processor is not shown it twice.
        """
        data: list[Change] = [(self.data_key(key), value) for key, value in changes]
        data += [(_POSITION + _PARTITION.pack(p), _NEXT.pack(at)) for p, at in positions.items()]
        self._inner.apply(data, offset=None)

    def positions(self) -> dict[int, int]:
        """The next offset to read of each partition that was ever read."""
        found = entries_between(self._inner, _POSITION, _POSITION_END)
        return {_PARTITION.unpack(key[1:])[0]: _NEXT.unpack(at)[0] for key, at in found}

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        self._inner.apply(((self.data_key(key), value) for key, value in changes), offset=offset)

    def all(self, *, page_size: int = PAGE_ENTRIES) -> Iterator[Entry]:
        return pages(self, page_size)

    def approximate_num_entries(self) -> int:
        return max(0, self._inner.approximate_num_entries() - len(self.positions()))
