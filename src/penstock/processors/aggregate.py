"""`count`, `reduce` and `aggregate` of one slice: fold, cache, changelog, next step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.processors.batch import Batch, Column
from penstock.processors.calls import encode
from penstock.processors.folds import (
    CountFold,
    Each,
    Fold,
    FunctionFold,
    LatestFold,
    split_stored,
)
from penstock.processors.full_cache import FullCache, sizes_are_even
from penstock.processors.keyed import Slots
from penstock.processors.list_fold import ListFold, list_fold
from penstock.processors.meter import SliceMeter
from penstock.processors.number_folds import number_fold
from penstock.processors.outputs import Changes
from penstock.processors.record_cache import (
    CONTEXT_BYTES,
    ENTRY_BYTES,
    SEGMENT_BYTES,
    TIMESTAMP_BYTES,
    CacheState,
    EvictingCache,
)
from penstock.processors.records import HEADERS_TYPE, Int64s, StateReader
from penstock.processors.table_join_run import Looks
from penstock.topology import AggregateNode, StoreSpec, WindowAggregateNode


@dataclass(frozen=True)
class _Writes:
    """Writes to the store: the rows they come from, with bytes for keys and values."""

    rows: Batch
    keys: pa.BinaryArray
    values: pa.BinaryArray
    timestamps: Int64s

    def take(self, numbers: Int64s) -> _Writes:
        index = pa.array(numbers)
        return _Writes(
            self.rows.take(numbers),
            self.keys.take(index),
            self.values.take(index),
            self.timestamps[numbers],
        )


class AggregateRun:
    """One aggregation over one slice; `rank` is its place among the steps, depth first."""

    def __init__(
        self,
        node: AggregateNode,
        store: StoreSpec,
        *,
        state: StateReader,
        changes: Changes,
        cache_max_bytes: int,
        rank: int,
        with_old: bool,
    ) -> None:
        self._node = node
        # Each slot's value as last written, where steps behind need it with the new one.
        self._written: list[bytes | None] | None = [] if with_old else None
        # Kafka Streams shows a window's function values that are null, and counts them.
        windowed = isinstance(node, WindowAggregateNode)
        self._takes_nulls = windowed or node.kind == "latest"
        self._more_key_bytes = SEGMENT_BYTES if windowed else 0
        self._store = store
        self._state = state
        self._changes = changes
        self._rank = rank
        self._slots = Slots()
        self._fold = _fold(node, store)
        cached = store.caching and cache_max_bytes > 0
        self._cache = CacheState(cache_max_bytes, keeps_reads=not windowed) if cached else None
        self._contexts = _Contexts()
        self._looks: Looks | None = None
        self._reads = 0
        self._cached_bytes = 0

    def process(self, batch: Batch, dropped: Counter[str]) -> Batch | None:
        """Take rows in; returns those that go on now."""
        batch = _accepted(batch, dropped, with_nulls=self._takes_nulls)
        if not len(batch):
            return None
        keys = encode(self._node.name, batch, batch.keys, self._store.key_serde, "key")
        slots, new = self._slots.assign(keys)
        self._reads += len(batch)
        self._read_state(new)
        if self._cache is None:
            each = self._fold.each(slots, batch)
            return self._write(self._writes(batch, keys, each))
        return self._process_cached(self._cache, batch, keys, slots)

    def looked_up(self, looks: Looks | None) -> None:
        """Say what others look up in the store meanwhile; rows then have their places as order."""
        self._looks = looks

    def flush(self, first: int) -> Batch | None:
        """Write out what the cache still holds; `first` numbers the rows that go on."""
        if self._cache is None or not self._cache.dirty.any():
            return None
        self._cached_bytes = self._cache.total
        slots = self._cache.dirty_slots()
        writes = self._pending(self._fold, slots)
        gone = writes.values.is_valid().to_numpy(zero_copy_only=False)
        seen = np.flatnonzero(gone | (self._cache.stored[slots] >= 0))
        self._cache.flushed(slots, _value_bytes(writes.values))
        batch = self._write(writes if len(seen) == len(slots) else writes.take(seen))
        return batch.replace(order=(np.arange(first, first + len(batch), dtype=np.int64),))

    def count(self, meter: SliceMeter) -> None:
        """Tell how the record cache did: a key that the slice met before is in it."""
        if self._cache is not None:
            meter.cached(
                self._store.name,
                reads=self._reads,
                misses=len(self._cache.size),
                size=self._cached_bytes,
            )

    def metadata(self) -> dict[str, str]:
        """What the next slice needs to know: nothing, where there are no windows."""
        return {}

    def _read_state(self, keys: pa.BinaryArray) -> None:
        if not len(keys):
            return
        found = self._state.get_many(self._store.name, keys)
        stored = split_stored(found)
        self._fold.grow(stored)
        if self._written is not None:
            self._written.extend(stored.values.to_pylist())
        if self._cache is not None:
            self._cache.grow(_lengths(keys) + self._more_key_bytes, _value_bytes(stored.values))

    def _process_cached(
        self, cache: CacheState, batch: Batch, keys: pa.BinaryArray, slots: Int64s
    ) -> Batch | None:
        lengths = self._lengths(slots, batch)
        looked = 0 if self._looks is None else self._looks.bytes_max
        base = _lengths(keys) + ENTRY_BYTES + CONTEXT_BYTES + len(batch.topic)
        base += self._more_key_bytes
        base += _header_bytes(batch.headers, len(batch))
        if lengths is not None:
            sizes = base + TIMESTAMP_BYTES + lengths
            if cache.fits(slots, sizes, more_bytes=looked):
                present = self._fold.last(slots, batch)
                if present is not None:
                    sizes = np.where(present, sizes, base)
                self._contexts.note(cache, slots, sizes, batch)
                return None
            if isinstance(self._fold, ListFold):
                return self._evict_lists(cache, self._fold, batch, keys, slots, sizes)
        before, contexts = self._fold.snapshot(), self._contexts
        each = self._fold.each(slots, batch)
        writes = self._writes(batch, keys, each)
        value_bytes = _value_bytes(writes.values)
        sizes = base + np.maximum(value_bytes, 0)
        if cache.fits(slots, sizes, more_bytes=looked):
            contexts.note(cache, slots, sizes, batch)
            return None
        carried, looks = self._pending(before, cache.dirty_slots()), self._looks_before(batch)
        deletes = writes.values.null_count + carried.values.null_count
        even = lengths is not None and not deletes and not looks
        if even and sizes_are_even(cache, slots, sizes):
            full = FullCache(
                cache, slots, sizes, first=contexts.written, value_bytes=int(value_bytes[0])
            )
            flushed, causes = full.flushes(len(batch.topic))
        else:
            evicting = EvictingCache(
                cache, cache.dirty_slots().tolist(), _value_bytes(carried.values).tolist()
            )
            flushed, causes = evicting.write(
                slots.tolist(), sizes.tolist(), value_bytes.tolist(), looks=looks
            )
            evicting.leave(slots, contexts.written)
        contexts.note_context(slots, batch)
        return self._evicted(_joined(carried, writes), flushed, causes, batch)

    def _looks_before(self, batch: Batch) -> list[list[int]]:
        """The slots that others look up before each row, and behind the last one."""
        if self._looks is None:
            return []
        slots, new = self._slots.assign(self._looks.keys)
        self._reads += len(slots)
        self._read_state(new)
        found: list[list[int]] = [[] for _ in range(len(batch) + 1)]
        rows = np.searchsorted(batch.order[0], self._looks.places)
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            found[row].append(slot)
        return found

    def _lengths(self, slots: Int64s, batch: Batch) -> Int64s | int | None:
        """How long the rows' results are, where that is known before they are made."""
        if isinstance(self._fold, ListFold):
            return self._fold.lengths(slots, batch)
        return self._store.value_serde.fixed_length

    def _evict_lists(
        self,
        cache: CacheState,
        fold: ListFold,
        batch: Batch,
        keys: pa.BinaryArray,
        slots: Int64s,
        sizes: Int64s,
    ) -> Batch | None:
        """Make only the lists that leave the cache: all of them would be many times its size."""
        carried = self._pending(fold, cache.dirty_slots())
        value_bytes = fold.lengths(slots, batch) + TIMESTAMP_BYTES
        evicting = EvictingCache(
            cache, cache.dirty_slots().tolist(), _value_bytes(carried.values).tolist()
        )
        flushed, causes = evicting.write(slots.tolist(), sizes.tolist(), value_bytes.tolist())
        evicting.leave(slots, self._contexts.written)
        numbers, first = np.array(flushed, dtype=np.int64), len(carried.keys)
        made = np.unique(numbers[numbers >= first]) - first
        each = fold.each(slots, batch, made)
        writes = self._writes(batch.take(made), keys.take(pa.array(made)), each)
        # Of the rows only these have a place behind the carried ones.
        places = first + np.searchsorted(made, numbers - first)
        numbers = np.where(numbers < first, numbers, places)
        self._contexts.note_context(slots, batch)
        return self._evicted(_joined(carried, writes), numbers.tolist(), causes, batch)

    def _evicted(
        self, writes: _Writes, flushed: list[int], causes: list[int], batch: Batch
    ) -> Batch | None:
        if not flushed:
            return None
        result = self._write(writes.take(np.array(flushed, dtype=np.int64)))
        rows = np.array(causes, dtype=np.int64)
        rank = np.full(len(rows), self._rank, dtype=np.int64)
        order = (*(each[rows] for each in batch.order), rank, np.arange(len(rows), dtype=np.int64))
        return result.replace(order=order)

    def _writes(self, batch: Batch, keys: pa.BinaryArray, each: Each) -> _Writes:
        values = encode(self._node.name, batch, each.values, self._store.value_serde, "value")
        return _Writes(batch, keys, values, each.timestamps)

    def _pending(self, fold: Fold, slots: Int64s) -> _Writes:
        """The writes that these dirty slots stand for, as the fold has them."""
        keys = self._slots.keys(slots)
        rows = self._contexts.rows(slots)
        each = Each(fold.values(slots), fold.timestamps[slots])
        return self._writes(rows, keys, each)

    def _write(self, writes: _Writes) -> Batch:
        """Put writes into the changelog; returns the rows that go on."""
        rows, times = writes.rows, writes.timestamps
        logged = times
        if writes.values.null_count:
            valid = writes.values.is_valid().to_numpy(zero_copy_only=False)
            logged = np.where(valid, times, rows.timestamps)
        self._changes.add(self._store.name, writes.keys, writes.values, logged)
        return rows.replace(
            keys=Column(binary=writes.keys, serde=self._store.key_serde),
            values=Column(binary=writes.values, serde=self._store.value_serde),
            timestamps=logged if self._cache is not None else times,
            old=self._old_values(writes),
        )

    def _old_values(self, writes: _Writes) -> Column | None:
        """What each write replaces."""
        written = self._written
        if written is None:
            return None
        old: list[bytes | None] = []
        slots, _ = self._slots.assign(writes.keys)
        for slot, value in zip(slots.tolist(), writes.values.to_pylist(), strict=True):
            before = written[slot]
            if before is None and self._cache is None:
                before = self._start_value()
            old.append(before)
            written[slot] = value
        return Column(binary=pa.array(old, pa.binary()), serde=self._store.value_serde)

    def _start_value(self) -> bytes | None:
        """What Kafka Streams calls the old value of a key without one, where it has no cache.

        Its aggregation hands on the initial value that it began with; its cache knows better.
        """
        start = 0 if self._node.kind == "count" else None
        if self._node.initializer is not None:
            start = self._node.initializer()
        return None if start is None else self._store.value_serde.serialize(start)


