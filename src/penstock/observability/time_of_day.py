"""The clock on the wall, for what is told to people or compared with what others wrote."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """The time of day in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
