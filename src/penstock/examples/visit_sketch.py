"""About how often each page was visited, in a store of fixed size: a count-min sketch.

The store has a shape of its own. It knows items and estimates instead of keys and values, and it
decides what goes to the changelog: its cells, a chunk at a time, each chunk at most once in a
commit. An estimate is never too low; how much it may be too high depends on the store's width,
however many pages there are.
"""

import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import penstock as ps

_HEADER = b"h"
_SIZES = struct.Struct(">BIH")
_CHUNK = struct.Struct(">BI")


class CountMinSketch:
    """Counts items in `depth` rows of `width` cells; the smallest of an item's cells is nearest.

    In the store:

        h                                   depth, width, cells in a chunk
        c  row (1 byte)  chunk (4 bytes)    the chunk's cells, 4 bytes each
    """

    def __init__(
        self, store: ps.SliceStore, *, depth: int = 4, width: int = 1024, chunk: int = 32
    ) -> None:
        self._store = store
        self._depth, self._width = depth, width
        self._cells = struct.Struct(f">{chunk}I")
        self._chunk = chunk
        self._sizes = _SIZES.pack(depth, width, chunk)
        self._chunks: dict[bytes, list[int]] = {}
        self._changed: set[bytes] = set()

    def add(self, item: str, count: int = 1) -> int:
        """Count an item; returns the estimate of how often it came."""
        self._read(self.bytes_to_read([item]))
        for name, cell in self._places(item):
            self._chunks[name][cell] += count
            self._changed.add(name)
        return self.estimate(item)

    def estimate(self, item: str) -> int:
        """About how often an item came: never too low."""
        self._read(self.bytes_to_read([item]))
        return min(self._chunks[name][cell] for name, cell in self._places(item))

    def bytes_to_read(self, items: Iterable[str]) -> list[bytes]:
        """The keys that these items need, so that a slice's are read in bulk."""
        return [_HEADER, *(name for item in items for name, _ in self._places(item))]

    def flush(self) -> None:
        """Write the chunks that changed, at the end of a slice."""
        if self._changed:
            self._store.put(_HEADER, self._sizes)
        for name in sorted(self._changed):
            self._store.put(name, self._cells.pack(*self._chunks[name]))
        self._changed.clear()

    def _places(self, item: str) -> Iterator[tuple[bytes, int]]:
        """An item's cell in each row: its chunk's key, and which one in the chunk."""
        for row in range(self._depth):
            digest = blake2b(item.encode(), digest_size=8, salt=row.to_bytes(2, "big")).digest()
            chunk, cell = divmod(int.from_bytes(digest, "big") % self._width, self._chunk)
            yield b"c" + _CHUNK.pack(row, chunk), cell

    def _read(self, names: list[bytes]) -> None:
        missing = [name for name in names if name not in self._chunks]
        if not missing:
            return
        empty = bytes(self._cells.size)
        for name, data in zip(missing, self._store.get_many(missing), strict=True):
            if name == _HEADER:
                self._check_sizes(data)
                self._chunks[name] = []
            else:
                self._chunks[name] = list(self._cells.unpack(data or empty))

    def _check_sizes(self, found: bytes | None) -> None:
        """Cells of another sketch mean something else."""
        if found not in (None, self._sizes):
            depth, width, chunk = _SIZES.unpack(found or b"")
            raise ValueError(f"the sketch has depth={depth}, width={width}, chunk={chunk}")


class Estimates(ps.Processor[str, str, str, int]):
    """Counts every visit, and passes on about how many its page has had."""

    def process(self, record: ps.Record[str, str]) -> None:
        """Count a visit."""
        visits = self.context.store("visits")
        self.context.forward(record.with_value(visits.add(record.key)))

    def keys_to_read(self, key: str, value: str) -> dict[str, list[str]]:
        """Of the sketch, what the page needs."""
        return {"visits": [key]}


def application(**options: Any) -> ps.Application:
    """The application, with options of `Config`."""
    app = ps.Application("visit-sketch", **options)
    app.add_state_store(
        ps.custom_store("visits", "penstock.examples.visit_sketch:CountMinSketch", width=512)
    )
    (
        app.stream("page-visits", key=str, value=str)
        .process_values(Estimates, stores=["visits"], value=int)
        .to("visit-estimates")
    )
    return app


app = application()

if __name__ == "__main__":
    app.run()
