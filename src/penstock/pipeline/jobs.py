"""One batch as one Spark job."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql.functions import expr

from penstock.changelog.access import refusal_in_spark
from penstock.config import Config
from penstock.instance.protocol import decode
from penstock.pipeline.expressions import with_expressions
from penstock.pipeline.kafka_options import java_properties
from penstock.pipeline.orders import BatchOrder, Outcome
from penstock.pipeline.session import use_added_jars
from penstock.pipeline.travelling import Travelling
from penstock.pipeline.worker import OUTCOME, SPARK_OUTCOME, TICK_OFFSET, run_batch
from penstock.processors import ColumnNeeds, handles_errors
from penstock.processors.records import OnError
from penstock.topology import SubTopology

SMALL_BATCH_RECORDS = 50_000
"""Below this, one Spark partition carries all tasks: a Spark task costs about 35 ms of its own."""

_MSGSPEC_CACHE = "__msgspec_cache__"
EARLIEST, LATEST = -2, -1
"""Spark's words for the ends of a log."""
_READING = {
    # Ranges hold what is there, so nobody needs to wait for more. The source asks where a log
    # ends behind its own prefetch, on one connection: with Kafka's 500 ms, each first read of a
    # partition took half a second; with 5 ms, a small job over four partitions 30 ms.
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(64 * 1024 * 1024),
}
"""How Spark's source reads where the user does not say otherwise."""


@dataclass(frozen=True, kw_only=True)
class JobLabel:
    """What the Spark UI shows of a job."""

    group: str
    description: str
    pool: str


class Jobs:
    """Runs batches on a Spark session."""

    def __init__(self, spark: SparkSession, config: Config, application_id: str) -> None:
        self._spark = spark
        self._config = config
        self._options = source_options(config, application_id)
        self._cancelled: set[str] = set()
        self._threads = threading.local()
        self._columns: dict[tuple[bool, bool, tuple[str, ...]], list[Column]] = {}

    def warm_up(self, topic: str, partition: int) -> None:
        """Run what a batch runs, once, over a small log: a first job loads classes, compiles and
        starts workers, and no record is to wait for that.
        """
        use_added_jars(self._spark)
        self._spark.sparkContext.setJobDescription("warm-up")
        offsets = {
            name: json.dumps({topic: {str(partition): offset}})
            for name, offset in (("startingOffsets", EARLIEST), ("endingOffsets", LATEST))
        }
        frame = self._load(
            {topic: [partition]}, offsets, needs=ColumnNeeds(value=True, headers=False)
        )
        with refusals_named(self._config):
            frame.coalesce(1).mapInArrow(_drop, SPARK_OUTCOME).collect()

    def run(
        self, order: BatchOrder, *, needs: ColumnNeeds, label: JobLabel, records: int
    ) -> list[Outcome]:
        """Run one batch to its end and return what became of each task's slice."""
        use_added_jars(self._spark)
        context = self._spark.sparkContext
        context.setJobGroup(label.group, label.description, interruptOnCancel=False)
        context.setLocalProperty("spark.scheduler.pool", label.pool)
        if handles_errors(order.limits):
            # Then each record is computed alone, and one that fails is to fail alone.
            needs = dataclasses.replace(needs, expressions=())
        try:
            with refusals_named(self._config):
                return self._run(order, self._rows(order, needs), records)
        except Exception:
            if not needs.expressions or label.group in self._cancelled:
                raise
        # An expression may have failed in Spark, which names no record. Workers can compute it,
        # too, and say where it fails; slices that were committed meanwhile are found done.
        needs = dataclasses.replace(needs, expressions=())
        with refusals_named(self._config):
            return self._run(order, self._rows(order, needs), records)

    def _run(self, order: BatchOrder, frame: DataFrame, records: int) -> list[Outcome]:
        # All inputs of a task must meet in one worker; with one topic there is one input a task.
        one_task, one_topic = len(order.slices) == 1, len(order.topics) <= 1
        if one_task and one_topic:
            pass
        elif one_task or records < SMALL_BATCH_RECORDS:
            frame = frame.coalesce(1)
        elif not one_topic:
            frame = frame.repartitionById(len(order.slices), _place_of_task(order))
        rows = frame.mapInArrow(partial(run_batch, order), SPARK_OUTCOME).collect()
        return [decode(bytes(row.outcome), Outcome) for row in rows]

    def cancel(self, group: str) -> None:
        """Stop the jobs of a group where they are; nothing uncommitted becomes visible."""
        self._cancelled.add(group)
        self._spark.sparkContext.cancelJobGroup(group)

    def _rows(self, order: BatchOrder, needs: ColumnNeeds) -> DataFrame:
        """The records of all ranges, and a row for each task that has none."""
        frame = self._read(order, needs) if order.topics or not order.ticks else None
        if order.ticks:
            ticks = self._ticks(order, needs)
            frame = ticks if frame is None else frame.union(ticks)
        assert frame is not None
        # Outside of this mode Spark does not raise where workers would.
        strict = self._spark.conf.get("spark.sql.ansi.enabled") == "true"
        if needs.source is None or not needs.expressions or not strict:
            return frame
        return with_expressions(frame, needs.source, needs.expressions)

    def _ticks(self, order: BatchOrder, needs: ColumnNeeds) -> DataFrame:
        """Rows in the shape of records, with an offset that none has."""
        partitions = ", ".join(str(partition) for partition in order.ticks)
        columns = [
            f"array({partitions})[CAST(id AS INT)] AS partition",
            f"CAST({TICK_OFFSET} AS BIGINT) AS offset",
            "CAST(0 AS BIGINT) AS timestamp",
            "CAST(NULL AS BINARY) AS key",
            "CAST(NULL AS BINARY) AS value",
        ]
        if needs.headers:
            columns.append("CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers")
        if len(order.topics) > 1:
            columns.append("0 AS topic")
        frame = self._spark.range(0, len(order.ticks), 1, numPartitions=1)
        return frame.selectExpr(*columns)

    def _read(self, order: BatchOrder, needs: ColumnNeeds) -> DataFrame:
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for piece in order.slices.values():
            for each in piece.ranges:
                ends.setdefault(each.topic, {})[str(each.partition)] = each.end
                starts.setdefault(each.topic, {})[str(each.partition)] = each.start
        assigned = {topic: [int(p) for p in partitions] for topic, partitions in starts.items()}
        offsets = {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}
        return self._load(assigned, offsets, needs=needs, topics=order.topics)

    def _load(
        self,
        assigned: Mapping[str, list[int]],
        offsets: Mapping[str, str],
        *,
        needs: ColumnNeeds,
        topics: Sequence[str] = (),
    ) -> DataFrame:
        reader = self._reader().options(**offsets, assign=json.dumps(assigned))
        # A source that may have headers builds a larger program for each read of a partition.
        frame = reader.option("includeHeaders", needs.headers).load()
        return frame.select(self._selected(needs, topics))

    def _reader(self) -> DataFrameReader:
        """The calling thread's reader; each option is a call into the JVM, so most are set once."""
        if not hasattr(self._threads, "reader"):
            self._threads.reader = self._spark.read.format("kafka").options(**self._options)
        reader: DataFrameReader = self._threads.reader
        return reader

    def _selected(self, needs: ColumnNeeds, topics: Sequence[str]) -> list[Column]:
        """The columns that workers get, parsed once."""
        names = tuple(topics) if len(topics) > 1 else ()
        what = (needs.value, needs.headers, names)
        if what not in self._columns:
            self._columns[what] = [expr(text) for text in _selections(needs, names)]
        return self._columns[what]


