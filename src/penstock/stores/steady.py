"""Reading a store and the position that belongs to it as of one moment, beside its only writer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from penstock.errors import TaskNotHereError

T = TypeVar("T")

_TRIES = 8
_PAUSE_SECONDS = 0.001


class Steady:
    """Of one store, whether it is being written; one thread writes, any may look.

    A look is taken without holding anything up, and again if a write went by meanwhile. Only who
    was unlucky for long makes the writer wait, for one look.

    >>> values = {"a": 1}
    >>> steady = Steady()
    >>> with steady.changing():
    ...     values["a"] = 2
    >>> steady.look(lambda: values["a"])
    2
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writes = 0
        """Odd while the store is written."""
        self._is_broken = False

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """What is written in the block is seen all or not at all; if it fails, nothing ever is."""
        with self._lock:
            self._writes += 1
            try:
                yield
            except BaseException:
                self._is_broken = True
                raise
            finally:
                self._writes += 1

    def look(self, function: Callable[[], T]) -> T:
        """What the function finds while nobody writes. Raises what it raises then.

        `TaskNotHereError` if a write was cut off: the store then holds half of something.
        """
        for _ in range(_TRIES):
            before = self._writes
            if before % 2 == 0:
                try:
                    found = function()
                except Exception:
                    # Beside a write anything may happen.
                    if self._writes == before:
                        raise
                else:
                    if self._writes == before:
                        self._check()
                        return found
            else:
                time.sleep(_PAUSE_SECONDS)
        with self._lock:
            self._check()
            return function()

    def _check(self) -> None:
        if self._is_broken:
            raise TaskNotHereError("A write to the store was cut off; it is opened anew")
