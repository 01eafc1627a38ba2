"""From Kafka's records to rows: what cannot be decoded or has no valid time goes no further."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.errors import DeserializationError
from penstock.processors.batch import Batch, Bools, Column
from penstock.processors.records import Records
from penstock.serdes import Serde
from penstock.topology import SourceNode


def read_source(
    source: SourceNode,
    records: Records,
    *,
    first: int,
    on_bad_record: Literal["fail", "continue"],
    dropped: Counter[str],
) -> Batch:
    """The rows of these records; `first` is the sequence number of the first one."""
    count = len(records.offsets)
    keys, good_keys = _column(source, records, "key", on_bad_record)
    values, good_values = _column(source, records, "value", on_bad_record)
    batch = Batch(
        topic=records.topic,
        partition=records.partition,
        offsets=records.offsets,
        timestamps=records.timestamps,
        keys=keys,
        values=values,
        headers=records.headers,
        order=(np.arange(first, first + count, dtype=np.int64),),
    )
    decoded = _both(good_keys, good_values)
    in_time = records.timestamps >= 0 if count and records.timestamps.min() < 0 else None
    if decoded is not None:
        dropped["undecodable"] += count - int(decoded.sum())
    if in_time is not None:
        before = in_time if decoded is None else in_time | ~decoded
        dropped["negative_timestamp"] += count - int(before.sum())
    keep = _both(decoded, in_time)
    return batch if keep is None else batch.keep(keep)


def _both(one: Bools | None, other: Bools | None) -> Bools | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _column(
    source: SourceNode,
    records: Records,
    what: Literal["key", "value"],
    on_bad_record: Literal["fail", "continue"],
) -> tuple[Column, Bools | None]:
    array, serde = (
        (records.keys, source.key_serde) if what == "key" else (records.values, source.value_serde)
    )
    try:
        objects = serde.check_column(array)
    except ValueError:
        return _one_by_one(source, records, what, array, serde, on_bad_record)
    return Column(binary=array, serde=serde, objects=objects), None


def _one_by_one(
    source: SourceNode,
    records: Records,
    what: str,
    array: pa.BinaryArray,
    serde: Serde[Any],
    on_bad_record: Literal["fail", "continue"],
) -> tuple[Column, Bools]:
    """Find the records that cannot be decoded, and stop at the first or mark them."""
    objects: list[Any] = []
    good = np.ones(len(array), dtype=np.bool_)
    for row, data in enumerate(array.to_pylist()):
        try:
            objects.append(None if data is None else serde.deserialize(data))
        except ValueError as error:
            if on_bad_record == "fail":
                raise _undecodable(source, records, what, row, serde, error) from error
            objects.append(None)
            good[row] = False
    return Column(binary=array, serde=serde, objects=objects), good


def _undecodable(
    source: SourceNode,
    records: Records,
    what: str,
    row: int,
    serde: Serde[Any],
    error: ValueError,
) -> DeserializationError:
    return DeserializationError(
        f"The record's {what} cannot be decoded as {serde.name}: {error}",
        where={
            "topic": records.topic,
            "partition": records.partition,
            "offset": int(records.offsets[row]),
            "step": source.name,
        },
        hint="Name the right type in stream(...), or set "
        'deserialization_exception_handler="continue" to skip and count such records',
    )
