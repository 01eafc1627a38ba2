"""Joins of two streams, a column at a time: all pairs of a slice are found at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.processors.batch import Batch, Column
from penstock.processors.binary_columns import big_endian, last_bytes, with_tail
from penstock.processors.calls import coordinates, encode, stop, user_error
from penstock.processors.folds import split_stored
from penstock.processors.outputs import Changes
from penstock.processors.records import Int64s, ScanReader
from penstock.processors.user_faults import stored_error
from penstock.serdes.windowed import TIME_BYTES, WINDOW_TAIL_BYTES
from penstock.topology import StoreSpec, StreamJoinNode

SEQUENCE_MAX = 0x7FFFFFFF
_LONG_MAX = np.iinfo(np.int64).max
NEVER = 2**63 - 1
"""Since when the record waits that waited longest, in a join in which none waits."""
_BEFORE_ALL = -1
"""The place of what was stored before the slice's first record."""


class Side(NamedTuple):
    """One side's rows of a slice, those that have a key and a value, in their order.

    `places` are where their records stand among those of both sides, `slots` numbers for keys.
    """

    batch: Batch
    keys: pa.BinaryArray
    places: Int64s
    slots: Int64s


class Held(NamedTuple):
    """Rows of a window store: what was there before the slice, and what the slice puts there."""

    slots: Int64s
    times: Int64s
    sequences: Int64s
    places: Int64s
    values: pa.BinaryArray


class Pairs(NamedTuple):
    """Who meets whom: rows that arrive, and their partners among what the other store holds."""

    rows: Int64s
    partners: Int64s


_NONE = np.empty(0, dtype=np.int64)
# Not by `pa.array`, whose first call imports pandas: that takes an instance a second of its start.
_NOTHING = Held(_NONE, _NONE, _NONE, _NONE, pa.nulls(0, pa.binary()))


class JoinStore:
    """The window store of one side in the course of a slice."""

    def __init__(self, spec: StoreSpec, state: ScanReader, metadata: Mapping[str, str]) -> None:
        self.spec = spec
        self._state = state
        self._sequence = int(metadata.get(f"{spec.name}:sequence", 0))
        self._latest = np.array([int(metadata.get(f"{spec.name}:time", -1))])
        self._places = np.empty(0, dtype=np.int64)
        self._puts = _NOTHING

    def metadata(self) -> dict[str, str]:
        """What the next slice needs to know."""
        return {
            f"{self.spec.name}:sequence": str(self._sequence),
            f"{self.spec.name}:time": str(int(self._latest[-1])),
        }

    def put(self, step: str, side: Side, changes: Changes, dropped: Counter[str]) -> None:
        """Take the slice's rows in; those whose segment has expired by then are dropped."""
        spec, times = self.spec, side.batch.timestamps
        if not len(times):
            return
        assert spec.retention_ms is not None
        values = encode(step, side.batch, side.batch.values, spec.value_serde, "value")
        self._places = side.places
        self._latest = np.maximum.accumulate(np.concatenate((self._latest, times)))
        sequences = (self._sequence + 1 + np.arange(len(times), dtype=np.int64)) & SEQUENCE_MAX
        self._sequence = int(sequences[-1])
        oldest = self._latest[1:] - spec.retention_ms
        if spec.persistent:
            kept = times // spec.segment_ms >= oldest // spec.segment_ms
        else:  # In memory entries expire one by one.
            kept = times > oldest
        keys, puts = side.keys, Held(side.slots, times, sequences, side.places, values)
        if not kept.all():
            dropped["expired"] += len(times) - int(kept.sum())
            rows = np.flatnonzero(kept)
            keys, puts = keys.take(pa.array(rows)), _taken(puts, rows)
        self._puts = puts
        if len(puts.times):
            names = with_tail(keys, _tails(puts.times, puts.sequences))
            changes.add(spec.name, names, puts.values, puts.times)

    def met_by(
        self, side: Side, first: Int64s, last: Int64s, keys: pa.BinaryArray
    ) -> tuple[Held, Pairs]:
        """What it holds for rows of the other side that ask for first..last, and their partners.

        `keys` are those of the slots.
        """
        # Each row asks as of its moment: the store's time is that of the puts before it.
        then = self._latest[np.searchsorted(self._places, side.places)]
        first = np.maximum(first, later(then, -self.spec.alive_ms))
        if self.spec.alive_ms < 0:
            last = np.full_like(last, -1)  # Not even the latest is found, at the end of time too.
        stored = self._stored(side.slots, first, last, keys)
        held = _with(stored, self._puts)
        return held, pairs(held, side, first, last)

    def _stored(self, slots: Int64s, first: Int64s, last: Int64s, keys: pa.BinaryArray) -> Held:
        """What was stored before the slice, read at once: a question for each key."""
        asks = np.flatnonzero(first <= last)
        order = asks[np.argsort(slots[asks], kind="stable")]
        if not len(order):
            return _NOTHING
        starts = np.flatnonzero(np.diff(slots[order], prepend=-1))
        wanted = slots[order[starts]]
        found = self._state.fetch_columns(
            self.spec.name,
            keys.take(pa.array(wanted)),
            np.minimum.reduceat(first[order], starts),
            np.maximum.reduceat(last[order], starts),
        )
        if not len(found.keys):
            return _NOTHING
        tails = last_bytes(found.keys, WINDOW_TAIL_BYTES)
        times = np.ascontiguousarray(tails[:, :TIME_BYTES]).view(">i8").ravel().astype(np.int64)
        numbers = np.ascontiguousarray(tails[:, TIME_BYTES:]).view(">i4").ravel().astype(np.int64)
        places = np.full(len(times), _BEFORE_ALL, dtype=np.int64)
        values = split_stored(found.values).values
        return Held(wanted[found.questions], times, numbers, places, values)


