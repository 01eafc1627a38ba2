"""The record cache: which writes reach the changelog and the next step, and when.

Only sizes, recency and dirtiness matter here, so it works on slots and never sees a value. As in
Kafka Streams a write makes an entry the most recent one; over the limit the least recent entry
goes, and if that one is dirty the whole cache is flushed: it first, then all dirty entries in order
of last write.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.processors.records import Int64s

# What Kafka Streams counts for an entry besides key and value: three references and the dirty flag;
# and of the record's context: timestamp, offset and partition.
ENTRY_BYTES = 25
CONTEXT_BYTES = 20
TIMESTAMP_BYTES = 8


@dataclass(frozen=True)
class Write:
    """One write as the cache sees it: entry sizes with and without a context, and if it deletes."""

    slot: int
    size: int
    value_bytes: int  # -1: a delete


@dataclass(frozen=True)
class Flush:
    """While the write `at` was made, these writes (by number, in order) went through."""

    at: int
    writes: list[int]


class CacheState:
    """Every slot's entry: its size (0 if not cached), last write, dirtiness, and what is stored."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.total = 0
        self.size = np.empty(0, dtype=np.int64)
        self.last_write = np.empty(0, dtype=np.int64)
        self.dirty = np.empty(0, dtype=np.bool_)
        # Bytes of the value below the cache, -1 if there is none.
        self.stored = np.empty(0, dtype=np.int64)
        self.key_bytes = np.empty(0, dtype=np.int64)

    def grow(self, key_bytes: Int64s, stored_bytes: Int64s) -> None:
        """Add slots, none of them cached."""
        zeros = np.zeros(len(key_bytes), dtype=np.int64)
        self.size = np.concatenate([self.size, zeros])
        self.last_write = np.concatenate([self.last_write, zeros - 1])
        self.dirty = np.concatenate([self.dirty, zeros.astype(np.bool_)])
        self.stored = np.concatenate([self.stored, stored_bytes])
        self.key_bytes = np.concatenate([self.key_bytes, key_bytes])

    def fits(self, slots: Int64s, sizes: Int64s) -> bool:
        """Whether these writes certainly cause no eviction; if so, they are taken in."""
        largest = self.size.copy()
        np.maximum.at(largest, slots, sizes)
        return self.total + int((largest - self.size).sum()) <= self.max_bytes

    def take_in(self, slots: Int64s, sizes: Int64s, first: int) -> None:
        """Make writes that fit; `first` is the number of the first one."""
        self.size[slots] = sizes
        self.total = int(self.size.sum())
        self.last_write[slots] = np.arange(first, first + len(slots))
        self.dirty[slots] = True

    def dirty_slots(self) -> Int64s:
        """The dirty slots in order of their last write."""
        slots = np.flatnonzero(self.dirty)
        return slots[np.argsort(self.last_write[slots], kind="stable")]

    def flushed(self, slots: Int64s, value_bytes: Int64s) -> None:
        """Mark slots as written through."""
        self.dirty[slots] = False
        self.stored[slots] = value_bytes


class EvictingCache:
    """Takes writes one by one, where the limit may be reached."""

    def __init__(self, state: CacheState, carried: list[int]) -> None:
        """`carried[i]` is the slot of the dirty write number i that was made before."""
        self._state = state
        cached = np.flatnonzero(state.size)
        recent = cached[np.argsort(state.last_write[cached], kind="stable")].tolist()
        self._sizes = {slot: int(state.size[slot]) for slot in recent}
        self._dirty = {slot: number for number, slot in enumerate(carried)}
        self._pending: dict[int, int] = {}
        self._stored = state.stored.tolist()
        self._key_bytes = state.key_bytes.tolist()
        self._total = state.total

    def write(self, number: int, write: Write) -> list[int]:
        """Make a write; returns the numbers of the writes that it flushes, in order."""
        flushed: list[int] = []
        slot = write.slot
        if slot in self._sizes:
            self._sizes[slot] = self._sizes.pop(slot)
        elif self._stored[slot] >= 0:
            # Reading the old value leaves a clean entry, which can already push others out.
            self._put(slot, self._key_bytes[slot] + ENTRY_BYTES + self._stored[slot])
            self._evict(flushed)
        self._dirty.pop(slot, None)
        self._dirty[slot] = number
        self._pending[number] = write.value_bytes
        self._put(slot, write.size)
        self._evict(flushed)
        return flushed

    def leave(self, slots: Int64s, first: int) -> None:
        """Hand the outcome back; `first` is the number of the first of the writes to `slots`."""
        state = self._state
        state.size[:] = 0
        state.size[list(self._sizes)] = list(self._sizes.values())
        state.total = self._total
        state.last_write[slots] = np.arange(first, first + len(slots))
        state.dirty[:] = False
        state.dirty[list(self._dirty)] = True
        state.stored = np.array(self._stored, dtype=np.int64)

    def carried_values(self, value_bytes: list[int]) -> None:
        """Name the value sizes of the writes that were carried over."""
        self._pending.update(enumerate(value_bytes))

    def _put(self, slot: int, size: int) -> None:
        self._total += size - self._sizes.pop(slot, 0)
        self._sizes[slot] = size

    def _evict(self, flushed: list[int]) -> None:
        while self._total > self._state.max_bytes and self._sizes:
            eldest = next(iter(self._sizes))
            self._total -= self._sizes.pop(eldest)
            if eldest in self._dirty:
                self._flush(eldest, flushed)

    def _flush(self, eldest: int, flushed: list[int]) -> None:
        first = self._dirty.pop(eldest)
        for slot, number in [(eldest, first), *self._dirty.items()]:
            value_bytes = self._pending.pop(number)
            # A key that was made and deleted within the cache was never seen by anyone.
            if value_bytes >= 0 or self._stored[slot] >= 0:
                flushed.append(number)
            self._stored[slot] = value_bytes
            if value_bytes < 0:
                self._total -= self._sizes.pop(slot, 0)
        self._dirty.clear()
