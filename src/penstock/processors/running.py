"""Running counts and maxima within groups of rows, without a loop over rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.processors.batch import Bools
from penstock.processors.records import Int64s

_INT64_MAX = np.iinfo(np.int64).max


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
    parts = np.split(values, np.flatnonzero(begins)[1:])
    return np.concatenate([np.maximum.accumulate(part) for part in parts])
