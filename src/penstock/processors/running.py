"""Running counts and maxima within groups of rows, without a loop over rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.processors.batch import Bools
from penstock.processors.records import Int64s

_INT64_MAX = np.iinfo(np.int64).max
_SHORT = 32
"""Up to here a step for each place in all slots is cheaper than one for each slot."""


@dataclass(frozen=True)
class Groups:
    """Rows sorted by slot, each slot's rows in their order: `rows`, and where slots begin."""

    rows: Int64s
    first: Bools


def sort_by_slot(slots: Int64s) -> Groups:
    """Bring each slot's rows together."""
    # numpy sorts 16-bit numbers by radix, several times faster than longer ones.
    short = len(slots) > 0 and int(slots.max()) < 2**16
    rows = np.argsort(slots.astype(np.uint16) if short else slots, kind="stable")
    grouped = slots[rows]
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = grouped[1:] != grouped[:-1]
    return Groups(rows, first)


def positions_within(groups: Groups) -> Int64s:
    """For each row (in the rows' own order): how many rows of its slot come before it."""
    index = np.arange(len(groups.rows), dtype=np.int64)
    begin = np.maximum.accumulate(np.where(groups.first, index, 0))
    result = np.empty_like(index)
    result[groups.rows] = index - begin
    return result


def running_sum(groups: Groups, numbers: Int64s, start: Int64s) -> Int64s:
    """For each row the sum of its slot's numbers so far, from `start` on."""
    if not len(numbers):
        return numbers
    totals = np.cumsum(numbers[groups.rows])
    first = np.flatnonzero(groups.first)
    before = np.concatenate([[0], totals[first[1:] - 1]]) if len(first) > 1 else np.array([0])
    segment = np.cumsum(groups.first) - 1
    result = np.empty_like(numbers)
    result[groups.rows] = totals - before[segment] + start[groups.rows]
    return result


def running_float_sum(
    groups: Groups,
    numbers: npt.NDArray[np.float64],
    start: npt.NDArray[np.float64],
    known: Bools,
) -> npt.NDArray[np.float64]:
    """For each row the sum of its slot's numbers so far, from `start` on where that is `known`.

    Numbers are added one by one in the order of the rows: another order rounds otherwise.
    """
    sums = numbers[groups.rows]
    first = np.flatnonzero(groups.first)
    lengths = np.diff(first, append=len(sums))
    heads = groups.rows[first]
    with np.errstate(over="ignore", invalid="ignore"):
        sums[first] = np.where(known[heads], start[heads] + sums[first], sums[first])
        for begin, length in zip(
            *(each[lengths > _SHORT] for each in (first, lengths)), strict=True
        ):
            sums[begin : begin + length] = np.add.accumulate(sums[begin : begin + length])
        # All short slots go one row further at a time.
        first, lengths = first[lengths <= _SHORT], lengths[lengths <= _SHORT]
        for place in range(1, int(lengths.max(initial=0))):
            first, lengths = first[lengths > place], lengths[lengths > place]
            sums[first + place] += sums[first + place - 1]
    result = np.empty_like(sums)
    result[groups.rows] = sums
    return result


def running_max(groups: Groups, numbers: Int64s, start: Int64s, restart: Bools | None) -> Int64s:
    """For each row the largest number of its slot so far, from `start` on.

    Where `restart` is true the past is forgotten.
    """
    if not len(numbers):
        return numbers
    row_restarts = np.zeros(len(numbers), np.bool_) if restart is None else restart[groups.rows]
    values = numbers[groups.rows]
    with_start = groups.first & ~row_restarts
    values = np.where(with_start, np.maximum(values, start[groups.rows]), values)
    result = np.empty_like(numbers)
    result[groups.rows] = _segmented_max(values, groups.first | row_restarts)
    return result


def _segmented_max(values: Int64s, begins: Bools) -> Int64s:
    """The running maximum, starting afresh at each `begins`."""
    low = int(values.min())
    span = int(values.max()) - low + 1
    segment = np.cumsum(begins) - 1
    if span * (int(segment[-1]) + 1) < _INT64_MAX:
        # Lifting each segment above all earlier ones makes one pass of `accumulate` enough.
        lift = segment * span
        lifted: Int64s = np.maximum.accumulate(values - low + lift)
        return lifted - lift + low
    known, ranks = np.unique(values, return_inverse=True)
    found: Int64s = known[_segmented_max(ranks.astype(np.int64), begins)]
    return found
