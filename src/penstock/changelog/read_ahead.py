"""How much of changelogs is read ahead in a restore, so that it fits into the memory for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MESSAGE_BYTES = 512
"""What a small record takes in the client's queue, with all that goes with it: ten times its own
bytes, measured."""
SMALL_RECORDS = 2_000
"""A restore of no more than that reads at any time: a megabyte, and nobody waits for it."""
_READER_BYTES = 24 * 1024 * 1024
_MESSAGES_MAX = 25_000
_FETCH_BYTES_MAX = 512 * 1024
_FETCH_BYTES_MIN = 64 * 1024
_LEAST_RECORD_BYTES = 32
_WAIT_SECONDS = 0.1

Reading = Callable[[int], contextlib.AbstractContextManager[None]]
"""Around the reading of so many records, for those who have to share the memory for it."""


@dataclass(frozen=True, kw_only=True)
class ReadAhead:
    """How many restores of an instance read at once, and how far each is ahead.

    A quarter of the instance's memory is for them.

    >>> ReadAhead.within(512 * 1024 * 1024)
    ReadAhead(readers=5, messages=25000, kbytes=13107, fetch_bytes=524288)
    >>> ReadAhead.within(96 * 1024 * 1024)
    ReadAhead(readers=1, messages=24576, kbytes=12288, fetch_bytes=524288)
    >>> ReadAhead.within(16 * 1024 * 1024)
    ReadAhead(readers=1, messages=4096, kbytes=2048, fetch_bytes=131072)
    """

    readers: int
    messages: int
    """A queue of so many is not added to, but for what was asked for by then."""
    kbytes: int
    """The same, of large records."""
    fetch_bytes: int
    """What is asked for at a time."""

    @classmethod
    def within(cls, memory_bytes: int) -> ReadAhead:
        """What fits into the memory of an instance."""
        share = memory_bytes // 4
        readers = max(1, share // _READER_BYTES)
        each = share // readers
        # Half of it for what waits, and half for what comes in meanwhile.
        fetch_bytes = each // 2 // (MESSAGE_BYTES // _LEAST_RECORD_BYTES)
        return cls(
            readers=readers,
            messages=min(_MESSAGES_MAX, each // 2 // MESSAGE_BYTES),
            kbytes=each // 2 // 1024,
            fetch_bytes=max(_FETCH_BYTES_MIN, min(_FETCH_BYTES_MAX, fetch_bytes)),
        )


class Readers:
    """Who reads ahead now; the others wait for their turn."""

    def __init__(self, number: int) -> None:
        self._free = threading.BoundedSemaphore(number)

    @contextlib.contextmanager
    def reading(self, records: int, stop: Callable[[], bool]) -> Iterator[None]:
        """Read so many records inside of the block; comes at once if `stop` says so meanwhile."""
        waits = records > SMALL_RECORDS
        while waits and not self._free.acquire(timeout=_WAIT_SECONDS):
            waits = not stop()
        try:
            yield
        finally:
            if waits:
                self._free.release()

    @contextlib.contextmanager
    def turn(self, stop: Callable[[], bool]) -> Iterator[Reading]:
        """A place that is kept, once it was waited for, to the end of the block.

        Whoever has to begin anew, because what was to be read went while others read, would find
        the same after another wait.
        """
        with contextlib.ExitStack() as held:
            has_place = False

            def reading(records: int) -> contextlib.AbstractContextManager[None]:
                nonlocal has_place
                if not has_place:
                    held.enter_context(self.reading(records, stop))
                    has_place = records > SMALL_RECORDS
                return contextlib.nullcontext()

            yield reading
