"""How much one request, and all of them together, may take."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock.queries.contract import LIMIT_MAX


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the HTTP service lets through; what is above is refused, never cut short in silence."""

    body_bytes: int = 1024 * 1024
    response_bytes: int = 32 * 1024 * 1024
    keys: int = LIMIT_MAX
    """Of one batch."""
    rows: int = LIMIT_MAX
    """Of one answer; a scan reads no more at once."""
    timeout: timedelta = timedelta(seconds=30)
    """The longest that a request may ask for."""
    at_once: int = 32
    """Questions that are answered at the same time, each in a thread."""
    waiting: int = 256
    """Questions that wait for one of these; further ones are refused."""
    connections: int = 512
    """Above it the service says that it is busy; above twice as many it closes them."""
    header_bytes: int = 16 * 1024
    receive: timedelta = timedelta(seconds=10)
    """A request's head, and then its body, must have arrived after this long."""
    idle: timedelta = timedelta(seconds=30)
    """A connection without a request is closed after this long."""
