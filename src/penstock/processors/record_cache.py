"""The record cache: which writes reach the changelog and the next step, and when.

Only sizes, recency and dirtiness matter here, so it works on slots and never sees a value. As in
Kafka Streams a write makes an entry the most recent one; over the limit the least recent entry
goes, and if that one is dirty the whole cache is flushed: it first, then all dirty entries in order
of last write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from penstock.processors.records import Int64s

# What Kafka Streams counts for an entry besides key and value: three references and the dirty flag;
# and of the record's context: timestamp, offset and partition.
ENTRY_BYTES = 25
CONTEXT_BYTES = 20
TIMESTAMP_BYTES = 8
# In the cache of windows and sessions a key has its segment in front.
SEGMENT_BYTES = 8


class CacheState:
    """Every slot's entry: its size (0 if not cached), last write, dirtiness, and what is stored.

    `keeps_reads` says whether a value that is read stays: in Kafka Streams keys' do, windows' not.
    """

    def __init__(self, max_bytes: int, *, keeps_reads: bool = True) -> None:
        self.max_bytes = max_bytes
        self.keeps_reads = keeps_reads
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

    def fits(self, slots: Int64s, sizes: Int64s, *, more_bytes: int = 0) -> bool:
        """Whether these writes certainly cause no eviction, the reads before them included, where
        others read `more_bytes` at the most.
        """
        largest = self.size.copy()
        np.maximum.at(largest, slots, sizes)
        read = (largest > 0) & (self.size == 0) & (self.stored >= 0) & self.keeps_reads
        clean = self.key_bytes + ENTRY_BYTES + CONTEXT_BYTES + self.stored
        np.maximum(largest, clean, out=largest, where=read)
        return self.total + int((largest - self.size).sum()) + more_bytes <= self.max_bytes

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
    """Takes writes one by one, where the limit may be reached.

    Writes are numbered: first those that were dirty before, in order, then the new ones.
    """

    def __init__(self, state: CacheState, slots: list[int], value_bytes: list[int]) -> None:
        """Go on from a state whose dirty slots are `slots`, with values of these sizes."""
        cached = np.flatnonzero(state.size)
        recent = cached[np.argsort(state.last_write[cached], kind="stable")]
        self._state = state
        self._total = state.total
        # Least recent first. Not a dict: taking its first item again and again is quadratic.
        self._sizes = OrderedDict(zip(recent.tolist(), state.size[recent].tolist(), strict=True))
        self._dirty = {slot: number for number, slot in enumerate(slots)}
        self._value_bytes = value_bytes
        self._stored: list[int] = state.stored.tolist()
        self._flushed: list[int] = []

    def write(
        self,
        slots: list[int],
        sizes: list[int],
        value_bytes: list[int],
        *,
        looks: Sequence[Sequence[int]] = (),
    ) -> tuple[list[int], list[int]]:
        """Make writes; returns the numbers of those that went through, and what caused each.

        `looks` are the slots that others read before each write, and behind the last one.
        """
        first = len(self._value_bytes)
        self._value_bytes = self._value_bytes + value_bytes
        cached, dirty, stored, flushed = self._sizes, self._dirty, self._stored, self._flushed
        clean = (self._state.key_bytes + (ENTRY_BYTES + CONTEXT_BYTES)).tolist()
        limit, total = self._state.max_bytes, self._total
        keeps_reads = self._state.keeps_reads
        causes: list[int] = []
        for row, (slot, size) in enumerate(zip(slots, sizes, strict=True)):
            if looks:
                total = self._look(looks[row], total)
            old = cached.get(slot)
            if old is None:
                old = 0
                if keeps_reads and stored[slot] >= 0:
                    # Reading leaves a clean entry, which can already push others out.
                    old = cached[slot] = clean[slot] + stored[slot]
                    total += old
                    if total > limit:
                        total = self._evict(total)
                        old = cached.get(slot, 0)
            else:
                cached.move_to_end(slot)
            total += size - old
            cached[slot] = size
            if slot in dirty:
                del dirty[slot]
            dirty[slot] = first + row
            if total > limit:
                total = self._evict(total)
            if len(flushed) > len(causes):
                causes.extend([row] * (len(flushed) - len(causes)))
        if looks:
            total = self._look(looks[-1], total)
            causes.extend([len(slots) - 1] * (len(flushed) - len(causes)))
        self._total = total
        return flushed, causes

    def leave(self, slots: Int64s, first: int) -> None:
        """Hand the outcome back; `first` is the number of the first write to `slots`."""
        state = self._state
        state.size[:] = 0
        state.size[list(self._sizes)] = list(self._sizes.values())
        state.total = self._total
        state.last_write[slots] = np.arange(first, first + len(slots))
        state.dirty[:] = False
        state.dirty[list(self._dirty)] = True
        state.stored = np.array(self._stored, dtype=np.int64)

    def _look(self, slots: Sequence[int], total: int) -> int:
        """Let others read these slots: what was used is not the eldest any more."""
        state, cached = self._state, self._sizes
        for slot in slots:
            if slot in cached:
                cached.move_to_end(slot)
            elif self._stored[slot] >= 0:
                clean = int(state.key_bytes[slot]) + ENTRY_BYTES + CONTEXT_BYTES
                cached[slot] = clean + self._stored[slot]
                total += cached[slot]
                if total > state.max_bytes:
                    total = self._evict(total)
        return total

    def _evict(self, total: int) -> int:
        """Let the least recent entries go until the rest fits; returns what the rest takes."""
        cached, dirty, limit = self._sizes, self._dirty, self._state.max_bytes
        while total > limit and cached:
            eldest, size = cached.popitem(last=False)
            total -= size
            if eldest in dirty:
                total -= self._flush(eldest)
        return total

    def _flush(self, eldest: int) -> int:
        """Let all dirty entries through, this one first; returns what deleted keys took."""
        freed = 0
        first = self._dirty.pop(eldest)
        for slot, number in ((eldest, first), *self._dirty.items()):
            length = self._value_bytes[number]
            # A key that was made and deleted within the cache was never seen by anyone.
            if length >= 0 or self._stored[slot] >= 0:
                self._flushed.append(number)
            self._stored[slot] = length
            if length < 0:
                freed += self._sizes.pop(slot, 0)
        self._dirty.clear()
        return freed
