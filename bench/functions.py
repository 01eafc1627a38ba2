"""How quick the three ways of writing a function are: `python -m bench.functions`.

The operators alone, a column at a time: no Kafka, no Spark. Rounds are interleaved, medians shown
as ratios to functions of one record; results are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock.processors import Limits, Records, SliceRun
from penstock.serdes import serde_of
from penstock.testing.stores import DriverState
from penstock.topology import SubTopology

RECORDS = 200_000
ROUNDS = 7


@dataclass(frozen=True)
class Reading:
    """A value with fields."""

    bpm: int
    place: str


def _numbers(way: str) -> Callable[[Any], None]:
    predicates: dict[str, Any] = {
        "record": lambda key, value: value % 2 == 0 and value > 100,
        "batch": ps.batch(
            lambda keys, values: pc.and_(
                pc.equal(pc.bit_wise_and(values, 1), 0), pc.greater(values, 100)
            )
        ),
        "expression": ps.expr("value % 2 = 0 AND value > 100"),
    }
    mappers: dict[str, Any] = {
        "record": lambda value: value * 2 + 1,
        "batch": ps.batch(lambda values: pc.add(pc.multiply(values, 2), 1)),
        "expression": ps.expr("value * 2 + 1"),
    }
    return lambda stream: (
        stream.filter(predicates[way]).map_values(mappers[way], value=int).to("out")
    )


def _fields(way: str) -> Callable[[Any], None]:
    predicates: dict[str, Any] = {
        "record": lambda key, value: value.bpm > 100,
        "batch": ps.batch(lambda keys, values: pc.greater(pc.struct_field(values, "bpm"), 100)),
        "expression": ps.expr("bpm > 100"),
    }
    mappers: dict[str, Any] = {
        "record": lambda value: value.bpm * 2 + len(value.place),
        "batch": ps.batch(
            lambda values: pc.add(
                pc.multiply(pc.struct_field(values, "bpm"), 2),
                pc.utf8_length(pc.struct_field(values, "place")),
            )
        ),
        "expression": ps.expr("bpm * 2 + length(place)"),
    }
    return lambda stream: (
        stream.filter(predicates[way]).map_values(mappers[way], value=int).to("out")
    )


def _sub(write: Callable[[Any], None], value: Any) -> SubTopology:
    builder = ps.StreamsBuilder()
    write(builder.stream("in", key=str, value=value))
    return builder.build().sub_topologies[0]


def _run(sub: SubTopology, records: Records) -> tuple[float, pa.RecordBatch]:
    limits = Limits(cache_max_bytes=0, partition_counts={"out": 1})
    started = time.perf_counter()
    run = SliceRun(sub, application_id="bench", state=DriverState({}), limits=limits)
    run.process(records)
    outputs = run.finish().outputs
    return time.perf_counter() - started, outputs


def _records(values: list[Any], kind: Any) -> Records:
    return Records(
        topic="in",
        partition=0,
        offsets=np.arange(RECORDS, dtype=np.int64),
        timestamps=np.zeros(RECORDS, dtype=np.int64),
        keys=pa.array([b"key-%d" % (n % 1000) for n in range(RECORDS)], pa.binary()),
        values=serde_of(kind).serialize_column(values),
    )


def measure(name: str, write: Callable[[str], Any], records: Records, kind: Any) -> None:
    """Print a line for each way."""
    ways = ("record", "batch", "expression")
    subs = {way: _sub(write(way), kind) for way in ways}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        answers = {}
        for way in ways:
            taken, answers[way] = _run(subs[way], records)
            seconds[way].append(taken)
        assert answers["batch"].equals(answers["record"])
        assert answers["expression"].equals(answers["record"])
    base = statistics.median(seconds["record"])
    for way in ways:
        median = statistics.median(seconds[way])
        print(f"{name:8} {way:11} {RECORDS / median:12,.0f} records/s   x {base / median:.2f}")


def main() -> None:
    """Measure numbers and JSON."""
    measure("numbers", _numbers, _records(list(range(RECORDS)), int), int)
    readings = [Reading(n % 200, f"place-{n % 50}") for n in range(RECORDS)]
    measure("json", _fields, _records(readings, Reading), Reading)


if __name__ == "__main__":
    main()
