"""A slice of two inputs, a column at a time: a stream and the table or stream that it is joined
with."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.processors.aggregate import AggregateRun
from penstock.processors.batch import Batch, Column, UnreadableError
from penstock.processors.calls import unreadable
from penstock.processors.inputs import Input, before, joined, unprocessed
from penstock.processors.records import (
    STREAM_TIME,
    Int64s,
    Limits,
    Records,
    ScanReader,
    SliceResult,
)
from penstock.processors.slice_run import SliceRun
from penstock.processors.source import read_source
from penstock.processors.stream_join_run import (
    NEVER,
    JoinStore,
    Meeting,
    Side,
    asked_times,
    joinable,
    joined_rows,
    sides_of,
)
from penstock.processors.table_join_run import TableHistory, join_table_rows, places_of
from penstock.topology import (
    AggregateNode,
    BranchNode,
    DropNullKeyNode,
    FilterNode,
    FlatMapValuesNode,
    JoinWindowNode,
    MapValuesNode,
    MergeNode,
    Node,
    PeekNode,
    SourceNode,
    SplitNode,
    StreamJoinNode,
    StreamTableJoinNode,
    SubTopology,
)
from penstock.topology.graph import full_topic

_KEEPS_KEYS = (
    BranchNode,
    DropNullKeyNode,
    FilterNode,
    FlatMapValuesNode,
    MapValuesNode,
    PeekNode,
    SplitNode,
)
_NONE = np.empty(0, dtype=np.int64)


class TwoInputs(SliceRun):
    """As `SliceRun`, for two inputs, which are run when both are known."""

    def __init__(
        self,
        sub_topology: SubTopology,
        *,
        application_id: str,
        state: ScanReader,
        limits: Limits,
        metadata: Mapping[str, str] | None = None,
        partition: int = 0,
        now_ms: int = 0,
    ) -> None:
        super().__init__(
            sub_topology,
            application_id=application_id,
            state=state,
            limits=limits,
            metadata=metadata,
            partition=partition,
            now_ms=now_ms,
        )
        self._inputs: dict[Input, list[Records]] = {}
        self._partition = partition
        self._open(state)

    @abstractmethod
    def _open(self, state: ScanReader) -> None:
        """Get ready what the join looks into."""

    def process(self, records: Records) -> None:
        """Take the next records of one input."""
        if len(records.offsets):
            self._inputs.setdefault((records.topic, records.partition), []).append(records)

    def finish(self, *, more: Collection[Input] = ()) -> SliceResult:
        """Run both inputs; where one that has `more` in Kafka runs dry, the other waits."""
        ends: dict[Input, int] = {}
        if more:
            ends = unprocessed(self._read(self._inputs, Counter()), frozenset(more))
        inputs = {name: before(chunks, ends.get(name)) for name, chunks in self._inputs.items()}
        batches = self._read(inputs, self._dropped)
        for name, chunks in inputs.items():
            source = self._sources[name[0]].name
            self._meter.read(source, chunks, batches[name].timestamps)
        by_source = {self._sources[topic].name: batch for (topic, _), batch in batches.items()}
        self._run_both(by_source)
        result = super().finish()
        return replace(result, ends=ends, metadata={**result.metadata, **self._left_behind()})

    @abstractmethod
    def _run_both(self, batches: Mapping[str, Batch]) -> None:
        """Run the records of each source."""

    def _left_behind(self) -> dict[str, str]:
        """What the next slice needs to know of the join."""
        return {}

    def _read(
        self, inputs: Mapping[Input, list[Records]], dropped: Counter[str]
    ) -> dict[Input, Batch]:
        return {
            name: read_source(
                self._sources[name[0]],
                joined(chunks),
                first=0,
                on_bad_record=self._limits.on_bad_record,
                dropped=dropped,
                now_ms=self._now_ms,
            )
            for name, chunks in inputs.items()
        }


class TableJoinRun(TwoInputs):
    """As `SliceRun`, for a sub-topology of which there is a `joined_table`."""

    def _open(self, state: ScanReader) -> None:
        table = joined_table(self._sub)
        assert table is not None
        self._store = self._sub.store(table.store)
        self._table = next(s for s in self._sub.sources if table.name in s.children)
        self._history = TableHistory(self._store, state)
        aggregate = self._aggregates[table.name]
        assert isinstance(aggregate, AggregateRun)
        self._aggregate = aggregate
        self._places = np.zeros(1, dtype=np.int64)

    def _run_both(self, batches: Mapping[str, Batch]) -> None:
        sources = self._sub.sources
        [stream_source] = [source for source in sources if source is not self._table]
        table, stream = batches.get(self._table.name), batches.get(stream_source.name)
        table_places, stream_places = _places(batches, self._table, stream_source)
        if table is not None and len(table):
            self._history.add(self._table.name, table, table_places)
        if stream is not None and len(stream):
            # By the records' numbers, of which those that could not be decoded have none.
            numbers = stream.order[0]
            self._rows += int(numbers[-1]) + 1
            self._places = np.zeros(self._rows + 1, dtype=np.int64)
            self._places[numbers] = stream_places
            self._places[-1] = len(table_places) + len(stream_places)
            self._run(stream_source, stream)
        if table is not None and len(table):
            # Nothing is behind the table; what its cache lets go depends on what was looked up.
            self._aggregate.looked_up(self._history.looks)
            self._run(self._table, table.replace(order=(table_places,)))

    def _joined_rows(self, node: StreamTableJoinNode, batch: Batch) -> Batch:
        # A row's first place in the order is its record's number: rows of one record share it.
        # What the record cache held back has a number after all of them, and meets the last rows.
        numbers = np.minimum(batch.order[0], len(self._places) - 1)
        places = self._places[numbers]
        return join_table_rows(
            node, batch, places, self._history, self._store.key_serde, self._dropped
        )


class StreamJoinRun(TwoInputs):
    """As `SliceRun`, for a sub-topology of which there are `joined_streams`."""

    def _open(self, state: ScanReader) -> None:
        streams = joined_streams(self._sub)
        assert streams is not None
        self._streams = streams
        self._stores = [
            JoinStore(self._sub.store(half.window.store), state, self._metadata) for half in streams
        ]
        self._join = f"{min(store.spec.name for store in self._stores)}:join"
        self._join_time = int(self._metadata.get(f"{self._join}:time", -1))
        self._stream_time = int(self._metadata.get(STREAM_TIME, -1))
        self._arrived: dict[str, Batch] = {}

    def _run_both(self, batches: Mapping[str, Batch]) -> None:
        left, right = self._streams
        for half, places in zip(
            self._streams, _places(batches, left.source, right.source), strict=True
        ):
            batch = batches.get(half.source.name)
            if batch is not None and len(batch):
                self._rows += len(batch)
                self._stream_time = max(self._stream_time, int(batch.timestamps.max()))
                # Rows of both inputs stand in one order.
                self._run(half.source, batch.replace(order=(places,)))
        if self._arrived:
            self._join_streams()

    def _run_rows(self, node: Node, batch: Batch) -> None:
        if isinstance(node, JoinWindowNode):
            self._meter.went(node.name, node.children[0], len(batch))
            self._join_time = max(self._join_time, int(batch.timestamps.max()))
            self._arrived[node.name] = joinable(batch, self._dropped)
        else:
            super()._run_rows(node, batch)

    def _join_streams(self) -> None:
        stores, halves = self._stores, self._streams
        batches = [self._arrived.get(half.window.name) or self._nothing(half) for half in halves]
        left, right, keys = sides_of(batches[0], batches[1], stores[0].spec)
        for half, store, side in zip(halves, stores, (left, right), strict=True):
            store.put(half.window.name, side, self._changes, self._dropped)
        meetings = [
            self._meeting(halves[0], left, stores[1], keys),
            self._meeting(halves[1], right, stores[0], keys),
        ]
        for each in meetings:
            self._meter.went(each.node.name, each.node.children[0], len(each.pairs.rows))
        if any(len(each.pairs.rows) for each in meetings):
            try:
                rows = joined_rows(*meetings)
            except UnreadableError as error:
                raise unreadable(halves[0].join.name, batches[0], error) from error
            self._forward(self._sub.by_name[halves[0].join.children[0]], rows)

    def _meeting(self, half: Half, side: Side, other: JoinStore, keys: pa.BinaryArray) -> Meeting:
        first, last = asked_times(half.join, side.batch.timestamps)
        held, found = other.met_by(side, first, last, keys)
        rank = self._rank[half.join.name]
        return Meeting(half.join, rank, side, other.spec, held, found)

    def _nothing(self, half: Half) -> Batch:
        """The rows of a side that has none in this slice."""
        spec = self._sub.store(half.window.store)
        empty = pa.array([], pa.binary())
        return Batch(
            topic=full_topic(half.source, half.source.topics[0], self._application_id),
            partition=self._partition,
            offsets=_NONE,
            timestamps=_NONE,
            keys=Column(binary=empty, serde=spec.key_serde),
            values=Column(binary=empty, serde=spec.value_serde),
            headers=None,
            order=(_NONE,),
        )

    def _left_behind(self) -> dict[str, str]:
        oldest = self._metadata.get(f"{self._join}:oldest", str(NEVER))
        return {
            STREAM_TIME: str(self._stream_time),
            f"{self._join}:time": str(self._join_time),
            f"{self._join}:oldest": oldest,
            **self._stores[0].metadata(),
            **self._stores[1].metadata(),
        }


def _places(
    batches: Mapping[str, Batch], one: SourceNode, two: SourceNode
) -> tuple[Int64s, Int64s]:
    """Where the records of two sources stand in the order in which they are taken."""
    times = [
        batches[each.name].timestamps if each.name in batches else _NONE for each in (one, two)
    ]
    return places_of(*times, table_first=next(iter(batches), "") == one.name)


def joined_table(sub_topology: SubTopology) -> AggregateNode | None:
    """The table, if the sub-topology reads one topic into a table and joins another with it."""
    joins = [node for node in sub_topology.nodes if isinstance(node, StreamTableJoinNode)]
    tables = {node.table for node in joins}
    topics = [len(source.topics) for source in sub_topology.sources]
    if len(tables) != 1 or topics != [1, 1]:
        return None
    table = sub_topology.by_name[tables.pop()]
    feeds = [source for source in sub_topology.sources if source.children == (table.name,)]
    plain = type(table) is AggregateNode and table.kind == "latest" and not table.children
    return table if plain and len(feeds) == 1 and isinstance(table, AggregateNode) else None


@dataclass(frozen=True)
class Half:
    """One side of a join of streams: where its records come from, and its two steps."""

    source: SourceNode
    window: JoinWindowNode
    join: StreamJoinNode


def joined_streams(sub_topology: SubTopology) -> tuple[Half, Half] | None:
    """The left and the right side, if the sub-topology is an inner join of two topics' streams.

    Values that a function could change in place are not for it: as in Kafka Streams, partners that
    come later would meet the changed ones.
    """
    nodes = sub_topology.nodes
    joins = sorted((n for n in nodes if isinstance(n, StreamJoinNode)), key=lambda n: n.side)
    merges = [node for node in nodes if isinstance(node, MergeNode)]
    topics = [len(source.topics) for source in sub_topology.sources]
    if [node.side for node in joins] != ["left", "right"] or len(merges) != 1 or topics != [1, 1]:
        return None
    if any(node.outer or node.unmatched is not None for node in joins):
        return None
    halves = [_half(sub_topology, node) for node in joins]
    left, right = halves
    if left is None or right is None or left.source is right.source:
        return None
    keys = [sub_topology.store(half.window.store).key_serde for half in (left, right)]
    return (left, right) if keys[0] == keys[1] else None


def _half(sub_topology: SubTopology, join: StreamJoinNode) -> Half | None:
    """A side whose rows are records of one source, with their keys, and of no changeable values."""
    parents = {child: node for node in sub_topology.nodes for child in node.children}
    window = node = parents[join.name]
    assert isinstance(window, JoinWindowNode)
    while not isinstance(node := parents[node.name], SourceNode):
        if not isinstance(node, _KEEPS_KEYS):
            return None
    spec = sub_topology.store(window.store)
    fixed = spec.key_serde.immutable and spec.value_serde.immutable
    return Half(node, window, join) if fixed and node.key_serde == spec.key_serde else None
