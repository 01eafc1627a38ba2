"""A store's history as a Spark job: rows become entries of the store, entries changelog records.

Two jobs, so that rows which cannot be encoded are found before anything is written. The first
makes entries: bytes by the store's serdes, brought to their changelog partition, the last one of
each key. The second writes them, each partition under its task's transactional id: whoever takes
the task fences a writer that Spark has forgotten.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel, cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.config import Config
from penstock.coordination.history import Columns
from penstock.errors import BootstrapError
from penstock.instance.protocol import CHANGE, ROWS
from penstock.instance.writer import Writer
from penstock.observability.crash_points import crash_point
from penstock.pipeline.jobs import pickled, source_options
from penstock.pipeline.session import use_added_jars
from penstock.processors import partitions_of
from penstock.serdes import JsonSerde, Serde
from penstock.serdes.decoders import converted
from penstock.serdes.scalars import UuidSerde
from penstock.serdes.windowed import (
    session_key,
    split_session_key,
    split_window_key,
    window_key,
)
from penstock.stores.segments import LAYOUTS
from penstock.topology import StoreSpec

ENTRIES = pa.schema(
    [
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("origin", pa.int32()),
        ("place", pa.int64()),
    ]
)
_SPARK_ENTRIES = (
    "partition int, key binary, value binary, timestamp bigint, origin int, place bigint"
)
_TALLY = pa.schema(
    [
        ("partition", pa.int32()),
        ("entries", pa.int64()),
        ("time", pa.int64()),
        ("window", pa.int64()),
    ]
)
_SPARK_TALLY = "partition int, entries bigint, time bigint, window bigint"
_OLD = -1
"""The origin of an entry that the changelog has already: before every row. That of a topic's record
is its partition, of any other row 0."""
_SEND_RECORDS = 100_000
_COMMIT_BYTES = 16 * 1024 * 1024
"""A transaction is written out within a flush's time-out."""


@dataclass(frozen=True, kw_only=True)
class HistoryOrder:
    """What the workers need to know to fill a store."""

    config: Config
    store: bytes
    """The store's description, pickled by Spark's own pickler: serdes may be the user's."""
    changelog: str
    tasks: tuple[str, ...]
    """The durable names of the store's tasks, by partition."""
    application_id: str
    now_ms: int
    is_timed: bool
    """Whether the rows say when they are of; if not, a key may have one row."""
    unplacing: int = 0
    """How many bytes at the end of a key do not choose its partition."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many entries a partition has, and the latest times among them; -1 if there are none."""

    entries: int
    time: int
    """Of rows that say when they are of: what we write ourselves is as late as the wall clock."""
    window: int
    """Of windows, as their changelog keys have it."""


class Entries:
    """The entries of a store, computed and kept on Spark's disks until they are written."""

    def __init__(self, frame: DataFrame, order: HistoryOrder) -> None:
        self._frame = frame.persist(StorageLevel.DISK_ONLY)
        self._order = order
        self.tallies = _tallies(self._frame.mapInArrow(partial(tally, order), _SPARK_TALLY))

    def write(self) -> int:
        """Write them to the changelog; returns how many were written."""
        frame = self._frame.mapInArrow(partial(write_entries, self._order), _SPARK_TALLY)
        return sum(each.entries for each in _tallies(frame).values())

    def close(self) -> None:
        """Let Spark's disks go."""
        self._frame.unpersist()


