"""The open stores of a task, in its locked directory."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from penstock.changelog.restore import check_identity
from penstock.coordination.ids import TaskId
from penstock.errors import PenstockError, TaskNotHereError
from penstock.instance.meters import TaskMeter
from penstock.instance.protocol import StoreOrder
from penstock.observability.crash_points import crash_point
from penstock.stores.contract import (
    ByteStore,
    CheckpointStore,
    KeyValueStore,
    StoreIdentity,
    WindowStore,
)
from penstock.stores.custom import CustomStore, open_custom
from penstock.stores.directory import StateDirectory, TaskDirectory
from penstock.stores.indexed import TimeIndexedKeyValueStore
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine
from penstock.stores.segments import SegmentedStore
from penstock.stores.steady import Steady
from penstock.stores.versioned import VersionsStore

_log = logging.getLogger("penstock.instance")


class OpenStores:
    """Opens, empties and closes a task's stores; what is to be in them, others know."""

    def __init__(
        self,
        task: str,
        orders: Mapping[str, StoreOrder],
        directory: StateDirectory,
        meter: TaskMeter,
        *,
        engine: RocksDBEngine | None = None,
    ) -> None:
        self._task = task
        self._partition = TaskId.parse(task).partition
        self._orders = orders
        self._state_directory = directory
        self._meter = meter
        self._engine = engine
        self._directory: TaskDirectory | None = None
        self._stores: dict[str, KeyValueStore] = {}
        self._uncopied: set[str] = set()
        """Users' stores of which no copy can be made."""
        self._steady: dict[str, Steady] = {}
        self.whole_at: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._stores

    @property
    def is_locked(self) -> bool:
        """Whether the task's directory is held here."""
        return self._directory is not None

    def lock(self, *, wait: timedelta = timedelta(0)) -> TaskDirectory:
        """Hold the task's directory, until `close`."""
        self._directory = self._state_directory.lock_task(self._task, wait=wait)
        return self._directory

    def get(self, name: str) -> KeyValueStore:
        """The open store of that name. Raises `TaskNotHereError`."""
        store = self._stores.get(name)
        if store is None:
            where = {"task": self._task, "store": name}
            raise TaskNotHereError("The task has no such store open", where=where)
        return store

    def steady(self, name: str) -> Steady:
        """What those who read a store beside its owner look through."""
        return self._steady.setdefault(name, Steady())

    def identity(self, order: StoreOrder) -> StoreIdentity:
        """Whose the store of that order is."""
        return StoreIdentity(
            application_id=self._state_directory.application_id,
            task=self._task,
            store=order.name,
            changelog_topic=order.changelog,
            changelog_topic_id=order.changelog_id,
            layout=order.layout,
        )

    def open(self, order: StoreOrder) -> KeyValueStore:
        """A store as it is on the disk, or as it is open already."""
        if order.name in self._stores:
            return self._stores[order.name]  # A standby's, which is what the owner would open.
        store = self._make(order)
        crash_point("open.after_db_open")
        self._stores[order.name] = store
        check_identity(store, self.identity(order))
        crash_point("open.after_identity_check")
        return store

    def reopen(self, order: StoreOrder, *, filling: bool = False) -> KeyValueStore:
        """An open store, opened again: to be filled, or as always."""
        self._stores.pop(order.name).close()
        store = self._stores[order.name] = self._make(order, filling=filling)
        return store

    def anew(self, order: StoreOrder) -> KeyValueStore:
        """An empty store in the place of what is there, which may be damaged."""
        self.wipe(order.name)
        store = self._make(order)
        check_identity(store, self.identity(order))
        self._stores[order.name] = store
        return store

    def emptied(self, order: StoreOrder) -> Path:
        """Where a store was, closed and gone, for other files."""
        self._stores.pop(order.name).close()
        directory = self._held()
        directory.wipe_store(order.name)
        return directory.store_path(order.name)

    def wipe(self, name: str) -> None:
        """Delete a store, which may not even close."""
        # Its memory is as little worth as its files.
        with contextlib.suppress(PenstockError):
            if name in self._stores:
                self._stores.pop(name).close()
        self._held().wipe_store(name)

    def offers_copies(self, name: str) -> bool:
        """Whether copies of a store can be made: not of each that users bring."""
        return name not in self._uncopied

    @contextlib.contextmanager
    def copy(self, name: str, purpose: str) -> Iterator[Path]:
        """The files of a store as they are now, gone afterwards; one at a time for a purpose."""
        directory, store = self._directory, self.get(name)
        if directory is None:
            raise TaskNotHereError("The task was closed", where={"task": self._task})
        with directory.scratch(name, purpose) as path:
            assert isinstance(store, CheckpointStore)
            store.checkpoint(path)
            yield path

    def flush(self, caught_up_at: Mapping[str, int]) -> None:
        """Make all durable, with when each was at its changelog's end, and export how far it is."""
        if self._directory is not None:
            for name, store in self._stores.items():
                if name in caught_up_at:
                    store.set_caught_up_at(caught_up_at[name])
            self._flush(self._stores, self._directory)

    def close(self) -> None:
        """Flush, close and unlock; twice does nothing. What a full disk does not take is told."""
        directory, self._directory = self._directory, None
        if directory is None:
            return
        # From here on nobody gets a store that is about to be closed.
        stores, self._stores = self._stores, {}
        try:
            self._flush(stores, directory)
        except PenstockError as error:
            _log.warning("%s", error)
        finally:
            for store in stores.values():
                # A store that cannot be flushed is closed all the same; its changelog has the rest.
                try:
                    store.close()
                except PenstockError as error:
                    _log.warning("%s", error)
            directory.unlock()

    def _held(self) -> TaskDirectory:
        assert self._directory is not None
        return self._directory

    def _flush(self, stores: Mapping[str, KeyValueStore], directory: TaskDirectory) -> None:
        offsets: dict[tuple[str, int], int] = {}
        for name, store in stores.items():
            self._meter.flush(name, store)
            offset, order = store.offset(), self._orders[name]
            # What is in memory is not there any more when someone reads the file.
            if offset is not None and order.persistent and order.logged:
                offsets[order.changelog, self._partition] = offset
        if offsets:
            directory.write_checkpoint(offsets)

    def _make(self, order: StoreOrder, *, filling: bool = False) -> KeyValueStore:
        inner = self._inner(order, self._held().store_path(order.name), filling=filling)
        self._meter.opened(inner)
        if isinstance(inner, CustomStore) and not inner.offers_checkpoints:
            self._uncopied.add(order.name)
        self._steady[order.name] = Steady()
        self.whole_at.pop(order.name, None)
        return shaped(inner, order)

    def _inner(self, order: StoreOrder, path: Path, *, filling: bool) -> ByteStore:
        """What keeps a store's bytes."""
        if order.supplier:
            by_time = order.time_index is not None
            return open_custom(
                order.supplier, order.name, path, task=self._task, finds_by_time=by_time
            )
        if not order.persistent:
            return MemoryStore(order.name)
        return RocksDBStore(order.name, path, engine=self._engine, filling=filling)


def shaped(inner: ByteStore, order: StoreOrder) -> KeyValueStore:
    """A store of the kind that was ordered, with its entries in a store of bytes."""
    if order.kind == "key_value":
        return inner if order.time_index is None else TimeIndexedKeyValueStore(inner)
    if order.kind == "versioned":
        return VersionsStore(inner, retention_ms=order.retention_ms, segment_ms=order.segment_ms)
    if isinstance(inner, WindowStore):
        return inner  # A user's, which arranges windows by itself.
    return SegmentedStore(
        inner,
        kind=order.kind,
        retention_ms=order.retention_ms,
        segment_ms=order.segment_ms,
        indexed=order.time_index is not None,
    )
