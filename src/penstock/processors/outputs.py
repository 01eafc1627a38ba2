"""Collects what a slice writes, and puts it in the order of depth-first processing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.processors.batch import Batch
from penstock.processors.partitioner import partitions_of
from penstock.processors.records import (
    CHANGES_SCHEMA,
    HEADERS_TYPE,
    OUTPUTS_SCHEMA,
    Int64s,
    batch_of,
)


class Changes:
    """Rows for changelogs and stores."""

    def __init__(self, stores: tuple[str, ...]) -> None:
        self._stores = stores
        self._batches: list[pa.RecordBatch] = []

    def add(
        self, store: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: Int64s
    ) -> None:
        """Append rows of one store, in order of writing."""
        columns = [_constant(self._stores, store, len(keys)), keys, values, pa.array(timestamps)]
        self._batches.append(pa.RecordBatch.from_arrays(columns, schema=CHANGES_SCHEMA))

    def result(self) -> pa.RecordBatch:
        """All rows."""
        return _combined(self._batches, CHANGES_SCHEMA)


@dataclass(frozen=True)
class _Part:
    rows: pa.RecordBatch
    order: tuple[Int64s, ...]
    rank: int


class Outputs:
    """Rows for topics. With several sinks, branches are merged by each row's place in the order."""

    def __init__(self, topics: tuple[str, ...], sinks: int) -> None:
        self._topics = topics
        self._several = sinks > 1
        self._parts: list[_Part] = []

    def add(
        self,
        topic: str,
        partitions: int,
        batch: Batch,
        *,
        keys: pa.BinaryArray,
        placing_keys: pa.BinaryArray,
        values: pa.BinaryArray,
        rank: int,
    ) -> None:
        """Append a sink's rows; `rank` is the sink's place among the steps, depth first.

        `placing_keys` choose the partitions: of a windowed key, mostly the part that is the key.
        """
        columns = [
            _constant(self._topics, topic, len(keys)),
            pa.array(partitions_of(placing_keys, partitions)),
            keys,
            values,
            pa.array(batch.timestamps),
            pa.nulls(len(keys), HEADERS_TYPE) if batch.headers is None else batch.headers,
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=OUTPUTS_SCHEMA)
        self._parts.append(_Part(rows, batch.order, rank))

    def result(self) -> pa.RecordBatch:
        """All rows, in order."""
        rows = _combined([part.rows for part in self._parts], OUTPUTS_SCHEMA)
        if not self._several or len(self._parts) < 2:
            return rows
        return rows.take(pa.array(self._merged_order()))

    def _merged_order(self) -> Int64s:
        depth = max(len(part.order) for part in self._parts) + 1
        table = np.zeros((depth, sum(part.rows.num_rows for part in self._parts)), dtype=np.int64)
        at = 0
        for part in self._parts:
            until = at + part.rows.num_rows
            for level, column in enumerate(part.order):
                table[level, at:until] = column
            table[len(part.order), at:until] = part.rank
            at = until
        # numpy's last key is the most significant one.
        return np.lexsort(table[::-1])


def _constant(names: tuple[str, ...], name: str, count: int) -> pa.DictionaryArray:
    indices = np.full(count, names.index(name), dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(names, pa.string()))


def _combined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    if batches:
        return pa.concat_batches(batches)
    return batch_of([], schema)
