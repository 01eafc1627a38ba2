"""How an aggregate's value develops: row by row for a user's functions, in C for a count.

A fold knows nothing of caches or changelogs: it keeps each slot's present value and timestamp, and
can say which value and timestamp every single row led to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import StoreDamagedError
from penstock.processors.batch import Batch, Bools, Column
from penstock.processors.calls import encode, user_error
from penstock.processors.records import Int64s
from penstock.processors.running import (
    positions_within,
    running_max,
    sort_by_slot,
)
from penstock.processors.settling import Settle, settling
from penstock.serdes import LongSerde, Serde
from penstock.topology import AggregateNode

ABSENT = -1


@dataclass(frozen=True)
class Stored:
    """The bytes of a store, taken apart: bare values, and timestamps (-1 where absent)."""

    values: pa.BinaryArray
    timestamps: Int64s


@dataclass(frozen=True)
class Each:
    """What every row led to. `timestamps` are the values'."""

    values: Column
    timestamps: Int64s


class Fold(Protocol):
    """The values of all slots."""

    @property
    def timestamps(self) -> Int64s:
        """The time of each slot's value, -1 where there is none."""

    def grow(self, stored: Stored) -> None:
        """Add slots with what the store holds for them."""

    def each(self, slots: Int64s, batch: Batch) -> Each:
        """Take the rows in and say what each led to."""

    def last(self, slots: Int64s, batch: Batch) -> Bools | None:
        """Take the rows in; only the outcome matters. Returns which rows have a value left, or
        `None` if all have."""

    def values(self, slots: Int64s) -> Column:
        """The present values of these slots."""

    def snapshot(self) -> Fold:
        """A copy that later rows leave alone."""


def split_stored(stored: pa.BinaryArray) -> Stored:
    """Separate the 8-byte timestamps from the values."""
    timestamps = np.full(len(stored), ABSENT, dtype=np.int64)
    if stored.null_count == len(stored):
        return Stored(pa.nulls(len(stored), pa.binary()), timestamps)
    if not stored.null_count:
        timestamps, values = _cut(stored)
        return Stored(values, timestamps)
    valid = stored.is_valid().to_numpy(zero_copy_only=False)
    timestamps[valid], values = _cut(stored.drop_null())
    places = pa.array(np.cumsum(valid) - 1, mask=~valid)
    return Stored(values.take(places), timestamps)


def _cut(stored: pa.BinaryArray) -> tuple[Int64s, pa.BinaryArray]:
    """Timestamps and bare values. (Arrow's `binary_slice` fails where it cuts to the end.)"""
    raw = np.frombuffer(stored.buffers()[1], dtype=np.int32)
    offsets = raw[stored.offset : stored.offset + len(stored) + 1]
    if int(np.diff(offsets).min()) < 8:
        raise StoreDamagedError(
            "A stored value is too short to hold its timestamp",
            hint="Delete the store's directory while the application is stopped: its changelog "
            "rebuilds it",
        )
    data = np.frombuffer(stored.buffers()[2], dtype=np.uint8)
    prefixes = offsets[:-1, np.newaxis] + np.arange(8)
    timestamps = data[prefixes].view(">i8").ravel().astype(np.int64)
    keep = np.ones(len(data), dtype=np.bool_)
    keep[prefixes] = False
    keep[: offsets[0]] = False
    keep[offsets[-1] :] = False
    begins = offsets - offsets[0] - 8 * np.arange(len(offsets), dtype=np.int32)
    buffers = [None, pa.py_buffer(begins.astype(np.int32)), pa.py_buffer(data[keep])]
    return timestamps, pa.Array.from_buffers(pa.binary(), len(stored), buffers)


