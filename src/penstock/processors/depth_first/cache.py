"""The record cache of one store, a write at a time.

As in Kafka Streams a write makes an entry the most recent one. Over the limit the least recent
entry goes; if that one is dirty the whole cache is flushed: it first, then the others in the order
of their last writes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from penstock.processors.depth_first.record import Context
from penstock.processors.depth_first.state import Stored
from penstock.processors.record_cache import CONTEXT_BYTES, ENTRY_BYTES, TIMESTAMP_BYTES


class Held(NamedTuple):
    """A write that waits: the new value, the one below the cache, and the record it is from."""

    key: bytes
    value: bytes | None
    timestamp: int
    below: Stored | None
    context: Context


class RecordCache:
    """Holds writes back; `flush(held)` is called for each that goes through."""

    def __init__(
        self,
        max_bytes: int,
        flush: Callable[[Held], None],
        *,
        more_key_bytes: int = 0,
        time_bytes: int = TIMESTAMP_BYTES,
    ) -> None:
        self._max_bytes = max_bytes
        self._time_bytes = time_bytes
        self._own_bytes = ENTRY_BYTES + CONTEXT_BYTES + more_key_bytes
        self._flush = flush
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._dirty: dict[bytes, Held] = {}
        self._leaving: dict[bytes, Held] = {}
        """Those that are flushed together, and whose turn has not come."""
        self._total = 0

    def read(self, key: bytes, stored: Stored | None) -> None:
        """Note that a value was read, and is kept: it takes room, too."""
        if key in self._sizes:
            self._sizes.move_to_end(key)
        elif stored is not None:
            size = len(key) + self._own_bytes + self._time_bytes + len(stored.value)
            self._set_size(key, size)
            self._evict()

    def held(self, key: bytes) -> Held | None:
        """The write of a key that waits, if one does; of two, the first."""
        return self._leaving.get(key) or self._dirty.get(key)

    def touch(self, key: bytes) -> None:
        """Note that a value was read; if it is not here it need not come."""
        if key in self._sizes:
            self._sizes.move_to_end(key)

    def write(
        self,
        key: bytes,
        value: bytes | None,
        timestamp: int,
        *,
        before: Stored | None,
        context: Context,
    ) -> None:
        """Hold a write back; `before` is what readers saw until now."""
        held = self._dirty.pop(key, None)
        below = before if held is None else held.below
        self._dirty[key] = Held(key, value, timestamp, below, context)
        size = len(key) + self._own_bytes + len(context.topic)
        if context.headers:
            size += sum(len(name) + len(data or b"") for name, data in context.headers)
        size += 0 if value is None else self._time_bytes + len(value)
        self._set_size(key, size)
        self._evict()

    def flush(self) -> None:
        """Let everything through."""
        while self._dirty:
            self._let_through(list(self._dirty))

    def _set_size(self, key: bytes, size: int) -> None:
        self._total += size - self._sizes.pop(key, 0)
        self._sizes[key] = size

    def _evict(self) -> None:
        while self._total > self._max_bytes and self._sizes:
            eldest, size = self._sizes.popitem(last=False)
            self._total -= size
            if eldest in self._dirty:
                self._let_through([eldest, *(key for key in self._dirty if key != eldest)])

    def _let_through(self, keys: list[bytes]) -> None:
        held = [self._dirty.pop(key) for key in keys]
        self._leaving.update((each.key, each) for each in held)
        for each in held:
            self._leaving.pop(each.key, None)
            if each.value is None:
                self._total -= self._sizes.pop(each.key, 0)
            # A key that was made and deleted within the cache was never seen by anyone.
            if each.value is not None or each.below is not None:
                self._flush(each)
