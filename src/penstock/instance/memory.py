"""What an instance does so that its memory stays what its stores were given."""

from __future__ import annotations

import contextlib
import ctypes

_M_ARENA_MAX = -8
_ARENAS_MAX = 2


def share_heaps() -> None:
    """Have all threads take memory from few heaps, where the C library is one that has many.

    By default glibc keeps eight for each processor. What one thread frees, others do not get: 16
    restores at once held twice the memory that they ever used, for good.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS_MAX)
