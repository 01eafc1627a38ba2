"""What goes into a slice and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.observability.groups import Level
from penstock.topology.processor import RecordFailure

if TYPE_CHECKING:
    from penstock.processors.meter import SliceMeter

Int64s = npt.NDArray[np.int64]
Handler = Literal["fail", "continue", "dead_letter"]
UNKEYED = "null_key_to_repartition"
"""Why a record goes no further that has no key to be sent to its kind by: it is counted apart,
because Kafka Streams does not count it."""
OnError = Handler | Callable[[RecordFailure], Handler]
"""What becomes of a record that failed, or who says so."""

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

CHANGES_SCHEMA = pa.schema(
    [
        ("store", pa.dictionary(pa.int32(), pa.string())),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
    ]
)
OUTPUTS_SCHEMA = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS_TYPE),
    ]
)

_ROWS = {schema: pa.struct(list(schema)) for schema in (CHANGES_SCHEMA, OUTPUTS_SCHEMA)}
# Not by `pa.array`: its first call imports pandas, which an instance does not need.
_EMPTY = {
    schema: pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
    for schema in _ROWS
}

STREAM_TIME = "stream-time"
"""In a slice's metadata: the latest time that the task has seen."""
WALL_CLOCK_DUE = "wall-clock-due"
"""In a slice's metadata: when the first punctuator is due by the wall clock, in milliseconds."""


def batch_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as columns, for one of the schemas above: in one pass, whatever the number of columns.

    >>> batch_of([("counts", b"a", None, 7)], CHANGES_SCHEMA).column("timestamp").to_pylist()
    [7]
    """
    if not rows:
        return _EMPTY[schema]
    return pa.RecordBatch.from_struct_array(pa.array(rows, _ROWS[schema]))


Entry = tuple[bytes, bytes]
"""A key as in the changelog, and the stored bytes: 8 bytes of big-endian timestamp, the value."""


GAP = b"\x00"
"""Of a versioned store: an entry that is shorter than a timestamp says that the key was deleted;
this one, that it was until a value came and not by a record of its own."""


class Fetched(NamedTuple):
    """Entries of a store in columns, each with the number of the question that it answers."""

    questions: Int64s
    keys: pa.BinaryArray
    values: pa.BinaryArray


def fetched(answers: Sequence[Sequence[Entry]]) -> Fetched:
    """The answers to questions, in columns.

    >>> fetched([[(b"a", b"1")], [], [(b"b", b"2")]]).questions
    array([0, 2])
    """
    entries = [entry for answer in answers for entry in answer]
    counts = np.fromiter(map(len, answers), np.int64, len(answers))
    return Fetched(
        np.repeat(np.arange(len(answers), dtype=np.int64), counts),
        pa.array([key for key, _ in entries], pa.binary()),
        pa.array([value for _, value in entries], pa.binary()),
    )


class StateReader(Protocol):
    """Reads a task's stores as they were when the slice began."""

    def get_many(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Each key's stored bytes (8-byte big-endian timestamp, then the value), null if absent."""


class ScanReader(StateReader, Protocol):
    """Reads ranges too, for windows, sessions, joins and users' processors."""

    def fetch_many(
        self, store: str, questions: Sequence[tuple[bytes, int, int]]
    ) -> list[list[Entry]]:
        """For each (key, first, last): the windows of exactly that key that start in first..last,
        or the sessions that end there, or what a versioned store says that the key was then, in
        order of time. Both ends belong to the range.
        """

    def fetch_columns(
        self, store: str, keys: pa.BinaryArray, first: Int64s, last: Int64s
    ) -> Fetched:
        """As `fetch_many`, with a row for each question."""

    def range_many(
        self, store: str, ranges: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[list[Entry]]:
        """For each (lower, upper): the entries with lower <= key < upper, by key; None is open."""

    def fetch_times(self, store: str, first: int, last: int) -> list[Entry]:
        """Of a store with a time index: the entries of first..last, by time and then by key."""


@dataclass(frozen=True)
class Records:
    """Rows of one task in processing order: a slice, or an Arrow chunk of it.

    `topic` is the name in Kafka. `headers` is of `HEADERS_TYPE`, or `None` when no record has any.
    `computed` has, by step and number of the result, what Spark computed of the records already.
    """

    topic: str
    partition: int
    offsets: Int64s
    timestamps: Int64s
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None = None
    computed: Mapping[tuple[str, int], pa.Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What bounds a slice.

    `cache_max_bytes` is for the whole slice, shared equally by its cached stores; 0 turns the
    record cache off. `partition_counts` has the number of partitions of every output topic. The
    handlers say what becomes of a record that cannot be decoded, processed or written;
    `dead_letters_of_dropped` sends also what is dropped by rule (late, without a key), and what
    cannot be decoded.
    `watches_values` looks whether processors put back what they change, for tests.
    `reads_again` says that stores are made anew from their input: in their changelogs keys may live
    that they no longer have, so deletions are written of what came and went within the slice, too.
    `metrics` says how much is counted.
    """

    cache_max_bytes: int
    on_bad_record: Handler = "fail"
    on_processing_error: OnError = "fail"
    on_production_error: OnError = "fail"
    dead_letter_topic: str | None = None
    dead_letters_of_dropped: bool = False
    watches_values: bool = False
    reads_again: bool = False
    metrics: Level = "OFF"
    partition_counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SliceResult:
    """What a slice wants written.

    `changes` has a row per changelog record (store, key, bare value or null, timestamp), `outputs`
    a row per output record (topic, partition or -1, key, value, timestamp, headers), in order.
    `dropped` counts records by the reason for which they went no further. `ends` has the first
    unprocessed offset of each input that was not processed to the end of its range.
    """

    changes: pa.RecordBatch
    outputs: pa.RecordBatch
    dropped: Mapping[str, int]
    metadata: Mapping[str, str]
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    meter: SliceMeter | None = None
    """What was counted on the way."""
