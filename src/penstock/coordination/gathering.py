"""How long the first assignment waits for instances, so that tasks need not move to later ones."""

from __future__ import annotations

_PATIENCE_SECONDS = 30.0
"""For those that are known to come: they start, or they have failed."""
_DELAYS_MAX = 5
"""A stream of newcomers does not keep an application from working."""


class Gathering:
    """Decides when those who are there are enough to begin with. Time comes in; nothing waits.

    `expected` is how many are to come, None if nobody knows.
    """

    def __init__(self, *, expected: int | None, delay_seconds: float) -> None:
        self._expected = expected
        self._delay = delay_seconds
        self._present = 0
        self._until = 0.0
        self._latest = 0.0

    def is_over(self, now: float, present: int) -> bool:
        """Whether to begin, with so many there now."""
        if not present:
            return False
        if self._expected is not None and present >= self._expected:
            return True
        if not self._present:
            longest = self._delay * _DELAYS_MAX if self._expected is None else _PATIENCE_SECONDS
            self._latest = now + longest
        if present > self._present:
            self._present = present
            known = self._expected is not None
            self._until = self._latest if known else min(now + self._delay, self._latest)
        return now >= self._until
