"""Which way a slice is computed: a column at a time where that is possible, else by record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from penstock.errors import ProductionError
from penstock.processors.depth_first import RecordRun
from penstock.processors.records import Limits, Records, ScanReader, SliceResult
from penstock.processors.slice_run import SliceRun
from penstock.processors.two_inputs import (
    StreamJoinRun,
    TableJoinRun,
    joined_streams,
    joined_table,
)
from penstock.topology import (
    AggregateNode,
    BranchNode,
    DropNullKeyNode,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    ForeachNode,
    JoinWindowNode,
    MapNode,
    MapValuesNode,
    MergeNode,
    Node,
    PeekNode,
    SelectKeyNode,
    SinkNode,
    SourceNode,
    SplitNode,
    StreamJoinNode,
    StreamTableJoinNode,
    SubTopology,
    SuppressNode,
    TableFilterNode,
    TableMapValuesNode,
    TimeWindows,
    ToStreamNode,
    WindowAggregateNode,
)

_IN_COLUMNS: frozenset[type[Node]] = frozenset(
    {
        AggregateNode,
        BranchNode,
        DropNullKeyNode,
        FilterNode,
        FlatMapNode,
        FlatMapValuesNode,
        ForeachNode,
        MapNode,
        MapValuesNode,
        PeekNode,
        SelectKeyNode,
        SinkNode,
        SourceNode,
        SplitNode,
        TableFilterNode,
        TableMapValuesNode,
        ToStreamNode,
    }
)


FEW_RECORDS = 64
"""So many records are joined one by one: what numpy and Arrow take for each call costs more."""


class Run(Protocol):
    """One task's slice on its way through the steps."""

    def process(self, records: Records) -> None:
        """Take the next records of one input."""

    def finish(self, *, more: Collection[tuple[str, int]] = ()) -> SliceResult:
        """Everything that the slice wants written; Kafka holds more of the inputs in `more`."""

    def without(self, refused: Mapping[int, ProductionError]) -> SliceResult:
        """The same without these rows of its outputs, which Kafka does not take.

        Raises the error of one that the handler fails on.
        """


def start_slice(
    sub_topology: SubTopology,
    *,
    application_id: str,
    state: ScanReader,
    limits: Limits,
    metadata: Mapping[str, str],
    partition: int,
    now_ms: int,
) -> Run:
    """A run of one slice; `metadata` is what the task's last slice left."""

    def start(kind: type[SliceRun | RecordRun]) -> Run:
        return kind(
            sub_topology,
            application_id=application_id,
            state=state,
            limits=limits,
            metadata=metadata,
            partition=partition,
            now_ms=now_ms,
        )

    if handles_errors(limits) or not runs_in_columns(sub_topology):
        return start(RecordRun)
    if joined_streams(sub_topology) is not None:
        return _RunBySize(few=lambda: start(RecordRun), many=lambda: start(StreamJoinRun))
    return start(SliceRun if joined_table(sub_topology) is None else TableJoinRun)


class _RunBySize:
    """Waits for all records of a slice, and runs a few of them one by one."""

    def __init__(self, *, few: Callable[[], Run], many: Callable[[], Run]) -> None:
        self._few = few
        self._many = many
        self._waiting: list[Records] = []
        self._run: Run | None = None

    def process(self, records: Records) -> None:
        """Take the next records of one input."""
        self._waiting.append(records)

    def finish(self, *, more: Collection[tuple[str, int]] = ()) -> SliceResult:
        """Run all of them."""
        count = sum(len(each.offsets) for each in self._waiting)
        self._run = self._few() if count <= FEW_RECORDS else self._many()
        for records in self._waiting:
            self._run.process(records)
        return self._run.finish(more=more)

    def without(self, refused: Mapping[int, ProductionError]) -> SliceResult:
        """As `Run` says."""
        assert self._run is not None
        return self._run.without(refused)


def handles_errors(limits: Limits) -> bool:
    """Whether some records may fail and the others go on: then each goes its way alone."""
    handlers = (limits.on_processing_error, limits.on_production_error)
    return handlers != ("fail", "fail") or limits.dead_letter_topic is not None


def runs_in_columns(sub_topology: SubTopology) -> bool:
    """Whether every step is one that can be computed a column at a time, over one input or over a
    stream and the table or the stream that it is joined with."""
    # What a partition's latest time was is kept from slice to slice by the other engine alone.
    if any(source.time_rule == "partition_time" for source in sub_topology.sources):
        return False
    if joined_streams(sub_topology) is not None:
        return all(_is_in_stream_join(node) for node in sub_topology.nodes)
    topics = sum(len(source.topics) for source in sub_topology.sources)
    joins = any(isinstance(node, StreamTableJoinNode) for node in sub_topology.nodes)
    # A stream may also be joined with a table of its own: then each record changes what it meets.
    if (joins or topics != 1) and joined_table(sub_topology) is None:
        return False
    nodes = [node for node in sub_topology.nodes if not isinstance(node, StreamTableJoinNode)]
    stores = [store for node in nodes for store in node.stores]
    # Streams that are grouped together share a store, which only records in order can.
    shared = len(stores) != len(set(stores))
    # What a versioned store says of a record depends on all those before it.
    special = any(
        store.max_entries is not None or store.kind == "versioned" for store in sub_topology.stores
    )
    return not shared and not special and all(_is_in_columns(node) for node in sub_topology.nodes)


def _is_in_stream_join(node: Node) -> bool:
    """Whether a step can be before or behind a join of streams: the join's own, or stateless."""
    if isinstance(node, JoinWindowNode | StreamJoinNode | MergeNode):
        return True
    return not node.stores and not isinstance(node, SuppressNode) and _is_in_columns(node)


def _is_in_columns(node: Node) -> bool:
    if isinstance(node, SinkNode):
        return node.partitioner is None and node.topic_of is None
    if isinstance(node, WindowAggregateNode):
        # One that begins later than time does is rare, and its end would not fit a column.
        plain = isinstance(node.windows, TimeWindows) and node.windows.start_ms == 0
        return plain and node.emit == "update"
    if isinstance(node, SuppressNode):
        return node.buffer.records is None and node.buffer.size_bytes is None
    if isinstance(node, StreamTableJoinNode):
        return True
    # A filter or mapping of tables with a store of its own is not.
    return type(node) in _IN_COLUMNS and (type(node) is AggregateNode or not node.stores)
