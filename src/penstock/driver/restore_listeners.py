"""Those who listen to restores, called in a thread of their own: no restore waits for them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.driver.events import (
    BatchRestored,
    RestoreEnded,
    RestoreEvent,
    RestoreStarted,
    RestoreSuspended,
    TopicPartition,
)
from penstock.topology.callables import check_awaits_nothing

_log = logging.getLogger("penstock")

_CLOSE_SECONDS = 5.0
"""How long the end of the application waits for listeners that have not heard everything yet."""

Function = Callable[..., object]


class RestoreListener:
    """What `Application.set_restore_listener` takes; override what you want to hear.

    `partition` is the changelog's (or a global table's topic's). Offsets are those of Kafka
    Streams: the first that is read and the one behind the last; the last record's of a batch.
    """

    def on_restore_start(
        self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        """A store begins to be restored; a starting offset of 0 is a full restore."""

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """So many more records were applied."""

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        """The store holds all of its changelog."""

    def on_restore_suspended(
        self, partition: TopicPartition, store: str, total_restored: int
    ) -> None:
        """The restore stopped before its end; it may start again, here or elsewhere."""


@dataclass
class _WaitingBatch:
    """A batch that nobody has heard of yet, and that may grow until then."""

    batch: BatchRestored


class RestoreListeners:
    """Functions by what they listen to, and what they have not heard yet."""

    def __init__(self) -> None:
        self._functions: dict[type[RestoreEvent], list[Function]] = {}
        self._object: dict[type[RestoreEvent], Function] = {}
        self._failed: set[int] = set()
        self._waiting: deque[RestoreEvent | _WaitingBatch] = deque()
        self._last: dict[tuple[str, TopicPartition], RestoreEvent | _WaitingBatch] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, kind: type[RestoreEvent], function: Function) -> None:
        """Call this function with every event of that kind."""
        check_awaits_nothing(function, "A restore listener")
        self._functions.setdefault(kind, []).append(function)

    def set(self, listener: RestoreListener) -> None:
        """Call this listener's methods, instead of those of one that was set before."""
        self._object = {
            RestoreStarted: listener.on_restore_start,
            BatchRestored: listener.on_batch_restored,
            RestoreEnded: listener.on_restore_end,
            RestoreSuspended: listener.on_restore_suspended,
        }
        for function in self._object.values():
            check_awaits_nothing(function, "A restore listener")

    def tell(self, event: RestoreEvent) -> None:
        """Have the listeners called soon; returns at once."""
        whose = (event.store, event.partition)
        with self._changed:
            last = self._last.get(whose)
            if isinstance(event, BatchRestored) and isinstance(last, _WaitingBatch):
                # A slow listener hears of larger batches, and what waits for it stays small.
                more = last.batch.num_restored + event.num_restored
                last.batch = replace(event, num_restored=more)
                return
            waiting = _WaitingBatch(event) if isinstance(event, BatchRestored) else event
            self._waiting.append(waiting)
            self._last[whose] = waiting
            self._changed.notify()

    def open(self) -> None:
        """Begin to call listeners."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="restore-listeners", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let them hear the rest; one that does not come back is left behind."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                event = self._next()
            functions = list(self._functions.get(type(event), ()))
            if type(event) in self._object:
                functions.append(self._object[type(event)])
            for function in functions:
                self._call(function, event)

    def _next(self) -> RestoreEvent:
        waiting = self._waiting.popleft()
        event = waiting.batch if isinstance(waiting, _WaitingBatch) else waiting
        if self._last.get((event.store, event.partition)) is waiting:
            del self._last[event.store, event.partition]
        return event

    def _call(self, function: Function, event: RestoreEvent) -> None:
        try:
            function(*event.arguments)
        except Exception:  # noqa: BLE001 - a listener's mistake is not the application's
            # Once: a listener that raises at every batch would bury everything else.
            if id(function) not in self._failed:
                self._failed.add(id(function))
                _log.exception("A restore listener raised; the restore goes on")
