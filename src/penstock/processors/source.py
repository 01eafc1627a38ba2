"""From Kafka's records to rows: what cannot be decoded or has no valid time goes no further."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import DeserializationError, TimestampError, UserFunctionError
from penstock.processors.batch import Batch, Column
from penstock.processors.calls import call_each, coordinates
from penstock.processors.records import Handler, Int64s, Records
from penstock.serdes import Serde
from penstock.serdes.windowed import is_canonical
from penstock.topology import SourceNode

_INT64 = np.iinfo(np.int64)


def read_source(
    source: SourceNode,
    records: Records,
    *,
    first: int,
    on_bad_record: Handler,
    dropped: Counter[str],
    on_skipped: Callable[[int, str, ValueError | None], None] | None = None,
    now_ms: int = 0,
    partition_time: int = -1,
) -> Batch:
    """The rows of these records; `first` is the sequence number of the first one.

    `on_skipped(offset, reason, error)` is told of each record that goes no further; there is an
    error of those that cannot be decoded. `now_ms` is the wall clock, and `partition_time` the
    latest time that this input had so far.
    """
    # Stores, joins and partitions go by a key's bytes, which must be those that we would write.
    foreign = not is_canonical(source.key_serde)
    keys, bad_keys = _decoded(records.keys, source.key_serde, foreign=foreign)
    values, bad_values = _decoded(records.values, source.value_serde)
    batch = Batch(
        topic=records.topic,
        partition=records.partition,
        offsets=records.offsets,
        timestamps=records.timestamps,
        keys=keys,
        values=values,
        headers=records.headers,
        order=(np.arange(first, first + len(records.offsets), dtype=np.int64),),
        computed=records.computed,
    )
    if bad_keys or bad_values:
        if on_bad_record == "fail":
            raise _undecodable(source, batch, bad_keys, bad_values)
        bad = sorted(bad_keys.keys() | bad_values.keys())
        dropped["undecodable"] += len(bad)
        if on_skipped is not None:
            for row in bad:
                reason = bad_keys.get(row) or bad_values[row]
                on_skipped(int(batch.offsets[row]), "undecodable", reason)
        good = np.ones(len(batch), dtype=np.bool_)
        good[bad] = False
        batch = batch.keep(good)
    if source.timestamp is not None:
        batch = batch.replace(timestamps=_extracted(source, source.timestamp, batch))
    elif source.time_rule == "wall_clock":
        batch = batch.replace(timestamps=np.full(len(batch), now_ms, dtype=np.int64))
    elif source.time_rule == "partition_time":
        batch = batch.replace(timestamps=_with_partition_times(batch.timestamps, partition_time))
    if len(batch) and batch.timestamps.min() < 0:
        if source.timestamp is None and source.time_rule in ("fail", "partition_time"):
            raise _untimed(source, batch)
        in_time = batch.timestamps >= 0
        dropped["negative_timestamp"] += len(batch) - int(in_time.sum())
        if on_skipped is not None:
            for offset in batch.offsets[~in_time].tolist():
                on_skipped(offset, "negative_timestamp", None)
        batch = batch.keep(in_time)
    return batch


def _extracted(source: SourceNode, function: Callable[..., Any], batch: Batch) -> Int64s:
    """The times that the user's function names; `UserFunctionError` for one that is none."""
    arguments = (batch.keys.objects(), batch.values.objects(), batch.timestamps.tolist())
    times = call_each(source.name, batch, function, *arguments)
    # numpy would cut a fraction off, and take a text of digits.
    if set(map(type, times)) - {int}:
        for row, time in enumerate(times):
            if isinstance(time, bool) or not isinstance(time, Integral):
                raise _no_time(source, batch, row, time)
    try:
        return np.array(times, dtype=np.int64)
    except OverflowError as error:
        row = next(row for row, time in enumerate(times) if not _fits(int(time)))
        raise _no_time(source, batch, row, times[row]) from error


def _fits(time: int) -> bool:
    return int(_INT64.min) <= time <= int(_INT64.max)


def _no_time(source: SourceNode, batch: Batch, row: int, time: object) -> UserFunctionError:
    return UserFunctionError(
        f"The timestamp function of step {source.name} returned {reprlib.repr(time)}, which is no "
        "time",
        where=coordinates(source.name, batch, row),
        hint="Return whole milliseconds since 1970 as an int; a negative one drops the record",
    )


def _with_partition_times(timestamps: Int64s, latest: int) -> Int64s:
    """The times, where each that is not valid is the latest before it."""
    before = np.maximum.accumulate(np.concatenate(([np.int64(latest)], timestamps)))[:-1]
    times: Int64s = np.where(timestamps < 0, before, timestamps)
    return times


def _untimed(source: SourceNode, batch: Batch) -> TimestampError:
    row = int(np.argmax(batch.timestamps < 0))
    return TimestampError(
        f"The record's time is {batch.timestamps[row]}",
        where=coordinates(source.name, batch, row),
        hint='Give the source timestamp=..., or set default_timestamp_extractor="skip" to drop '
        "such records",
    )


def _decoded(
    array: pa.BinaryArray, serde: Serde[Any], *, foreign: bool = False
) -> tuple[Column, dict[int, ValueError]]:
    """The column, and the rows that cannot be decoded with the reason."""
    try:
        objects = serde.check_column(array)
        return Column(binary=array, serde=serde, objects=objects, foreign=foreign), {}
    except ValueError:
        # The fast way says only that some row is bad; the slow one finds out which.
        objects = []
        bad: dict[int, ValueError] = {}
    for row, data in enumerate(array.to_pylist()):
        try:
            objects.append(None if data is None else serde.deserialize(data))
        except ValueError as error:
            objects.append(None)
            bad[row] = error
    return Column(binary=array, serde=serde, objects=objects, foreign=foreign), bad


def _undecodable(
    source: SourceNode,
    batch: Batch,
    bad_keys: dict[int, ValueError],
    bad_values: dict[int, ValueError],
) -> DeserializationError:
    """The error of the first bad record."""
    row = min(bad_keys.keys() | bad_values.keys())
    what, serde, bad = (
        ("key", source.key_serde, bad_keys)
        if row in bad_keys
        else ("value", source.value_serde, bad_values)
    )
    return DeserializationError(
        f"The record's {what} cannot be decoded as {serde.name}: {bad[row]}",
        where=coordinates(source.name, batch, row),
        hint="Name the right type in stream(...), or set "
        'deserialization_exception_handler="continue" to skip and count such records',
    )
