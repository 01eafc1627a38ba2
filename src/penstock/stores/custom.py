"""Stores that users bring: opened by their supplier, and failing under their own name."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.errors import ConfigError, CustomStoreError, PenstockError, TaskNotHereError
from penstock.option_values import imported
from penstock.stores.contract import (
    Change,
    CheckpointStore,
    Entry,
    KeyValueStore,
    RangeDeletingStore,
    StateStore,
    StoreIdentity,
    StoreSupplier,
    TimeIndexedStore,
    WindowStore,
    pages,
)
from penstock.stores.failures import directory_error
from penstock.stores.layered import PAGE_ENTRIES

T = TypeVar("T")

_METHODS = tuple(
    name for kind in (StateStore, KeyValueStore) for name in vars(kind) if not name.startswith("_")
)


class CustomStore:
    """A user's store. What it raises becomes `CustomStoreError`: store, task and method by name.

    Errors of ours pass: a store may say `StoreDamagedError`, and is then rebuilt. What a store need
    not offer is done here.
    """

    def __init__(self, inner: KeyValueStore, *, name: str, where: Mapping[str, object]) -> None:
        self._inner = inner
        self._name = name
        self._where = dict(where)
        self._closed = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def offers_checkpoints(self) -> bool:
        """Whether copies of it can be made while it is open."""
        return isinstance(self._inner, CheckpointStore)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._call("get_many", self._inner.get_many, keys)
        if len(found) != len(keys):
            raise self._failed("get_many", f"answered {len(found)} values to {len(keys)} keys")
        return found

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        # Read out first: what goes wrong on the way here is not the store's fault.
        self._call("apply", self._inner.apply, list(changes), offset=offset)

    def delete_range(self, lower: bytes, upper: bytes) -> None:
        if isinstance(self._inner, RangeDeletingStore):
            self._call("delete_range", self._inner.delete_range, lower, upper)
            return
        while page := self.range(lower, upper, limit=PAGE_ENTRIES):
            self.apply([(key, None) for key, _ in page], offset=None)
            lower = page[-1][0] + b"\x00"

    def offset(self) -> int | None:
        return self._call("offset", self._inner.offset)

    def identity(self) -> StoreIdentity | None:
        return self._call("identity", self._inner.identity)

    def set_identity(self, identity: StoreIdentity) -> None:
        self._call("set_identity", self._inner.set_identity, identity)

    def caught_up_at(self) -> int | None:
        return self._call("caught_up_at", self._inner.caught_up_at)

    def set_caught_up_at(self, now_ms: int) -> None:
        self._call("set_caught_up_at", self._inner.set_caught_up_at, now_ms)

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        return self._call("range", self._inner.range, lower, upper, limit=limit)

    def all(self, *, page_size: int = PAGE_ENTRIES) -> Iterator[Entry]:
        return pages(self, page_size)

    def approximate_num_entries(self) -> int:
        return self._call("approximate_num_entries", self._inner.approximate_num_entries)

    def checkpoint(self, path: Path) -> None:
        if not isinstance(self._inner, CheckpointStore):
            raise self._failed("checkpoint", "is not there")
        self._call("checkpoint", self._inner.checkpoint, path)

    def flush(self) -> None:
        self._call("flush", self._inner.flush)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._guarded("close", self._inner.close)

    def _call(self, name: str, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        if self._closed:
            raise self._gone()
        return self._guarded(name, method, *arguments, **options)

    def _guarded(self, name: str, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        try:
            return method(*arguments, **options)
        except PenstockError:
            raise
        except Exception as error:
            if self._closed and name != "close":
                # Another thread closed it meanwhile; how a store says so is its own affair.
                raise self._gone() from error
            raise self._failed(name, f"raised {_text(error)}") from error

    def _failed(self, method: str, what: str) -> CustomStoreError:
        return CustomStoreError(
            f"The method {method} of the store {self._name} {what}",
            where={**self._where, "method": method},
            hint="Mend the store, and have penstock.testing.check_store check it",
        )

    def _gone(self) -> TaskNotHereError:
        return TaskNotHereError("The store was closed", where=self._where)


class CustomWindowStore(CustomStore):
    """A user's store that arranges windows or sessions by itself."""

    def __init__(self, inner: WindowStore, *, name: str, where: Mapping[str, object]) -> None:
        super().__init__(inner, name=name, where=where)
        self._windows = inner

    def fetch(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        """The entries of exactly that key with a time in first..last, by time."""
        return self._each("fetch", self._windows.fetch, key, first, last)

    def fetch_times(self, first: int, last: int) -> Iterator[Entry]:
        """The entries with a time in first..last, by time and then by key."""
        if not isinstance(self._windows, TimeIndexedStore):
            raise self._failed("fetch_times", "is not there")
        return self._each("fetch_times", self._windows.fetch_times, first, last)

    def _each(
        self, name: str, method: Callable[..., Iterator[Entry]], *arguments: Any
    ) -> Iterator[Entry]:
        entries = iter(self._call(name, method, *arguments))
        while (entry := self._guarded(name, _next, entries)) is not None:
            yield entry


def _next(entries: Iterator[Entry]) -> Entry | None:
    return next(entries, None)


def open_custom(
    path: str, name: str, directory: Path, *, task: str, finds_by_time: bool = False
) -> CustomStore:
    """The store that the supplier named by `module:name` opens in a directory of its own.

    Raises `CustomStoreError` if there is no such supplier, if it fails, or if what it gives lacks a
    method; with `finds_by_time` a store that arranges windows by itself needs `fetch_times` too.
    """
    where = {"store": name, "task": task, "supplier": path}
    supplier = _supplier(path, where)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise directory_error(error, directory) from error  # A full disk is no mistake of theirs.
    try:
        store = supplier(name, directory)
    except PenstockError:
        raise
    except Exception as error:
        raise CustomStoreError(
            f"The supplier {path!r} cannot open the store {name}: {_text(error)}",
            where={**where, "method": "open"},
            hint="Mend the supplier, and have penstock.testing.check_store check it",
        ) from error
    lacking = missing_methods(store)
    arranges = hasattr(store, "fetch")
    if arranges and finds_by_time and not hasattr(store, "fetch_times"):
        lacking.append("fetch_times")
    if lacking:
        raise CustomStoreError(
            f"What the supplier {path!r} gives for the store {name} lacks {', '.join(lacking)}",
            where=where,
            hint="penstock.stores.KeyValueStore says what a store needs",
        )
    if isinstance(store, WindowStore):
        return CustomWindowStore(store, name=name, where=where)
    return CustomStore(store, name=name, where=where)


def _supplier(path: str, where: Mapping[str, object]) -> StoreSupplier:
    try:
        found: StoreSupplier = imported(path, option="supplier")
    except Exception as error:
        # A module of the user's may raise anything on its way in.
        why = error.message if isinstance(error, ConfigError) else _text(error)
        raise CustomStoreError(
            f"The supplier {path!r} of the store {where['store']} cannot be had: {why}",
            where=where,
            hint="Write module:name, of a module on the Python path of every instance",
        ) from error
    if not callable(found):
        raise CustomStoreError(
            f"The supplier {path!r} of the store {where['store']} cannot be called",
            where=where,
            hint="It is a function or a class: supplier(name, directory) gives the open store",
        )
    return found


def _text(error: Exception) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def missing_methods(store: object) -> list[str]:
    """What an object lacks to be a store; what it only inherits from the protocol, it lacks too.

    >>> missing_methods(object())[:2]
    ['name', 'apply']
    """
    return [name for name in _METHODS if not _has(store, name)]


def _has(store: object, name: str) -> bool:
    declared = getattr(KeyValueStore, name)
    # Asked of the class: a property may raise.
    found = getattr(type(store), name, None)
    if found is declared:
        return False
    if found is None:
        found = vars(store).get(name) if hasattr(store, "__dict__") else None
    return found is not None and (name == "name" or callable(found))
