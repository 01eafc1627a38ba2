"""What stores that arrange their entries inside another store have in common."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.stores.contract import ByteStore, Entry, KeyValueStore, StoreIdentity, pages

PAGE_ENTRIES = 1_000
"""How many entries one look into the inner store brings: no native iterator outlives it."""


class LayeredStore:
    """Passes on what does not depend on where in the inner store an entry lies."""

    def __init__(self, inner: ByteStore) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

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

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()


def entries_between(store: KeyValueStore, lower: bytes, upper: bytes) -> Iterator[Entry]:
    """The entries with lower <= key < upper, by key, read a page at a time."""
    return pages(store, PAGE_ENTRIES, lower=lower, upper=upper)