class CountFold:
    """Counts, without a step of Python per row."""

    def __init__(self) -> None:
        self.counts = np.empty(0, dtype=np.int64)
        self.timestamps = np.empty(0, dtype=np.int64)

    def grow(self, stored: Stored) -> None:
        self.counts = np.concatenate([self.counts, LongSerde().read(stored.values)])
        self.timestamps = np.concatenate([self.timestamps, stored.timestamps])

    def each(self, slots: Int64s, batch: Batch) -> Each:
        groups = sort_by_slot(slots)
        counts = self.counts[slots] + positions_within(groups) + 1
        timestamps = running_max(groups, batch.timestamps, self.timestamps[slots], None)
        self.counts[slots] = counts
        self.timestamps[slots] = timestamps
        return Each(_counts(counts), timestamps)

    def last(self, slots: Int64s, batch: Batch) -> None:
        self.counts += np.bincount(slots, minlength=len(self.counts))
        np.maximum.at(self.timestamps, slots, batch.timestamps)

    def values(self, slots: Int64s) -> Column:
        return _counts(self.counts[slots])

    def snapshot(self) -> CountFold:
        copy = CountFold()
        copy.counts, copy.timestamps = self.counts.copy(), self.timestamps.copy()
        return copy


def _counts(counts: Int64s) -> Column:
    serde = LongSerde()
    return Column(binary=serde.write(counts), serde=serde)


class LatestFold:
    """A table's newest values: the last row wins, and one without a value deletes."""

    def __init__(self, node: AggregateNode, serde: Serde[Any]) -> None:
        self._node = node
        self._serde = serde
        self._state: list[bytes | None] = []
        self.timestamps = np.empty(0, dtype=np.int64)

    def grow(self, stored: Stored) -> None:
        self._state.extend(stored.values.to_pylist())
        self.timestamps = np.concatenate([self.timestamps, stored.timestamps])

    def each(self, slots: Int64s, batch: Batch) -> Each:
        values = encode(self._node.name, batch, batch.values, self._serde, "value")
        state = self._state
        for slot, value in zip(slots.tolist(), values.to_pylist(), strict=True):
            state[slot] = value
        self.timestamps[slots] = batch.timestamps
        return Each(Column(binary=values, serde=self._serde), batch.timestamps)

    def last(self, slots: Int64s, batch: Batch) -> Bools | None:
        return self.each(slots, batch).values.present()

    def values(self, slots: Int64s) -> Column:
        state = self._state
        data = pa.array([state[slot] for slot in slots.tolist()], pa.binary())
        return Column(binary=data, serde=self._serde)

    def snapshot(self) -> LatestFold:
        copy = LatestFold(self._node, self._serde)
        copy._state, copy.timestamps = self._state.copy(), self.timestamps.copy()
        return copy


