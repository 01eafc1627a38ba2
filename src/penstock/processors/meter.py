"""What a slice counts on its way through the steps: a few sums for each Arrow batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.observability import groups
from penstock.observability.groups import Level, includes, store_scope
from penstock.observability.tallies import Entry, Tallies, Tally
from penstock.processors.records import Int64s, Records
from penstock.topology import SubTopology
from penstock.topology.graph import full_topic
from penstock.topology.nodes import SinkNode, StoreSpec

E2E_LATENCY = "record-e2e-latency"
# Up to here, one by one is quicker than a call into Arrow.
_FEW = 16


class SliceMeter:
    """Counts for one slice; whoever sends it on puts instance and task before the tags.

    >>> meter = SliceMeter("INFO")
    >>> meter.passed("sink", np.array([1_000, 4_000]))
    >>> [entry] = meter.entries(now_ms=5_000)
    >>> entry.name, entry.tally.least, entry.tally.most
    ('record-e2e-latency', 1000.0, 4000.0)
    """

    def __init__(self, level: Level = "OFF") -> None:
        self._info = includes(level, "INFO")
        self.debug = includes(level, "DEBUG")
        self._trace = includes(level, "TRACE")
        self._tallies = Tallies()
        self._times = Tallies()

    def read(self, source: str, chunks: Sequence[Records], timestamps: Int64s) -> None:
        """Records of one topic came from a source; what could be decoded has these times."""
        if not self._info or not chunks:
            return
        count = sum(len(each.offsets) for each in chunks)
        size = sum(each.keys.nbytes + each.values.nbytes for each in chunks)
        tags = (source, chunks[0].topic)
        self._tallies.add(groups.TOPIC, "consumed", tags, Tally.many(count, size))
        self.passed(source, timestamps)
        if self.debug and len(timestamps):
            self._tallies.add(groups.NODE, "process", (source,), Tally.many(len(timestamps), 0.0))
            late = np.maximum.accumulate(timestamps) - timestamps
            self._tallies.add(groups.TASK, "record-lateness", (), Tally.over(late))

    def passed(self, node: str, timestamps: Int64s) -> None:
        """Records of these times have come to a source, or to the end of their way."""
        if self._info and len(timestamps):
            self._times.add(groups.NODE, E2E_LATENCY, (node,), Tally.over(timestamps))

    def went(self, parent: str, child: str, count: int) -> None:
        """So many records went from one step to another."""
        if self._info and count:
            self._tallies.add(groups.EDGE, "went", (parent, child), Tally.many(count, 0.0))

    def cached(self, store: str, *, reads: int, misses: int, size: int) -> None:
        """A store's record cache was asked for so many keys, and takes so many bytes."""
        if self.debug and reads:
            ratio = Tally.of(1 - misses / reads)
            self._tallies.add(groups.CACHE, "hit-ratio", (store,), ratio)
            self._tallies.add(groups.TASK, "cache-size-bytes-total", (), Tally.of(size))

    def suppressed(self, node: str, emitted: int) -> None:
        """A suppress let so many records go."""
        if self.debug and emitted:
            self._tallies.add(groups.NODE, "suppression-emit", (node,), Tally.many(emitted, 0.0))

    def closed(self, node: str, emitted: int, seconds: float) -> None:
        """So many windows closed, and their results were given out."""
        if self.debug and emitted:
            tally = Tally.many(emitted, seconds)
            self._tallies.add(groups.NODE, "window-aggregate-final-emit", (node,), tally)

    def punctuated(self, seconds: float) -> None:
        """A punctuator was called."""
        if self._info:
            self._tallies.add(groups.THREAD, "punctuate", (), Tally.of(seconds))

    def told(self, node: str, metric: str, sensor: str, tally: Tally) -> None:
        """A user's processor counted or measured this under a name of its own."""
        if self._info:
            self._tallies.add(groups.PROCESSOR, sensor, (node, metric), tally)

    def dropped(self, reasons: Mapping[str, int]) -> None:
        """Records went no further, for these reasons."""
        for reason, count in reasons.items() if self._info else ():
            if count:
                tally = Tally.many(count, 0.0)
                self._tallies.add(groups.TASK, "dropped-records", (), tally)
                self._tallies.add(groups.DROP, "dropped", (reason,), tally)

    def written(self, outputs: pa.RecordBatch, sinks: Mapping[str, str]) -> None:
        """What the slice wants written to topics; `sinks` has the step of each."""
        if not self._info or not outputs.num_rows:
            return
        indices = outputs.column("topic").indices.to_numpy(zero_copy_only=False)
        sizes = _lengths(outputs.column("key")) + _lengths(outputs.column("value"))
        counts = np.bincount(indices)
        totals = np.bincount(indices, weights=sizes)
        for number, topic in enumerate(outputs.column("topic").dictionary.to_pylist()):
            if number < len(counts) and counts[number]:
                # Records may name topics without end, and each would be a metric of its own.
                tags = (sinks[topic], topic) if topic in sinks else ("", "other")
                tally = Tally.many(int(counts[number]), float(totals[number]))
                self._tallies.add(groups.TOPIC, "produced", tags, tally)

    def sent(self, outputs: pa.RecordBatch, sinks: Mapping[str, str]) -> None:
        """As `passed` for sinks, of what the slice wants written."""
        if not self._info or not outputs.num_rows:
            return
        topics = outputs.column("topic")
        indices = topics.indices.to_numpy(zero_copy_only=False)
        times = outputs.column("timestamp").to_numpy(zero_copy_only=False)
        for number, topic in enumerate(topics.dictionary.to_pylist()):
            if topic in sinks:
                self.passed(sinks[topic], times[indices == number])

    def stored(self, changes: pa.RecordBatch, specs: Iterable[StoreSpec]) -> None:
        """What the slice wants written to stores."""
        if not self._trace or not changes.num_rows:
            return
        stores = changes.column("store")
        indices = stores.indices.to_numpy(zero_copy_only=False)
        times = changes.column("timestamp").to_numpy(zero_copy_only=False)
        scopes = {each.name: store_scope(each.kind, persistent=each.persistent) for each in specs}
        for number, store in enumerate(stores.dictionary.to_pylist()):
            own = times[indices == number]
            if len(own):
                self._times.add(groups.STORE, E2E_LATENCY, (scopes[store], store), Tally.over(own))

    def entries(self, now_ms: float) -> list[Entry]:
        """All of it; what was noted as a time becomes how long ago that is."""
        ago = [Entry(*sensor, times.before(now_ms)) for sensor, times in self._times]
        return [*self._tallies.entries(), *ago]


def sinks_by_topic(sub_topology: SubTopology, application_id: str) -> dict[str, str]:
    """The step that writes each topic; of several that write one, the first."""
    found: dict[str, str] = {}
    for node in sub_topology.nodes:
        if isinstance(node, SinkNode) and node.topic_of is None:
            found.setdefault(full_topic(node, node.topic, application_id), node.name)
    return found


def _lengths(column: pa.BinaryArray) -> Int64s:
    if len(column) <= _FEW:
        return np.array([len(data or b"") for data in column.to_pylist()], dtype=np.int64)
    lengths: Int64s = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths
