"""Copies of tasks that moved away leave the disk after a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from datetime import timedelta

from penstock.errors import PenstockError
from penstock.stores.directory import StateDirectory

_log = logging.getLogger("penstock.instance")

_INTERVAL_SECONDS_MIN = 1.0


class Cleaner:
    """Looks once in each `delay` for tasks that nobody held for so long, and deletes them.

    First after one `delay`: by then the instance holds what it is to hold. A thread of its own
    does it, because deleting gigabytes must not hold up a heartbeat.
    """

    def __init__(
        self, directory: StateDirectory, delay: timedelta, *, keep: Callable[[], Collection[str]]
    ) -> None:
        self._directory = directory
        self._keep = keep
        self._delay = delay
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cleaner", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking; returns when nothing is being deleted any more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        interval = max(self._delay.total_seconds(), _INTERVAL_SECONDS_MIN)
        while not self._stopping.wait(interval):
            try:
                gone = self._directory.remove_unused(
                    self._delay, now=time.time(), keep=self._keep(), failed=_tell
                )
                for task in gone:
                    _log.info("Task %s moved away a while ago; its copy here was deleted", task)
            except PenstockError as error:
                _tell(error)


def _tell(error: PenstockError) -> None:
    # What cannot be deleted now may be later, and takes room until then.
    _log.warning("Copies of tasks that moved away cannot be deleted: %s", error)
