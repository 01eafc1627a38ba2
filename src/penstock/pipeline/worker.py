"""What runs inside a Spark task: a slice's records through the operators, and the commit.

Losing an instance never fails a Spark task: the slice is reported as skipped, and the driver plans
it again. A failed Spark task would be run again by Spark at once, against the same lost instance.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.coordination.ids import TaskId
from penstock.errors import (
    BufferFullError,
    DeserializationError,
    InstanceUnreachableError,
    PenstockError,
    ProductionError,
    TopologyError,
    UserFunctionError,
)
from penstock.instance import protocol
from penstock.instance.client import Client, ClientCache
from penstock.instance.protocol import CommitHeader, Positions, Question, ReadHeader, Reply
from penstock.instance.rejections import rejected_rows
from penstock.observability.crash_points import crash_point
from penstock.pipeline.clock import SliceClock
from penstock.pipeline.expressions import COMPUTED
from penstock.pipeline.orders import Address, BatchOrder, Outcome, SliceOrder
from penstock.processors import (
    Entry,
    Fetched,
    Records,
    SliceResult,
    changelog_headers,
    fetched,
    leading_expressions,
    start_slice,
)
from penstock.processors.records import Int64s
from penstock.topology import SubTopology
from penstock.topology.graph import full_topic

OUTCOME = pa.schema([("outcome", pa.binary())])
SPARK_OUTCOME = StructType([StructField("outcome", BinaryType())])
TICK_OFFSET = -1
"""Of a row that is no record, and says that its task is to be run without any."""

_clients = ClientCache()
_silent: dict[str, float] = {}
"""When a call to an instance was given up last, by where it listens."""
_SILENCE_SECONDS = 2.0


_FAILURES = (
    UserFunctionError,
    DeserializationError,
    BufferFullError,
    ProductionError,
    TopologyError,
)
"""What ends the application: the next run of the slice would end alike."""


class _StoppedError(PenstockError):
    """The slice cannot go on here; the reply says why.

    One of ours, so that a processor whose read brings it is not taken for the one that failed.
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


@lru_cache(maxsize=16)
def _sub_topology(pickled: bytes) -> SubTopology:
    loaded = cloudpickle.loads(pickled)
    assert isinstance(loaded, SubTopology)
    return loaded


@lru_cache(maxsize=16)
def _topics_on_kafkas_clock(pickled: bytes, application_id: str) -> frozenset[str]:
    """The topics whose records have the time that Kafka has for them."""
    return frozenset(
        full_topic(source, topic, application_id)
        for source in _sub_topology(pickled).sources
        if source.timestamp is None and source.time_rule != "wall_clock"
        for topic in source.topics
    )


@lru_cache(maxsize=16)
def _computed_steps(pickled: bytes) -> tuple[tuple[str, int], ...]:
    """The steps of the expressions that Spark may have computed, in the order of their columns."""
    return tuple((each.step, each.result) for each in leading_expressions(_sub_topology(pickled)))


