"""The operators' semantics over a slice of one task's records: pure, no I/O of their own.

`SliceRun` takes records and a reader of state, and returns what to write: changes of stores and
records for topics. The result is that of Kafka Streams' depth-first, record-by-record processing,
computed a column at a time.
"""

from penstock.processors.needs import ColumnNeeds, needed_columns
from penstock.processors.partitioner import partitions_of
from penstock.processors.records import (
    HEADERS_TYPE,
    Limits,
    Records,
    SliceResult,
    StateReader,
)
from penstock.processors.slice_run import SliceRun

__all__ = [
    "HEADERS_TYPE",
    "ColumnNeeds",
    "Limits",
    "Records",
    "SliceResult",
    "SliceRun",
    "StateReader",
    "needed_columns",
    "partitions_of",
]
