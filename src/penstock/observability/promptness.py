"""Processes that answer within milliseconds while other threads of theirs are at work."""

from __future__ import annotations

import gc
import sys

_SWITCH_SECONDS = 0.0005
"""How long a thread keeps Python's lock from others that want it. With the usual five milliseconds
an answer that gives it back thrice, to read from a socket, a store and a socket, waits for fifteen.
"""


def answer_promptly() -> None:
    """Have no thread of this process wait long for Python's lock.

    What was loaded by now is there for good: to look through it again and again for what is not
    needed any more holds all threads up for a tenth of a second at a time.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()
