"""A key-value store in memory: the contract without a disk."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from penstock.errors import InstanceError, TaskNotHereError
from penstock.stores.contract import Change, StoreIdentity, pages


class MemoryStore:
    """A store that is gone with its process and is restored from the start of its changelog.

    >>> store = MemoryStore("counts")
    >>> store.apply([(b"a", b"1"), (b"b", b"2"), (b"a", None)], offset=7)
    >>> store.get_many([b"a", b"b"]), store.offset()
    ([None, b'2'], 7)
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._entries: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._offset: int | None = None
        self._identity: StoreIdentity | None = None
        self._caught_up_at: int | None = None
        self._closed = False

    @property
    def name(self) -> str:
        return self._name

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check_open()
        return [self._entries.get(key) for key in keys]

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        self._check_open()
        for key, value in changes:
            self._apply_one(key, value)
        if offset is not None:
            self._offset = offset

    def _apply_one(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            if key not in self._entries:
                insort(self._keys, key)
            self._entries[key] = value
        elif self._entries.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def delete_range(self, lower: bytes, upper: bytes) -> None:
        self._check_open()
        first, last = bisect_left(self._keys, lower), bisect_left(self._keys, upper)
        for key in self._keys[first:last]:
            del self._entries[key]
        del self._keys[first:last]

    def offset(self) -> int | None:
        self._check_open()
        return self._offset

    def identity(self) -> StoreIdentity | None:
        self._check_open()
        return self._identity

    def set_identity(self, identity: StoreIdentity) -> None:
        self._check_open()
        self._identity = identity

    def caught_up_at(self) -> int | None:
        self._check_open()
        return self._caught_up_at

    def set_caught_up_at(self, now_ms: int) -> None:
        self._check_open()
        self._caught_up_at = now_ms

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[tuple[bytes, bytes]]:
        self._check_open()
        first = 0 if lower is None else bisect_left(self._keys, lower)
        last = len(self._keys) if upper is None else bisect_left(self._keys, upper)
        keys = self._keys[first : min(last, first + limit)]
        return [(key, self._entries[key]) for key in keys]

    def range_back(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """As `backward.BackwardStore` says."""
        self._check_open()
        first = 0 if lower is None else bisect_left(self._keys, lower)
        last = len(self._keys) if upper is None else bisect_left(self._keys, upper)
        keys = self._keys[max(first, last - limit) : last]
        return [(key, self._entries[key]) for key in reversed(keys)]

    def all(self, *, page_size: int = 1000) -> Iterator[tuple[bytes, bytes]]:
        return pages(self, page_size)

    def approximate_num_entries(self) -> int:
        self._check_open()
        return len(self._entries)

    def flush(self) -> None:
        self._check_open()

    def checkpoint(self, path: Path) -> None:
        raise InstanceError("A store in memory has no files", where={"store": self._name})

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise TaskNotHereError("The store was closed", where={"store": self._name})
