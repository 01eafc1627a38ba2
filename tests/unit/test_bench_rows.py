"""The rows of throughput: what is expected of an input is what the row's topology makes of it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from bench.inputs import (
    CountInput,
    Input,
    ReduceInput,
    StreamJoinInput,
    TableJoinInput,
    WindowedInput,
)
from bench.programs.penstock_rows import ONE_MINUTE, TEN_SECONDS, TOPOLOGIES
from bench.rows import ROWS
from bench.rows.joins import OF_STREAMS, WITH_TABLE, wrong_pairs
from bench.rows.lambda_reduce import WORKLOAD as LAMBDA_REDUCE
from bench.rows.throughput import Found, Run, row
from bench.rows.windowed_count import WORKLOAD as WINDOWED_COUNT
from bench.rows.windowed_count import wrong_output
from bench.systems import PROGRAMS
from bench.verify import (
    Content,
    Fingerprint,
    differences,
    fingerprint,
    long_value,
    same_key,
    window_of_changelog_key,
)
from penstock.testing import TopologyTestDriver

# As few as show it: the test driver takes them one by one.
PARTS = {"warmup": 20, "measured": 100, "tail": 20}
COUNT = CountInput(**PARTS, keys=40)
REDUCE = ReduceInput(**PARTS, keys=40)
WINDOWS = WindowedInput(**PARTS, keys=5, windows=4, start_ms=7_200_000)
TABLE = TableJoinInput(**PARTS, keys=60, start_ms=7_200_000)
STREAMS = StreamJoinInput(**PARTS, keys=10, start_ms=7_200_000)


def result(topology: str, spec: Input) -> list[tuple[bytes, bytes]]:
    """What the program makes of the input, piped in the order of time."""
    app = ps.Application("bench")
    topics = [load.topic for load in spec.loads]
    options = argparse.Namespace(input=topics[0], other=topics[-1], output="out")
    TOPOLOGIES[topology](app, options)
    driver = TopologyTestDriver(app)
    inputs = {topic: driver.input_topic(topic, key=bytes, value=bytes) for topic in topics}
    for topic, message in in_order(spec):
        inputs[topic].pipe(message["key"], message["value"], timestamp=message.get("timestamp", 0))
    assert not driver.dropped
    return driver.output_topic("out", key=bytes, value=bytes).read_pairs()


def in_order(spec: Input) -> list[tuple[str, dict[str, Any]]]:
    messages = [
        (load.topic, message) for load in spec.loads for chunk in load.chunks() for message in chunk
    ]
    # Several topics are read by time; one alone is read as it is, disorder included.
    if len(spec.loads) > 1:
        messages.sort(key=lambda each: each[1]["timestamp"])
    return messages


def content(pairs: list[tuple[bytes, bytes]]) -> Content:
    return Content(len(pairs), dict(pairs))


@pytest.mark.parametrize(("topology", "spec"), [("count", COUNT), ("lambda_reduce", REDUCE)])
def test_the_last_value_of_each_key_is_expected(
    topology: str, spec: CountInput | ReduceInput
) -> None:
    found = content(result(topology, spec))
    assert differences(found, spec.expected(), key=same_key, value=long_value) == []


def test_each_closed_window_is_expected_once_and_the_last_one_stays_open() -> None:
    found = content(result("windowed_count", WINDOWS))
    assert wrong_output(found, WINDOWS.closed()) == []
    starts = {int.from_bytes(key[-8:], "big") for key in WINDOWS.counts()}
    assert starts == {7_200_000 + minute * 60_000 for minute in range(4)}
    assert {int.from_bytes(key[-8:], "big") for key in WINDOWS.closed()} == starts - {7_380_000}
    assert sum(WINDOWS.counts().values()) == WINDOWS.total


def test_the_windows_are_in_disorder_but_never_late() -> None:
    _, times = WINDOWS.draw
    ordered = sorted(times.tolist())
    assert times.tolist() != ordered
    assert WINDOWS.disorder_ms < ONE_MINUTE.grace_ms
    assert WINDOWS.size_ms == ONE_MINUTE.size_ms


@pytest.mark.parametrize(
    ("topology", "spec"), [("stream_table_join", TABLE), ("stream_stream_join", STREAMS)]
)
def test_the_pairs_of_a_join_are_expected(
    topology: str, spec: TableJoinInput | StreamJoinInput
) -> None:
    found = fingerprint(result(topology, spec))
    assert found.records > 0
    assert wrong_pairs(found, spec.expected()) == ()


def test_some_records_of_the_stream_have_no_row_and_all_rows_are_older() -> None:
    stream, table = (
        [message for chunk in load.chunks() for message in chunk] for load in TABLE.loads
    )
    assert max(row["timestamp"] for row in table) < min(each["timestamp"] for each in stream)
    assert len({row["key"] for row in table}) == len(table) == TABLE.keys
    assert 0 < TABLE.expected().records < len(stream)


def test_pairs_are_found_as_by_comparing_all_with_all() -> None:
    spec = StreamJoinInput(**PARTS, keys=10, difference_ms=8, start_ms=0)
    keys, sides = (each.tolist() for each in spec.draw)
    left = [n for n in range(spec.total) if sides[n] == 0]
    right = [n for n in range(spec.total) if sides[n] == 1]
    by_hand = {
        (a, b) for a in left for b in right if keys[a] == keys[b] and abs(a // 10 - b // 10) <= 8
    }
    found = list(zip(*(each.tolist() for each in spec.pairs()), strict=True))
    assert len(found) == len(by_hand)
    assert set(found) == by_hand
    assert StreamJoinInput(**PARTS).difference_ms == TEN_SECONDS.before_ms == TEN_SECONDS.after_ms


def test_a_record_of_the_benchmark_meets_two_others_on_average() -> None:
    spec = OF_STREAMS.input_for("penstock", 4_000_000)
    left, _ = spec.pairs()
    assert 1.5 < len(left) / len(spec.sides[0]) < 2.1


@pytest.mark.parametrize(
    ("input_for", "measured", "total"),
    [
        (WINDOWED_COUNT.input_for, 1_000_000, 1_375_000),
        (LAMBDA_REDUCE.input_for, 2_000_000, 2_750_000),
        (WITH_TABLE.input_for, 1_000_000, 1_475_000),
        (OF_STREAMS.input_for, 600_000, 825_000),
    ],
)
def test_the_benchmark_has_its_size(
    input_for: Callable[[str, int], Input], measured: int, total: int
) -> None:
    spec = input_for("penstock", 4_000_000)
    assert (spec.measured, spec.total) == (measured, total)
    assert sum(load.records for load in spec.loads) == total
    assert spec == input_for("kafka_streams", 4_000_000)


@pytest.mark.parametrize("spec", [COUNT, REDUCE, WINDOWS, TABLE, STREAMS])
def test_a_topic_is_loaded_with_as_many_records_as_it_must_hold(spec: Input) -> None:
    loaded = Counter(topic for topic, _ in in_order(spec))
    assert loaded == {load.topic: load.records for load in spec.loads}


def test_every_topology_is_written_in_both_languages() -> None:
    java = (PROGRAMS / "KafkaStreamsRows.java").read_text()
    others = ("latency", "start", "restore", "snapshot", "failover", "queries")
    rows = [name for name in ROWS if name not in others]
    assert [*rows, "join_count"] == list(TOPOLOGIES)
    assert all(f'case "{name}" ->' in java for name in rows)


def test_a_window_that_closes_twice_is_wrong() -> None:
    key = WINDOWS.window_key(1, 2)
    once = (3).to_bytes(8, "big")
    assert wrong_output(Content(1, {key: once}), {key: 3}) == []
    (problem,) = wrong_output(Content(2, {key: once}), {key: 3})
    assert "1 results too many" in problem


def test_fingerprints_see_values_that_changed_places_and_records_that_came_twice() -> None:
    right = fingerprint([(b"a", b"1"), (b"b", b"2")])
    assert fingerprint([(b"a", b"2"), (b"b", b"1")]) != right
    assert fingerprint([(b"a", b"1"), (b"a", b"1")]) != right
    assert fingerprint([(b"a1", b""), (b"b", b"2")]) != right
    assert wrong_pairs(right, right) == ()
    assert wrong_pairs(Fingerprint(3, 0), right) == ("output has 3 pairs instead of 2",)
    assert "not the right ones" in wrong_pairs(Fingerprint(2, 0), right)[0]


def test_a_window_stores_key_ends_with_a_number_that_is_no_part_of_the_window() -> None:
    key = WINDOWS.window_key(1, 2)
    assert window_of_changelog_key(key + bytes(4)) == key


def test_a_row_tells_what_each_system_read_and_wrote() -> None:
    runs = {
        "penstock": [Run(200.0, 1.0, Found(10, 20, ()))],
        "kafka_streams": [Run(100.0, 2.0, Found(11, 21, ("output is wrong",)))],
    }
    inputs = dict.fromkeys(runs, WINDOWS)
    targets = {"kafka_streams": 2.0, "quix_streams": 10.0}
    made = row("windowed_count", "exactly_once", runs, targets=targets, inputs=inputs).to_json()
    assert made["ratios"] == {"kafka_streams": 2.0}
    assert made["targets"] == {"kafka_streams": 2.0}
    assert made["exact"] is False
    assert made["output_records"] == {"penstock": [10], "kafka_streams": [11]}
    assert made["changelog_records"] == {"penstock": [20], "kafka_streams": [21]}
    assert made["inputs"]["penstock"]["windows"] == 4
