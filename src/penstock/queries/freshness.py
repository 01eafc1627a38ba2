"""Where changelogs were known to end, and when: by that it is known how old a copy is."""

from __future__ import annotations

import threading
from collections.abc import Mapping

Log = tuple[str, int]
"""A topic and a partition."""
_LOOKS_MAX = 100


class EndsSeen:
    """The ends of changelogs over the last while. Any thread may call.

    >>> seen = EndsSeen()
    >>> seen.note(10.0, {("log", 0): 5})
    >>> seen.note(11.0, {("log", 0): 8})
    >>> seen.held_all_at(("log", 0), 5), seen.held_all_at(("log", 0), 8)
    (10.0, 11.0)
    >>> seen.held_all_at(("log", 0), 4)
    >>> seen.end(("log", 0))
    8
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: dict[Log, list[tuple[int, float]]] = {}
        """Each end with when it was last seen to be one, in order."""

    def note(self, asked_at: float, ends: Mapping[Log, int]) -> None:
        """Kafka was asked then, and said so."""
        with self._lock:
            for log, end in ends.items():
                looks = self._looks.setdefault(log, [])
                if looks and looks[-1][0] == end:
                    looks.pop()
                looks.append((end, asked_at))
                del looks[:-_LOOKS_MAX]

    def end(self, log: Log) -> int | None:
        """Where a log was last seen to end."""
        with self._lock:
            looks = self._looks.get(log)
            return looks[-1][0] if looks else None

    def latest(self) -> dict[Log, tuple[int, float]]:
        """Where each log was last seen to end, and when."""
        with self._lock:
            return {log: looks[-1] for log, looks in self._looks.items()}

    def held_all_at(self, log: Log, next_offset: int) -> float | None:
        """When one who has read a log up to there is known to have lacked nothing; None if never.

        It is the last time at which the log ended there or before.
        """
        with self._lock:
            looks = self._looks.get(log, ())
            return next((at for end, at in reversed(looks) if end <= next_offset), None)