class History:
    """Where rows come from, and the way from there to entries."""

    def __init__(self, spark: SparkSession, config: Config, application_id: str) -> None:
        use_added_jars(spark)
        self._spark = spark
        self._options = source_options(config, application_id)

    def read(self, place: str, ends: Mapping[int, int]) -> DataFrame:
        """The rows of `parquet:PATH`, `table:NAME` or `topic:NAME`, of the last up to `ends`."""
        kind, _, name = place.partition(":")
        try:
            if kind == "parquet":
                return self._spark.read.parquet(name)
            if kind == "table":
                return self._spark.table(name)
        except AnalysisException as error:
            raise BootstrapError(
                f"Spark cannot read {place}: {error.getMessage() or error}",
                hint="Check the name, and that Spark may read it",
            ) from error
        if kind == "topic" and name:
            return self._topic(name, ends)
        raise BootstrapError(
            f"{place!r} is no place to read from",
            hint="Write parquet:/path, table:database.name or topic:NAME",
        )

    def types(self, frame: object) -> dict[str, str]:
        """The columns of a DataFrame with their types, in Spark's words."""
        if not isinstance(frame, DataFrame):
            raise BootstrapError(
                f"History is a Spark DataFrame or the name of a place, not {type(frame).__name__}",
                hint="Pass a DataFrame, or parquet:/path, table:database.name, topic:NAME",
            )
        return {field.name: field.dataType.simpleString() for field in frame.schema.fields}

    def entries(
        self,
        frame: DataFrame,
        columns: Columns,
        order: HistoryOrder,
        *,
        is_topic: bool = False,
        replaced: Mapping[int, int] | None = None,
    ) -> Entries:
        """The last entry of each key; with `replaced`, deletions of what else the changelog has.

        `replaced` says where the changelog ends. A topic's offsets order the records of one
        partition better than their times, if the caller named no column of times.
        """
        by_offset = is_topic and columns.timestamp is None
        if by_offset:
            columns = replace(columns, timestamp="timestamp")
        types = self.types(frame)
        chosen = {role: _column(name, types[name], role) for role, name in columns.named.items()}
        chosen["origin"] = "partition" if is_topic else "0"
        chosen["place"] = "offset" if is_topic else "0L"
        rows = frame.selectExpr(*(f"{what} AS {role}" for role, what in chosen.items()))
        encoded = rows.mapInArrow(partial(encode_rows, order), _SPARK_ENTRIES)
        if replaced is not None:
            encoded = encoded.union(self._old(order, replaced))
        count = len(order.tasks)
        # What Spark partition an entry is in must be its changelog partition: one transactional id
        # is for one writer.
        sorted_ = encoded.repartitionById(count, encoded.partition).sortWithinPartitions(
            *(("key", "origin", "place") if by_offset else ("key", "origin", "timestamp", "place"))
        )
        latest = sorted_.mapInArrow(partial(latest_entries, order), _SPARK_ENTRIES)
        with spark_failures():
            return Entries(latest, order)

    def _old(self, order: HistoryOrder, ends: Mapping[int, int]) -> DataFrame:
        """A deletion for each key that the changelog has."""
        return self._load(order.changelog, ends).selectExpr(
            "partition",
            "key",
            "CAST(NULL AS BINARY) AS value",
            f"CAST({order.now_ms} AS BIGINT) AS timestamp",
            f"{_OLD} AS origin",
            "0L AS place",
        )

    def _topic(self, topic: str, ends: Mapping[int, int]) -> DataFrame:
        return self._load(topic, ends).selectExpr(
            "key", "value", "timestamp", "partition", "offset"
        )

    def _load(self, topic: str, ends: Mapping[int, int]) -> DataFrame:
        assigned = {topic: sorted(ends)}
        starts = {topic: {str(partition): -2 for partition in ends}}
        until = {topic: {str(partition): end for partition, end in ends.items()}}
        return (
            self._spark.read.format("kafka")
            .options(**self._options)
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(until))
            .load()
        )


def _column(name: str, kind: str, role: str) -> str:
    """The column as the workers want it: times in milliseconds, all else as it is."""
    if role in ("key", "value"):
        return f"`{name}`"
    return f"unix_millis(`{name}`)" if kind == "timestamp" else f"CAST(`{name}` AS BIGINT)"


@contextlib.contextmanager
def spark_failures() -> Iterator[None]:
    """Turn what Spark says of a failed job into one line."""
    try:
        yield
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        ours = [line for line in lines if "BootstrapError: " in line]
        text = ours[-1].partition("BootstrapError: ")[2] if ours else (lines or [repr(error)])[-1]
        raise BootstrapError(text.strip()) from error


def _tallies(frame: DataFrame) -> dict[int, Tally]:
    with spark_failures():
        return {
            row.partition: Tally(entries=row.entries, time=row.time, window=row.window)
            for row in frame.collect()
        }


# What runs in the workers.


