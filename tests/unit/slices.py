"""Makes records and runs them through a slice, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.processors import (
    HEADERS_TYPE,
    Limits,
    RecordRun,
    Records,
    SliceResult,
    SliceRun,
)
from penstock.topology import StreamsBuilder, SubTopology, Topology


@dataclass(frozen=True)
class Row:
    """A record in bytes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None


@dataclass(frozen=True)
class Sent:
    """A message as Kafka's consumer gives it."""

    at: int
    name: bytes
    data: bytes | None

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 50

    def key(self) -> bytes:
        return self.name

    def value(self) -> bytes | None:
        return self.data

    def headers(self) -> None:
        return None


class DictState:
    """State in a dictionary: store -> key -> (value, timestamp)."""

    def __init__(self, stores: dict[str, dict[bytes, tuple[bytes, int]]] | None = None) -> None:
        self.stores = stores or {}
        self.asked: list[tuple[str, list[bytes]]] = []

    def get_many(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        names = keys.to_pylist()
        self.asked.append((store, names))
        found = (self.stores.get(store, {}).get(name) for name in names)
        return pa.array(
            [None if v is None else v[1].to_bytes(8, "big") + v[0] for v in found], pa.binary()
        )


def build(write: Callable[[Any], object], *, key: Any = bytes, value: Any = bytes) -> Topology:
    """The topology of a function from the stream of topic `in`."""
    builder = StreamsBuilder()
    write(builder.stream("in", key=key, value=value))
    return builder.build()


def records(rows: Iterable[Row], topic: str = "in", partition: int = 0) -> Records:
    """Arrow columns of these rows."""
    rows = list(rows)
    headers = None
    if any(row.headers for row in rows):
        headers = pa.array(
            [
                None if h is None else [{"key": k, "value": v} for k, v in h]
                for h in (row.headers for row in rows)
            ],
            HEADERS_TYPE,
        )
    return Records(
        topic=topic,
        partition=partition,
        offsets=np.array([row.offset for row in rows], dtype=np.int64),
        timestamps=np.array([row.timestamp for row in rows], dtype=np.int64),
        keys=pa.array([row.key for row in rows], pa.binary()),
        values=pa.array([row.value for row in rows], pa.binary()),
        headers=headers,
    )


def run(
    sub: SubTopology,
    chunks: Iterable[Records],
    *,
    state: DictState | None = None,
    cache_max_bytes: int = 1_000_000,
    on_bad_record: Any = "fail",
    partitions: int = 4,
    kind: type[SliceRun | RecordRun] = SliceRun,
) -> SliceResult:
    """The result of these chunks."""
    counts = dict.fromkeys(sub.output_topics("app"), partitions)
    slice_run = kind(
        sub,
        application_id="app",
        state=state or DictState(),
        limits=Limits(
            cache_max_bytes=cache_max_bytes, on_bad_record=on_bad_record, partition_counts=counts
        ),
    )
    for chunk in chunks:
        slice_run.process(chunk)
    return slice_run.finish()


def changes(result: SliceResult) -> list[tuple[Any, ...]]:
    """(store, key, value, timestamp) of each change."""
    return [tuple(row.values()) for row in result.changes.to_pylist()]


def outputs(result: SliceResult) -> list[tuple[Any, ...]]:
    """(topic, key, value, timestamp, headers) of each output."""
    return [
        (
            row["topic"],
            row["key"],
            row["value"],
            row["timestamp"],
            None
            if row["headers"] is None
            else [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in result.outputs.to_pylist()
    ]