@contextlib.contextmanager
def refusals_named(config: Config) -> Iterator[None]:
    """Turn what Spark says of a broker that does not let its client in into an error of ours."""
    try:
        yield
    except Exception as error:
        refusal = refusal_in_spark(str(error), config.kafka)
        if refusal is None:
            raise
        raise refusal from error


def _selections(needs: ColumnNeeds, topics: Sequence[str]) -> list[str]:
    present = "CASE WHEN value IS NULL THEN NULL ELSE X'' END AS value"
    value = "value" if needs.value else present
    columns = ["partition", "offset", "unix_millis(timestamp) AS timestamp", "key", value]
    if needs.headers:
        columns.append("headers")
    if topics:
        cases = " ".join(f"WHEN '{name}' THEN {i}" for i, name in enumerate(topics))
        columns.append(f"CASE topic {cases} END AS topic")
    return columns


def _place_of_task(order: BatchOrder) -> Column:
    """The Spark partition of a row: one for each task, so that all inputs of a task meet."""
    partitions = ", ".join(str(partition) for partition in order.slices)
    return expr(f"CAST(array_position(array({partitions}), partition) - 1 AS INT)")


def pickle_sub_topology(sub_topology: SubTopology) -> bytes:
    """The sub-topology as Spark's own pickler writes it: it knows lambdas and closures."""
    return pickled(sub_topology)


def pickle_programs(subs: Iterable[SubTopology], handler: OnError = "fail") -> bytes:
    """What fills the global stores that take code of the user's; empty if there are none.

    With it goes who is asked if that fails.
    """
    processed = tuple(sub for sub in subs if sub.is_filled_by_code)
    return pickled((processed, handler)) if processed else b""


def pickled(what: object) -> bytes:
    """Anything with functions or classes of the user's in it, for the workers."""
    with io.BytesIO() as file:
        _Pickler(file).dump(what)  # type: ignore[no-untyped-call]
        return file.getvalue()


def travelling_handler(handler: OnError) -> OnError:
    """What becomes of records that fail, for the workers: a word, or a function that travels."""
    return Travelling(pickled(handler)) if callable(handler) else handler


class _Pickler(cloudpickle.Pickler):
    """Spark's pickler, for classes that msgspec has read too.

    On a user's dataclass msgspec keeps what it found out in an attribute that cannot be pickled.
    A class of the program's own file travels whole, attributes and all; msgspec makes it anew.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and _MSGSPEC_CACHE in vars(obj):
            delattr(obj, _MSGSPEC_CACHE)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


def send_module_by_value(name: str) -> None:
    """Have a module's functions travel whole: workers cannot import the file they are from."""
    cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def source_options(config: Config, application_id: str) -> dict[str, str]:
    """The options of every read: one fixed set, because Spark caches consumers by it."""
    users = {f"kafka.{name}": value for name, value in java_properties(config.kafka).items()}
    return {
        **_READING,
        **users,
        "kafka.bootstrap.servers": config.bootstrap_servers,
        # A fixed group id lets the source's consumers be reused from batch to batch.
        "kafka.group.id": f"{application_id}-reader",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
    }


def _drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch([pa.array([], pa.binary())], schema=OUTCOME)
