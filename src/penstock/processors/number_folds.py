"""Sums, minima, maxima and averages without a step of Python per row.

They are what the functions would have made of the same rows, to the bit: sums of floats are added
up in the order of the rows. Where numbers alone cannot promise that (a value that is null, a sum
beyond 64 bits, NaN, the negative zero, values of another type) the functions are called instead,
from there to the slice's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from penstock.processors.batch import Batch, Bools, Column
from penstock.processors.folds import Each, Fold, FunctionFold, Stored
from penstock.processors.records import Int64s
from penstock.processors.running import (
    Groups,
    positions_within,
    running_float_sum,
    running_max,
    running_sum,
    sort_by_slot,
)
from penstock.serdes import DoubleSerde, LongSerde, MeanSerde, Serde
from penstock.topology import AggregateNode
from penstock.topology.builtins import Builtin, BuiltinName, add_to_mean

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]

_SUM_MAX = 2.0**62
_LOW_BITS = np.int64(2**63 - 1)


class Scan(Protocol):
    """How results develop from row to row; both methods say None where numbers will not do."""

    @property
    def serde(self) -> LongSerde | DoubleSerde | MeanSerde:
        """What reads and writes them."""

    def values(self, column: Column) -> Numbers | None:
        """The rows' values."""

    def results(
        self, groups: Groups, values: Numbers, start: Numbers, known: Bools
    ) -> Numbers | None:
        """What each row leads to; `start` is what its slot holds, where that is `known`."""


def number_fold(node: AggregateNode, serde: Serde[Any]) -> Fold | None:
    """The fold by numbers of an aggregation that is known by its name; None for another one."""
    scan: Scan | None = None
    if node.kind == "aggregate" and node.aggregator is add_to_mean:
        scan = MeanScan() if isinstance(serde, MeanSerde) else None
    elif node.kind == "reduce" and isinstance(node.aggregator, Builtin):
        if type(serde) is LongSerde:
            scan = LongScan(node.aggregator.name)
        elif type(serde) is DoubleSerde:
            scan = DoubleScan(node.aggregator.name)
    return None if scan is None else NumberFold(node, scan)


class NumberFold:
    """The values of all slots as numbers, or by the functions once numbers will not do."""

    def __init__(self, node: AggregateNode, scan: Scan) -> None:
        self._node = node
        self._scan = scan
        self._serde = scan.serde
        self._numbers: Numbers = np.empty(0, dtype=scan.serde.native)
        self._known = np.empty(0, dtype=np.bool_)
        self._timestamps = np.empty(0, dtype=np.int64)
        self._plain: FunctionFold | None = None

    @property
    def timestamps(self) -> Int64s:
        """The time of each slot's value."""
        return self._timestamps if self._plain is None else self._plain.timestamps

    def grow(self, stored: Stored) -> None:
        if self._plain is not None:
            self._plain.grow(stored)
            return
        known = stored.values.is_valid().to_numpy(zero_copy_only=False)
        self._numbers = np.concatenate([self._numbers, self._serde.read(stored.values)])
        self._known = np.concatenate([self._known, known])
        self._timestamps = np.concatenate([self._timestamps, stored.timestamps])

    def each(self, slots: Int64s, batch: Batch) -> Each:
        results = self._run(slots, batch)
        if results is None:
            return self._by_functions().each(slots, batch)
        return Each(self._column(results), self._timestamps_of(slots, batch))

    def last(self, slots: Int64s, batch: Batch) -> Bools | None:
        if self._run(slots, batch) is None:
            return self._by_functions().last(slots, batch)
        np.maximum.at(self._timestamps, slots, batch.timestamps)
        return None

    def values(self, slots: Int64s) -> Column:
        if self._plain is not None:
            return self._plain.values(slots)
        return self._column(self._numbers[slots])

    def snapshot(self) -> NumberFold:
        copy = NumberFold(self._node, self._scan)
        copy._numbers, copy._known = self._numbers.copy(), self._known.copy()
        copy._timestamps = self._timestamps.copy()
        copy._plain = None if self._plain is None else self._plain.snapshot()
        return copy

    def _run(self, slots: Int64s, batch: Batch) -> Numbers | None:
        """Each row's result, taken in; None, and nothing was, where numbers will not do."""
        values = None if self._plain is not None else self._scan.values(batch.values)
        if values is None:
            return None
        start, known = self._numbers[slots], self._known[slots]
        results = self._scan.results(sort_by_slot(slots), values, start, known)
        if results is not None:
            # Of several rows of a slot the last one stays.
            self._numbers[slots], self._known[slots] = results, True
        return results

    def _timestamps_of(self, slots: Int64s, batch: Batch) -> Int64s:
        before = self._timestamps[slots]
        times = running_max(sort_by_slot(slots), batch.timestamps, before, None)
        self._timestamps[slots] = times
        return times

    def _by_functions(self) -> FunctionFold:
        if self._plain is None:
            held = self._serde.write(self._numbers, self._known)
            self._plain = FunctionFold(self._node, self._serde)
            self._plain.grow(Stored(held, self._timestamps))
        return self._plain

    def _column(self, results: Numbers) -> Column:
        return Column(binary=self._serde.write(results), serde=self._serde)


