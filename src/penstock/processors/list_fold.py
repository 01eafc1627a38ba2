"""`collect` without taking lists apart: what a key's new values add is put behind what it has.

A list only grows, so what each row led to is a beginning of what its slot holds at the end. Those
beginnings are written out only for rows whose result goes on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StoreDamagedError
from penstock.processors.batch import Batch, Bools, Column
from penstock.processors.binary_columns import joined_bytes, with_lengths
from penstock.processors.calls import encode
from penstock.processors.folds import Each, Stored
from penstock.processors.records import Int64s
from penstock.processors.running import Groups, running_max, running_sum, sort_by_slot
from penstock.serdes import ListSerde, Serde
from penstock.topology import AggregateNode
from penstock.topology.builtins import collected

_COUNT_BYTES = 4
_LENGTH_BYTES = 4


def list_fold(node: AggregateNode, serde: Serde[Any]) -> ListFold | None:
    """The fold of `collect`; None for another aggregation."""
    if node.kind == "aggregate" and node.aggregator is collected and isinstance(serde, ListSerde):
        return ListFold(node, serde)
    return None


class ListFold:
    """The lists of all slots, as bytes that are only ever added to."""

    def __init__(self, node: AggregateNode, serde: ListSerde[Any]) -> None:
        self._node = node
        self._serde = serde
        self._heads: list[bytes] = []
        self._bodies: list[bytearray] = []
        self._head_bytes = np.empty(0, dtype=np.int64)
        self._body_bytes = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)
        self.timestamps = np.empty(0, dtype=np.int64)

    def grow(self, stored: Stored) -> None:
        try:
            opened = [self._serde.opened(data) for data in stored.values.to_pylist()]
        except ValueError as error:
            raise StoreDamagedError(
                f"A stored list of step {self._node.name} cannot be read: {error}",
                hint="Delete the store's directory while the application is stopped: its "
                "changelog rebuilds it",
            ) from error
        self._heads += [each.head for each in opened]
        self._bodies += [bytearray(each.body) for each in opened]
        self._head_bytes = _with(self._head_bytes, [len(each.head) for each in opened])
        self._body_bytes = _with(self._body_bytes, [len(each.body) for each in opened])
        self._counts = _with(self._counts, [each.count for each in opened])
        self.timestamps = np.concatenate([self.timestamps, stored.timestamps])

    def lengths(self, slots: Int64s, batch: Batch) -> Int64s:
        """How long the list is that each row would lead to; nothing is taken in."""
        added, _ = self._added(batch)
        bodies = running_sum(sort_by_slot(slots), added, self._body_bytes[slots])
        lengths: Int64s = self._head_bytes[slots] + _COUNT_BYTES + bodies
        return lengths

    def each(self, slots: Int64s, batch: Batch, only: Int64s | None = None) -> Each:
        """Take the rows in and say what each, or each of these only, led to."""
        groups = sort_by_slot(slots)
        bodies, counts = self._take_in(groups, slots, batch)
        times = running_max(groups, batch.timestamps, self.timestamps[slots], None)
        self.timestamps[slots] = times
        if only is not None:
            slots, bodies, counts, times = slots[only], bodies[only], counts[only], times[only]
        return Each(self._lists(slots, bodies, counts), times)

    def last(self, slots: Int64s, batch: Batch) -> Bools | None:
        self._take_in(sort_by_slot(slots), slots, batch)
        np.maximum.at(self.timestamps, slots, batch.timestamps)
        return None

    def values(self, slots: Int64s) -> Column:
        return self._lists(slots, self._body_bytes[slots], self._counts[slots])

    def snapshot(self) -> ListFold:
        copy = ListFold(self._node, self._serde)
        # What is added behind a body later is beyond its length here.
        copy._heads, copy._bodies = self._heads, self._bodies
        copy._head_bytes, copy._body_bytes = self._head_bytes.copy(), self._body_bytes.copy()
        copy._counts, copy.timestamps = self._counts.copy(), self.timestamps.copy()
        return copy

    def _added(self, batch: Batch) -> tuple[Int64s, pa.BinaryArray]:
        """How many bytes each row adds, and its value's own."""
        items = encode(self._node.name, batch, batch.values, self._serde.inner, "value")
        more = _LENGTH_BYTES if self._serde.tells_lengths else 0
        added = pc.add(pc.binary_length(items), more).fill_null(0)
        return added.to_numpy(zero_copy_only=False).astype(np.int64), items

    def _take_in(self, groups: Groups, slots: Int64s, batch: Batch) -> tuple[Int64s, Int64s]:
        """Add the rows' values; returns how many bytes and items each row's list then has."""
        added, items = self._added(batch)
        present = items.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        bodies = running_sum(groups, added, self._body_bytes[slots])
        counts = running_sum(groups, present, self._counts[slots])
        grouped = items.take(pa.array(groups.rows)).drop_null()
        data = with_lengths(grouped) if self._serde.tells_lengths else joined_bytes(grouped)
        ends = np.cumsum(added[groups.rows])
        first = np.flatnonzero(groups.first)
        begins = np.concatenate([[0], ends[first[1:] - 1]]) if len(first) else first
        stops = np.append(begins[1:], len(data))
        held = self._bodies
        for slot, begin, stop in zip(
            slots[groups.rows[first]].tolist(), begins.tolist(), stops.tolist(), strict=True
        ):
            held[slot] += data[begin:stop]
        self._body_bytes[slots], self._counts[slots] = bodies, counts
        return bodies, counts

    def _lists(self, slots: Int64s, bodies: Int64s, counts: Int64s) -> Column:
        """Lists of so many bytes and items."""
        heads, held, lists = self._heads, self._bodies, []
        numbers = counts.astype(">i4").tobytes()
        for row, (slot, length) in enumerate(zip(slots.tolist(), bodies.tolist(), strict=True)):
            count = numbers[_COUNT_BYTES * row : _COUNT_BYTES * (row + 1)]
            lists.append(b"".join((heads[slot], count, memoryview(held[slot])[:length])))
        return Column(binary=pa.array(lists, pa.binary()), serde=self._serde)


def _with(numbers: Int64s, more: list[int]) -> Int64s:
    return np.concatenate([numbers, np.array(more, dtype=np.int64)])
