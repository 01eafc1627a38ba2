"""A slice of two inputs, a column at a time: a table's topic, and a stream that joins it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from penstock.processors.batch import Batch
from penstock.processors.inputs import Input, before, joined, unprocessed
from penstock.processors.records import Limits, Records, ScanReader, SliceResult
from penstock.processors.slice_run import SliceRun
from penstock.processors.source import read_source
from penstock.processors.table_join_run import TableHistory, join_table_rows, places_of
from penstock.topology import AggregateNode, StreamTableJoinNode, SubTopology


class TableJoinRun(SliceRun):
    """As `SliceRun`, for a sub-topology that `joins_one_table`."""

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
        table = joined_table(sub_topology)
        assert table is not None
        self._store = sub_topology.store(table.store)
        self._table = next(s for s in sub_topology.sources if table.name in s.children)
        self._history = TableHistory(self._store, state)
        self._places = np.zeros(1, dtype=np.int64)
        self._inputs: dict[Input, list[Records]] = {}

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
        return replace(result, ends=ends)

    def _run_both(self, batches: Mapping[str, Batch]) -> None:
        sources = self._sub.sources
        [stream_source] = [source for source in sources if source is not self._table]
        table, stream = batches.get(self._table.name), batches.get(stream_source.name)
        nothing = np.empty(0, dtype=np.int64)
        names = list(batches)
        table_places, stream_places = places_of(
            nothing if table is None else table.timestamps,
            nothing if stream is None else stream.timestamps,
            table_first=bool(names) and names[0] == self._table.name,
        )
        if table is not None and len(table):
            self._history.add(self._table.name, table, table_places)
            self._run(self._table, table)
        if stream is not None and len(stream):
            # By the records' numbers, of which those that could not be decoded have none.
            numbers = stream.order[0]
            self._rows += int(numbers[-1]) + 1
            self._places = np.zeros(self._rows + 1, dtype=np.int64)
            self._places[numbers] = stream_places
            self._places[-1] = len(table_places) + len(stream_places)
            self._run(stream_source, stream)

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

    def _joined_rows(self, node: StreamTableJoinNode, batch: Batch) -> Batch:
        # A row's first place in the order is its record's number: rows of one record share it.
        # What the record cache held back has a number after all of them, and meets the last rows.
        numbers = np.minimum(batch.order[0], len(self._places) - 1)
        places = self._places[numbers]
        return join_table_rows(
            node, batch, places, self._history, self._store.key_serde, self._dropped
        )


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
