"""An instance's metrics as they are when someone asks: its tasks, its stores, RocksDB."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable

from penstock.errors import PenstockError
from penstock.instance.meters import is_suppression
from penstock.instance.protocol import RestoreStatus
from penstock.instance.rocksdb_metrics import read_statistics
from penstock.instance.state import TaskStores
from penstock.observability import groups
from penstock.observability.catalogue import ROCKSDB_PROPERTIES
from penstock.observability.readings import Snapshot
from penstock.observability.recorder import Recorder
from penstock.observability.tallies import Tally
from penstock.observability.time_of_day import wall_clock_ms
from penstock.stores.rocksdb import RocksDBStore

_ASSIGNED, _RUNNING = 3, 4
"""Kafka Streams' numbers for a thread that gets its partitions, and for one that works."""
_FROM_THE_START = (
    *((groups.THREAD, name) for name in ("commit", "task-created", "task-closed")),
    *((groups.UPDATER, name) for name in ("restore", "call", "update", "checkpoint")),
)
"""What an instance counts of itself, from 0 on, as Kafka Streams does."""


class InstanceMetrics:
    """Looks at everything that need not be counted, and puts it beside what was."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._started_ms = wall_clock_ms()
        self._sums: dict[tuple[str, ...], dict[str, int]] = {}
        # Statistics are read as differences: two who ask at once would count them twice.
        self._lock = threading.Lock()
        for group, name in _FROM_THE_START:
            recorder.begin(group, name, ())

    def snapshot(
        self, active: Iterable[tuple[str, TaskStores]], standby: Iterable[tuple[str, TaskStores]]
    ) -> Snapshot:
        """What all metrics show now; tasks that are served or taken come with their state."""
        if not self._recorder.records("INFO"):
            return []
        with self._lock:
            served, followed = list(active), list(standby)
            self._set_thread(served, len(followed))
            for _, stores in [*served, *followed]:
                self._look_at(stores)
            return self._recorder.snapshot()

    def _set_thread(self, served: list[tuple[str, TaskStores]], followed: int) -> None:
        recorder = self._recorder
        restoring = sum(state == "restoring" for state, _ in served)
        settled = all(state == "running" for state, _ in served)
        recorder.set(groups.THREAD, "thread-start-time", (), self._started_ms)
        recorder.set(groups.THREAD, "thread-state", (), _RUNNING if settled else _ASSIGNED)
        recorder.set(groups.UPDATER, "active-restoring-tasks", (), restoring)
        recorder.set(groups.UPDATER, "standby-updating-tasks", (), followed)
        ratios = {"active-restore-ratio", "standby-update-ratio", "checkpoint-ratio"}
        told = {each.name: each.value for each in recorder.snapshot() if each.name in ratios}
        busy = sum(value for value in told.values() if isinstance(value, float))
        recorder.set(groups.UPDATER, "idle-ratio", (), max(0.0, 1.0 - busy))
        left = [(stores.task, remaining(stores.restores.latest())) for _, stores in served]
        for task, records in left:
            recorder.set(groups.TASK, "restore-remaining-records-total", (task,), records)
        total = sum(records for _, records in left)
        recorder.set(groups.INSTANCE, "restore-remaining-records", (), total)

    def _look_at(self, stores: TaskStores) -> None:
        recorder, meter = self._recorder, stores.meter
        for name, began in meter.open_iterators().items():
            tags = meter.tags(name)
            recorder.set(groups.STORE, "num-open-iterators", tags, len(began))
            oldest = min(began, default=0)
            recorder.set(groups.STORE, "oldest-iterator-open-since-ms", tags, oldest)
        for name, store in meter.rocksdb().items():
            # It may be closed at any time: then there is nothing to tell.
            with contextlib.suppress(PenstockError):
                self._look_at_rocksdb(meter.tags(name), store)
                if is_suppression(stores.order(name)) and recorder.records("DEBUG"):
                    self._look_at_buffer(meter.tags(name), stores, name, store)

    def _look_at_rocksdb(self, tags: tuple[str, ...], store: RocksDBStore) -> None:
        recorder = self._recorder
        for name, value in store.properties(ROCKSDB_PROPERTIES).items():
            recorder.set(groups.STORE, name, tags, value)
        text = store.statistics()
        if text is None:
            return
        found = read_statistics(text)
        before = self._sums.get(tags, {})
        for name, value in found.sums.items():
            grown = value - before.get(name, 0)
            # A store that was opened again counts from nothing.
            tally = Tally.of(grown if grown >= 0 else value)
            recorder.add(groups.STORE, name, tags, tally)
        self._sums[tags] = found.sums
        for name, amount in found.values.items():
            recorder.set(groups.STORE, name, tags, amount)

    def _look_at_buffer(
        self, tags: tuple[str, ...], stores: TaskStores, name: str, store: RocksDBStore
    ) -> None:
        sizes = store.properties(("cur-size-all-mem-tables", "live-sst-files-size"))
        count = stores.get(name).approximate_num_entries()
        recorder = self._recorder
        recorder.add(groups.STORE, "suppression-buffer-count", tags, Tally.of(count))
        size = Tally.of(sum(sizes.values()))
        recorder.add(groups.STORE, "suppression-buffer-size", tags, size)


def remaining(restores: Iterable[RestoreStatus]) -> int:
    """How many records restores under way still lack; markers between them count too.

    >>> at = RestoreStatus(number=1, store="s", topic="t", partition=0, start=0, end=9, offset=4)
    >>> remaining([at])
    4
    """
    return sum(
        max(0, each.end - max(each.start, each.offset + 1))
        for each in restores
        if each.state == "restoring"
    )
