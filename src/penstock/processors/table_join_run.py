"""Joins of a stream with a table, a column at a time: each record meets the row of its moment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.processors.batch import Batch, Column
from penstock.processors.calls import call_each, encode
from penstock.processors.folds import split_stored
from penstock.processors.keyed import Slots
from penstock.processors.record_cache import CONTEXT_BYTES, ENTRY_BYTES
from penstock.processors.records import Int64s, StateReader
from penstock.topology import StoreSpec, StreamTableJoinNode

NOWHERE = -1


@dataclass(frozen=True)
class Looks:
    """What was looked up in a table: which keys, and where each stands among the slice's records.

    What was found takes `bytes_max` in a record cache at the most.
    """

    keys: pa.BinaryArray
    places: Int64s
    bytes_max: int


class TableHistory:
    """The rows that a table had in the course of a slice: as it began, and after each update.

    `places` are where the updates stand among all the slice's records.
    """

    def __init__(self, store: StoreSpec, state: StateReader) -> None:
        self._store = store
        self._state = state
        self._keys: pa.BinaryArray = pa.array([], pa.binary())
        self._places = np.empty(0, dtype=np.int64)
        self._updates: pa.BinaryArray = pa.array([], pa.binary())
        self._shared: list[Any] = []
        """The updates' values, if functions cannot change them."""
        self._looks: list[Looks] = []

    @property
    def looks(self) -> Looks | None:
        """All that was looked up so far, in the order of places; None if nothing was."""
        if not self._looks:
            return None
        places = np.concatenate([each.places for each in self._looks])
        order = np.argsort(places, kind="stable")
        keys = pa.concat_arrays([each.keys for each in self._looks])
        count = sum(each.bytes_max for each in self._looks)
        return Looks(keys.take(pa.array(order)), places[order], count)

    def add(self, step: str, batch: Batch, places: Int64s) -> None:
        """Take the table's updates in, in their order."""
        present = batch.keys.present()
        if present is not None:
            batch, places = batch.keep(present), places[present]
        self._keys = encode(step, batch, batch.keys, self._store.key_serde, "key")
        serde = self._store.value_serde
        if serde.immutable:
            self._shared = batch.values.objects()
        else:
            self._updates = encode(step, batch, batch.values, serde, "value")
        self._places = places

    def rows_at(self, keys: pa.BinaryArray, places: Int64s) -> list[Any]:
        """The row that each key has for the record at that place; None where there is none."""
        if not len(keys):
            return []
        slots = Slots()
        wanted, distinct = slots.assign(keys)
        stored = self._state.get_many(self._store.name, distinct)
        if self._store.caching:
            own = (ENTRY_BYTES + CONTEXT_BYTES) * len(distinct)
            self._looks.append(Looks(keys, places, own + distinct.nbytes + stored.nbytes))
        began = split_stored(stored)
        found = self._last_update(slots, wanted, places)
        serde = self._store.value_serde
        if not serde.immutable:
            # Each record has a row of its own: a joiner may change it in place.
            all_rows = pa.concat_arrays([began.values, self._updates])
            rows = np.where(found == NOWHERE, wanted, len(distinct) + found)
            return serde.deserialize_column(all_rows.take(pa.array(rows)))
        held, updates = serde.deserialize_column(began.values), self._shared
        return [
            held[slot] if update == NOWHERE else updates[update]
            for slot, update in zip(wanted.tolist(), found.tolist(), strict=True)
        ]

    def _last_update(self, slots: Slots, wanted: Int64s, places: Int64s) -> Int64s:
        """Of each wanted row's key, the number of its last update before the row; -1 if none."""
        result = np.full(len(wanted), NOWHERE, dtype=np.int64)
        if not len(self._places):
            return result
        updated, _ = slots.assign(self._keys)
        # Sorted by key and then by place, the update before a row is the one just left of it.
        order = np.lexsort((self._places, updated))
        span = int(max(self._places.max(), places.max())) + 1
        ranks = updated[order] * span + self._places[order]
        at = np.searchsorted(ranks, wanted * span + places) - 1
        known = at >= 0
        known[known] = updated[order][at[known]] == wanted[known]
        result[known] = order[at[known]]
        return result


def join_table_rows(
    node: StreamTableJoinNode,
    batch: Batch,
    places: Int64s,
    history: TableHistory,
    key_serde: Any,
    dropped: Counter[str],
) -> Batch:
    """The joined rows of a stream; `places` are those of its rows."""
    batch, places = _accepted(node, batch, places, dropped)
    if not len(batch):
        return batch
    keys = encode(node.name, batch, batch.keys, key_serde, "key")
    rows = _rows_at(history, keys, places)
    if not node.left:
        mask = np.fromiter((row is not None for row in rows), np.bool_, len(rows))
        if not mask.all():
            batch = batch.keep(mask)
            rows = [row for row in rows if row is not None]
    record_keys = (batch.keys.objects(),) if node.with_key else ()
    values = call_each(node.name, batch, node.joiner, *record_keys, batch.values.objects(), rows)
    return batch.replace(values=Column(objects=values))


def _rows_at(history: TableHistory, keys: pa.BinaryArray, places: Int64s) -> list[Any]:
    """The table's rows; a record without a key meets none."""
    if not keys.null_count:
        return history.rows_at(keys, places)
    valid = keys.is_valid().to_numpy(zero_copy_only=False)
    found = iter(history.rows_at(keys.drop_null(), places[valid]))
    return [next(found) if has_key else None for has_key in valid.tolist()]


def _accepted(
    node: StreamTableJoinNode, batch: Batch, places: Int64s, dropped: Counter[str]
) -> tuple[Batch, Int64s]:
    """The rows that can be joined: with a value and, but for a left join, with a key."""
    has_key, has_value = batch.keys.present(), batch.values.present()
    keeps = np.ones(len(batch), dtype=np.bool_) if has_value is None else has_value.copy()
    keyless = np.zeros(len(batch), dtype=np.bool_) if has_key is None else ~has_key
    if not node.left:
        keeps &= ~keyless
    for reason, count in (
        ("null_key", int((~keeps & keyless).sum())),
        ("null_value", int((~keeps & ~keyless).sum())),
    ):
        if count:
            dropped[reason] += count
    if keeps.all():
        return batch, places
    return batch.keep(keeps), places[keeps]


def places_of(table: Int64s, stream: Int64s, *, table_first: bool) -> tuple[Int64s, Int64s]:
    """Where two inputs' records stand in the order in which Kafka Streams takes them.

    It takes the input with the lower head. A record behind a later one is taken right after it, so
    what counts is the latest time up to each record.
    """
    heads = [np.maximum.accumulate(times) if len(times) else times for times in (table, stream)]
    inputs = np.repeat(
        [0 if table_first else 1, 1 if table_first else 0], [len(table), len(stream)]
    )
    order = np.lexsort((inputs, np.concatenate(heads)))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places[: len(table)], places[len(table) :]
