"""What RocksDB says of a store, by the names of Kafka Streams' metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_COUNTER = re.compile(r"^rocksdb\.(\S+) COUNT : (\d+)$")
_HISTOGRAM = re.compile(r"^rocksdb\.(\S+) P50 : .* P100 : (\S+) COUNT : (\d+) SUM : (\d+)$")

_SUMS = {
    "bytes-written": "bytes.written",
    "bytes-read": "bytes.read",
    "memtable-bytes-flushed": "flush.write.bytes",
    "bytes-read-compaction": "compact.read.bytes",
    "bytes-written-compaction": "compact.write.bytes",
}
_RATIOS = {
    "memtable-hit-ratio": "memtable",
    "block-cache-data-hit-ratio": "block.cache.data",
    "block-cache-index-hit-ratio": "block.cache.index",
    "block-cache-filter-hit-ratio": "block.cache.filter",
}
_TIMES = {
    "memtable-flush-time": "db.flush.micros",
    "compaction-time": "compaction.times.micros",
}
_MICROS = 1000.0
"""In a millisecond."""


@dataclass(frozen=True)
class Statistics:
    """Counters that only grow while the store is open, and what they come to."""

    sums: dict[str, int] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)


def read_statistics(text: str) -> Statistics:
    """What RocksDB's text of statistics says.

    >>> read_statistics("rocksdb.bytes.written COUNT : 7").sums
    {'bytes-written': 7}
    """
    counters: dict[str, int] = {}
    histograms: dict[str, tuple[float, int, int]] = {}
    for line in text.splitlines():
        if found := _COUNTER.match(line):
            counters[found[1]] = int(found[2])
        elif found := _HISTOGRAM.match(line):
            histograms[found[1]] = (float(found[2]), int(found[3]), int(found[4]))
    sums = {name: counters[key] for name, key in _SUMS.items() if key in counters}
    # What multi-reads and iterators brought is not among the bytes of single reads.
    more = ("number.multiget.bytes.read", "db.iter.bytes.read")
    if "bytes-read" in sums:
        sums["bytes-read"] += sum(counters.get(key, 0) for key in more)
    return Statistics(sums, _values(counters, histograms))


def _values(
    counters: Mapping[str, int], histograms: Mapping[str, tuple[float, int, int]]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, key in _RATIOS.items():
        hits, misses = counters.get(f"{key}.hit", 0), counters.get(f"{key}.miss", 0)
        if hits + misses:
            found[name] = hits / (hits + misses)
    for name, key in _TIMES.items():
        most, count, total = histograms.get(key, (0.0, 0, 0))
        if count:
            found[f"{name}-avg"] = total / count / _MICROS
            found[f"{name}-max"] = most / _MICROS
    _, stalls, stalled = histograms.get("db.write.stall", (0.0, 0, 0))
    found["write-stall-duration-total"] = counters.get("stall.micros", 0) / _MICROS
    found["write-stall-duration-avg"] = stalled / stalls / _MICROS if stalls else 0.0
    found["number-file-errors-total"] = counters.get("no.file.errors", 0)
    return found
