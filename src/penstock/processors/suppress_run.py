"""Suppress over one slice: changes wait in a buffer without limits, ordered by time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.processors.batch import Batch, Column
from penstock.processors.binary_columns import tail_numbers
from penstock.processors.calls import encode
from penstock.processors.depth_first.record import Context, headers_of
from penstock.processors.depth_first.state import TIME_BYTES
from penstock.processors.depth_first.suppress import Buffered, read_buffered
from penstock.processors.meter import SliceMeter
from penstock.processors.outputs import Changes
from penstock.processors.records import HEADERS_TYPE, ScanReader
from penstock.serdes import Serde, Windowed, WindowedSerde
from penstock.topology import SuppressNode
from penstock.topology.windows import LONG_MAX


class SuppressRun:
    """Holds changes back; what is due goes on in order of time and key."""

    def __init__(
        self,
        node: SuppressNode,
        *,
        state: ScanReader,
        changes: Changes,
        metadata: Mapping[str, str],
        rank: int,
        reads_again: bool,
    ) -> None:
        self._node = node
        self._reads_again = reads_again
        self._state = state
        self._changes = changes
        self._rank = rank
        self._stream_time = int(metadata.get(f"{node.store}:time", -1))
        self._entries: dict[bytes, Buffered | None] = {}
        self._stored: set[bytes] = set()
        self._dirty: dict[bytes, None] = {}
        self._heap: list[tuple[int, bytes]] = []
        self._due_from = -(2**62)
        self._emitted = 0

    def process(self, batch: Batch) -> Batch | None:
        """Take changes in; returns those that are due."""
        node = self._node
        keys = encode(node.name, batch, batch.keys, node.key_serde, "key")
        values = encode(node.name, batch, batch.values, node.value_serde, "value")
        old = None
        if batch.old is not None:
            old = encode(node.name, batch, batch.old, node.value_serde, "value").to_pylist()
        names: list[bytes] = keys.to_pylist()
        self._read(names)
        self._read_due(int(batch.timestamps.max()))
        times, offsets = batch.timestamps.tolist(), batch.offsets.tolist()
        ends = times if not node.final else _window_ends(batch, keys, node.key_serde)
        headers = headers_of(batch.headers, len(batch))
        emitted: list[tuple[bytes, Buffered]] = []
        causes: list[int] = []
        for row, (name, value) in enumerate(zip(names, values.to_pylist(), strict=True)):
            context = Context(batch.topic, batch.partition, offsets[row], times[row], headers[row])
            self._put(name, ends[row], value, None if old is None else old[row], context)
            self._stream_time = max(self._stream_time, times[row])
            due = self._stream_time - node.duration_ms
            while self._heap and self._heap[0][0] <= due:
                self._take(emitted)
            causes += [row] * (len(emitted) - len(causes))
        self._emitted += len(emitted)
        return self._batch(batch, emitted, causes)

    def finish(self) -> None:
        """Write what changed in the buffer."""
        keys = list(self._dirty)
        if not self._reads_again:
            # What came and went within the slice was never stored.
            keys = [k for k in keys if self._entries[k] is not None or k in self._stored]
        found = [self._entries[key] for key in keys]
        values = [None if each is None else each.serialize() for each in found]
        times = [0 if each is None else each.context.timestamp for each in found]
        if keys:
            self._changes.add(
                self._node.store,
                pa.array(keys, pa.binary()),
                pa.array(values, pa.binary()),
                np.array(times, dtype=np.int64),
            )

    def count(self, meter: SliceMeter) -> None:
        """Tell how many changes were let go."""
        meter.suppressed(self._node.name, self._emitted)

    def metadata(self) -> dict[str, str]:
        """What the next slice needs to know."""
        return {f"{self._node.store}:time": str(self._stream_time)}

    def _read(self, names: list[bytes]) -> None:
        missing = list(dict.fromkeys(name for name in names if name not in self._entries))
        if not missing:
            return
        found = self._state.get_many(self._node.store, pa.array(missing, pa.binary()))
        for name, data in zip(missing, found.to_pylist(), strict=True):
            self._know(name, None if data is None else read_buffered(data[TIME_BYTES:]))

    def _read_due(self, latest: int) -> None:
        """Read what becomes due in this slice, once for each stretch of time."""
        until = max(latest, self._stream_time) - self._node.duration_ms
        if until < self._due_from:
            return
        for name, data in self._state.fetch_times(self._node.store, self._due_from, until):
            if name not in self._entries:
                self._know(name, read_buffered(data[TIME_BYTES:]))
        self._due_from = until + 1

    def _know(self, name: bytes, entry: Buffered | None) -> None:
        self._entries[name] = entry
        if entry is not None:
            self._stored.add(name)
            heapq.heappush(self._heap, (entry.time, name))

    def _put(
        self, name: bytes, time: int, new: bytes | None, old: bytes | None, context: Context
    ) -> None:
        before = self._entries.get(name)
        if before is None:
            entry = Buffered(time, old, old, new, context)
            heapq.heappush(self._heap, (time, name))
        else:
            entry = Buffered(before.time, before.prior, old, new, context)
        self._entries[name] = entry
        self._dirty[name] = None

    def _take(self, emitted: list[tuple[bytes, Buffered]]) -> None:
        _, name = heapq.heappop(self._heap)
        entry = self._entries[name]
        assert entry is not None
        self._entries[name] = None
        self._dirty[name] = None
        # Only a final result may be forgotten with its window: nobody downstream ever saw it.
        if entry.new is not None or not self._node.final:
            emitted.append((name, entry))

    def _batch(
        self, batch: Batch, emitted: list[tuple[bytes, Buffered]], causes: list[int]
    ) -> Batch | None:
        if not emitted:
            return None
        node, rows = self._node, np.array(causes, dtype=np.int64)
        contexts = [entry.context for _, entry in emitted]
        headers = None
        if any(context.headers for context in contexts):
            listed = [[{"key": k, "value": v} for k, v in c.headers] for c in contexts]
            headers = pa.array(listed, HEADERS_TYPE)
        ranks = np.full(len(rows), self._rank, dtype=np.int64)
        places = np.arange(len(rows), dtype=np.int64)
        old = [entry.old for _, entry in emitted]
        return Batch(
            topic=batch.topic,
            partition=batch.partition,
            offsets=np.array([context.offset for context in contexts], dtype=np.int64),
            timestamps=np.array([context.timestamp for context in contexts], dtype=np.int64),
            keys=Column(
                binary=pa.array([name for name, _ in emitted], pa.binary()), serde=node.key_serde
            ),
            values=Column(
                binary=pa.array([entry.new for _, entry in emitted], pa.binary()),
                serde=node.value_serde,
            ),
            headers=headers,
            order=(*(each[rows] for each in batch.order), ranks, places),
            old=Column(binary=pa.array(old, pa.binary()), serde=node.value_serde),
        )


def _window_ends(batch: Batch, keys: pa.BinaryArray, serde: Serde[Any]) -> list[int]:
    if isinstance(serde, WindowedSerde) and not keys.null_count:
        starts = tail_numbers(keys)
        ends: list[int] = (starts + np.minimum(serde.size_ms, LONG_MAX - starts)).tolist()
        return ends
    windows: list[Windowed[object]] = batch.keys.objects()
    return [window.end for window in windows]