def pairs(held: Held, side: Side, first: Int64s, last: Int64s) -> Pairs:
    """Every row's partners of first..last that are there when it comes, by time and number."""
    order = np.lexsort((held.sequences, held.times, held.slots))
    # Slot and time in one number; times by their rank, so that the number has 64 bits.
    times = np.unique(held.times)
    width = len(times) + 1
    codes = held.slots[order] * width + np.searchsorted(times, held.times[order])
    begins = np.searchsorted(codes, side.slots * width + np.searchsorted(times, first))
    ends = np.searchsorted(codes, side.slots * width + np.searchsorted(times, last, side="right"))
    counts = np.maximum(ends - begins, 0)
    rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    places = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    partners = order[np.repeat(begins, counts) + places]
    there = held.places[partners] < side.places[rows]
    replaced = _replaced(held, order, codes)
    if replaced is not None:
        there &= side.places[rows] < replaced[partners]
    return Pairs(rows[there], partners[there])


def _replaced(held: Held, order: Int64s, codes: Int64s) -> Int64s | None:
    """Where each row gives way to one of its key, time and number: numbers begin anew at 2^31."""
    numbers = held.sequences[order]
    same = (np.diff(codes) == 0) & (np.diff(numbers) == 0)
    if not same.any():
        return None
    replaced = np.full(len(order), _LONG_MAX, dtype=np.int64)
    replaced[order[:-1][same]] = held.places[order[1:][same]]
    return replaced