def encode_rows(order: HistoryOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Entries of rows: bytes by the store's serdes, and the partition that the key belongs to."""
    store: StoreSpec = cloudpickle.loads(order.store)
    for batch in batches:
        yield encode(store, order, batch)


def encode(store: StoreSpec, order: HistoryOrder, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The entries of some rows, in their order."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for role in columns.keys() - {"value"}:
        if columns[role].null_count:
            what = role.replace("_", " ")
            raise BootstrapError(f"A row has no {what}; leave such rows out, or say what it is")
    if store.kind in LAYOUTS and "window_start" not in columns:
        columns |= _taken_apart(store, columns["key"])
    keys = _bytes(columns["key"], store.key_serde, "key")
    values = _bytes(columns["value"], store.value_serde, "value")
    times = columns.get("timestamp")
    if times is None:
        times = pa.array(np.full(len(batch), order.now_ms, dtype=np.int64))
    elif len(times) and pc.min(times).as_py() < 0:
        raise BootstrapError("A row has a time before 1970, which Kafka does not know")
    tail = order.unplacing
    placing = pc.binary_slice(keys, 0, -tail) if tail else keys
    partitions = partitions_of(placing, len(order.tasks))
    stored = _stored_keys(store, keys, columns)
    order_by = [columns["origin"], columns["place"]]
    return pa.record_batch([pa.array(partitions), stored, values, times, *order_by], schema=ENTRIES)


def _taken_apart(store: StoreSpec, keys: pa.BinaryArray) -> dict[str, pa.Array]:
    """The columns that rows of windows have otherwise, from the keys of a changelog of windows."""
    data: list[bytes] = keys.to_pylist()
    tail = LAYOUTS[store.kind].tail_bytes
    if min(map(len, data), default=tail) < tail:
        raise _no_changelog_key(store, "it is too short")
    split = split_window_key if store.kind == "window" else split_session_key
    parts = [split(key) for key in data]
    if store.kind == "window":
        # Topics that windows were written to have no number at the end of their keys.
        fits = all(start >= 0 and sequence == 0 for _, start, sequence in parts)
    else:
        fits = all(0 <= start <= end for _, start, end in parts)
    if not fits:
        raise _no_changelog_key(store, "its last bytes are no times")
    return {
        "key": pa.array([key for key, _, _ in parts], pa.binary()),
        "window_start": pa.array([start for _, start, _ in parts], pa.int64()),
        "window_end": pa.array([end for _, _, end in parts], pa.int64()),
    }


def _no_changelog_key(store: StoreSpec, reason: str) -> BootstrapError:
    return BootstrapError(
        f"A key is not one of a changelog of {store.kind}s ({reason}); read the topic into a table "
        "with columns for the times, and name those"
    )


def _stored_keys(
    store: StoreSpec, keys: pa.BinaryArray, columns: Mapping[str, pa.Array]
) -> pa.BinaryArray:
    """Keys as the store has them, windows included."""
    if store.kind == "key_value":
        return keys
    starts = columns["window_start"].to_pylist()
    if store.kind == "window":
        pairs = zip(keys.to_pylist(), starts, strict=True)
        return pa.array([window_key(key, start) for key, start in pairs], pa.binary())
    triples = zip(keys.to_pylist(), starts, columns["window_end"].to_pylist(), strict=True)
    return pa.array([session_key(key, start, end) for key, start, end in triples], pa.binary())


def _bytes(column: pa.Array, serde: Serde[Any], role: str) -> pa.BinaryArray:
    try:
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            encoded = column.cast(pa.binary())
            serde.check_column(encoded)
            return encoded
        return serde.serialize_column(_values(column, serde))
    except (ValueError, TypeError, AttributeError) as error:
        raise BootstrapError(f"A {role} is no {serde.name}: {error}") from error


def _values(column: pa.Array, serde: Serde[Any]) -> Sequence[Any]:
    """The column's values as the serde wants them."""
    values: list[Any] = column.to_pylist()
    if isinstance(serde, UuidSerde):
        return [None if value is None else UUID(value) for value in values]
    if isinstance(serde, JsonSerde):
        if pa.types.is_map(column.type):
            values = [None if value is None else dict(value) for value in values]
        kind = serde.type
        return [None if value is None else converted(value, kind) for value in values]
    return values


def latest_entries(
    order: HistoryOrder, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The last of the entries of each key; they come sorted by key, origin and time or offset.

    Offsets say nothing across partitions: of the last ones of each, the one of the latest time is
    the key's.
    """
    held: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if held is None else pa.concat_batches([held, batch])
        if not rows.num_rows:
            continue
        if not order.is_timed:
            _refuse_twins(rows)
        rows = _last_of_origins(rows)
        # The next batch may have more of the last key.
        keys = rows.column("key")
        first = pc.index(keys, value=keys[len(keys) - 1]).as_py()
        yield _latest_of_keys(rows.slice(0, first))
        held = rows.slice(first)
    if held is not None:
        yield _latest_of_keys(held)


def _last_of_origins(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The last row of each key and origin."""
    changes = pc.or_(_changes(rows.column("key")), _changes(rows.column("origin")))
    return rows.filter(pa.concat_arrays([changes, pa.array([True])]))


def _latest_of_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The row of each key that has the latest time; one that the changelog has comes before all."""
    changes = _changes(rows.column("key"))
    if pc.all(changes, min_count=0).as_py():
        return rows
    groups = np.concatenate([[0], np.cumsum(changes.to_numpy(zero_copy_only=False))])
    is_old = rows.column("origin").to_numpy() == _OLD
    times = np.where(is_old, -1, rows.column("timestamp").to_numpy())
    ordered = np.lexsort((times, groups))
    ends = np.append(np.flatnonzero(np.diff(groups)), len(groups) - 1)
    return rows.take(pa.array(ordered[ends]))


def _changes(column: pa.Array) -> pa.BooleanArray:
    """Of each row but the last: whether the next one has another value."""
    return pc.not_equal(column.slice(0, max(len(column) - 1, 0)), column.slice(1))


def _refuse_twins(rows: pa.RecordBatch) -> None:
    keys, origins = rows.column("key"), rows.column("origin")
    is_new = pc.not_equal(origins.slice(0, len(keys) - 1), _OLD)
    twins = pc.and_not(is_new, _changes(keys))
    if pc.any(twins).as_py():
        key = keys[pc.index(twins, value=True).as_py()].as_py()
        raise BootstrapError(
            f"The key {key!r} has several rows, and no column says which is the latest; name one "
            "with --timestamp"
        )


def tally(order: HistoryOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count a partition's entries."""
    store: StoreSpec = cloudpickle.loads(order.store)
    layout = LAYOUTS.get(store.kind)
    partition, entries, time, window = -1, 0, -1, -1
    for batch in batches:
        if batch.num_rows:
            partition = batch.column("partition")[0].as_py()
            entries += batch.num_rows
            time = max(time, _latest_time(order, batch))
            if layout is not None:
                window = max(window, layout.latest(batch.column("key").to_pylist()))
    if entries:
        yield pa.record_batch([[partition], [entries], [time], [window]], schema=_TALLY)


def _latest_time(order: HistoryOrder, batch: pa.RecordBatch) -> int:
    if not order.is_timed:
        return -1
    rows = batch.filter(pc.not_equal(batch.column("origin"), _OLD))
    return int(pc.max(rows.column("timestamp")).as_py()) if rows.num_rows else -1


def write_entries(
    order: HistoryOrder, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a partition's entries to the changelog, under the task's own transactional id."""
    writer: Writer | None = None
    partition, written, pending = -1, 0, 0
    for batch in _chunks(batches):
        if writer is None:
            partition = batch.column("partition")[0].as_py()
            name = f"{order.application_id}-{order.tasks[partition]}"
            writer = Writer(order.config, transactional_id=name, group=None)
            writer.open(order.changelog)
        if not pending:
            writer.begin()
        writer.send(_rows(batch), changelogs=[order.changelog], topics=[], own=partition)
        pending += batch.nbytes
        written += batch.num_rows
        if pending >= _COMMIT_BYTES:
            _commit(writer)
            pending = 0
    if writer is not None:
        if pending:
            _commit(writer)
        yield pa.record_batch([[partition], [written], [-1], [-1]], schema=_TALLY)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of bounded size, none of them empty."""
    for batch in batches:
        if batch.num_rows:
            size = min(_SEND_RECORDS, batch.num_rows * _COMMIT_BYTES // max(batch.nbytes, 1))
            for start in range(0, batch.num_rows, max(size, 1)):
                yield batch.slice(start, max(size, 1))


def _commit(writer: Writer) -> None:
    writer.flush()
    writer.commit({}, {})
    crash_point("bootstrap.after_chunk")


def _rows(entries: pa.RecordBatch) -> pa.RecordBatch:
    """Entries in the shape of a commit's changes."""
    count = entries.num_rows
    columns = [
        pa.array(np.full(count, CHANGE, dtype=np.uint8)),
        pa.array(np.zeros(count, dtype=np.int16)),
        entries.column("partition"),
        entries.column("key"),
        entries.column("value"),
        entries.column("timestamp"),
        pa.nulls(count, ROWS.field("headers").type),
    ]
    return pa.record_batch(columns, schema=ROWS)


def describe_store(store: StoreSpec) -> bytes:
    """The store's description for an order."""
    return pickled(store)
