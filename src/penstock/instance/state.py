"""The stores of one task: opened, checked, brought up to date, closed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from penstock.changelog.commit_record import ChangelogEnd, CommitRecord
from penstock.changelog.reading import wait_stable
from penstock.changelog.restore import (
    RestoreOutcome,
    RestoreProgress,
    check_identity,
    recreated,
    restore,
)
from penstock.coordination.ids import TaskId
from penstock.errors import PenstockError, StoreDamagedError, TaskNotHereError
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import StoreOrder, TakeOrder
from penstock.observability.crash_points import crash_point
from penstock.stores.contract import ByteStore, Change, KeyValueStore, StoreIdentity
from penstock.stores.directory import StateDirectory, TaskDirectory
from penstock.stores.indexed import TimeIndexedKeyValueStore
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine
from penstock.stores.segments import SegmentedStore
from penstock.stores.versioned import VersionsStore


class TaskStores:
    """What a task keeps on disk. One owner calls the methods that write, one after the other."""

    def __init__(
        self,
        order: TakeOrder,
        directory: StateDirectory,
        clients: SharedClients,
        *,
        engine: RocksDBEngine | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._task = order.task
        self._partition = TaskId.parse(order.task).partition
        self._orders = {store.name: store for store in order.stores}
        self._state_directory = directory
        self._clients = clients
        self._engine = engine
        self._now_ms = now_ms
        self._directory: TaskDirectory | None = None
        self._stores: dict[str, KeyValueStore] = {}
        self._restored: dict[str, RestoreProgress] = {}

    def open(self, record: CommitRecord | None) -> None:
        """Lock the task's directory and open its stores."""
        if not self._orders:
            return
        self._directory = self._state_directory.lock_task(self._task)
        crash_point("open.after_lock")
        for order in self._orders.values():
            if order.logged:
                _check_changelog(order, record)

    def restore(self, stop: Callable[[], bool]) -> list[str]:
        """Bring every store up to the end of its changelog; what had to be rebuilt is told."""
        notes: list[str] = []
        logged = [order for order in self._orders.values() if order.logged]
        topics = [(order.changelog, self._partition) for order in logged]
        ends = wait_stable(self._clients.logs, topics, stop=stop) if topics else {}
        for order in logged:
            until = ends[order.changelog, self._partition].end
            notes += self._restore_store(order, until, stop)
        for order in self._orders.values():
            if not order.logged:
                # Nobody can tell whether what is on the disk is all that the last owner committed.
                self._reopen_empty(order)
        return notes

    def get(self, name: str) -> KeyValueStore:
        """The open store of that name. Raises `TaskNotHereError`."""
        store = self._stores.get(name)
        if store is None:
            where = {"task": self._task, "store": name}
            raise TaskNotHereError("The task has no such store open", where=where)
        return store

    def order(self, name: str) -> StoreOrder:
        """What was ordered of that store."""
        return self._orders[name]

    def changelog(self, name: str) -> str:
        """The topic of a store's changelog."""
        return self._orders[name].changelog

    def remedy(self, name: str) -> str:
        """What is done about a store that cannot be read, for the user."""
        changelog = self._orders[name].changelog
        return f"rebuilding it from {changelog}" if changelog else "it starts empty"

    def ends(self) -> dict[str, ChangelogEnd]:
        """How far each store's changelog surely goes."""
        return {
            name: ChangelogEnd(
                id=order.changelog_id, end=-1 if (at := self.get(name).offset()) is None else at
            )
            for name, order in self._orders.items()
            if order.logged
        }

    def apply(self, name: str, changes: list[Change], offset: int | None) -> None:
        """Write changes and the changelog offset that they end at, if there is a changelog."""
        store = self.get(name)
        # A versioned store must know where in the changelog some of its changes are.
        half = 0 if self._orders[name].kind == "versioned" else len(changes) // 2
        store.apply(changes[:half], offset=None)
        crash_point("commit.mid_store_write")
        store.apply(changes[half:], offset=offset)

    @property
    def progress(self) -> tuple[int, int]:
        """Records restored, and how many there are in all."""
        done = sum(each.restored for each in self._restored.values())
        return done, done + sum(each.remaining for each in self._restored.values())

    def wipe(self, name: str) -> None:
        """Delete a store that cannot be read; the next `restore` makes it anew."""
        assert self._directory is not None
        # Its memory is as little worth as its files.
        with contextlib.suppress(PenstockError):
            self._stores.pop(name).close()
        self._directory.wipe_store(name)

    def flush(self) -> None:
        """Make what was applied durable, and export how far that is. Only while the task runs."""
        if self._directory is not None:
            for store in self._stores.values():
                # The owner's store holds all of its changelog. Without this mark it would be taken
                # for one that missed tombstones, and rebuilt, a day after its last restore.
                store.set_caught_up_at(self._now_ms())
            self._flush_to(self._directory)

    def close(self) -> None:
        """Flush, close and unlock; twice does nothing."""
        directory, self._directory = self._directory, None
        if directory is None:
            return
        stores, self._stores = self._stores, {}
        try:
            self._flush_to(directory, stores)
        finally:
            for store in stores.values():
                # A store that cannot be flushed is closed all the same; its changelog has the rest.
                with contextlib.suppress(PenstockError):
                    store.close()
            directory.unlock()

    def _flush_to(
        self, directory: TaskDirectory, stores: Mapping[str, KeyValueStore] | None = None
    ) -> None:
        offsets: dict[tuple[str, int], int] = {}
        for name, store in (self._stores if stores is None else stores).items():
            store.flush()
            offset = store.offset()
            # What is in memory is not there any more when someone reads the file.
            if offset is not None and self._orders[name].persistent:
                offsets[self._orders[name].changelog, self._partition] = offset
        if offsets:
            directory.write_checkpoint(offsets)

    def _restore_store(self, order: StoreOrder, until: int, stop: Callable[[], bool]) -> list[str]:
        notes: list[str] = []
        try:
            store = self._open_store(order)
        except StoreDamagedError as error:
            notes.append(f"{error.summary}: {self.remedy(order.name)}")
            store = self._reopen_empty(order)
        consumer = self._clients.logs.consumer()
        try:
            for _ in range(2):
                result = restore(
                    store,
                    topic=order.changelog,
                    partition=self._partition,
                    consumer=consumer,
                    until=until,
                    on_progress=lambda progress: self._note_progress(order.name, progress),
                    stop=stop,
                )
                if result.outcome is not RestoreOutcome.TRUNCATED:
                    break
                notes.append(
                    f"{order.changelog} no longer holds what store {order.name} of task "
                    f"{self._task} needs next: rebuilding the store from the changelog's start"
                )
                store = self._reopen_empty(order)
        finally:
            consumer.close()
        return notes

    def _note_progress(self, name: str, progress: RestoreProgress) -> None:
        self._restored[name] = progress

    def _open_store(self, order: StoreOrder) -> KeyValueStore:
        assert self._directory is not None
        store = self._make_store(order)
        crash_point("open.after_db_open")
        self._stores[order.name] = store
        check_identity(store, self._identity(order))
        crash_point("open.after_identity_check")
        return store

    def _reopen_empty(self, order: StoreOrder) -> KeyValueStore:
        assert self._directory is not None
        damaged = self._stores.pop(order.name, None)
        if damaged is not None:
            with contextlib.suppress(PenstockError):
                damaged.close()
        self._directory.wipe_store(order.name)
        store = self._make_store(order)
        check_identity(store, self._identity(order))
        self._stores[order.name] = store
        return store

    def _make_store(self, order: StoreOrder) -> KeyValueStore:
        assert self._directory is not None
        if not order.persistent:
            return shaped(MemoryStore(order.name), order)
        path = self._directory.store_path(order.name)
        return shaped(RocksDBStore(order.name, path, engine=self._engine), order)

    def _identity(self, order: StoreOrder) -> StoreIdentity:
        return StoreIdentity(
            application_id=self._state_directory.application_id,
            task=self._task,
            store=order.name,
            changelog_topic=order.changelog,
            changelog_topic_id=order.changelog_id,
            layout=order.layout,
        )


def shaped(inner: ByteStore, order: StoreOrder) -> KeyValueStore:
    """A store of the kind that was ordered, with its entries in a store of bytes."""
    if order.kind == "key_value":
        return inner if order.time_index is None else TimeIndexedKeyValueStore(inner)
    if order.kind == "versioned":
        return VersionsStore(inner, retention_ms=order.retention_ms, segment_ms=order.segment_ms)
    return SegmentedStore(
        inner,
        kind=order.kind,
        retention_ms=order.retention_ms,
        segment_ms=order.segment_ms,
        indexed=order.time_index is not None,
    )


def _check_changelog(order: StoreOrder, record: CommitRecord | None) -> None:
    """A changelog that was made anew would restore to nothing, silently."""
    known = record.changelogs.get(order.name) if record else None
    if known is not None and known.id != order.changelog_id:
        raise recreated(
            order.changelog,
            f"its id is {order.changelog_id} and the last commit was written to {known.id}",
        )
