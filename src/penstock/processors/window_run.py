"""Aggregations by time window, a column at a time: a window's key is a key of its own."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.processors.aggregate import AggregateRun
from penstock.processors.batch import Batch, Column
from penstock.processors.binary_columns import big_endian, with_tail, without_tail
from penstock.processors.calls import encode
from penstock.processors.depth_first.windows import only_memory
from penstock.processors.meter import SliceMeter
from penstock.processors.records import Int64s
from penstock.serdes import Serde, Windowed, WindowedSerde
from penstock.serdes.windowed import split_window_key, window_end, window_key
from penstock.topology import StoreSpec, TimeWindows, WindowAggregateNode
from penstock.topology.builtins import add_to_mean, collected

_SEQUENCE_BYTES = 4


@dataclass(frozen=True)
class StoreKeySerde(Serde[Windowed[Any]]):
    """A key of a window store. A step that folds may be shown the inner keys instead."""

    inner: Serde[Any]
    size_ms: int
    name: ClassVar[str] = "window-store-key"
    immutable: ClassVar[bool] = True

    def serialize(self, value: Windowed[Any]) -> bytes:
        return window_key(self.inner.serialize(value.key), value.start)

    def deserialize(self, data: bytes) -> Windowed[Any]:
        key, start, _ = split_window_key(data)
        return Windowed(self.inner.deserialize(key), start, window_end(start, self.size_ms))


def window_store_spec(spec: StoreSpec) -> StoreSpec:
    """The store as one of plain keys: each is a key in a window."""
    assert spec.window_ms is not None
    return dataclasses.replace(spec, key_serde=StoreKeySerde(spec.key_serde, spec.window_ms))


class WindowRun:
    """One windowed aggregation over one slice; what comes too late is dropped, window by window."""

    def __init__(
        self,
        node: WindowAggregateNode,
        store: StoreSpec,
        aggregate: AggregateRun,
        *,
        metadata: Mapping[str, str],
        rank: int,
    ) -> None:
        assert isinstance(node.windows, TimeWindows)
        self._node = node
        self._windows: TimeWindows = node.windows
        self._store = store
        self._aggregate = aggregate
        self._rank = rank
        known = (add_to_mean, collected)
        self._shows_keys = node.kind == "aggregate" and node.aggregator not in known
        self._memory = only_memory(store.name)
        self._stream_time = int(metadata.get(f"{self._memory}:stream-time", -1))
        self._store_time = int(metadata.get(f"{store.name}:time", -1))

    def process(self, batch: Batch, dropped: Counter[str]) -> Batch | None:
        """Take rows in; returns the changes that go on now."""
        present = batch.keys.present()
        if present is not None:
            dropped["null_key"] += len(batch) - int(present.sum())
            batch = batch.keep(present)
        if not len(batch):
            return None
        rows, starts = self._in_windows(batch, dropped)
        if not len(rows):
            return None
        self._store_time = max(self._store_time, int(starts.max()))
        inner = self._store.key_serde
        keys = encode(self._node.name, rows, rows.keys, inner, "key")
        tails = np.zeros((len(starts), 8 + _SEQUENCE_BYTES), dtype=np.uint8)
        tails[:, :8] = big_endian(starts)
        # The fold shows keys to the user's function: those inside, as Kafka Streams does.
        shown = rows.keys.objects() if self._shows_keys else None
        serde = StoreKeySerde(inner, self._windows.size_ms)
        column = Column(binary=with_tail(keys, tails), serde=serde, objects=shown)
        return self._as_windowed(self._aggregate.process(rows.replace(keys=column), dropped))

    def flush(self, first: int) -> Batch | None:
        """The changes that the record cache still holds."""
        return self._as_windowed(self._aggregate.flush(first))

    def count(self, meter: SliceMeter) -> None:
        """Tell how the record cache did."""
        self._aggregate.count(meter)

    def metadata(self) -> dict[str, str]:
        """What the next slice needs to know."""
        return {
            f"{self._memory}:stream-time": str(self._stream_time),
            f"{self._memory}:closed": "-1",
            f"{self._store.name}:time": str(self._store_time),
        }

    def _in_windows(self, batch: Batch, dropped: Counter[str]) -> tuple[Batch, Int64s]:
        """A row for each window that a record is in time for, and the windows' starts."""
        size, advance = self._windows.size_ms, self._windows.advance_ms
        times = batch.timestamps
        stream_times = np.maximum.accumulate(np.maximum(times, self._stream_time))
        self._stream_time = int(stream_times[-1])
        firsts = np.maximum(0, times - size + advance) // advance * advance
        counts = (times - firsts) // advance + 1
        rows = batch
        starts = firsts
        if (counts != 1).any():
            index = np.repeat(np.arange(len(batch), dtype=np.int64), counts)
            places = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
            rows = batch.take(index)
            ranks = np.full(len(index), self._rank, dtype=np.int64)
            rows = rows.replace(order=(*rows.order, ranks, places.astype(np.int64)))
            starts, stream_times = firsts[index] + places * advance, stream_times[index]
        in_time = starts + size > stream_times - self._windows.grace_ms
        if not in_time.all():
            dropped["late"] += len(starts) - int(in_time.sum())
        return rows.keep(in_time), starts[in_time]

    def _as_windowed(self, batch: Batch | None) -> Batch | None:
        """The changes with keys as they stand in topics."""
        if batch is None:
            return None
        inner, size = self._store.key_serde, self._windows.size_ms
        stored = batch.keys.binary(StoreKeySerde(inner, size))
        keys = Column(
            binary=without_tail(stored, _SEQUENCE_BYTES), serde=WindowedSerde(inner, size)
        )
        return batch.replace(keys=keys)
