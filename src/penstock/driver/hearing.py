"""Who wants to hear what an application does."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.coordination.states import ApplicationState
from penstock.driver.events import (
    BatchRestored,
    Event,
    Listener,
    RestoreEnded,
    RestoreStarted,
    RestoreSuspended,
    StateChanged,
    TopicPartition,
)
from penstock.driver.restore_listeners import RestoreListener, RestoreListeners
from penstock.topology.callables import check_awaits_nothing

StateListener = Callable[[ApplicationState, ApplicationState], object]
RestoreStart = Callable[[TopicPartition, str, int, int], object]
RestoreBatch = Callable[[TopicPartition, str, int, int], object]
RestoreEnd = Callable[[TopicPartition, str, int], object]

_log = logging.getLogger("penstock")


class Heard:
    """Something whose events are told; `Application` has it from here."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._restore_listeners = RestoreListeners()

    def on_event(self, listener: Listener) -> Listener:
        """Call this with every event: states, notices, rebalances, batches."""
        check_awaits_nothing(listener, "A listener")
        self._listeners.append(listener)
        return listener

    def on_state_change(self, listener: StateListener) -> StateListener:
        """Call this with the old and the new state whenever the state changes.

        The thread that drives the application calls it, and goes on when it comes back.
        """

        check_awaits_nothing(listener, "A listener")

        def heard(event: Event) -> None:
            if isinstance(event, StateChanged):
                listener(event.old, event.new)

        self._listeners.append(heard)
        return listener

    def on_restore_start(self, function: RestoreStart) -> RestoreStart:
        """Call this with partition, store, starting and ending offset when a restore begins.

        It and the next three are called in a thread of their own: no restore waits for them.
        """
        self._restore_listeners.add(RestoreStarted, function)
        return function

    def on_batch_restored(self, function: RestoreBatch) -> RestoreBatch:
        """Call this with partition, store, last offset and number of records after a batch."""
        self._restore_listeners.add(BatchRestored, function)
        return function

    def on_restore_end(self, function: RestoreEnd) -> RestoreEnd:
        """Call this with partition, store and total when a store holds all of its changelog."""
        self._restore_listeners.add(RestoreEnded, function)
        return function

    def on_restore_suspended(self, function: RestoreEnd) -> RestoreEnd:
        """Call this with partition, store and total when a restore stops before its end."""
        self._restore_listeners.add(RestoreSuspended, function)
        return function

    def set_restore_listener(self, listener: RestoreListener) -> None:
        """Have a listener's four methods called, instead of those of one that was set before."""
        self._restore_listeners.set(listener)

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - a listener's mistake is not the application's
                _log.exception("A listener raised; the application goes on")
