"""Goal: the same records give, topic by topic, the bytes that Kafka Streams itself gives.

Method: random records go through Kafka Streams' TopologyTestDriver (data/Oracle.java) and through
slices. That driver commits after every record, so with a cache each record is a slice of its own.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.local.jars import STREAMS, classpath, ensure
from penstock.local.java import find_java
from penstock.processors import HEADERS_TYPE, Limits, Records, SliceResult, SliceRun
from penstock.topology import KStream, StreamsBuilder, SubTopology, Topology

ORACLE = Path(__file__).parent / "data" / "Oracle.java"
Rows = list[list[Any]]  # key hex or None, value hex or None, timestamp, headers


def _forget(total: int) -> int | None:
    return None if total % 5 == 0 else total


def _branches(s: KStream[Any, Any]) -> None:
    s.filter(lambda _k, v: v is not None and v % 2 == 0).to("even")
    grouped = s.group_by_key()
    counts = grouped.count("s").to_stream()
    counts.to("out")
    counts.filter(lambda _k, n: n > 1).to("many")
    grouped.reduce(lambda a, v: a + v, "t").to_stream().to("out")


def _chain(s: KStream[Any, Any]) -> None:
    first = s.group_by_key().aggregate(int, lambda _k, v, t: _forget(t + v), "s").to_stream()
    first.to("first")
    first.group_by_key().count("t").to_stream().to("out")


def _divided(s: KStream[Any, Any]) -> None:
    flat = s.flat_map_values(lambda v: [] if v is None else [v] * v, value=int)
    flat.to("out")
    flat.flat_map(lambda k, v: [(k, v), ("x", 1)], key=str, value=int).to("out")
    split = flat.split(name="by-").branch(lambda _k, v: v == 1, name="one")
    parts = split.branch(lambda _k, v: v % 2 == 0).default_branch()
    parts["by-one"].to("out")
    parts["by-2"].group_by_key().count("s").to_stream().to("out")
    parts["by-0"].to("rest")


def _tables(s: KStream[Any, Any]) -> None:
    sums = s.group_by_key().aggregate(int, lambda _k, v, t: _forget(t + v), "s")
    sums.filter(lambda _k, v: v % 2 == 0).to_stream().to("out")
    small = sums.filter_not(lambda _k, v: v > 6).map_values(lambda v: v * 10, value=int)
    small.to_stream().to("small")
    mapped = sums.map_values(lambda v: v % 3, value=int).filter(lambda _k, v: v == 1)
    mapped.to_stream().to("mapped")
    sums.map_values(lambda v: v + 1, value=int).to_stream().to("out")


def _latest(s: KStream[Any, Any]) -> None:
    latest = s.to_table("s")
    latest.to_stream().to("out")
    latest.filter(lambda _k, v: v > 1).to_stream().to("out")
    moved = s.select_key(lambda k, v: k if v is None else f"k{v % 3}", key=str)
    moved.to_table("t", name="mover").map_values(lambda v: v * 2, value=int).to_stream().to("moved")


PROGRAMS: dict[str, Callable[[KStream[Any, Any]], object]] = {
    "count": lambda s: s.group_by_key().count("s").to_stream().to("out"),
    "reduce": lambda s: s.group_by_key().reduce(lambda a, v: a + v, "s").to_stream().to("out"),
    "aggregate": lambda s: (
        s.group_by_key().aggregate(int, lambda _k, v, t: _forget(t + v), "s").to_stream().to("out")
    ),
    "rekeyed": lambda s: (
        s.filter(lambda _k, v: v is None or v > 0)
        .group_by(lambda _k, v: None if v is None else f"k{v % 3}", key=str)
        .count("s")
        .to_stream()
        .map_values(lambda n: n * 10, value=int)
        .to("out")
    ),
    "mapped": lambda s: (
        s.map(
            lambda k, v: (k if v is None else f"{'null' if k is None else k}{v}", v),
            key=str,
            value=int,
        )
        .filter_not(lambda _k, v: v == 2)
        .group_by_key(name="by-pair")
        .reduce(max, "s")
        .to_stream()
        .to("out")
    ),
    "branches": _branches,
    "chain": _chain,
    "divided": _divided,
    "tables": _tables,
    "latest": _latest,
}


def _topology(name: str) -> Topology:
    builder = StreamsBuilder()
    PROGRAMS[name](builder.stream("in", key=str, value=int))
    return builder.build()


def _random_rows(chance: random.Random, count: int) -> Rows:
    def row() -> list[Any]:
        key = chance.choice([None, "", "a", "b", "ü"])
        value = chance.choice([None, 0, 1, 2, 3, 4])
        headers = [["h", bytes([chance.randrange(3)]).hex()]] * chance.randrange(2)
        return [
            None if key is None else key.encode().hex(),
            None if value is None else value.to_bytes(8, "big").hex(),
            chance.randrange(50),
            headers,
        ]

    return [row() for _ in range(count)]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Callable[[dict[str, Any]], dict[str, Rows]]]:
    command = [str(find_java().program), "-cp", classpath(ensure(STREAMS)), str(ORACLE)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(case: dict[str, Any]) -> dict[str, Rows]:
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            answer: dict[str, Rows] = json.loads(process.stdout.readline())
            return answer

        yield ask
        process.stdin.close()
        process.wait(timeout=30)


class Task:
    """A task of one sub-topology: runs slices and keeps the state that they leave."""

    def __init__(self, sub: SubTopology, cache: int) -> None:
        self.sub = sub
        self.cache = cache
        self.stores: dict[tuple[str, bytes], bytes] = {}
        self.offset = 0

    def get_many(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        return pa.array([self.stores.get((store, key)) for key in keys.to_pylist()], pa.binary())

    def run(self, topic: str, rows: Rows) -> SliceResult:
        outputs = dict.fromkeys(self.sub.output_topics("app"), 1)
        limits = Limits(cache_max_bytes=self.cache, partition_counts=outputs)
        slice_run = SliceRun(self.sub, application_id="app", state=self, limits=limits)
        slice_run.process(self._records(topic, rows))
        result = slice_run.finish()
        for change in result.changes.to_pylist():
            key = (change["store"], change["key"])
            self.stores.pop(key, None)
            if change["value"] is not None:
                self.stores[key] = change["timestamp"].to_bytes(8, "big") + change["value"]
        return result

    def _records(self, topic: str, rows: Rows) -> Records:
        offsets = np.arange(self.offset, self.offset + len(rows), dtype=np.int64)
        self.offset += len(rows)
        headers = [[{"key": k, "value": bytes.fromhex(v)} for k, v in row[3]] for row in rows]
        return Records(
            topic=topic,
            partition=0,
            offsets=offsets,
            timestamps=np.array([row[2] for row in rows], dtype=np.int64),
            keys=pa.array([_bytes(row[0]) for row in rows], pa.binary()),
            values=pa.array([_bytes(row[1]) for row in rows], pa.binary()),
            headers=pa.array(headers, HEADERS_TYPE),
        )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _run_all(topology: Topology, rows: Rows, cache: int, slice_rows: int) -> dict[str, Rows]:
    """Every topic's records; a repartition topic's are read by the next sub-topology."""
    produced: dict[str, Rows] = {"in": rows}
    for sub in topology.sub_topologies:
        task = Task(sub, cache)
        (topic,) = sub.input_topics("app")
        read = produced.get(topic, [])
        for begin in range(0, len(read), slice_rows):
            result = task.run(topic, read[begin : begin + slice_rows])
            for row in result.changes.to_pylist():
                record = [_hex(row["key"]), _hex(row["value"]), row["timestamp"]]
                produced.setdefault(f"app-{row['store']}-changelog", []).append(record)
            for row in result.outputs.to_pylist():
                headers = [[each["key"], _hex(each["value"])] for each in row["headers"] or []]
                record = [_hex(row["key"]), _hex(row["value"]), row["timestamp"], headers]
                produced.setdefault(row["topic"], []).append(record)
    return {topic: rows for topic, rows in produced.items() if topic != "in"}


@pytest.mark.parametrize(("cache", "slices"), [(0, [1000, 3]), (1_000_000, [1])])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_are_kafka_streams(
    oracle: Callable[[dict[str, Any]], dict[str, Rows]], name: str, cache: int, slices: list[int]
) -> None:
    rows = _random_rows(random.Random(name), 150)
    expected = oracle({"topology": name, "cache": cache, "records": rows})
    for slice_rows in slices:
        actual = _run_all(_topology(name), rows, cache, slice_rows)
        for topic, records in expected.items():
            # A changelog record has no headers of the user's here; they are no part of a store.
            known = [row[:3] for row in records] if topic.endswith("-changelog") else records
            assert actual.pop(topic) == known, (topic, slice_rows)
        assert actual == {}