def run_batch(order: BatchOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Process and commit the slices whose rows come by, and report on each."""
    began = time.time()
    run = _BatchRun(order)
    waits = time.perf_counter()
    for batch in batches:
        run.feed(batch, waited=time.perf_counter() - waits)
        waits = time.perf_counter()
    done = run.finish()
    worked = (began, time.time())
    outcomes = [protocol.encode(msgspec.structs.replace(each, worked=worked)) for each in done]
    yield pa.record_batch([pa.array(outcomes, pa.binary())], schema=OUTCOME)


class _BatchRun:
    """The slices of one Spark partition, one after the other; their commits overlap."""

    def __init__(self, order: BatchOrder) -> None:
        self._order = order
        self._open: dict[int, _SliceWork] = {}
        self._commits: list[Future[Outcome]] = []
        # Threads start here, after the fork. A commit mostly waits for Kafka, so the next slice's
        # rows are processed meanwhile.
        self._pool = ThreadPoolExecutor(max_workers=4)

    def feed(self, batch: pa.RecordBatch, *, waited: float) -> None:
        """Rows of one or several tasks, for which so many seconds were waited; those of one input
        follow each other.
        """
        for topic, partition, rows in _by_input(batch, self._order.topics or ("",)):
            work = self._work(partition)
            if rows.column("offset")[0].as_py() != TICK_OFFSET:
                work.clock.polled(rows.num_rows, waited)
                waited = 0.0
                work.feed(topic, rows)

    def finish(self) -> list[Outcome]:
        """Wait for all commits."""
        self._close_works()
        outcomes = [commit.result() for commit in self._commits]
        self._pool.shutdown()
        return outcomes

    def _work(self, partition: int) -> _SliceWork:
        """The task of that partition; its rows of another topic may come after other tasks'."""
        if partition not in self._open:
            if len(self._order.topics) <= 1:
                self._close_works()
            self._open[partition] = _SliceWork(self._order, self._order.slices[partition])
            crash_point("batch.after_receive")
        return self._open[partition]

    def _close_works(self) -> None:
        works, self._open = self._open, {}
        # In the same order in each job, however rows came: a task that is first in one and last in
        # the next has no output for almost two.
        self._commits += [self._pool.submit(work.finish) for _, work in sorted(works.items())]


class _SliceWork:
    """One task's slice, from its first row to its outcome."""

    def __init__(self, order: BatchOrder, slice_order: SliceOrder) -> None:
        self._order = order
        self._slice = slice_order
        self._waiting: dict[tuple[str, int], list[pa.RecordBatch]] = {}
        self._records = 0
        self._bytes = 0
        self._times: Positions = {}
        self._ended: Outcome | None = None
        self.clock = SliceClock(order.limits.metrics)
        self._steps = _computed_steps(order.sub_topology)
        # A user's processor runs its `init` here, and may raise.
        self._guarded(self._start)

    def _start(self) -> None:
        self._run = start_slice(
            _sub_topology(self._order.sub_topology),
            application_id=self._order.application_id,
            state=self,
            limits=self._order.limits_of(self._slice),
            metadata=self._slice.metadata,
            partition=TaskId.parse(self._slice.task).partition,
            now_ms=self._order.now_ms,
        )

    def feed(self, topic: str, rows: pa.RecordBatch) -> None:
        """Process some rows of one input; after the slice has ended, ignore them."""
        if self._ended is not None:
            return
        self._records += rows.num_rows
        self._bytes += rows.nbytes
        if len(self._order.topics) == 1:
            self._note_time(topic, rows)
            with self.clock.processing():
                self._guarded(lambda: self._run.process(_as_records(topic, rows, self._steps)))
        else:
            # Nothing can be processed before each input's first record is known.
            partition = rows.column("partition")[0].as_py()
            self._waiting.setdefault((topic, partition), []).append(rows)

    def finish(self) -> Outcome:
        """Flush the cache and commit."""
        result: list[SliceResult] = []
        if self._ended is None:
            with self.clock.processing():
                self._guarded(lambda: result.append(self._process_to_end()))
        if result:
            crash_point("batch.after_update")
            self._guarded(lambda: self._commit(result[0]))
        assert self._ended is not None
        crash_point("commit.after_reply_before_spark_commit")
        return self._ended

    def _process_to_end(self) -> SliceResult:
        for (topic, _), batches in sorted(self._waiting.items()):
            for rows in in_order(batches):
                self._run.process(_as_records(topic, rows, self._steps))
        return self._run.finish(more=self._slice.more)

    def get_many(self, store: str, keys: pa.Array) -> pa.Array:
        """The stored values of these keys, as of this slice's commit number."""
        answers = self._ask(store, "get", [keys])
        columns = [batch.column(0) for batch in answers]
        return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)

    def fetch_many(
        self, store: str, questions: Sequence[tuple[bytes, int, int]]
    ) -> list[list[Entry]]:
        """For each (key, first, last): the key's windows or sessions of that time, by time."""
        return self._entries(store, "fetch", questions)

    def fetch_columns(self, store: str, keys: pa.Array, first: Int64s, last: Int64s) -> Fetched:
        """As `fetch_many`, in columns."""
        answers = self._ask(store, "fetch", [keys, pa.array(first), pa.array(last)])
        if not answers:
            return fetched(())
        numbers, names, values = (
            pa.concat_arrays([batch.column(each) for batch in answers]) for each in range(3)
        )
        return Fetched(numbers.to_numpy().astype(np.int64), names, values)

    def range_many(
        self, store: str, ranges: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[list[Entry]]:
        """For each (lower, upper): the entries with lower <= key < upper, by key."""
        return self._entries(store, "range", ranges)

    def fetch_times(self, store: str, first: int, last: int) -> list[Entry]:
        """The entries of first..last, by time, of a store with an index of times."""
        return self._entries(store, "times", [(first, last)])[0]

    def _entries(
        self, store: str, question: Question, rows: Sequence[tuple[object, ...]]
    ) -> list[list[Entry]]:
        found: list[list[Entry]] = [[] for _ in rows]
        if not rows:
            return found
        types = protocol.QUESTIONS[question].types
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
        for batch in self._ask(store, question, columns):
            numbers, keys, values = (column.to_pylist() for column in batch.columns)
            for number, key, value in zip(numbers, keys, values, strict=True):
                found[number].append((key, value))
        return found

    def _ask(self, store: str, question: Question, columns: list[pa.Array]) -> list[pa.RecordBatch]:
        """A store's answers as of this slice's commit number."""
        header = ReadHeader(
            task=self._slice.task,
            epoch=self._slice.epoch,
            n=self._slice.n,
            store=store,
            question=question,
        )
        questions = pa.record_batch(columns, schema=protocol.QUESTIONS[question])
        with self.clock.asking():
            reply, answers = self._client().read(header, questions)
        if reply.status != "ok":
            raise _StoppedError(reply)
        crash_point("batch.mid_update")
        return answers

    def _commit(self, result: SliceResult) -> None:
        for (topic, partition), batches in self._waiting.items():
            for rows in batches:
                self._note_time(topic, _before(rows, result.ends.get((topic, partition))))
        reply = self._sent(result)
        while reply.status == "rejected":
            if reply.rejected:
                # Fewer each time: what is left out, or is a dead letter, does not come back.
                result = self._run.without(rejected_rows(result, reply.rejected))
            reply = self._sent(result, numbered=True)
        if reply.status not in ("ok", "done"):
            raise _StoppedError(reply)
        records = self._records - self._left(result.ends)
        self._ended = Outcome(
            task=self._slice.task,
            status="committed",
            n=reply.n,
            position=reply.position,
            metadata=reply.metadata,
            records=records,
            size_bytes=self._bytes * records // max(self._records, 1),
            changes=result.changes.num_rows,
            outputs=result.outputs.num_rows,
            dropped=dict(result.dropped),
            metrics=self.clock.entries(result.meter, records=records),
        )

    def _sent(self, result: SliceResult, *, numbered: bool = False) -> Reply:
        """What the task's owner says to the commit of this."""
        header = CommitHeader(
            task=self._slice.task,
            epoch=self._slice.epoch,
            n=self._slice.n,
            start=self._slice.start,
            end=stopped_at(self._slice.end, result.ends),
            stores=_targets(result.changes, "store"),
            topics=_targets(result.outputs, "topic"),
            rows=result.changes.num_rows + result.outputs.num_rows,
            metadata=dict(result.metadata),
            times=self._times,
            numbered=numbered,
        )
        headers = changelog_headers(_sub_topology(self._order.sub_topology), result.changes)
        with self.clock.committing():
            return self._client().commit(header, commit_rows(result, headers))

    def _note_time(self, topic: str, rows: pa.RecordBatch) -> None:
        """Keep the latest timestamp of an input, for a Java application that may take over."""
        order = self._order
        known_clock = topic in _topics_on_kafkas_clock(order.sub_topology, order.application_id)
        if rows.num_rows and known_clock:
            latest = int(rows.column("timestamp").to_numpy().max())
            partition = rows.column("partition")[0].as_py()
            known = self._times.setdefault(topic, {})
            known[partition] = max(latest, known.get(partition, latest))

    def _left(self, ends: Mapping[tuple[str, int], int]) -> int:
        """How many of the rows that came are left for the next slice."""
        return sum(
            int(np.count_nonzero(rows.column("offset").to_numpy() >= end))
            for where, end in ends.items()
            for rows in self._waiting.get(where, ())
        )

    def _guarded(self, step: object) -> None:
        """Run a step; turn what may happen on a bad day into the slice's outcome."""
        assert callable(step)
        try:
            step()
        except _StoppedError as stopped:
            reply = stopped.reply
            if reply.status == "done":
                self._ended = Outcome(
                    task=self._slice.task,
                    status="committed",
                    n=reply.n,
                    position=reply.position,
                    metadata=reply.metadata,
                )
            else:
                self._skip(f"{reply.status}: {reply.reason}")
        except InstanceUnreachableError as error:
            location = _location(self._slice.address)
            _clients.drop(location)
            _silent.setdefault(location, time.monotonic())
            self._skip(str(error), unanswered=True)
        except _FAILURES as error:
            self._ended = Outcome(
                task=self._slice.task, status="failed", fault=protocol.fault_of(error)
            )

    def _skip(self, reason: str, *, unanswered: bool = False) -> None:
        self._ended = Outcome(
            task=self._slice.task, status="skipped", reason=reason, unanswered=unanswered
        )

    def _client(self) -> Client:
        location = _location(self._slice.address)
        if not location:
            raise InstanceUnreachableError("It said goodbye when the job was planned")
        if is_silent(location, time.monotonic()):
            raise InstanceUnreachableError(
                "It did not answer for another task a moment ago", where={"instance": location}
            )
        return _clients.get(
            location,
            token=self._order.token,
            trust=self._order.trust,
            timeout_seconds=self._order.timeout_seconds,
        )


def is_silent(location: str, now: float) -> bool:
    """Whether a call there was in vain just now: tasks that queue behind it need not try too.

    An instance that stands still keeps a call for most of the session timeout. Each of its tasks
    would do the same to the slots that all tasks share.
    """
    since = _silent.get(location)
    if since is not None and now - since > _SILENCE_SECONDS:
        _silent.pop(location, None)  # Another commit of this worker may have found the same.
        return False
    return since is not None


def _as_records(topic: str, rows: pa.RecordBatch, steps: Sequence[tuple[str, int]] = ()) -> Records:
    """The records of these rows; columns that Spark computed are those of `steps`, in order."""
    columns = {name: rows.column(name) for name in rows.schema.names}
    headers = columns.get("headers")
    if headers is not None and headers.null_count == len(headers):
        headers = None
    return Records(
        topic=topic,
        partition=int(columns["partition"][0].as_py()),
        offsets=columns["offset"].to_numpy(zero_copy_only=False),
        timestamps=columns["timestamp"].to_numpy(zero_copy_only=False),
        keys=columns["key"],
        values=columns["value"],
        headers=headers,
        computed={
            step: columns[f"{COMPUTED}{number}"]
            for number, step in enumerate(steps)
            if f"{COMPUTED}{number}" in columns
        },
    )


def _by_input(
    batch: pa.RecordBatch, topics: Sequence[str]
) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Runs of rows of one topic and partition."""
    if not batch.num_rows:
        return
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    changes = np.diff(partitions) != 0
    numbers = np.zeros(1, np.int32)
    if len(topics) > 1:
        numbers = batch.column("topic").to_numpy(zero_copy_only=False)
        changes |= np.diff(numbers) != 0
    borders = (np.flatnonzero(changes) + 1).tolist()
    for start, end in zip([0, *borders], [*borders, batch.num_rows], strict=True):
        topic = topics[int(numbers[start])] if len(topics) > 1 else topics[0]
        yield topic, int(partitions[start]), batch.slice(start, end - start)


def in_order(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One input's rows by their offsets: an order that a shuffle keeps, but does not promise."""
    offsets = np.concatenate([rows.column("offset").to_numpy() for rows in batches])
    if (np.diff(offsets) > 0).all():
        return batches
    ordered: list[pa.RecordBatch] = (
        pa.Table.from_batches(batches).sort_by("offset").combine_chunks().to_batches()
    )
    return ordered


def _before(rows: pa.RecordBatch, end: int | None) -> pa.RecordBatch:
    """The rows below an offset, if there is one."""
    if end is None:
        return rows
    return rows.filter(pa.array(rows.column("offset").to_numpy() < end))


def stopped_at(end: Positions, ends: Mapping[tuple[str, int], int]) -> Positions:
    """The position after a slice that was planned to `end` and left some inputs before it.

    >>> stopped_at({"a": {0: 9}, "b": {0: 5}}, {("b", 0): 3})
    {'a': {0: 9}, 'b': {0: 3}}
    """
    result = {topic: dict(partitions) for topic, partitions in end.items()}
    for (topic, partition), offset in ends.items():
        result[topic][partition] = offset
    return result


def commit_rows(result: SliceResult, change_headers: pa.ListArray) -> Iterator[pa.RecordBatch]:
    """A slice's changes, then its outputs, in the form that an instance takes."""
    for kind, rows, target in (
        (protocol.CHANGE, result.changes, "store"),
        (protocol.OUTPUT, result.outputs, "topic"),
    ):
        if kind == protocol.OUTPUT:
            crash_point("commit.mid_stream")
        count = rows.num_rows
        if not count:
            continue
        columns = {name: rows.column(name) for name in rows.schema.names}
        yield pa.record_batch(
            [
                pa.array(np.full(count, kind, np.uint8)),
                columns[target].indices.cast(pa.int16()),
                columns.get("partition", pa.array(np.full(count, -1, np.int32))),
                columns["key"],
                columns["value"],
                columns["timestamp"],
                columns.get("headers", change_headers),
            ],
            schema=protocol.ROWS,
        )


def _targets(rows: pa.RecordBatch, column: str) -> list[str]:
    names: list[str] = rows.column(column).dictionary.to_pylist()
    return names


@lru_cache(maxsize=64)
def _location(address: Address) -> str:
    """The socket when the instance is on this host, else TCP."""
    path = address.unix_location.removeprefix("grpc+unix://")
    if address.host == socket.gethostname() and path and Path(path).exists():
        return address.unix_location
    return address.tcp_location or address.unix_location
