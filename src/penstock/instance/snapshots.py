"""Copies an instance's stores to the snapshot location, now and then."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from penstock.changelog.snapshots import Manifest, SnapshotLocation, read_files
from penstock.errors import PenstockError, TaskNotHereError
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask
from penstock.observability.time_of_day import wall_clock_ms

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
                for store in task.stores.snapshot_stores:
                    if not self._stop.is_set():
                        self._copy(task, store)

    def _copy(self, task: OpenTask, store: str) -> None:
        key = (task.order.name, store)
        try:
            last = self._last.get(key)
            if last is not None and not self._location.is_whole(task.order.name, last):
                last = None  # Somebody cut or removed a file: what is lacking is written again.
            with checkpoint(task.stores, store, last) as copy:
                if copy is not None:
                    self._location.write(task.order.name, *copy)
                    self._last[key] = copy[0]
        except TaskNotHereError:
            pass  # It moved, or was closed, meanwhile.
        except (PenstockError, OSError) as error:
            # A disk that fails to read once is no reason never to copy again.
            task.tell([f"Store {store} of task {task.order.task} has no new snapshot: {error}"])
            _log.warning("%s", error)


@contextlib.contextmanager
def checkpoint(
    stores: TaskStores, name: str, last: Manifest | None
) -> Iterator[tuple[Manifest, Path] | None]:
    """A copy of a store, gone afterwards; None if `last` is as new."""
    offset = stores.get(name).offset()
    if offset is None or (last is not None and last.offset == offset):
        yield None
        return
    with stores.copy(name, "snapshot") as path:
        files = read_files(path, last.files if last else ())
        yield (
            Manifest(
                identity=stores.identity(stores.order(name)),
                offset=offset,
                files=files,
                written_ms=wall_clock_ms(),
            ),
            path,
        )
