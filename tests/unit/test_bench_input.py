"""The input, the checks on what came out, and the small parts around a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.inputs import CountInput, key_bytes
from bench.lab import rotated
from bench.machine import core_ticks, fill_memory
from bench.rows.count import input_for
from bench.rows.latency import Trace, percentile
from bench.systems import Job, System, quix_streams
from bench.verify import Content, differences, long_value, same_key

SMALL = CountInput(warmup=10, measured=100_000, tail=5, keys=50)


def test_the_same_seed_gives_the_same_records() -> None:
    again = replace(SMALL)
    assert (SMALL.draw == again.draw).all()
    assert (SMALL.draw != replace(SMALL, seed=1).draw).any()


def test_the_expected_counts_are_those_of_the_records_that_are_loaded() -> None:
    counted: dict[bytes, int] = {}
    for chunk in SMALL.chunks():
        for message in chunk:
            counted[message["key"]] = counted.get(message["key"], 0) + 1
    assert counted == SMALL.expected()
    assert sum(counted.values()) == SMALL.total


def test_inputs_that_differ_have_topics_that_differ() -> None:
    inputs = [SMALL, replace(SMALL, keys=51), replace(SMALL, tail=6), replace(SMALL, seed=1)]
    assert len({spec.topic for spec in inputs}) == len(inputs)


def test_a_slow_system_gets_fewer_records_in_the_same_proportions() -> None:
    fast, slow = input_for("kafka_streams", 4_000_000), input_for("quix_streams", 4_000_000)
    assert (fast.warmup, fast.measured) == (1_000_000, 4_000_000)
    assert fast.total == 20 * slow.total
    assert fast.keys == slow.keys == 100_000


def long(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_exact_counts_have_no_differences() -> None:
    content = Content(3, {b"a": long(2), b"b": long(1)})
    assert differences(content, {b"a": 2, b"b": 1}, key=same_key, value=long_value) == []


def test_wrong_absent_and_surplus_keys_are_told_apart() -> None:
    content = Content(2, {b"a": long(3), b"z": long(1)})
    found = differences(content, {b"a": 2, b"b": 1}, key=same_key, value=long_value)
    assert found == [
        "b'a': 3 instead of 2",
        "b'b': absent instead of 1",
        "b'z': 1, which no input has",
    ]


def test_a_value_that_is_no_long_is_an_error() -> None:
    with pytest.raises(BenchError, match="3 bytes"):
        long_value(b"abc")


def test_a_changelog_key_of_quix_streams_holds_the_record_key() -> None:
    assert quix_streams.changelog_key(key_bytes(7) + b'|"count"') == key_bytes(7)


def test_the_lock_file_pins_quix_streams() -> None:
    assert quix_streams.pinned_version(quix_streams.LOCK.read_text()).count(".") == 2


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([7.0], 99) == 7


def test_a_trace_notes_second_results_and_measures_by_prefix() -> None:
    trace = Trace(sent={b"warmup-1": 1.0, b"measured-1": 2.0, b"measured-2": 3.0})
    trace.arrival(b"warmup-1", 1, 9.0)
    trace.arrival(b"measured-1", 1, 2.25)
    trace.arrival(b"measured-2", 1, 3.5)
    assert trace.latencies_ms(b"measured-") == [250.0, 500.0]
    assert not trace.problems
    trace.arrival(b"measured-2", 2, 4.0)
    assert len(trace.problems) == 1


def test_every_system_goes_first_once() -> None:
    systems = [
        System(name=name, title=name, version="1", settings="", commands=lambda _: [])
        for name in ("a", "b", "c")
    ]
    orders = ["".join(system.name for system in rotated(systems, n)) for n in range(4)]
    assert orders == ["abc", "bca", "cab", "abc"]
    assert rotated([], 1) == []


def test_programs_are_told_their_job_by_flags() -> None:
    job = Job(
        bootstrap_servers="host:1",
        application_id="app",
        input="in",
        output="out",
        guarantee="at_least_once",
        state_dir=Path("state"),
    )
    flags = dict(zip(job.arguments()[::2], job.arguments()[1::2], strict=True))
    assert flags["--application-id"] == "app"
    assert flags["--commit-interval-ms"] == "1000"


def test_busy_ticks_leave_out_idle_and_waiting() -> None:
    assert core_ticks("cpu  10 0 5 80 4 0 1 0 0 0\ncpu0 1 1 1 1") == (16, 100)


@pytest.mark.parametrize(
    ("told", "filled"),
    [("MemTotal: 9 kB\nMemFree: 6144 kB\n", 5), ("MemFree: 1024 kB\n", 0), ("", 0)],
)
def test_a_file_uses_the_memory_that_nobody_uses_and_no_disk(
    tmp_path: Path, told: str, filled: int
) -> None:
    information, file = tmp_path / "meminfo", tmp_path / "file"
    information.write_text(told)

    assert fill_memory(file, leave=2**20, information=information) == filled * 2**20
    assert file.stat().st_size == filled * 2**20
    assert file.stat().st_blocks == 0


def test_memory_is_left_alone_where_the_system_does_not_say_how_much_is_free(
    tmp_path: Path,
) -> None:
    assert fill_memory(tmp_path / "file", leave=0, information=tmp_path / "none") == 0
