"""`TopologyTestDriver`: records in, results and stores out, in one process and at once."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from penstock.application import Application
from penstock.config import Config
from penstock.errors import TopicMissingError, TopologyError
from penstock.observability import groups
from penstock.observability.readings import MetricName, by_name
from penstock.observability.recorder import Recorder
from penstock.processors import HEADERS_TYPE, Limits, Records, Run, start_slice
from penstock.processors.meter import SliceMeter
from penstock.processors.source import read_source
from penstock.serdes import BytesSerde, Serde, serde_of
from penstock.testing.queues import Queues
from penstock.testing.stores import DriverState, StoreView, rows_of
from penstock.testing.topics import InputTopic, OutputTopic, RawRecord
from penstock.topology import SourceNode, StoreSpec, SubTopology, Topology
from penstock.topology.graph import full_topic
from penstock.topology.patterns import matching, patterns_of, with_topics
from penstock.topology.spans import check_span

K = TypeVar("K")
V = TypeVar("V")

APPLICATION_ID = "topology-test-driver"
THREAD = "test-driver"
"""What stands for an instance in metrics."""
MILLISECONDS = 1000


class TopologyTestDriver:
    """Runs a topology record by record: no Spark, no Kafka, no Java, the same operators.

    As in Kafka Streams' driver of that name there is one partition, and each record is a commit
    of its own, so every update is seen whatever the cache.

    >>> import penstock as ps
    >>> app = ps.Application("word-count")
    >>> words = app.stream("words", key=bytes, value=str)
    >>> words.group_by(lambda key, word: word, key=str).count("counts").to_stream().to("totals")
    >>> driver = TopologyTestDriver(app)
    >>> driver.input_topic("words", key=bytes, value=str).pipe_all([(None, "a"), (None, "a")])
    >>> driver.output_topic("totals", key=str, value=int).read_pairs()
    [('a', 1), ('a', 2)]
    >>> dict(driver.store("counts"))
    {'a': 2}

    Raises what the application would: `UserFunctionError`, `DeserializationError`; the record that
    caused it leaves no trace. And `ValueNotPutError`, where a processor changes a value that a
    store gave it and does not put it back.
    """

    __test__ = False

    def __init__(self, program: Application | Topology) -> None:
        if isinstance(program, Application):
            topology, config, self._id = program.build(), program.config, program.application_id
        else:
            topology, config, self._id = program, Config(), APPLICATION_ID
        self.dropped: Counter[str] = Counter()
        self._topology = topology
        self._patterns = patterns_of(topology)
        self._matched: set[str] = set()
        self._readers: dict[str, SubTopology] = {}
        self._find_readers(_outputs(topology, self._id))
        self._specs = {spec.name: spec for spec in topology.stores}
        self._limits = Limits(
            cache_max_bytes=config.statestore_cache_max_bytes,
            on_bad_record=config.deserialization_exception_handler,
            on_processing_error=config.processing_exception_handler,
            on_production_error=config.production_exception_handler,
            dead_letter_topic=config.errors_dead_letter_queue_topic_name or None,
            watches_values=True,
            metrics=config.metrics_recording_level,
            dead_letters_of_dropped=config.dead_letter_dropped_records,
            partition_counts=_OnePartition.fromkeys(_outputs(topology, self._id), 1),
        )
        self._state = DriverState(self._specs)
        self._metadata: dict[str, dict[str, str]] = {}
        self._now_ms = 0
        self._recorder = Recorder(
            config.metrics_recording_level, clock=lambda: self._now_ms / MILLISECONDS
        )
        sinks = [sink for sub in topology.sub_topologies for sink in sub.sinks]
        self._names_topics = any(sink.topic_of is not None for sink in sinks)
        self._ticking = [sub for sub in topology.sub_topologies if sub.has_processors]
        self._offsets: Counter[str] = Counter()
        self._written: defaultdict[str, deque[RawRecord]] = defaultdict(deque)
        # Processors schedule their punctuators now, as they would when the application starts.
        self._tick()

    def input_topic(
        self,
        topic: str,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        start_ms: int = 0,
        advance: timedelta = timedelta(0),
    ) -> InputTopic[K, V]:
        """A topic to put records into; its clock starts at `start_ms` and advances per record."""
        self._find_readers([topic])
        _check_known(topic, self._readers)
        return InputTopic(
            topic,
            serde_of(key).for_topic(topic, "key"),
            serde_of(value).for_topic(topic, "value"),
            pipe=self._pipe,
            start_ms=start_ms,
            advance=advance,
        )

    def output_topic(
        self, topic: str, *, key: type[K] | Serde[K], value: type[V] | Serde[V]
    ) -> OutputTopic[K, V]:
        """A topic to take results from, repartition topics included."""
        if not self._names_topics and topic != self._limits.dead_letter_topic:
            _check_known(topic, self._limits.partition_counts)
        return OutputTopic(
            topic,
            serde_of(key).for_topic(topic, "key"),
            serde_of(value).for_topic(topic, "value"),
            written=self._written[topic],
        )

    def store(self, name: str) -> StoreView[Any, Any]:
        """What a store holds now."""
        spec = self._specs.get(name)
        if spec is None:
            raise TopologyError(
                f"There is no store {name!r}", hint=f"There are: {', '.join(self._specs)}"
            )
        alive = self._alive_from(spec)
        versions = self._state.versions(name) if spec.kind == "versioned" else None
        return StoreView(spec, self._state.of(name), alive_from=alive, versions=versions)

    def metrics(self) -> dict[MetricName, float | str]:
        """What was counted, as `Application.metrics` has it; rates are by the driver's clock."""
        return by_name(self._recorder.snapshot())

    def _alive_from(self, spec: StoreSpec) -> int:
        """The first time that has not expired in a store of windows, sessions or versions."""
        if spec.retention_ms is None:
            return 0
        known = (each.get(f"{spec.name}:time") for each in self._metadata.values())
        latest = max((int(time) for time in known if time is not None), default=-1)
        return latest - spec.alive_ms

    def advance_wall_clock_time(self, span: timedelta) -> None:
        """Let the wall clock go on, and run the punctuators that are due then."""
        check_span(span, "What the wall clock is to go on by")
        self._now_ms += round(span.total_seconds() * 1000)
        self._tick()

    def _tick(self) -> None:
        # All that is due is called before any of what it wrote goes on.
        called = [self._commit(each, self._start(each)) for each in self._ticking]
        self._take_in([record for written in called for record in written])

    def _pipe(self, record: RawRecord) -> None:
        """Run a record, and what it caused in topics that are read again, to the end."""
        self._take_in(self._run(record))

    def _take_in(self, written: list[RawRecord]) -> None:
        waiting = Queues(self._time_of)
        while True:
            for record in written:
                self._written[record.topic].append(record)
                self._find_readers([record.topic])
                reader = self._readers.get(record.topic)
                if reader is None:
                    continue
                if reader.is_global:
                    # A global table has no turn to wait for: it is nobody's task.
                    self._run(record)
                else:
                    waiting.add(record)
            following = waiting.take()
            if following is None:
                return
            written = self._run(following)

    def _run(self, record: RawRecord) -> list[RawRecord]:
        offset = self._offsets[record.topic]
        sub_topology = self._readers[record.topic]
        run = self._start(sub_topology)
        run.process(_records(record, offset))
        written = self._commit(sub_topology, run)
        self._offsets[record.topic] += 1
        return written

    def _time_of(self, record: RawRecord) -> int:
        """When it is a record's turn: its time as its source takes it, not the one in the topic.

        What goes no further, as it cannot be decoded or has no valid time, is in nobody's way.
        """
        source = _source_of(self._readers[record.topic], record.topic, self._id)
        if source.repartition:
            return record.timestamp
        read = read_source(
            source,
            _records(record, self._offsets[record.topic]),
            first=0,
            on_bad_record="continue",
            dropped=Counter(),
            now_ms=self._now_ms,
        )
        return int(read.timestamps[0]) if len(read) else -1

    def _find_readers(self, topics: Iterable[str]) -> None:
        """Know who reads topics; one that matches a pattern is there as soon as it is named."""
        new = matching(self._patterns, topics, self._id) - self._matched
        if new or not self._readers:
            self._matched |= new
            self._readers = _readers(with_topics(self._topology, self._matched), self._id)

    def _start(self, sub_topology: SubTopology) -> Run:
        return start_slice(
            sub_topology,
            application_id=self._id,
            state=self._state,
            limits=self._limits,
            metadata=self._metadata.get(sub_topology.name, {}),
            partition=0,
            now_ms=self._now_ms,
        )

    def _commit(self, sub_topology: SubTopology, run: Run) -> list[RawRecord]:
        result = run.finish()
        self._state.apply(result.changes)
        self._metadata[sub_topology.name] = dict(result.metadata)
        self.dropped.update(result.dropped)
        self._count(f"{sub_topology.number}_0", result.meter)
        # Every instance fills global tables, and none writes dead letters of what it fails on.
        written = [] if sub_topology.is_global else rows_of(result.outputs)
        return [_raw(*row) for row in written]

    def _count(self, task: str, meter: SliceMeter | None) -> None:
        for entry in [] if meter is None else meter.entries(self._now_ms):
            first = (THREAD, task) if entry.group in groups.OF_TASKS else (THREAD,)
            self._recorder.add_all([entry], first=first)


