"""How copies that catch up give way to the tasks that a machine serves meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WORK_SHARE = 0.25
"""Of the time of an instance on a machine that serves tasks, all its catch-ups together."""


class Pace:
    """Has catch-ups rest between pieces of their work, while their machine has tasks to serve.

    An instance that died leaves several tasks without a standby at once. Building all of them as
    fast as can be took the processor, the disk and the GIL from the tasks that had just been taken
    over: their outputs stood still for six seconds, and nothing was gained, for nobody waits for a
    standby. An instance that serves nothing yet hurries, if it has the machine to itself: one
    that came, or came back, took the processor from the others, who had just taken over.
    """

    def __init__(
        self, is_busy: Callable[[], bool], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._is_busy = is_busy
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = 0.0

    def piece_ended(self, began: float) -> float:
        """How long to rest after a piece that began then; whoever else rests, rests before.

        >>> now = 10.0
        >>> pace = Pace(lambda: True, clock=lambda: now)
        >>> pace.piece_ended(8.0), pace.piece_ended(9.0)
        (6.0, 9.0)
        >>> Pace(lambda: False, clock=lambda: now).piece_ended(8.0)
        0.0
        """
        if not self._is_busy():
            return 0.0
        now = self._clock()
        with self._lock:
            rest = (now - began) * (1 / WORK_SHARE - 1)
            self._free_at = max(self._free_at, now) + rest
            return self._free_at - now

    def stop_check(self, stopping: threading.Event) -> Callable[[], bool]:
        """What a catch-up asks between two pieces: rests if need be, and says whether to stop.

        Whoever is to stop, because the task is to be owned here, does not rest to the end.
        """
        began = self._clock()

        def check() -> bool:
            nonlocal began
            is_stopped = stopping.wait(self.piece_ended(began))
            began = self._clock()
            return is_stopped

        return check
