"""Runs a sub-topology over one task's slice, record by record."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PartitionChoiceError, ProductionError, UserFunctionError
from penstock.processors.batch import Batch
from penstock.processors.depth_first.building import Builder
from penstock.processors.depth_first.bulk import answers_ahead
from penstock.processors.depth_first.dead_letters import DeadLetterTopic, letter_of
from penstock.processors.depth_first.guarding import answer_to_refusal
from penstock.processors.depth_first.prefetch import prefetch
from penstock.processors.depth_first.punctuators import NEVER, Punctuator, next_due
from penstock.processors.depth_first.record import (
    Context,
    DeadLetter,
    Headers,
    Origin,
    Record,
    Shared,
    headers_of,
)
from penstock.processors.depth_first.state import Row
from penstock.processors.depth_first.steps import Step
from penstock.processors.inputs import before, joined, unprocessed
from penstock.processors.meter import SliceMeter, sinks_by_topic
from penstock.processors.partitioner import partition_of, partitions_of
from penstock.processors.records import (
    CHANGES_SCHEMA,
    OUTPUTS_SCHEMA,
    STREAM_TIME,
    WALL_CLOCK_DUE,
    Limits,
    Records,
    ScanReader,
    SliceResult,
    batch_of,
)
from penstock.processors.source import read_source
from penstock.serdes import Serde
from penstock.serdes.windowed import window_tail
from penstock.topology import Node, SinkNode, SubTopology
from penstock.topology.graph import full_topic
from penstock.topology.naming import is_name
from penstock.topology.processor import Record as UserRecord

Input = tuple[str, int]
_Output = tuple[str, bytes | None, bytes | None, int, Headers, bytes | None, int, Origin | None]
BY_KEY, BY_PRODUCER = -2, -1
"""Partitions that are still to be computed: here from the key, or by whoever writes the record."""
# So many outputs are quicker made row by row: each call into Arrow or numpy costs some of them.
_FEW = 32


class Sink(Step):
    """Collects what goes to a topic, in order."""

    def __init__(
        self,
        shared: Shared,
        node: SinkNode,
        topic: str,
        counts: Mapping[str, int],
        outputs: list[_Output],
        *,
        keeps_origins: bool,
    ) -> None:
        super().__init__(node.name, shared)
        self._counts = counts
        self._node = node
        self._topic = topic
        self._serdes: dict[str, tuple[Serde[Any], Serde[Any]]] = {}
        self._outputs = outputs
        self._keeps_origins = keeps_origins
        # Windows of one key belong together: only the key inside chooses the partition.
        self._tail = 0 if node.whole_key else window_tail(node.key_serde)

    def process(self, record: Record) -> None:
        node, shared = self._node, self.shared
        topic, serdes = self._topic, (node.key_serde, node.value_serde)
        if node.topic_of is not None:
            topic = self._named(node.topic_of, record)
            serdes = self._serdes_of(topic)
        try:
            key = shared.encode(self.name, serdes[0], record.key, "key")
            value = shared.encode(self.name, serdes[1], record.value, "value")
        except UserFunctionError as error:
            self._unwritable(error)
            raise
        inner = key[: -self._tail] if key is not None and self._tail else key
        chosen = BY_KEY
        if node.topic_of is not None:
            # The producer goes by the whole key, which is right but for windows.
            chosen = BY_KEY if self._tail and self._count(topic) else BY_PRODUCER
        if node.partitioner is None:
            self._write(topic, key, value, record, inner, chosen)
            return
        count = self._count(topic)
        shown = None if node.by_key_alone else record.value
        choice = self.call(node.partitioner, record.key, shown, count)
        if choice is None:
            # As in Kafka Streams: then the producer chooses, and knows nothing of windows.
            self._write(topic, key, value, record, key, BY_KEY)
            return
        several = self._checked(choice, topic, count)
        if not several:
            shared.drop("no_partition")
        for partition in several:
            self._write(topic, key, value, record, inner, partition)

    def _write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        record: Record,
        inner: bytes | None,
        partition: int,
    ) -> None:
        origin = Origin(self.shared.context, self.name) if self._keeps_origins else None
        self._outputs.append(
            (topic, key, value, record.timestamp, record.headers, inner, partition, origin)
        )

    def _count(self, topic: str) -> int:
        """How many partitions a topic has; `PartitionChoiceError` if it does not exist."""
        try:
            return self._counts[topic]
        except KeyError:
            missing = PartitionChoiceError(
                f"The topic {topic!r} does not exist, so no partition can be chosen in it",
                where={**self.shared.context.where(self.name), "output topic": topic},
                hint="Create the topic before the function of to(...) names it",
            )
            raise self._unwritable(missing) from None

    def _checked(self, choice: Any, topic: str, count: int) -> list[int]:
        """The partitions that were chosen, each once; `PartitionChoiceError` if there is none."""
        given = choice if isinstance(choice, Collection) else (choice,)
        if self._node.by_key_alone and len(given) != 1:
            several = PartitionChoiceError(
                f"The partitioner of step {self.name} chose {len(given)} partitions: {choice!r}. "
                "In a join by a foreign key a row is in one",
                where={**self.shared.context.where(self.name), "output topic": topic},
                hint="Return the partition in which the table has the key, "
                "or None for the one where Kafka's partitioner puts it",
            )
            raise self._unwritable(several)
        for each in given:
            whole = isinstance(each, Integral) and not isinstance(each, bool)
            if not whole or not 0 <= int(each) < count:
                wrong = PartitionChoiceError(
                    f"The partitioner of step {self.name} chose partition {each!r} of topic "
                    f"{topic!r}, which has {count}: 0 to {count - 1}",
                    where={
                        **self.shared.context.where(self.name),
                        "output topic": topic,
                        "chosen": each,
                        "partitions": count,
                    },
                    hint="Return a number below the partitions that it is given, several in a set, "
                    "or None for the partition of the key",
                )
                raise self._unwritable(wrong)
        return sorted({int(each) for each in given})

    def _named(self, topic_of: Callable[[Any, Any], str], record: Record) -> str:
        """The topic that the user's function names; `UserFunctionError` if that is no name."""
        topic = self.call(topic_of, record.key, record.value)
        if not isinstance(topic, str) or not is_name(topic):
            nameless = UserFunctionError(
                f"The function that names the topic of step {self.name} returned {topic!r}, which "
                "is no topic's name",
                where=self.shared.context.where(self.name),
                hint="Return the name of a topic for every record, or filter those that have none",
            )
            raise self._unwritable(nameless)
        return topic

    def _serdes_of(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        """The serdes for a topic that a function named; some, of registries, differ by topic."""
        serdes = self._serdes.get(topic)
        if serdes is None:
            keys, values = self._node.key_serde, self._node.value_serde
            serdes = keys.for_topic(topic, "key"), values.for_topic(topic, "value")
            self._serdes[topic] = serdes
        return serdes

    def _unwritable(self, error: UserFunctionError) -> UserFunctionError:
        """The error, for the handler of production: what functions raise is for the other one."""
        self.shared.unwritable = error
        return error


class RecordRun:
    """One task, one slice: `process` its records in any order of inputs, then `finish`.

    Raises `UserFunctionError`, `DeserializationError` or `BufferFullError`; then nothing of the
    slice may be written.
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
        self._sub = sub_topology
        self._limits = limits
        self._meter = SliceMeter(limits.metrics)
        self._shared = Shared(
            metadata or {},
            now_ms=now_ms,
            meter=self._meter,
            on_processing_error=limits.on_processing_error,
            reads_again=limits.reads_again,
        )
        self._sinks = sinks_by_topic(sub_topology, application_id)
        self._shared.stream_time = self._shared.recall(STREAM_TIME, -1)
        self._rows: list[Row] = []
        self._result: SliceResult | None = None
        self._outputs: list[_Output] = []
        self._builder = Builder(
            sub_topology,
            self._shared,
            state,
            self._rows,
            limits=limits,
            application_id=application_id,
            partition=partition,
        )
        self._builder.build(lambda node: self._sink(node, application_id))
        self._sources = {
            full_topic(source, topic, application_id): source
            for source in sub_topology.sources
            for topic in source.topics
        }
        self._inputs: dict[Input, list[Records]] = {}
        if limits.dead_letter_topic is not None:
            self._shared.dead_letters = DeadLetterTopic(
                limits.dead_letter_topic,
                self._inputs,
                self._write_dead_letter,
                takes_dropped=limits.dead_letters_of_dropped,
            )

    def process(self, records: Records) -> None:
        """Take the next records of one input."""
        if len(records.offsets):
            self._inputs.setdefault((records.topic, records.partition), []).append(records)

    def finish(self, *, more: Collection[Input] = ()) -> SliceResult:
        """Run everything; `more` names the inputs of which Kafka holds more than was given.

        Where such an input runs dry the rest waits for the next slice: what comes next in it may
        be earlier than what the other inputs hold.
        """
        ends = self._ends(more)
        batches = {
            name: self._read(name, before(chunks, ends.get(name)))
            for name, chunks in self._inputs.items()
        }
        for name, batch in batches.items():
            self._shared.ahead[name] = answers_ahead(self._sub, self._sources[name[0]], batch)
        inputs = [(name, self._sources[name[0]], batch) for name, batch in batches.items()]
        prefetch(self._builder, self._sub, inputs)
        self._run(batches)
        self._keep_partition_times(batches)
        for flush in self._builder.flushers:
            flush()
        for finish in self._builder.finishers:
            finish()
        # Last: a processor may still write as it is closed.
        self._builder.shapes.flush()
        self._builder.edges.finish()
        self._result = result = SliceResult(
            changes=batch_of(self._rows, CHANGES_SCHEMA),
            outputs=_outputs(self._outputs, self._limits.partition_counts),
            dropped=dict(self._shared.dropped),
            metadata=self._shared.metadata,
            ends=ends,
            meter=self._meter,
        )
        self._meter.dropped(result.dropped)
        self._meter.written(result.outputs, self._sinks)
        self._meter.sent(result.outputs, self._sinks)
        self._meter.stored(result.changes, self._sub.stores)
        return result

    def without(self, refused: Mapping[int, ProductionError]) -> SliceResult:
        """The result without these rows of its outputs, as the handler says of each.

        Raises the `ProductionError` of one on which it fails.
        """
        assert self._result is not None
        handler, letters = self._limits.on_production_error, self._shared.dead_letters
        rows = [self._outputs[row] for row in sorted(refused)]
        kept = [row for number, row in enumerate(self._outputs) if number not in refused]
        self._outputs[:] = kept
        for row, (_, error) in zip(rows, sorted(refused.items()), strict=True):
            _, key, value, timestamp, headers, _, _, origin = row
            if origin is None:  # A dead letter, or the handler is `fail`.
                raise error
            shown = UserRecord(key, value, timestamp, headers)
            answer = answer_to_refusal(self._shared, origin, handler, shown, error)
            if answer == "fail":
                raise error
            if answer == "dead_letter" and letters is not None:
                letters.send(origin.context, letter_of(error))
        self._meter.dropped({"failed": len(rows)})
        self._shared.dropped["failed"] += len(rows)
        self._result = replace(
            self._result,
            outputs=_outputs(self._outputs, self._limits.partition_counts),
            dropped=dict(self._shared.dropped),
        )
        return self._result

    def _keep_partition_times(self, batches: Mapping[Input, Batch]) -> None:
        for name, batch in batches.items():
            if self._sources[name[0]].time_rule == "partition_time" and len(batch):
                latest = self._shared.recall(_partition_time(name), -1)
                self._shared.keep(_partition_time(name), max(latest, int(batch.timestamps.max())))

    def _ends(self, more: Collection[Input]) -> dict[Input, int]:
        """Where inputs stop that must wait for one which has more; usually none has."""
        if not more or len(self._sources) < 2:
            return {}
        batches = {
            name: self._read(name, chunks, counts=False) for name, chunks in self._inputs.items()
        }
        return unprocessed(batches, frozenset(more))

    def _run(self, batches: Mapping[Input, Batch]) -> None:
        shared, timers = self._shared, self._builder.timers
        for step, record, context in self._merged(batches):
            shared.context = context
            if record.timestamp > shared.stream_time:
                shared.stream_time = record.timestamp
            step.process(record)
            if timers.by_stream_time:
                self._punctuate(timers.by_stream_time, shared.stream_time)
        if self._inputs:
            # What was scheduled as caches were flushed is due, also if all that came was dropped.
            self._punctuate(timers.by_stream_time, shared.stream_time)
        self._punctuate(timers.by_wall_clock, shared.now_ms)
        shared.keep(STREAM_TIME, shared.stream_time)
        if self._builder.processes:
            dues = (each.due for each in timers.by_wall_clock)
            shared.keep(WALL_CLOCK_DUE, min(dues, default=NEVER))

    def _punctuate(self, punctuators: list[Punctuator], now: int) -> None:
        """Call what is due, the longest due first; one may schedule another that is due too."""
        while (punctuator := next_due(punctuators, now)) is not None:
            began = time.perf_counter()
            self._builder.punctuate(punctuator, now)
            self._meter.punctuated(time.perf_counter() - began)

    def _sink(self, node: Node, application_id: str) -> Step | None:
        if not isinstance(node, SinkNode):
            return None
        topic = full_topic(node, node.topic, application_id)
        limits = self._limits
        return Sink(
            self._shared,
            node,
            topic,
            limits.partition_counts,
            self._outputs,
            keeps_origins=limits.on_production_error != "fail",
        )

    def _read(self, name: Input, chunks: list[Records], *, counts: bool = True) -> Batch:
        def on_skipped(offset: int, reason: str, error: ValueError | None) -> None:
            letters = self._shared.dead_letters
            sends = error is not None and self._limits.on_bad_record == "dead_letter"
            if letters is not None and (sends or letters.takes_dropped):
                letter = DeadLetter("dropped", reason, "") if error is None else letter_of(error)
                letters.send(_context(name, chunks, offset), letter)

        batch = read_source(
            self._sources[name[0]],
            joined(chunks),
            first=0,
            on_bad_record=self._limits.on_bad_record,
            dropped=self._shared.dropped if counts else Counter(),
            on_skipped=on_skipped if counts else None,
            now_ms=self._shared.now_ms,
            partition_time=self._shared.recall(_partition_time(name), -1),
        )
        if counts:
            self._meter.read(self._sources[name[0]].name, chunks, batch.timestamps)
        return batch

    def _write_dead_letter(
        self, topic: str, key: bytes | None, value: bytes | None, time: int, headers: Headers
    ) -> None:
        self._outputs.append((topic, key, value, time, headers, key, BY_PRODUCER, None))

    def _merged(self, batches: Mapping[Input, Batch]) -> Iterator[tuple[Step, Record, Context]]:
        """All records in the order in which Kafka Streams takes them: lowest head first."""
        queues = [
            self._records(self._builder.steps[self._sources[name[0]].name], name, batch)
            for name, batch in batches.items()
        ]
        if len(queues) == 1:
            yield from queues[0]
            return
        heads: list[tuple[int, int, tuple[Step, Record, Context]]] = []
        for number, queue in enumerate(queues):
            _push(heads, number, queue)
        while heads:
            _, number, item = heapq.heappop(heads)
            yield item
            _push(heads, number, queues[number])

    @staticmethod
    def _records(step: Step, name: Input, batch: Batch) -> Iterator[tuple[Step, Record, Context]]:
        topic, partition = name
        keys, values = batch.keys.objects(), batch.values.objects()
        timestamps, offsets = batch.timestamps.tolist(), batch.offsets.tolist()
        headers = headers_of(batch.headers, len(offsets))
        for row, offset in enumerate(offsets):
            record = Record(keys[row], values[row], timestamps[row], headers[row])
            yield step, record, Context(topic, partition, offset, timestamps[row], headers[row])


def _partition_time(name: Input) -> str:
    return f"{name[0]}-{name[1]}:partition-time"


def _push(heads: list[Any], number: int, queue: Iterator[tuple[Step, Record, Context]]) -> None:
    item = next(queue, None)
    if item is not None:
        heapq.heappush(heads, (item[1].timestamp, number, item))


def _context(name: Input, chunks: list[Records], offset: int) -> Context:
    """The context of a record that did not become one."""
    whole = joined(chunks)
    row = int(np.searchsorted(whole.offsets, offset))
    headers = None if whole.headers is None else whole.headers.slice(row, 1)
    return Context(*name, offset, int(whole.timestamps[row]), headers_of(headers, 1)[0])


def _outputs(rows: list[_Output], counts: Mapping[str, int]) -> pa.RecordBatch:
    if len(rows) <= _FEW:
        few = [(row[0], _partition(row, counts), *row[1:4], row[4] or None) for row in rows]
        return batch_of(few, OUTPUTS_SCHEMA)
    topics = list(dict.fromkeys(row[0] for row in rows))
    numbers = {name: number for number, name in enumerate(topics)}
    indices = np.array([numbers[row[0]] for row in rows], dtype=np.int32)
    partitions = np.array([row[6] for row in rows], dtype=np.int32)
    inner = pa.array([row[5] for row in rows], pa.binary())
    for name, number in numbers.items():
        chosen = np.flatnonzero((indices == number) & (partitions == BY_KEY))
        if len(chosen):
            partitions[chosen] = partitions_of(inner.take(pa.array(chosen)), counts[name])
    headers = [[{"key": k, "value": v} for k, v in row[4]] if row[4] else None for row in rows]
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(topics, pa.string())),
        pa.array(partitions),
        pa.array([row[1] for row in rows], pa.binary()),
        pa.array([row[2] for row in rows], pa.binary()),
        pa.array([row[3] for row in rows], pa.int64()),
        pa.array(headers, OUTPUTS_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUTPUTS_SCHEMA)


def _partition(row: _Output, counts: Mapping[str, int]) -> int:
    topic, _, _, _, _, key, chosen, _ = row
    if chosen != BY_KEY:
        return chosen
    return -1 if key is None else partition_of(key, counts[topic])
