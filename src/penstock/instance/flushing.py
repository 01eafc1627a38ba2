"""Stores are made durable now and then, beside the beats: a slow disk costs nobody its tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from penstock.instance.task import OpenTask

FLUSH_INTERVAL_SECONDS = 120.0
"""How much of a store's newest data a crash can send back to its changelog."""


class Flushing:
    """A thread that flushes; whoever beats asks by `check` whether it failed."""

    def __init__(
        self,
        flush: Callable[[], list[OpenTask]],
        *,
        look_seconds: float,
        interval_seconds: float = FLUSH_INTERVAL_SECONDS,
    ) -> None:
        """`flush` gives back the tasks that were busy: these are tried at the next look."""
        self._flush = flush
        self._look_seconds = look_seconds
        self._interval_seconds = interval_seconds
        self._failure: BaseException | None = None
        self._flushed = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Stores are closed next, which waits for the disk as well.
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what a flush raised."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody looks
            self._failure = error

    def _loop(self) -> None:
        busy: list[OpenTask] = []
        while not self._stop.wait(self._look_seconds):
            if time.monotonic() - self._flushed > self._interval_seconds:
                busy, self._flushed = self._flush(), time.monotonic()
            else:
                busy = [task for task in busy if not task.flush()]
