"""What the HTTP service asks of, and does to, the application itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Whether the application works at all, and whether every task is served."""

    live: Callable[[], bool]
    ready: Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class Controls:
    """What may be done to the application by whoever has the admin scope."""

    pause: Callable[[], object]
    resume: Callable[[], object]
    is_paused: Callable[[], bool]
