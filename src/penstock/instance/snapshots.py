"""Copies an instance's stores to the snapshot location, now and then."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from penstock.changelog.snapshots import Checksums, Manifest, SnapshotLocation, read_files
from penstock.errors import TaskNotHereError
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
        self._known: dict[tuple[str, str], Checksums] = {}
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
            offset, last = task.stores.get(store).offset(), self._last.get(key)
            if offset is None or (last is not None and self._is_there(task, last, offset)):
                return
            known = self._known.setdefault(key, {})
            with checkpoint(task.stores, store, offset=offset, known=known) as (manifest, path):
                self._location.write(task.order.name, manifest, path)
                self._last[key] = manifest
        except TaskNotHereError:
            pass  # It moved, or was closed, meanwhile.
        except Exception as error:  # noqa: BLE001 - whatever fails once, the next copy is tried
            task.tell([f"Store {store} of task {task.order.task} has no new snapshot: {error}"])
            _log.warning("%s", error)

    def _is_there(self, task: OpenTask, last: Manifest, offset: int) -> bool:
        """Whether a store is as it was copied last, and nobody cut or removed a file since.

        A copy says up to when it missed no deletion. One that is older than these last would be of
        no use, though nothing was written for so long.
        """
        lasting_ms = task.stores.order(last.identity.store).tombstones_ms
        if last.offset != offset or wall_clock_ms() - last.written_ms > lasting_ms // 2:
            return False
        return self._location.is_whole(task.order.name, last)


@contextlib.contextmanager
def checkpoint(
    stores: TaskStores, name: str, *, offset: int, known: Checksums
) -> Iterator[tuple[Manifest, Path]]:
    """A copy of a store that is at `offset`, or newer; gone afterwards.

    Checksums that are `known` are not made again.
    """
    with stores.copy(name, "snapshot") as path:
        manifest = Manifest(
            identity=stores.identity(stores.order(name)),
            offset=offset,
            files=read_files(path, known),
            written_ms=wall_clock_ms(),
        )
        yield manifest, path
