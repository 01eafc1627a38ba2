"""Runs a sub-topology over one task's slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import pyarrow as pa

from penstock.errors import ProductionError, TopicMissingError, TopologyError
from penstock.processors.aggregate import AggregateRun
from penstock.processors.batch import Batch, UnreadableError
from penstock.processors.binary_columns import without_tail
from penstock.processors.calls import encode, unreadable
from penstock.processors.inputs import joined
from penstock.processors.meter import SliceMeter, sinks_by_topic
from penstock.processors.outputs import Changes, Outputs
from penstock.processors.records import Limits, Records, ScanReader, SliceResult
from penstock.processors.source import read_source
from penstock.processors.stateless import split, transform
from penstock.processors.suppress_run import SuppressRun
from penstock.processors.tables import TableNode, change_table
from penstock.processors.window_run import WindowRun, window_store_spec
from penstock.serdes.windowed import window_tail
from penstock.topology import (
    AggregateNode,
    BranchNode,
    Node,
    SinkNode,
    SourceNode,
    SplitNode,
    StreamTableJoinNode,
    SubTopology,
    SuppressNode,
    WindowAggregateNode,
)
from penstock.topology.graph import full_topic

# Small Arrow chunks are joined up to here: a batch costs something per distinct key, too.
BATCH_ROWS = 500_000
BATCH_BYTES = 128 * 1024 * 1024


class SliceRun:
    """One task, one slice: `process` its records in order, then `finish`.

    Raises `UserFunctionError` or `DeserializationError`; then nothing of the slice may be written.
    """

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
        del partition  # Only users' processors ask for it.
        self._now_ms = now_ms
        self._sub = sub_topology
        self._metadata = metadata or {}
        self._limits = limits
        self._application_id = application_id
        self._dropped: Counter[str] = Counter()
        self._rank = _depth_first_ranks(sub_topology)
        self._sources = _sources_by_topic(sub_topology, application_id)
        topics = sub_topology.output_topics(application_id)
        _check_counts(topics, limits)
        self._changes = Changes(tuple(store.name for store in sub_topology.stores))
        self._outputs = Outputs(topics, len(sub_topology.sinks))
        self._aggregates = self._make_aggregates(state)
        self._suppressions = {
            node.name: SuppressRun(
                node,
                state=state,
                changes=self._changes,
                metadata=self._metadata,
                rank=self._rank[node.name],
                reads_again=limits.reads_again,
            )
            for node in sub_topology.nodes
            if isinstance(node, SuppressNode)
        }
        self._waiting: list[Records] = []
        self._rows = 0
        self._meter = SliceMeter(limits.metrics)

    def process(self, records: Records) -> None:
        """Take the next records; may be called any number of times."""
        if not len(records.offsets):
            return
        if records.topic not in self._sources:
            raise TopologyError(
                f"Sub-topology {self._sub.name} does not read topic {records.topic!r}",
                hint=f"It reads: {', '.join(self._sources)}",
            )
        waiting = self._waiting
        if waiting and not _can_join(waiting, records):
            self._run_waiting()
        self._waiting.append(records)

    def finish(self, *, more: Collection[tuple[str, int]] = ()) -> SliceResult:
        """Flush the record cache; returns everything that the slice wants written.

        With one input it does not matter whether Kafka holds `more` of it.
        """
        del more
        self._run_waiting()
        for name, aggregate in self._aggregates.items():
            batch = aggregate.flush(self._rows)
            if batch is not None:
                self._rows += len(batch)
                self._forward(self._sub.by_name[name], batch)
        metadata = dict(self._metadata)
        for suppression in self._suppressions.values():
            suppression.finish()
            metadata |= suppression.metadata()
        for aggregate in self._aggregates.values():
            metadata |= aggregate.metadata()
        result = SliceResult(
            changes=self._changes.result(),
            outputs=self._outputs.result(),
            dropped=dict(self._dropped),
            metadata=metadata,
            meter=self._meter,
        )
        self._count(result)
        return result

    def without(self, refused: Mapping[int, ProductionError]) -> SliceResult:
        """Raises the first error: with a handler that goes on, records go one by one."""
        raise refused[min(refused)]

    def _count(self, result: SliceResult) -> None:
        meter = self._meter
        for aggregate in self._aggregates.values():
            aggregate.count(meter)
        for suppression in self._suppressions.values():
            suppression.count(meter)
        meter.dropped(result.dropped)
        meter.written(result.outputs, sinks_by_topic(self._sub, self._application_id))
        meter.stored(result.changes, self._sub.stores)

    def _make_aggregates(self, state: ScanReader) -> dict[str, AggregateRun | WindowRun]:
        nodes = [node for node in self._sub.nodes if isinstance(node, AggregateNode)]
        return {node.name: self._make_aggregate(node, state) for node in nodes}

    def _make_aggregate(self, node: AggregateNode, state: ScanReader) -> AggregateRun | WindowRun:
        cached = sum(store.caching for store in self._sub.stores)
        store = self._sub.store(node.store)
        windowed = isinstance(node, WindowAggregateNode)
        aggregate = AggregateRun(
            node,
            window_store_spec(store) if windowed else store,
            state=state,
            changes=self._changes,
            cache_max_bytes=self._limits.cache_max_bytes // max(cached, 1),
            rank=self._rank[node.name],
            with_old=node.sends_old,
        )
        if not isinstance(node, WindowAggregateNode):
            return aggregate
        return WindowRun(
            node, store, aggregate, metadata=self._metadata, rank=self._rank[node.name]
        )

    def _run_waiting(self) -> None:
        if not self._waiting:
            return
        records, self._waiting = joined(self._waiting), []
        source = self._sources[records.topic]
        batch = read_source(
            source,
            records,
            first=self._rows,
            on_bad_record=self._limits.on_bad_record,
            dropped=self._dropped,
            now_ms=self._now_ms,
        )
        self._rows += len(records.offsets)
        self._meter.read(source.name, [records], batch.timestamps)
        self._run(source, batch)

    def _run(self, node: Node, batch: Batch) -> None:
        if not len(batch):
            return
        try:
            self._run_rows(node, batch)
        except UnreadableError as error:
            raise unreadable(node.name, batch, error) from error

    def _run_rows(self, node: Node, batch: Batch) -> None:
        if not node.children:
            self._meter.passed(node.name, batch.timestamps)
        if isinstance(node, SinkNode):
            self._sink(node, batch)
        elif isinstance(node, AggregateNode):
            result = self._aggregates[node.name].process(batch, self._dropped)
            if result is not None:
                self._forward(node, result)
        elif isinstance(node, SplitNode):
            children = [self._sub.by_name[child] for child in node.children]
            for branch, part in split((c for c in children if isinstance(c, BranchNode)), batch):
                self._meter.went(node.name, branch.name, len(part))
                self._run(branch, part)
        elif isinstance(node, TableNode):
            self._forward(node, change_table(node, batch))
        elif isinstance(node, StreamTableJoinNode):
            self._forward(node, self._joined_rows(node, batch))
        elif isinstance(node, SuppressNode):
            due = self._suppressions[node.name].process(batch)
            if due is not None:
                self._forward(node, due)
        else:
            rank = self._rank[node.name]
            self._forward(node, transform(node, batch, self._dropped, rank=rank))

    def _joined_rows(self, node: StreamTableJoinNode, batch: Batch) -> Batch:
        raise TopologyError(f"The step {node.name} needs a run over two inputs")

    def _forward(self, node: Node, batch: Batch) -> None:
        for child in node.children:
            self._meter.went(node.name, child, len(batch))
            self._run(self._sub.by_name[child], batch)

    def _sink(self, node: SinkNode, batch: Batch) -> None:
        topic = full_topic(node, node.topic, self._application_id)
        keys = encode(node.name, batch, batch.keys, node.key_serde, "key")
        self._outputs.add(
            topic,
            self._limits.partition_counts[topic],
            batch,
            keys=keys,
            placing_keys=_placing_keys(keys, node),
            values=encode(node.name, batch, batch.values, node.value_serde, "value"),
            rank=self._rank[node.name],
        )


def _placing_keys(keys: pa.BinaryArray, node: SinkNode) -> pa.BinaryArray:
    """What of the keys chooses the partitions: but for repartition topics, the key in a window."""
    width = 0 if node.whole_key else window_tail(node.key_serde)
    if not width:
        return keys
    if not keys.null_count:
        return without_tail(keys, width)
    cut = [None if key is None else key[:-width] for key in keys.to_pylist()]
    return pa.array(cut, pa.binary())


def _depth_first_ranks(sub_topology: SubTopology) -> dict[str, int]:
    """Each step's place in the order in which one record meets the steps."""
    ranks: dict[str, int] = {}

    def visit(name: str) -> None:
        ranks.setdefault(name, len(ranks))
        for child in sub_topology.by_name[name].children:
            visit(child)

    for source in sub_topology.sources:
        visit(source.name)
    return ranks


def _sources_by_topic(sub_topology: SubTopology, application_id: str) -> dict[str, SourceNode]:
    return {
        full_topic(source, topic, application_id): source
        for source in sub_topology.sources
        for topic in source.topics
    }


def _check_counts(topics: tuple[str, ...], limits: Limits) -> None:
    for topic in topics:
        if limits.partition_counts.get(topic, 0) < 1:
            raise TopicMissingError(
                "The number of partitions of an output topic is not known",
                where={"topic": topic},
                hint="Create the topic before the application starts",
            )


def _can_join(waiting: list[Records], more: Records) -> bool:
    last = waiting[-1]
    rows = sum(len(each.offsets) for each in waiting) + len(more.offsets)
    size = sum(each.keys.nbytes + each.values.nbytes for each in (*waiting, more))
    same = (last.topic, last.partition) == (more.topic, more.partition)
    return same and rows <= BATCH_ROWS and size <= BATCH_BYTES
