"""Penstock's tasks over topics in memory: the planner's slices, the operators, a commit each.

What a driver does with Spark, Kafka and instances, with the same decisions: `plan` cuts the slices,
`start_slice` runs them, and an input that runs dry while Kafka holds more stops the others.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.coordination.ids import TaskId
from penstock.coordination.planning import PlanLimits, Slice, TaskView, plan
from penstock.processors import (
    HEADERS_TYPE,
    Limits,
    Records,
    changelog_headers,
    partitions_of,
    start_slice,
)
from penstock.testing.stores import DriverState
from penstock.topology import SubTopology
from penstock.topology.naming import changelog_topic
from tests.conformance import programs
from tests.conformance.streams_cases import Sent, StreamsCase

Offsets = Mapping[str, Mapping[str, int]]
"""By topic, then by partition."""
WHOLE = 1_000_000


class Row(NamedTuple):
    """A record in a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class _Task:
    """One partition of a sub-topology: its stores, its position, and what its last slice left."""

    id: TaskId
    sub: SubTopology
    state: DriverState
    position: dict[str, dict[int, int]]
    metadata: Mapping[str, str] = field(default_factory=dict)


class Tasks:
    """A case's topology, ready to take records."""

    def __init__(
        self, case: StreamsCase, *, cache: int | None = None, slice_records: int = WHOLE
    ) -> None:
        topology = programs.application(case.topology, case.id).build()
        self.topics: defaultdict[str, list[list[Row]]] = defaultdict(
            lambda: [[] for _ in range(case.partitions)]
        )
        self._id = case.id
        self._partitions = case.partitions
        self._slice_records = slice_records
        outputs = [t for sub in topology.sub_topologies for t in sub.output_topics(case.id)]
        self._limits = Limits(
            cache_max_bytes=case.cache if cache is None else cache,
            partition_counts=dict.fromkeys(outputs, case.partitions),
        )
        self._tasks = [
            _Task(
                TaskId(sub.number, partition),
                sub,
                DriverState({spec.name: spec for spec in sub.stores}),
                {topic: {partition: 0} for topic in sub.input_topics(case.id)},
            )
            for sub in topology.sub_topologies
            for partition in range(case.partitions)
        ]

    def write(self, records: tuple[Sent, ...]) -> None:
        """Put records into their topics, in the partitions that their keys choose."""
        keys = [None if key is None else key.encode() for _, key, *_ in records]
        places = partitions_of(pa.array(keys, pa.binary()), self._partitions).tolist()
        for (topic, _, value, time, headers), key, place in zip(records, keys, places, strict=True):
            data = None if value is None else value.encode()
            marked = tuple((name, text.encode()) for name, text in headers)
            # Without a key any partition will do; a case with such records has one.
            self._append(topic, Row(max(place, 0), key, data, time, marked))

    def run_to(self, offsets: Offsets) -> None:
        """Let every task go on to these offsets, those that feed others first."""
        waiting = list(self._tasks)
        while waiting:
            ready = [task for task in waiting if self._has(task, offsets)]
            assert ready, f"Too few records in {self._short(waiting, offsets)}"
            for task in ready:
                self._run(task, offsets)
            waiting = [task for task in waiting if task not in ready]

    def run_by(self, chance: random.Random) -> None:
        """Run until nothing is left to read, a slice at a time of whichever task chance says."""
        while waiting := [task for task in self._tasks if self._has_more(task)]:
            self._slice_records = chance.choice([1, 3, 10, 50])
            self._run(chance.choice(waiting), self.ends(), once=True)

    def ends(self) -> dict[str, dict[str, int]]:
        """How many records each partition has, where there are any."""
        found = {
            topic: {str(place): len(rows) for place, rows in enumerate(partitions) if rows}
            for topic, partitions in self.topics.items()
        }
        return {topic: partitions for topic, partitions in found.items() if partitions}

    def _append(self, topic: str, row: Row) -> None:
        self.topics[topic][row.partition].append(row)

    def _has(self, task: _Task, offsets: Offsets) -> bool:
        return not self._short([task], offsets)

    def _has_more(self, task: _Task) -> bool:
        place = task.id.partition
        return any(
            position[place] < len(self.topics[topic][place])
            for topic, position in task.position.items()
        )

    def _short(self, tasks: list[_Task], offsets: Offsets) -> list[str]:
        return [
            topic
            for task in tasks
            for topic in task.position
            if len(self.topics[topic][task.id.partition]) < _end(offsets, topic, task.id.partition)
        ]

    def _run(self, task: _Task, offsets: Offsets, *, once: bool = False) -> None:
        place = task.id.partition
        ends = {(topic, place): _end(offsets, topic, place) for topic in task.position}
        limits = PlanLimits(records_max=self._slice_records, bytes_max=2**40, jobs_max=1)
        while True:
            view = TaskView(
                task=task.id, position=task.position, due=0.0, bytes_per_record=1.0, alone=False
            )
            batches = plan([view], ends, now=0.0, running_jobs=0, limits=limits)
            if not batches:
                return
            self._process(task, batches[0].slices[0])
            if once:
                return

    def _process(self, task: _Task, piece: Slice) -> None:
        run = start_slice(
            task.sub,
            application_id=self._id,
            state=task.state,
            limits=self._limits,
            metadata=task.metadata,
            partition=task.id.partition,
            now_ms=0,
        )
        for topic, place, start, end in piece.ranges:
            run.process(_records(topic, place, start, self.topics[topic][place][start:end]))
            task.position[topic][place] = end
        result = run.finish(more=piece.more)
        for (topic, place), offset in result.ends.items():
            task.position[topic][place] = offset
        task.state.apply(result.changes)
        task.metadata = result.metadata
        headers = changelog_headers(task.sub, result.changes).to_pylist()
        for change, marks in zip(result.changes.to_pylist(), headers, strict=True):
            change |= {"partition": task.id.partition, "headers": marks}
            self._append(changelog_topic(self._id, change["store"]), _row(change))
        for output in result.outputs.to_pylist():
            self._append(output["topic"], _row(output))


def _end(offsets: Offsets, topic: str, partition: int) -> int:
    return offsets.get(topic, {}).get(str(partition), 0)


def _records(topic: str, partition: int, start: int, rows: list[Row]) -> Records:
    headers = [[{"key": name, "value": data} for name, data in row.headers] for row in rows]
    return Records(
        topic=topic,
        partition=partition,
        offsets=np.arange(start, start + len(rows), dtype=np.int64),
        timestamps=np.array([row.timestamp for row in rows], dtype=np.int64),
        keys=pa.array([row.key for row in rows], pa.binary()),
        values=pa.array([row.value for row in rows], pa.binary()),
        headers=pa.array(headers, HEADERS_TYPE) if any(headers) else None,
    )


def _row(output: dict[str, Any]) -> Row:
    headers = tuple((each["key"], each["value"]) for each in output["headers"] or ())
    place = max(output["partition"], 0)
    return Row(place, output["key"], output["value"], output["timestamp"], headers)
