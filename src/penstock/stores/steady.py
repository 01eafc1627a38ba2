"""Reading a store and the position that belongs to it as of one moment, beside its only writer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from penstock.errors import TaskNotHereError
from penstock.stores.contract import Change, KeyValueStore

T = TypeVar("T")

_TRIES = 8
_PAUSE_SECONDS = 0.001


@dataclass(frozen=True)
class Coming:
    """What a write that is under way brings: all of it is committed, and not all of it stored."""

    changes: Sequence[Change]
    offset: int | None
    """Of the changelog, where the changes end."""

    @cached_property
    def _values(self) -> dict[bytes, bytes | None]:
        return dict(self.changes)

    def get_many(self, store: KeyValueStore, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values once everything is stored: other keys than its own a write leaves alone."""
        values = self._values
        left = [key for key in keys if key not in values]
        stored = iter(store.get_many(left) if left else ())
        return [values[key] if key in values else next(stored) for key in keys]


class Steady:
    """Of one store, whether it is being written; one thread writes, any may look.

    A look is taken without holding anything up, and again if a write went by meanwhile. Who can
    look at what is coming need not wait for a write to end. Of the others, only who was unlucky for
    long makes the writer wait, for one look.

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
        self._coming: Coming | None = None

    @contextlib.contextmanager
    def changing(self, coming: Coming | None = None) -> Iterator[None]:
        """What is written in the block is seen all or not at all; if it fails, nothing ever is.

        With `coming` it may be seen at once.
        """
        with self._lock:
            self._coming = coming
            self._writes += 1
            try:
                yield
            except BaseException:
                self._is_broken = True
                raise
            finally:
                self._writes += 1
                self._coming = None

    def look(self, function: Callable[[], T], *, ahead: Callable[[Coming], T] | None = None) -> T:
        """What the function finds while nobody writes, or `ahead` beside a write. Raises what they
        raise then.

        `TaskNotHereError` if a write was cut off: the store then holds half of something.
        """
        for _ in range(_TRIES):
            before = self._writes
            attempt = self._attempt(before, function, ahead)
            if attempt is None:
                time.sleep(_PAUSE_SECONDS)
                continue
            # What is coming is still so when the write has ended, until the next one begins.
            steady = range(before, before + 1 + before % 2)
            try:
                found = attempt()
            except Exception:
                # Beside a write anything may happen.
                if self._writes in steady:
                    raise
            else:
                if self._writes in steady:
                    self._check()
                    return found
        with self._lock:
            self._check()
            return function()

    def _attempt(
        self, writes: int, function: Callable[[], T], ahead: Callable[[Coming], T] | None
    ) -> Callable[[], T] | None:
        """How to look after so many beginnings and ends of writes; None if there is no way now."""
        if writes % 2 == 0:
            return function
        coming = self._coming
        if coming is None or ahead is None:
            return None
        return partial(ahead, coming)

    def _check(self) -> None:
        if self._is_broken:
            raise TaskNotHereError("A write to the store was cut off; it is opened anew")