class FunctionFold:
    """`reduce` and `aggregate`: the user's function, row by row.

    Mutable values are kept as bytes and decoded for each call, so that a function that changes its
    argument in place changes nothing that was written before.
    """

    def __init__(self, node: AggregateNode, serde: Serde[Any]) -> None:
        self._node = node
        self._serde = serde
        self._state: list[Any] = []
        self.timestamps = np.empty(0, dtype=np.int64)

    def grow(self, stored: Stored) -> None:
        values = stored.values
        self._state.extend(
            self._serde.deserialize_column(values) if self._serde.immutable else values.to_pylist()
        )
        self.timestamps = np.concatenate([self.timestamps, stored.timestamps])

    def each(self, slots: Int64s, batch: Batch) -> Each:
        results, restarts = self._call(slots, batch)
        fresh = np.zeros(len(slots), dtype=np.bool_)
        fresh[restarts] = True
        groups = sort_by_slot(slots)
        timestamps = running_max(groups, batch.timestamps, self.timestamps[slots], fresh)
        self.timestamps[slots] = timestamps
        return Each(self._column(results), timestamps)

    def last(self, slots: Int64s, batch: Batch) -> Bools | None:
        results, restarts = self._call(slots, batch)
        begin = np.full(len(self.timestamps), -1, dtype=np.int64)
        begin[slots[restarts]] = restarts
        self.timestamps[begin >= 0] = ABSENT
        rows = np.flatnonzero(np.arange(len(slots)) >= begin[slots])
        np.maximum.at(self.timestamps, slots[rows], batch.timestamps[rows])
        return self._column(results).present()

    def _call(self, slots: Int64s, batch: Batch) -> tuple[list[Any], list[int]]:
        """Each row's result, and the rows that began anew: a key without a value (new, or deleted
        before) takes the record's own time."""
        results: list[Any] = []
        restarts: list[int] = []
        try:
            self._run(slots.tolist(), batch, results, restarts)
        except Exception as error:
            raise user_error(self._node.name, batch, len(results), error) from error
        return results, restarts

    def values(self, slots: Int64s) -> Column:
        state = self._state
        return self._column([state[slot] for slot in slots.tolist()])

    def snapshot(self) -> FunctionFold:
        copy = FunctionFold(self._node, self._serde)
        copy._state, copy.timestamps = self._state.copy(), self.timestamps.copy()
        return copy

    def _column(self, results: list[Any]) -> Column:
        if self._serde.immutable:
            return Column(objects=results)
        return Column(binary=pa.array(results, type=pa.binary()), serde=self._serde)

    def _run(self, slots: list[int], batch: Batch, results: list[Any], restarts: list[int]) -> None:
        node, values = self._node, batch.values.objects()
        state, serde = self._state, self._serde
        settle = settling(serde)
        function: Callable[..., Any] = node.aggregator or _refuse
        if node.kind == "aggregate":
            keys, start = batch.keys.objects(), node.initializer or _refuse
            if not serde.immutable:
                self._aggregate_bytes(slots, keys, values, start, function, results, restarts)
            else:
                aggregate_values(
                    state, slots, keys, values, start, function, results, restarts, settle
                )
        elif not serde.immutable:
            self._reduce_bytes(slots, values, function, results, restarts)
        else:
            reduce_values(state, slots, values, function, results, restarts, settle)

    def _reduce_bytes(
        self,
        slots: list[int],
        values: list[Any],
        function: Callable[..., Any],
        results: list[Any],
        restarts: list[int],
    ) -> None:
        state, decode, encode = self._state, self._serde.deserialize, self._serde.serialize
        for slot, value in zip(slots, values, strict=True):
            old = state[slot]
            if old is None:
                restarts.append(len(results))
                new = value
            else:
                new = function(decode(old), value)
            state[slot] = data = None if new is None else encode(new)
            results.append(data)

    def _aggregate_bytes(
        self,
        slots: list[int],
        keys: list[Any],
        values: list[Any],
        start: Callable[[], Any],
        function: Callable[..., Any],
        results: list[Any],
        restarts: list[int],
    ) -> None:
        state, decode, encode = self._state, self._serde.deserialize, self._serde.serialize
        for slot, key, value in zip(slots, keys, values, strict=True):
            old = state[slot]
            if old is None:
                restarts.append(len(results))
                new = function(key, value, start())
            else:
                new = function(key, value, decode(old))
            state[slot] = data = None if new is None else encode(new)
            results.append(data)


def reduce_values(
    state: list[Any],
    slots: list[int],
    values: list[Any],
    function: Callable[..., Any],
    results: list[Any],
    restarts: list[int],
    settle: Settle | None,
) -> None:
    """`reduce` over values that can be shared; each call is given what a store would give back."""
    append = results.append
    for slot, value in zip(slots, values, strict=True):
        old = state[slot]
        if old is None:
            restarts.append(len(results))
            new = value
        else:
            new = function(old, value)
        state[slot] = new if settle is None else settle(new)
        append(new)


def aggregate_values(
    state: list[Any],
    slots: list[int],
    keys: list[Any],
    values: list[Any],
    start: Callable[[], Any],
    function: Callable[..., Any],
    results: list[Any],
    restarts: list[int],
    settle: Settle | None,
) -> None:
    """`aggregate` over values that can be shared, as `reduce_values`."""
    append = results.append
    for slot, key, value in zip(slots, keys, values, strict=True):
        old = state[slot]
        if old is None:
            restarts.append(len(results))
            old = start()
        new = function(key, value, old)
        state[slot] = new if settle is None else settle(new)
        append(new)


def _refuse(*_: Any) -> Any:
    raise TypeError("this aggregation has no function")