class _Contexts:
    """Of each slot's last write: the record's offset, time and headers, which go on with it."""

    def __init__(self) -> None:
        self.written = 0
        self._offsets = np.empty(0, dtype=np.int64)
        self._timestamps = np.empty(0, dtype=np.int64)
        self._headers = np.empty(0, dtype=np.int64)
        self._header_chunks: list[pa.ListArray] = []
        self._header_rows = 0
        self._example: Batch | None = None

    def note(self, cache: CacheState, slots: Int64s, sizes: Int64s, batch: Batch) -> None:
        """Take in writes that fit into the cache."""
        cache.take_in(slots, sizes, self.written)
        self.note_context(slots, batch)

    def note_context(self, slots: Int64s, batch: Batch) -> None:
        """Remember the context of these writes."""
        self._grow(int(slots.max()) + 1)
        self._offsets[slots] = batch.offsets
        self._timestamps[slots] = batch.timestamps
        if batch.headers is None:
            self._headers[slots] = -1
        else:
            count = len(batch)
            self._headers[slots] = np.arange(self._header_rows, self._header_rows + count)
            self._header_chunks.append(batch.headers)
            self._header_rows += count
        self.written += len(batch)
        self._example = batch

    def rows(self, slots: Int64s) -> Batch:
        """The rows of the last writes; keys and values are for the caller to set."""
        assert self._example is not None or not len(slots)
        nothing = Column(objects=[None] * len(slots))
        return Batch(
            topic=self._example.topic if self._example else "",
            partition=self._example.partition if self._example else -1,
            offsets=self._offsets[slots],
            timestamps=self._timestamps[slots],
            keys=nothing,
            values=nothing,
            headers=self._headers_of(slots),
            order=(),
        )

    def _headers_of(self, slots: Int64s) -> pa.ListArray | None:
        if not self._header_chunks:
            return None
        index = self._headers[slots]
        return pa.concat_arrays(self._header_chunks).take(pa.array(index, mask=index < 0))

    def _grow(self, count: int) -> None:
        missing = count - len(self._offsets)
        if missing > 0:
            more = np.full(missing, -1, dtype=np.int64)
            self._offsets = np.concatenate([self._offsets, more])
            self._timestamps = np.concatenate([self._timestamps, more])
            self._headers = np.concatenate([self._headers, more])


