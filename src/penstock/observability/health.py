"""Whether an application lives, and whether it is ready: decisions over what is known of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

LIVE_SECONDS = 60.0
"""For how long the driver's loop may be away: a call to Kafka or to an instance may take ten."""
_ENDED = frozenset({"not_running", "error"})
_READY = "running"


class Pulse:
    """When the driver's loop last turned, and since when Kafka has not answered it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned: float | None = None
        self._silent: float | None = None

    def turn(self) -> None:
        """The loop turns."""
        self._turned = self._clock()

    def rest(self) -> None:
        """There is no loop any more, or not yet another."""
        self._turned = None
        self._silent = None

    def heard(self, answered: bool) -> None:
        """Kafka was asked, and answered or did not."""
        if answered:
            self._silent = None
        elif self._silent is None:
            self._silent = self._clock()

    @property
    def silence(self) -> float:
        """Seconds since Kafka first did not answer; 0 while it does."""
        silent = self._silent
        return 0.0 if silent is None else self._clock() - silent

    @property
    def age(self) -> float | None:
        """Seconds since the last turn; None while there is no loop."""
        return None if self._turned is None else self._clock() - self._turned


@dataclass(frozen=True, kw_only=True)
class Health:
    """What probes ask; `reason` says why not, if something is not."""

    live: bool
    ready: bool
    state: str
    reason: str = ""


def health(
    state: str,
    turn_age: float | None,
    *,
    silence: float = 0.0,
    live_seconds: float = LIVE_SECONDS,
) -> Health:
    """Live while the loop turns, or has yet to begin; ready while every task is served and Kafka
    answers. To start anew would not bring Kafka back.

    >>> health("running", 0.02)
    Health(live=True, ready=True, state='running', reason='')
    >>> health("running", 90.0).reason
    "The driver's loop has not turned for 90 s"
    >>> health("running", 0.02, silence=12.0).reason
    'Kafka has not answered for 12 s'
    """
    if state in _ENDED:
        return Health(live=False, ready=False, state=state, reason=f"The application is {state}")
    if turn_age is not None and turn_age > live_seconds:
        reason = f"The driver's loop has not turned for {turn_age:.0f} s"
        return Health(live=False, ready=False, state=state, reason=reason)
    if state != _READY:
        return Health(live=True, ready=False, state=state, reason=f"The application is {state}")
    if silence:
        reason = f"Kafka has not answered for {silence:.0f} s"
        return Health(live=True, ready=False, state=state, reason=reason)
    return Health(live=True, ready=True, state=state)
