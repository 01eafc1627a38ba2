"""The time of a table's rows: what each source says, as for streams."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.errors import TopologyError
from penstock.instance.global_processing import GlobalProgram, programs_of
from penstock.stores.memory import MemoryStore
from penstock.testing import TopologyTestDriver
from tests.unit.slices import Sent


def _written(_key: str, value: int, _time: int) -> int:
    """The time that a value names; 7 has none."""
    return -1 if value == 7 else value * 100


def test_a_table_takes_its_times_from_its_own_function() -> None:
    app = ps.Application("times", default_timestamp_extractor=lambda key, value, time: 1)
    app.table("in", "rows", key=str, value=int, timestamp=_written).to_stream().to("out")
    app.table("in2", "others", key=str, value=int).to_stream().to("out2")
    driver = TopologyTestDriver(app)
    for topic in ("in", "in2"):
        rows = driver.input_topic(topic, key=str, value=int, start_ms=50)
        rows.pipe_all([("a", 3), ("b", 7), ("a", 2)])
    told = driver.output_topic("out", key=str, value=int).read_all()
    assert [(each.key, each.value, each.timestamp) for each in told] == [
        ("a", 3, 300),
        ("a", 2, 200),
    ]
    assert driver.dropped == {"negative_timestamp": 1}
    others = driver.output_topic("out2", key=str, value=int).read_all()
    assert [each.timestamp for each in others] == [1, 1, 1]


def test_a_versioned_table_goes_by_the_times_that_its_function_says() -> None:
    builder = ps.StreamsBuilder()
    history = ps.versioned_store("rows", history_retention=timedelta(days=1))
    builder.table("in", history, key=str, value=int, timestamp=_written)
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("in", key=str, value=int).pipe_all([("a", 3), ("a", 2)])
    assert dict(driver.store("rows")) == {"a": 3}


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def test_an_instance_gives_a_global_tables_rows_the_times_of_its_function() -> None:
    builder = ps.StreamsBuilder()
    builder.global_table("in", "rows", key=str, value=int, timestamp=_written)
    builder.global_table("plain", "others", key=str, value=int)
    programs = programs_of(builder.build().global_tables)
    assert set(programs.subs) == {"rows"}
    program = GlobalProgram(programs.subs["rows"], "app", skips_undecodable=False)
    sent: list[Any] = [
        Sent(0, b"a", _number(3)),
        Sent(1, b"b", _number(7)),
        Sent(2, b"c", _number(5)),
        Sent(3, b"c", None),
    ]
    made = program.changes(sent[:3], MemoryStore("rows"))
    assert made == [(b"a", _number(300) + _number(3)), (b"c", _number(500) + _number(5))]


def test_the_test_driver_gives_them_too() -> None:
    builder = ps.StreamsBuilder()
    table = builder.global_table("in", "rows", key=str, value=int, timestamp="wall_clock")
    builder.stream("asked", key=str, value=str).join(
        table, lambda asked, row: row, key_selector=lambda key, asked: asked, value=int
    ).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("in", key=str, value=int).pipe_all([("a", 3), ("b", 7)])
    driver.input_topic("asked", key=str, value=str).pipe_all([("x", "b")])
    assert driver.output_topic("out", key=str, value=int).read_pairs() == [("x", 7)]


def test_a_global_table_cannot_take_its_partitions_time() -> None:
    with pytest.raises(TopologyError, match="partition's latest time"):
        ps.StreamsBuilder().global_table("in", key=str, value=int, timestamp="partition_time")
