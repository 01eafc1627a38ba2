"""Copies an instance's stores to the snapshot location, now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from penstock.changelog.snapshots import Manifest, SnapshotLocation
from penstock.errors import PenstockError, TaskNotHereError
from penstock.instance.task import OpenTask

_log = logging.getLogger("penstock.instance")


class Snapshotter:
    """A thread that copies what has changed; a snapshot that fails is told, and tried again."""

    def __init__(
        self,
        location: SnapshotLocation,
        *,
        interval_seconds: float,
        tasks: Callable[[], Iterable[OpenTask]],
    ) -> None:
        self._location = location
        self._interval = interval_seconds
        self._tasks = tasks
        self._last: dict[tuple[str, str], Manifest] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="snapshots", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the file that is being copied."""
        self._stop.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stop.wait(self._interval):
            for task in self._tasks():
                for store in task.snapshot_stores:
                    if not self._stop.is_set():
                        self._copy(task, store)

    def _copy(self, task: OpenTask, store: str) -> None:
        key = (task.order.name, store)
        try:
            with task.checkpoint(store, self._last.get(key)) as (manifest, directory):
                if manifest is not None:
                    self._location.write(task.order.name, manifest, directory)
                    self._last[key] = manifest
        except TaskNotHereError:
            pass  # It moved, or was closed, meanwhile.
        except PenstockError as error:
            task.tell([f"Store {store} of task {task.order.task} has no new snapshot: {error}"])
            _log.warning("%s", error)
