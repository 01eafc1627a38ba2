"""What stores that arrange their entries inside another store have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.stores.backward import page_back
from penstock.stores.contract import (
    ByteStore,
    Entry,
    KeyValueStore,
    RangesStore,
    StoreIdentity,
    pages,
)

PAGE_ENTRIES = 1_000
"""How many entries one look into the inner store brings: no native iterator outlives it."""


class LayeredStore:
    """Passes on what does not depend on where in the inner store an entry lies."""

    def __init__(self, inner: ByteStore) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def keeper(self) -> ByteStore:
        """What keeps the bytes."""
        return self._inner

    def offset(self) -> int | None:
        return self._inner.offset()

    def identity(self) -> StoreIdentity | None:
        return self._inner.identity()

    def set_identity(self, identity: StoreIdentity) -> None:
        self._inner.set_identity(identity)

    def caught_up_at(self) -> int | None:
        return self._inner.caught_up_at()

    def set_caught_up_at(self, now_ms: int) -> None:
        self._inner.set_caught_up_at(now_ms)

    def checkpoint(self, path: Path) -> None:
        self._inner.checkpoint(path)

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()


_DATA, _DATA_END = b"d", b"e"


class DataStore(LayeredStore):
    """Keeps keys and values behind the letter d; other letters are free for what goes with them."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._inner.get_many([self.data_key(key) for key in keys])

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        end = _DATA_END if upper is None else self.data_key(upper)
        found = self._inner.range(self.data_key(lower or b""), end, limit=limit)
        return [(key[len(_DATA) :], value) for key, value in found]

    def range_back(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        """As `backward.BackwardStore` says."""
        end = _DATA_END if upper is None else self.data_key(upper)
        found = page_back(self._inner, self.data_key(lower or b""), end, limit)
        return [(key[len(_DATA) :], value) for key, value in found]

    @staticmethod
    def data_key(key: bytes) -> bytes:
        """Where a key's entry lies in the inner store."""
        return _DATA + key


def ranges_of(
    store: KeyValueStore, bounds: Sequence[tuple[bytes, bytes]], *, limit: int
) -> list[list[Entry]]:
    """For each (lower, upper) at most `limit` entries with lower <= key < upper, by key."""
    if isinstance(store, RangesStore):
        return store.ranges(bounds, limit=limit)
    return [store.range(lower, upper, limit=limit) for lower, upper in bounds]


def entries_between(store: KeyValueStore, lower: bytes, upper: bytes) -> Iterator[Entry]:
    """The entries with lower <= key < upper, by key, read a page at a time."""
    return pages(store, PAGE_ENTRIES, lower=lower, upper=upper)
