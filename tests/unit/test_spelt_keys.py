"""Keys that others spelt differently in bytes are one key: each is written anew, as in Java."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from typing import Any
from uuid import UUID

import pytest

import penstock as ps
from penstock.processors import Limits, RecordRun, SliceRun, runs_in_columns
from penstock.processors.two_inputs import StreamJoinRun, TableJoinRun
from penstock.serdes import Serde, StringSerde, Windowed, WindowedSerde, serde_of
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from penstock.topology import StreamsBuilder
from tests.unit.slices import DictState, Row, build, outputs, records, run


@dataclass(frozen=True)
class Place:
    """A key in JSON."""

    row: int


@dataclass(frozen=True)
class Seat:
    """A key of two fields."""

    row: int
    seat: int


_SPELLINGS: dict[str, tuple[Any, list[bytes]]] = {
    "json": (Place, [b'{"row":1}', b'{"row": 1}', b' {"row":1 }', b'{"x":0,"row":1}']),
    "uuid": (UUID, [str(UUID(int=171)).encode(), str(UUID(int=171)).upper().encode()]),
    "pair": (ps.serde(str.encode, lambda data: data.decode().lower()), [b"Ab", b"ab", b"AB"]),
}
_EVERY = pytest.mark.parametrize("spelt", _SPELLINGS)


def _counted(stream: Any) -> None:
    stream.group_by_key().count("counts").to_stream().map_values(str, value=str).to("out")


def _windowed(stream: Any) -> None:
    windows = ps.tumbling(timedelta(seconds=1), grace=timedelta(0))
    counts = stream.group_by_key().windowed_by(windows).count("counts").to_stream()
    counts.map_values(str, value=str).to("out")


def _passed(stream: Any) -> None:
    stream.filter(lambda key, value: True).to("out")


def _in_expressions(stream: Any) -> None:
    """A function of columns looks at the keys before they are written."""

    @ps.batch
    def all_of(keys: Any, values: Any) -> Any:
        return [True] * len(keys)

    stream.filter(all_of).group_by_key().reduce(lambda one, two: one + two, "t").to_stream().to(
        "out"
    )


def _sent(kind: Any, sub: Any, slices: list[tuple[str, list[Row]]]) -> list[Any]:
    state = DriverState({spec.name: spec for spec in sub.stores})
    limits = Limits(partition_counts=dict.fromkeys(sub.output_topics("app"), 4), cache_max_bytes=0)
    started = kind(sub, application_id="app", state=state, limits=limits, metadata={})
    for topic, rows in slices:
        started.process(records(rows, topic))
    result = started.finish()
    return [*outputs(result), *result.outputs["partition"].to_pylist()]


@_EVERY
@pytest.mark.parametrize("program", [_counted, _windowed, _passed, _in_expressions])
def test_one_key_in_columns_and_by_record(spelt: str, program: Callable[[Any], None]) -> None:
    kind, keys = _SPELLINGS[spelt]
    builder = StreamsBuilder()
    program(builder.stream("in", key=kind, value=str))
    [sub] = builder.build().sub_topologies
    assert runs_in_columns(sub)
    rows = [Row(number, number, key, b"a") for number, key in enumerate(keys)]
    columns = _sent(SliceRun, sub, [("in", rows)])
    assert len({output[1] for output in columns[: len(keys)]}) == 1
    assert columns == _sent(RecordRun, sub, [("in", rows)])


@_EVERY
def test_a_row_of_a_table_is_met(spelt: str) -> None:
    kind, keys = _SPELLINGS[spelt]
    builder = StreamsBuilder()
    table = builder.table("rows", "rows", key=kind, value=str)
    stream = builder.stream("in", key=kind, value=str)
    stream.join(table, lambda value, row: value + row, value=str).to("out")
    [sub] = builder.build().sub_topologies
    slices = [
        ("rows", [Row(0, 0, keys[0], b"b"), Row(1, 1, keys[1], b"c")]),
        ("in", [Row(number, 2, key, b"a") for number, key in enumerate(keys)]),
    ]
    columns = _sent(TableJoinRun, sub, slices)
    assert [output[2] for output in columns[: len(keys)]] == [b"ac"] * len(keys)
    assert columns == _sent(RecordRun, sub, slices)


def test_streams_meet() -> None:
    _, (lower, upper) = _SPELLINGS["uuid"]
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=UUID, value=str) for topic in ("in", "other"))
    window = ps.join_window(before=timedelta(1), after=timedelta(1), grace=timedelta(0))
    left.join(right, lambda one, two: one + two, window, value=str).to("out")
    [sub] = builder.build().sub_topologies
    slices = [("in", [Row(0, 0, lower, b"a")]), ("other", [Row(0, 0, upper, b"b")])]
    columns = _sent(StreamJoinRun, sub, slices)
    assert columns[0][1:3] == (lower, b"ab")
    assert columns == _sent(RecordRun, sub, slices)


@_EVERY
def test_their_state_is_read_in_bulk(spelt: str) -> None:
    kind, keys = _SPELLINGS[spelt]
    sub = build(_counted, key=kind, value=str).sub_topologies[0]
    state = DictState()
    rows = [Row(number, number, key, b"a") for number, key in enumerate(keys[1:])]
    run(sub, [records(rows)], state=state, kind=RecordRun)
    serde = serde_of(kind)
    assert state.asked == [("counts", [serde.serialize(serde.deserialize(keys[0]))])]


@_EVERY
def test_windowed_keys(spelt: str) -> None:
    inner, keys = _SPELLINGS[spelt]
    serde = WindowedSerde(serde_of(inner), 10)
    driver_in: list[bytes] = [key + (20).to_bytes(8, "big") for key in keys]
    app = ps.Application("windowed")
    app.table("in", "latest", key=serde, value=str)
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=bytes, value=str)
    topic.pipe_all((key, "a") for key in driver_in)
    [(key, value)] = dict(driver.store("latest")).items()
    assert (key, value) == (Windowed(serde.inner.deserialize(keys[0]), 20, 30), "a")


def test_equal_sets_are_one_key() -> None:
    """Their items come in the order in which they were put in, where their hashes meet."""
    app = ps.Application("pairs")
    kind: Any = ps.JsonSerde(frozenset[str])
    stream = app.stream("in", key=str, value=str)
    pairs = stream.group_by(lambda one, two: frozenset([one, two]), key=kind)
    pairs.count("pairs")
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=str)
    both = list(combinations([f"user{number}" for number in range(12)], 2))
    topic.pipe_all(both)
    topic.pipe_all((two, one) for one, two in both)
    assert dict(driver.store("pairs")) == {frozenset(pair): 2 for pair in both}


def test_fields_have_an_order_where_their_class_has_one() -> None:
    for kind, keys in ((dict[str, int], 2), (Seat, 1)):
        app = ps.Application("seats")
        app.stream("in", key=kind, value=str).group_by_key().count("seats")
        driver = TopologyTestDriver(app)
        given = driver.input_topic("in", key=bytes, value=str)
        given.pipe_all([(b'{"row":1,"seat":2}', "a"), (b'{"seat":2,"row":1}', "a")])
        assert sum(1 for _ in driver.store("seats")) == keys


def test_sets_of_what_has_no_order_are_written_all_the_same() -> None:
    serde: Any = ps.JsonSerde(dict[str, set[str | int]])
    assert serde.deserialize(serde.serialize({"b": {1, "a"}})) == {"b": {1, "a"}}
    assert serde.serialize({"b": {2, 1}, "a": set()}) == b'{"a":[],"b":[1,2]}'


def test_keys_that_nobody_writes_need_no_bytes() -> None:
    def refuses(key: str) -> bytes:
        raise NotImplementedError(key)

    app = ps.Application("reader")
    seen: list[Any] = []
    only_read: Serde[str] = ps.serde(refuses, bytes.decode)
    stream = app.stream("in", key=only_read, value=str)
    stream.foreach(lambda key, value: seen.append((key, value)))
    stream.select_key(lambda key, value: value, key=StringSerde()).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=bytes, value=str).pipe(b"k", "v")
    assert seen == [("k", "v")]
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("v", "v")]