@dataclass(frozen=True)
class Meeting:
    """The rows of one side, what the other side's store holds for them, and the pairs they make.

    `rank` is the step's place among the steps, depth first.
    """

    node: StreamJoinNode
    rank: int
    side: Side
    store: StoreSpec
    held: Held
    pairs: Pairs

    def partner_values(self) -> tuple[list[Any], Int64s]:
        """The values of all partners, decoded once, and of each pair the number of its own."""
        used = np.zeros(len(self.held.times), dtype=np.bool_)
        used[self.pairs.partners] = True
        stored = self.held.values.take(pa.array(np.flatnonzero(used)))
        try:
            values = self.store.value_serde.deserialize_column(stored)
        except (PenstockError, OSError):
            raise
        except Exception:
            self._refuse_unreadable()
            raise
        return values, (np.cumsum(used) - 1)[self.pairs.partners]

    def _refuse_unreadable(self) -> None:
        """Raise `UserFunctionError` of the first pair whose partner cannot be read."""
        serde, batch, step = self.store.value_serde, self.side.batch, self.node.name
        for row, partner in zip(*(each.tolist() for each in self.pairs), strict=True):
            try:
                serde.deserialize(self.held.values[partner].as_py())
            except Exception as error:
                where, key = coordinates(step, batch, row), batch.keys.objects()[row]
                raise stored_error(step, self.store.name, serde, error, where, key) from error


def joined_rows(left: Meeting, right: Meeting) -> Batch:
    """The rows of all pairs, as the records come that complete them."""
    sides = (left.side, right.side)
    among_left = len(left.pairs.rows)
    places = _both(left.side.places[left.pairs.rows], right.side.places[right.pairs.rows])
    # Each side's pairs are in order already.
    order = np.argsort(places, kind="stable")
    rows = _both(left.pairs.rows, len(left.side.places) + right.pairs.rows)[order]
    index, is_right = pa.array(rows), order >= among_left
    partner_times = _both(
        left.held.times[left.pairs.partners], right.held.times[right.pairs.partners]
    )
    times = _both(*(side.batch.timestamps for side in sides))[rows]
    batch = Batch(
        topic=left.side.batch.topic,
        partition=left.side.batch.partition,
        offsets=_both(*(side.batch.offsets for side in sides))[rows],
        timestamps=np.maximum(times, partner_times[order]),
        keys=Column(
            binary=pa.concat_arrays([side.keys for side in sides]).take(index),
            serde=left.store.key_serde,
        ),
        values=Column(objects=[]),
        headers=_headers(left.side.batch, right.side.batch, index),
        order=_order(left, right, order),
        second_topic=right.side.batch.topic,
        second=is_right,
    )
    return batch.replace(values=Column(objects=_called(left, right, batch, order)))


def _called(left: Meeting, right: Meeting, batch: Batch, order: Int64s) -> list[Any]:
    """What the joiner makes of each pair: of values as they came, and as stores have partners'."""
    from_right, right_numbers = left.partner_values()
    from_left, left_numbers = right.partner_values()
    lefts, rights = (meeting.side.batch.values.objects() for meeting in (left, right))
    left_index = _both(left.pairs.rows, len(lefts) + left_numbers)[order].tolist()
    right_index = _both(len(rights) + right_numbers, right.pairs.rows)[order].tolist()
    keys = (batch.keys.objects(),) if left.node.with_key else ()
    all_lefts, all_rights = [*lefts, *from_left], [*rights, *from_right]
    joiner = left.node.joiner
    values: list[Any] = []
    try:
        values.extend(
            map(
                joiner,
                *keys,
                map(all_lefts.__getitem__, left_index),
                map(all_rights.__getitem__, right_index),
            )
        )
        if (row := len(values)) < len(order):
            pair = all_lefts[left_index[row]], all_rights[right_index[row]]
            stop(joiner, *(each[row] for each in keys), *pair)
    except Exception as error:
        row = len(values)
        step = left.node if order[row] < len(left.pairs.rows) else right.node
        raise user_error(step.name, batch, row, error) from error
    return values


def _order(left: Meeting, right: Meeting, order: Int64s) -> tuple[Int64s, ...]:
    """Where each pair's row stands, depth first: behind its record's own place, step and number."""
    depth = max(len(each.side.batch.order) for each in (left, right)) + 2
    table = np.zeros((depth, len(order)), dtype=np.int64)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.arange(len(order))
    at = 0
    for each in (left, right):
        rows, levels = each.pairs.rows, each.side.batch.order
        until = at + len(rows)
        for level, column in enumerate(levels):
            table[level, at:until] = column[rows]
        table[len(levels), at:until] = each.rank
        table[len(levels) + 1, at:until] = numbers[at:until]
        at = until
    return tuple(table[:, order])


