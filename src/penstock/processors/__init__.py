"""The operators' semantics over a slice of one task's records: pure, no I/O of their own.

A run takes records and a reader of state, and returns what to write: changes of stores and records
for topics. The result is that of Kafka Streams' depth-first, record-by-record processing.
`RecordRun` computes it just so; `SliceRun` computes it a column at a time, for the steps that allow
it. `start_slice` chooses.
"""

from penstock.processors.changelog_headers import changelog_headers
from penstock.processors.choice import Run, handles_errors, runs_in_columns, start_slice
from penstock.processors.depth_first import RecordRun, closed_keys, shape_class
from penstock.processors.leading import Leading, leading_expressions
from penstock.processors.needs import ColumnNeeds, needed_columns
from penstock.processors.partitioner import partitions_of
from penstock.processors.records import (
    HEADERS_TYPE,
    STREAM_TIME,
    WALL_CLOCK_DUE,
    Entry,
    Fetched,
    Limits,
    Records,
    ScanReader,
    SliceResult,
    StateReader,
    fetched,
)
from penstock.processors.slice_run import SliceRun

__all__ = [
    "HEADERS_TYPE",
    "STREAM_TIME",
    "WALL_CLOCK_DUE",
    "ColumnNeeds",
    "Entry",
    "Fetched",
    "Leading",
    "Limits",
    "RecordRun",
    "Records",
    "Run",
    "ScanReader",
    "SliceResult",
    "SliceRun",
    "StateReader",
    "changelog_headers",
    "closed_keys",
    "fetched",
    "handles_errors",
    "leading_expressions",
    "needed_columns",
    "partitions_of",
    "runs_in_columns",
    "shape_class",
    "start_slice",
]