def _fold(node: AggregateNode, store: StoreSpec) -> Fold:
    if node.kind == "count":
        return CountFold()
    if node.kind == "latest":
        return LatestFold(node, store.value_serde)
    serde = store.value_serde
    return number_fold(node, serde) or list_fold(node, serde) or FunctionFold(node, serde)


def _accepted(batch: Batch, dropped: Counter[str], *, with_nulls: bool) -> Batch:
    """The rows that have a key and, except in a table, a value."""
    present = batch.keys.present()
    if present is not None:
        dropped["null_key"] += len(batch) - int(present.sum())
        batch = batch.keep(present)
    present = None if with_nulls else batch.values.present()
    if present is not None:
        dropped["null_value"] += len(batch) - int(present.sum())
        batch = batch.keep(present)
    return batch


def _joined(carried: _Writes, writes: _Writes) -> _Writes:
    """Carried writes, then new ones, under one numbering."""
    if not len(carried.keys):
        return writes
    one, two = carried.rows, writes.rows
    headers = None
    if one.headers is not None or two.headers is not None:
        parts = [
            pa.nulls(len(rows), HEADERS_TYPE) if rows.headers is None else rows.headers
            for rows in (one, two)
        ]
        headers = pa.concat_arrays(parts)
    nothing = Column(objects=[None] * (len(one) + len(two)))
    rows = two.replace(
        offsets=np.concatenate([one.offsets, two.offsets]),
        timestamps=np.concatenate([one.timestamps, two.timestamps]),
        keys=nothing,
        values=nothing,
        headers=headers,
        order=(),
    )
    return _Writes(
        rows,
        pa.concat_arrays([carried.keys, writes.keys]),
        pa.concat_arrays([carried.values, writes.values]),
        np.concatenate([carried.timestamps, writes.timestamps]),
    )


def _lengths(array: pa.BinaryArray) -> Int64s:
    lengths: Int64s = pc.binary_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _value_bytes(values: pa.BinaryArray) -> Int64s:
    """What each value takes in a store, with its timestamp; -1 where there is none."""
    lengths = pc.add(pc.binary_length(values), TIMESTAMP_BYTES).fill_null(-1)
    sizes: Int64s = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _header_bytes(headers: pa.ListArray | None, count: int) -> Int64s:
    """What Kafka Streams counts for headers: the characters of keys and the bytes of values."""
    total = np.zeros(count, dtype=np.int64)
    if headers is None:
        return total
    flat = headers.flatten()
    sizes = pc.add(
        pc.utf8_length(flat.field("key")).fill_null(0),
        pc.binary_length(flat.field("value")).fill_null(0),
    )
    parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    np.add.at(total, parents, sizes.to_numpy(zero_copy_only=False))
    return total
