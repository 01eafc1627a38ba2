"""The rows of the benchmark, by name."""

from __future__ import annotations

from collections.abc import Callable

from bench.lab import Lab
from bench.results import Row
from bench.rows import count, latency, start

ROWS: dict[str, Callable[[Lab], list[Row]]] = {
    "count": count.run,
    "latency": latency.run,
    "start": start.run,
}