@dataclass(frozen=True)
class LongScan:
    """Whole numbers."""

    name: BuiltinName
    serde: ClassVar = LongSerde()

    def values(self, column: Column) -> Numbers | None:
        return column.numbers(self.serde)

    def results(
        self, groups: Groups, values: Numbers, start: Numbers, known: Bools
    ) -> Numbers | None:
        if self.name != "sum":
            return _extremes(self.name, groups, values, start, known)
        largest = float(np.abs(start.astype(np.float64)).max(initial=0.0))
        if largest + float(np.abs(values.astype(np.float64)).sum()) >= _SUM_MAX:
            return None
        return running_sum(groups, values, np.where(known, start, 0))


@dataclass(frozen=True)
class DoubleScan:
    """Floating-point numbers."""

    name: BuiltinName
    serde: ClassVar = DoubleSerde()

    def values(self, column: Column) -> Numbers | None:
        return column.numbers(self.serde)

    def results(
        self, groups: Groups, values: Numbers, start: Numbers, known: Bools
    ) -> Numbers | None:
        if self.name == "sum":
            sums = running_float_sum(groups, values, start, known)
            return None if np.isnan(sums).any() else sums
        if not (_have_one_order(values) and _have_one_order(start)):
            return None
        found = _extremes(self.name, groups, _ordered(values), _ordered(start), known)
        return _unordered(found)


class MeanScan:
    """Averages, of which sum and number are kept."""

    serde = MeanSerde()

    def values(self, column: Column) -> Numbers | None:
        for serde in (LongSerde(), DoubleSerde()):
            numbers = column.numbers(serde)
            if numbers is not None:
                return numbers.astype(np.float64)
        return None

    def results(
        self, groups: Groups, values: Numbers, start: Numbers, known: Bools
    ) -> Numbers | None:
        # Where nothing is known the numbers are zeros, from which an average begins.
        everywhere = np.ones(len(values), dtype=np.bool_)
        totals = running_float_sum(groups, values, start["total"], everywhere)
        if np.isnan(totals).any():
            return None
        means = np.empty(len(values), dtype=self.serde.native)
        means["total"] = totals
        means["count"] = start["count"] + positions_within(groups) + 1
        return means


def _extremes(
    name: BuiltinName, groups: Groups, values: Int64s, start: Int64s, known: Bools
) -> Int64s:
    begins = np.zeros(len(values), dtype=np.bool_)
    begins[groups.rows[groups.first]] = True
    restart = begins & ~known
    if name == "max":
        return running_max(groups, values, start, restart)
    # Turning all bits round turns the order round, and has no overflow as a minus sign has.
    return ~running_max(groups, ~values, ~start, restart)


def _have_one_order(numbers: Floats) -> bool:
    """Whether they compare in one way only: NaN is neither more nor less, and there are two zeros
    that are equal."""
    return not (np.isnan(numbers) | ((numbers == 0) & np.signbit(numbers))).any()


def _ordered(numbers: Floats) -> Int64s:
    """Whole numbers in the order of these: their bits, those of negative ones turned round."""
    bits = np.ascontiguousarray(numbers).view(np.int64)
    ordered: Int64s = bits ^ ((bits >> 63) & _LOW_BITS)
    return ordered


def _unordered(ordered: Int64s) -> Floats:
    bits = ordered ^ ((ordered >> 63) & _LOW_BITS)
    return bits.view(np.float64)
