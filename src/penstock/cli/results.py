"""Keys, values and times of results, in words."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

from penstock.cli.answers import printable
from penstock.examples.watching import Result
from penstock.serdes import Windowed

DELETED = "(deleted)"
"""What is shown in the place of a value where there is none."""


def result_line(result: Result) -> str:
    """A result in a line.

    >>> result_line(Result("rates", Windowed("ann", 0, 60_000), 72, 59_000))
    '00:00:59  rates: ann [00:00:00 to 00:01:00] = 72'
    """
    what = f"{shown_key(result.key)} = {shown(result.value)}"
    return f"{_clock(result.timestamp)}  {result.topic}: {what}"


def shown_key(key: Any) -> str:
    """A key in a few characters, with its window if it has one."""
    if isinstance(key, Windowed):
        return f"{shown(key.key)} [{_clock(key.start)} to {_clock(key.end)}]"
    return shown(key)


def shown(value: Any) -> str:
    """A value in a few characters."""
    if value is None:
        return DELETED
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = dataclasses.asdict(value).items()
        return printable(" ".join(f"{name}={part}" for name, part in parts))
    if isinstance(value, list):
        return ", ".join(f"({shown(each)})" for each in value)
    return printable(str(value))


def _clock(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%H:%M:%S}"
