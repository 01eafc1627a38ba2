"""What a full record cache flushes, found without a step of Python per write.

Holds where every slot's entry always has the same size, as with counts. Then two facts replace the
bookkeeping of `EvictingCache`, whose results these are:

1. A flush leaves all entries clean, and whatever is used later is dirty and more recent than they
   are. So clean entries go first, and the next flush comes when the dirty entries alone are too
   many. The writes between two flushes are an *epoch*.
2. An entry is still cached if it and all keys used since its last use fit together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.processors.batch import Bools
from penstock.processors.record_cache import CacheState
from penstock.processors.records import Int64s
from penstock.processors.running import sort_by_slot

# With fewer entries than this, epochs are so short that going write by write is as fast.
ENTRIES_MIN = 64
_WINDOW = 16_384


@dataclass(frozen=True)
class Epoch:
    """The rows before `end` (and after the epoch before); `cause` is the row that ended it."""

    end: int
    cause: int


def sizes_are_even(state: CacheState, slots: Int64s, sizes: Int64s) -> bool:
    """Whether the two facts hold for these writes."""
    if int(sizes.max()) * ENTRIES_MIN > state.max_bytes:
        return False
    by_slot = state.size.copy()
    by_slot[slots] = sizes
    cached = state.size > 0
    return bool((by_slot[slots] == sizes).all() and (by_slot[cached] == state.size[cached]).all())


class FullCache:
    """Writes to a cache with even sizes.

    `first` is the number of the first of them; `value_bytes` is what each value takes when stored.
    """

    def __init__(
        self, state: CacheState, slots: Int64s, sizes: Int64s, *, first: int, value_bytes: int
    ) -> None:
        self._state = state
        self._value_bytes = value_bytes
        self._slots = slots
        self._sizes = sizes
        self._first = first
        self._before, self._after = _neighbours(slots, state.last_write, first)
        self._dirty_before = state.dirty_slots()

    def flushes(self, topic_bytes: int) -> tuple[list[int], list[int]]:
        """The numbers of the flushed writes in order (carried ones first), and their causes.

        An entry that a read left lacks the topic, so it is smaller by `topic_bytes`.
        """
        epochs = self._epochs(topic_bytes)
        ends = np.array([epoch.end for epoch in epochs], dtype=np.int64)
        causes = np.array([epoch.cause for epoch in epochs], dtype=np.int64)
        count = len(self._slots)
        epoch_of = np.searchsorted(ends, np.arange(count + 1), side="right")
        # Past the last row comes nothing: an epoch of its own, so that last writes stand out.
        epoch_of[count] = len(epochs) + 1
        rows = np.flatnonzero((epoch_of[:count] < len(epochs)) & self._is_last(epoch_of))
        carried = self._carried_numbers(epoch_of) if epochs else np.empty(0, dtype=np.int64)
        numbers = np.concatenate([carried, rows + len(self._dirty_before)])
        caused = [np.full(len(carried), causes[0] if epochs else 0), causes[epoch_of[rows]]]
        self._leave(epochs)
        return numbers.tolist(), np.concatenate(caused).tolist()

    def _is_last(self, epoch_of: Int64s) -> Bools:
        """Which rows are their key's last in their epoch."""
        last: Bools = epoch_of[self._after] != epoch_of[: len(self._slots)]
        return last

    def _carried_numbers(self, epoch_of: Int64s) -> Int64s:
        """The writes made before, unless the first epoch overwrites them."""
        overwritten = np.zeros(len(self._state.size), dtype=np.bool_)
        overwritten[self._slots[epoch_of[: len(self._slots)] == 0]] = True
        return np.flatnonzero(~overwritten[self._dirty_before])

    def _epochs(self, topic_bytes: int) -> list[Epoch]:
        dirty = self._dirty_before
        begin = int(self._state.last_write[dirty[0]]) if len(dirty) else self._first
        total = int(self._state.size[dirty].sum())
        epochs: list[Epoch] = []
        row = 0
        while True:
            found = self._overflow(row, begin, total)
            if found is None:
                return epochs
            row, dirty_bytes = found
            clean = int(self._sizes[row]) - topic_bytes
            if dirty_bytes + clean > self._state.max_bytes and self._is_read_from_store(row):
                # Reading the old value was too much already: this write is not yet among them.
                epochs.append(Epoch(end=row, cause=row))
            else:
                epochs.append(Epoch(end=row + 1, cause=row))
            row, total = epochs[-1].end, 0
            begin = self._first + row

    def _overflow(self, row: int, begin: int, total: int) -> tuple[int, int] | None:
        """The first row from `row` on whose key is too much, and the dirty bytes before it."""
        while row < len(self._slots):
            window = slice(row, row + _WINDOW)
            new = np.where(self._before[window] < begin, self._sizes[window], 0)
            totals = total + np.cumsum(new)
            if totals[-1] > self._state.max_bytes:
                at = int(np.searchsorted(totals, self._state.max_bytes, side="right"))
                return row + at, int(totals[at] - new[at])
            total = int(totals[-1])
            row += _WINDOW
        return None

    def _is_read_from_store(self, row: int) -> bool:
        """Whether the key of a row is stored, no longer cached, and stays when it is read."""
        state, slot = self._state, self._slots[row]
        if not state.keeps_reads:
            return False
        last = int(self._before[row])
        if last < 0:
            return bool(state.stored[slot] >= 0)
        since = max(last - self._first + 1, 0)
        later = self._before[since:row] <= last
        used = int(self._sizes[since:row][later].sum()) + int(self._sizes[row])
        if last < self._first:
            if not state.size[slot]:
                return True
            used += int(state.size[state.last_write > last].sum())
        return used > state.max_bytes

    def _leave(self, epochs: list[Epoch]) -> None:
        """Leave the state as it is after all writes."""
        state, slots = self._state, self._slots
        sizes = state.size.copy()
        sizes[slots] = self._sizes
        state.last_write[slots] = np.arange(self._first, self._first + len(slots))
        end = epochs[-1].end if epochs else 0
        if epochs:
            state.dirty[:] = False
            state.stored[self._dirty_before] = self._value_bytes
            state.stored[slots[:end]] = self._value_bytes
        state.dirty[slots[end:]] = True
        used = np.flatnonzero(sizes)
        recent = used[np.argsort(-state.last_write[used], kind="stable")]
        kept = recent[np.cumsum(sizes[recent]) <= state.max_bytes]
        state.size[:] = 0
        state.size[kept] = sizes[kept]
        state.total = int(sizes[kept].sum())


def _neighbours(slots: Int64s, last_write: Int64s, first: int) -> tuple[Int64s, Int64s]:
    """For each row the number of its key's write before it (-1: none) and its key's next row."""
    groups = sort_by_slot(slots)
    rows, begins = groups.rows, groups.first
    before = np.empty(len(slots), dtype=np.int64)
    before[rows[0]] = last_write[slots[rows[0]]]
    before[rows[1:]] = np.where(begins[1:], last_write[slots[rows[1:]]], first + rows[:-1])
    after = np.full(len(slots), len(slots), dtype=np.int64)
    after[rows[:-1]] = np.where(begins[1:], len(slots), rows[1:])
    return before, after
