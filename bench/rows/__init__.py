"""The rows of the benchmark, by name."""

from __future__ import annotations

from collections.abc import Callable

from bench.lab import Lab
from bench.results import Row
from bench.rows import (
    count,
    failover,
    joins,
    lambda_reduce,
    latency,
    queries,
    restore,
    snapshot,
    start,
    windowed_count,
)

ROWS: dict[str, Callable[[Lab], list[Row]]] = {
    "count": count.WORKLOAD.run,
    "windowed_count": windowed_count.WORKLOAD.run,
    "lambda_reduce": lambda_reduce.WORKLOAD.run,
    "stream_table_join": joins.WITH_TABLE.run,
    "stream_stream_join": joins.OF_STREAMS.run,
    "latency": latency.run,
    "start": start.run,
    "restore": restore.run,
    "snapshot": snapshot.run,
    "failover": failover.run,
    "queries": queries.run,
}