class _OnePartition(dict[str, int]):
    """Every topic has one partition, those too that a function names."""

    def __missing__(self, topic: str) -> int:
        return 1


def _readers(topology: Topology, application_id: str) -> dict[str, SubTopology]:
    subs = topology.sub_topologies + tuple(map(_as_on_instances, topology.global_tables))
    return {topic: sub for sub in subs for topic in sub.input_topics(application_id)}


def _source_of(sub_topology: SubTopology, topic: str, application_id: str) -> SourceNode:
    """The source that reads a topic."""
    return next(
        source
        for source in sub_topology.sources
        if topic in (full_topic(source, each, application_id) for each in source.topics)
    )


def _as_on_instances(table: SubTopology) -> SubTopology:
    """What fills a global table: where no code does, the bytes as they are, whatever they mean."""
    if table.is_filled_by_code:
        return table
    raw: dict[str, Any] = {"key_serde": BytesSerde(), "value_serde": BytesSerde()}
    sources = {source.name: replace(source, **raw) for source in table.sources}
    return replace(
        table,
        sources=tuple(sources.values()),
        nodes=tuple(sources.get(node.name, node) for node in table.nodes),
        stores=tuple(replace(store, **raw) for store in table.stores),
    )


def _outputs(topology: Topology, application_id: str) -> list[str]:
    return [topic for sub in topology.sub_topologies for topic in sub.output_topics(application_id)]


def _check_known(topic: str, known: Iterable[str]) -> None:
    names = list(known)
    if topic not in names:
        near = difflib.get_close_matches(topic, names, n=1)
        raise TopicMissingError(
            "The topology has no such topic",
            where={"topic": topic},
            hint=f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(names)}",
        )


def _records(record: RawRecord, offset: int) -> Records:
    headers = [{"key": key, "value": value} for key, value in record.headers]
    return Records(
        topic=record.topic,
        partition=0,
        offsets=np.array([offset], dtype=np.int64),
        timestamps=np.array([record.timestamp], dtype=np.int64),
        keys=pa.array([record.key], pa.binary()),
        values=pa.array([record.value], pa.binary()),
        headers=pa.array([headers], HEADERS_TYPE) if headers else None,
    )


def _raw(
    topic: str, _: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Any
) -> RawRecord:
    found = tuple((each["key"], each["value"]) for each in headers or ())
    return RawRecord(topic, key, value, timestamp, found)
