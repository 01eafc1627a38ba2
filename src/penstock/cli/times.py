"""Times on the command line, as people write them and as commands print them."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

FORM = "2026-01-31T00:00:00Z"
"""How a time is written."""


def milliseconds(text: str) -> int:
    """A time in milliseconds; without a zone it is UTC. Raises `ValueError`.

    >>> milliseconds("1970-01-01T00:00:01Z"), milliseconds("1970-01-01T00:00:00.250")
    (1000, 250)
    """
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def time_or_milliseconds(text: str) -> int:
    """The parser of an option that takes either.

    >>> time_or_milliseconds("60000"), time_or_milliseconds("1970-01-01T00:01")
    (60000, 60000)
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        found = milliseconds(text)
    except (ValueError, OverflowError):
        found = -1
    if found < 0:
        raise typer.BadParameter(f"{text!r} is no time. Use {FORM}, or milliseconds since 1970.")
    return found