def _headers(left: Batch, right: Batch, index: pa.Array) -> pa.ListArray | None:
    known = [batch.headers for batch in (left, right) if batch.headers is not None]
    if not known:
        return None
    parts = [
        pa.nulls(len(batch), known[0].type) if batch.headers is None else batch.headers
        for batch in (left, right)
    ]
    return pa.concat_arrays(parts).take(index)


def sides_of(left: Batch, right: Batch, store: StoreSpec) -> tuple[Side, Side, pa.BinaryArray]:
    """Both sides' rows, and the keys that their slots stand for."""
    columns = [batch.keys.binary(store.key_serde) for batch in (left, right)]
    encoded = pa.concat_arrays(columns).dictionary_encode()
    # By key, as the store has them: it is asked slot by slot, and goes from one to the next.
    by_key = pc.array_sort_indices(encoded.dictionary)
    ranks = np.empty(len(by_key), dtype=np.int64)
    ranks[by_key.to_numpy()] = np.arange(len(by_key))
    slots = ranks[encoded.indices.to_numpy()]
    return (
        Side(left, columns[0], left.order[0], slots[: len(left)]),
        Side(right, columns[1], right.order[0], slots[len(left) :]),
        encoded.dictionary.take(by_key),
    )


def joinable(batch: Batch, dropped: Counter[str]) -> Batch:
    """The rows that have a key and a value."""
    has_key, has_value = batch.keys.present(), batch.values.present()
    if has_key is None and has_value is None:
        return batch
    every = np.ones(len(batch), dtype=np.bool_)
    has_key = every if has_key is None else has_key
    keeps = has_key & (every if has_value is None else has_value)
    for reason, mask in (("null_key", ~has_key), ("null_value", has_key & ~keeps)):
        if mask.any():
            dropped[reason] += int(mask.sum())
    return batch.keep(keeps)


def asked_times(node: StreamJoinNode, times: Int64s) -> tuple[Int64s, Int64s]:
    """The first and the last time of the partners that a side's rows of these times may meet."""
    before, after = node.windows.before_ms, node.windows.after_ms
    if node.side == "right":
        before, after = after, before
    first, last = later(times, -before), np.maximum(later(times, after), 0)
    if before < 0:
        # Nothing can lie beyond the end of time.
        last[times > _LONG_MAX + before] = -1
    return np.maximum(first, 0), last


def later(times: Int64s, by_ms: int) -> Int64s:
    """The times moved; none goes beyond what 64 bits hold.

    >>> later(np.array([5, 2**63 - 2]), 3).tolist() == [8, 2**63 - 1]
    True
    """
    return (times if by_ms <= 0 else np.minimum(times, _LONG_MAX - by_ms)) + by_ms


def _taken(held: Held, rows: Int64s) -> Held:
    return Held(
        held.slots[rows],
        held.times[rows],
        held.sequences[rows],
        held.places[rows],
        held.values.take(pa.array(rows)),
    )


def _with(stored: Held, puts: Held) -> Held:
    return Held(
        _both(stored.slots, puts.slots),
        _both(stored.times, puts.times),
        _both(stored.sequences, puts.sequences),
        _both(stored.places, puts.places),
        pa.concat_arrays([stored.values, puts.values]),
    )


def _tails(times: Int64s, sequences: Int64s) -> np.ndarray:
    """What follows the key in the store."""
    tails = np.empty((len(times), WINDOW_TAIL_BYTES), dtype=np.uint8)
    tails[:, :TIME_BYTES] = big_endian(times)
    tails[:, TIME_BYTES:] = sequences.astype(">i4").view(np.uint8).reshape(-1, 4)
    return tails


def _both(left: Int64s, right: Int64s) -> Int64s:
    return np.concatenate((left, right))
