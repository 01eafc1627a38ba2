"""Functions of columns: what a per-record function gives, `@ps.batch` and `ps.expr` give too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import SerdeMissingError, TopologyError, UserFunctionError
from penstock.processors import Limits, RecordRun, SliceRun, leading_expressions, runs_in_columns
from penstock.serdes import serde_of
from penstock.serdes.columns import column_form
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from tests.unit.slices import Row, build, changes, outputs, records

Rows = list[tuple[str | None, int | None, int]]
Stream = ps.KStream[str, int]


@dataclass
class Beat:
    """A value with fields."""

    bpm: int
    place: str | None = None


@dataclass(frozen=True)
class Ways:
    """The same function, written in each way."""

    record: Any
    batch: Any
    expression: Any = None


def _or_null(values: pa.Array, otherwise: Any) -> pa.Array:
    return pc.coalesce(values, pa.scalar(otherwise, values.type))


BIG = Ways(
    lambda key, value: value is not None and value > 2 and key != "b",
    ps.batch(
        lambda keys, values: pc.and_(
            pc.greater(_or_null(values, 0), 2), pc.not_equal(_or_null(keys, ""), "b")
        )
    ),
    ps.expr("value > 2 AND (key IS NULL OR key <> 'b')"),
)
DOUBLED = Ways(
    lambda value: None if value is None else value * 2,
    ps.batch(lambda values: pc.multiply(values, 2)),
    ps.expr("value * 2"),
)
NAMED = Ways(
    lambda key, value: f"{key or ''}-{value or 0}",
    ps.batch(
        lambda keys, values: pc.binary_join_element_wise(
            _or_null(keys, ""), _or_null(values, 0).cast(pa.string()), "-"
        )
    ),
    ps.expr("coalesce(key, '') || '-' || CAST(coalesce(value, 0) AS STRING)"),
)
PAIRS = Ways(
    lambda key, value: (key and key.upper(), None if value is None else value + 1),
    ps.batch(lambda keys, values: (pc.utf8_upper(keys), pc.add(values, 1))),
    (ps.expr("upper(key)"), ps.expr("value + 1")),
)
SWAPPED = Ways(
    lambda key, value: (str(value % 3), value + len(key)),
    ps.batch(
        lambda keys, values: (
            pc.subtract(values, pc.multiply(pc.floor(pc.divide(values.cast("float64"), 3.0)), 3.0))
            .cast(pa.int64())
            .cast(pa.string()),
            pc.add(values, pc.utf8_length(keys)),
        )
    ),
    (ps.expr("CAST((value % 3 + 3) % 3 AS STRING)"), ps.expr("value + length(key)")),
)


def _stateless(stream: Stream, way: str) -> None:
    chosen = stream.filter(getattr(BIG, way))
    chosen.map_values(getattr(DOUBLED, way), value=int).to("doubled")
    stream.filter_not(getattr(BIG, way)).select_key(getattr(NAMED, way), key=str).to("named")
    stream.map(getattr(PAIRS, way), key=str, value=int).to("pairs")


def _branches(stream: Stream, way: str) -> None:
    branches = stream.split(name="b-").branch(getattr(BIG, way), name="big")
    for name, branch in branches.default_branch(name="rest").items():
        branch.map_values(getattr(DOUBLED, way), value=int).to(name)


def _tables(stream: Stream, way: str) -> None:
    table = stream.to_table("latest")
    kept = table.filter(getattr(BIG, way)).map_values(getattr(DOUBLED, way), value=int)
    kept.to_stream().to("kept")
    table.filter_not(getattr(BIG, way)).to_stream().to("others")


def _mixed(stream: Stream, way: str) -> None:
    (
        stream.map_values(getattr(DOUBLED, way), value=int)
        .peek(lambda key, value: None)
        .filter(lambda key, value: key != "aa")
        .group_by_key()
        .count("counts")
        .filter(getattr(BIG, way))
        .to_stream()
        .map_values(getattr(DOUBLED, way), value=int)
        .to("out")
    )


PROGRAMS: dict[str, Callable[[Stream, str], None]] = {
    "stateless": _stateless,
    "branches": _branches,
    "tables": _tables,
    "mixed": _mixed,
}
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "aa", "", "ö", None]),
        st.one_of(st.none(), st.integers(-5, 10)),
        st.integers(0, 20),
    ),
    max_size=30,
)


def _raw(rows: Rows, first: int) -> list[Row]:
    return [
        Row(
            first + n,
            time,
            None if key is None else key.encode(),
            None if value is None else value.to_bytes(8, "big", signed=True),
        )
        for n, (key, value, time) in enumerate(rows)
    ]


def _answers(kind: Any, program: Any, way: str, rows: Rows, size: int) -> list[Any]:
    [sub] = build(lambda stream: program(stream, way), key=str, value=int).sub_topologies
    assert runs_in_columns(sub)
    state = DriverState({spec.name: spec for spec in sub.stores})
    limits = Limits(cache_max_bytes=0, partition_counts=dict.fromkeys(sub.output_topics("app"), 4))
    answers = []
    for first in range(0, len(rows), size):
        run = kind(sub, application_id="app", state=state, limits=limits, metadata={})
        run.process(records(_raw(rows[first : first + size], first)))
        result = run.finish()
        state.apply(result.changes)
        answers.append((outputs(result), sorted(changes(result), key=repr), result.dropped))
    return answers


@pytest.mark.parametrize("name", PROGRAMS)
@given(rows=ROWS, size=st.integers(1, 20))
@settings(max_examples=25, deadline=None)
def test_all_ways_give_the_same_in_both_engines(name: str, rows: Rows, size: int) -> None:
    program = PROGRAMS[name]
    expected = _answers(RecordRun, program, "record", rows, size)
    for way in ("batch", "expression"):
        for kind in (SliceRun, RecordRun):
            assert _answers(kind, program, way, rows, size) == expected, (way, kind)


def _piped(program: Any, way: str, rows: Rows) -> dict[str, Any]:
    topology = build(lambda stream: program(stream, way), key=str, value=int)
    driver = TopologyTestDriver(topology)
    topic = driver.input_topic("in", key=str, value=int)
    for key, value, time in rows:
        topic.pipe(key, value, timestamp=time)
    written = [t for sub in topology.sub_topologies for t in sub.output_topics("app")]
    return {
        name: driver.output_topic(name, key=bytes, value=bytes).read_pairs()
        for name in written
        if not name.startswith("app-")
    }


def _grouped(stream: Stream, way: str) -> None:
    by_name = stream.group_by(getattr(NAMED, way), key=str, name="by-name")
    by_name.count("counts").to_stream().to("counted")
    table = stream.filter(lambda key, value: key is not None).to_table("rows")
    table.group_by(getattr(SWAPPED, way), key=str, value=int, name="by-rest").reduce(
        lambda total, value: total + value, lambda total, value: total - value, "sums"
    ).to_stream().to("summed")


@pytest.mark.parametrize("name", [*PROGRAMS, "grouped"])
@given(rows=ROWS)
@settings(max_examples=12, deadline=None)
def test_all_ways_give_the_same_in_the_test_driver(name: str, rows: Rows) -> None:
    program = {**PROGRAMS, "grouped": _grouped}[name]
    expected = _piped(program, "record", rows)
    for way in ("batch", "expression"):
        assert _piped(program, way, rows) == expected, way


def _run(program: Callable[[Stream], object], values: list[int | None]) -> Any:
    [sub] = build(program, key=str, value=int).sub_topologies
    limits = Limits(cache_max_bytes=0, partition_counts=dict.fromkeys(sub.output_topics("app"), 1))
    run = SliceRun(sub, application_id="app", state=DriverState({}), limits=limits)
    run.process(records(_raw([("a", value, 0) for value in values], 100)))
    return run.finish()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda values: values[:-1], "returned 2 rows for 3"),
        (lambda values: values.cast(pa.string()), "column of string, not of int64"),
        (lambda values: 7, "returned int, not a column"),
        (lambda values: pc.add(values, 0.5), "column of double, not of int64"),
    ],
)
def test_a_wrong_column_is_an_error_with_the_first_record(function: Any, message: str) -> None:
    with pytest.raises(UserFunctionError, match=message) as caught:
        _run(lambda s: s.map_values(ps.batch(function), value=int, name="m").to("out"), [1, 2, 3])
    where = {"topic": "in", "partition": 0, "step": "m", "offset": 100}
    assert caught.value.where == where


def test_a_filter_returns_truths() -> None:
    with pytest.raises(UserFunctionError, match="column of int64, not of bool"):
        _run(lambda s: s.filter(ps.batch(lambda keys, values: values)).to("out"), [1])


def test_the_record_that_fails_is_named() -> None:
    with pytest.raises(UserFunctionError) as caught:
        _run(lambda s: s.map_values(ps.expr("6 div value"), name="m").to("out"), [3, 2, 0, 1, 0])
    assert caught.value.where["offset"] == 102


def test_an_expression_may_look_at_key_and_time() -> None:
    builder = ps.StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map_values(ps.expr("timestamp + value * 2 + length(key)")).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("in", key=str, value=int).pipe("abc", 5, timestamp=1000)
    assert driver.output_topic("out", key=str, value=int).read_pairs() == [("abc", 1013)]


def test_fields_of_a_value() -> None:
    app = ps.Application("beats")
    beats = app.stream("beats", key=str, value=Beat)
    fast = beats.filter(ps.expr("bpm > 100 AND value.place IS NOT NULL"))

    @ps.batch
    def slower(values: pa.Array) -> pa.Array:
        bpm = pc.subtract(pc.struct_field(values, "bpm"), 1)
        return pa.StructArray.from_arrays([bpm, pc.struct_field(values, "place")], ["bpm", "place"])

    fast.map_values(slower, value=Beat).to("slower")
    fast.select_key(ps.expr("place")).map_values(ps.expr("bpm")).to("places")
    driver = TopologyTestDriver(app)
    driver.input_topic("beats", key=str, value=Beat).pipe_all(
        [("a", Beat(120, "home")), ("b", Beat(90, "away")), ("c", Beat(130)), ("d", None)]
    )
    assert driver.output_topic("slower", key=str, value=Beat).read_pairs() == [
        ("a", Beat(119, "home"))
    ]
    assert driver.output_topic("places", key=str, value=int).read_pairs() == [("home", 120)]


def test_values_without_columns_are_lists() -> None:
    odd = ps.serde(lambda value: value.encode(), lambda data: data.decode(), name="odd")
    builder = ps.StreamsBuilder()

    @ps.batch
    def louder(values: list[str]) -> list[str]:
        return [f"{value}!" for value in values]

    builder.stream("in", key=str, value=odd).map_values(louder, value=odd).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("in", key=str, value=odd).pipe("a", "b")
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("a", "b!")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("value * 1.5", "write 1.5D"),
        ("rlike(key, 'a')", "is not known"),
        ("sum(value)", "sum is not known"),
        ("my_function(value)", "my_function is not known"),
        ("value + key", "takes numbers, not BIGINT, STRING"),
        ("key > 1", "values of one type"),
        ("other > 1", "no column 'other'"),
        ("value = 1 FROM x", "no Spark SQL|is not known"),
        ("value >", "no Spark SQL"),
        ("value > 1; value > 2", "not one expression"),
        ("", "not one expression|no Spark SQL"),
        (r"key = 'a\n'", "backslash"),
        ("value", "should be BOOLEAN"),
        ("CAST(value AS DECIMAL(3, 1)) = 1", "DECIMAL"),
        ("value LIKE 'a'", "takes STRING"),
    ],
)
def test_what_is_not_known_is_refused_when_written(text: str, message: str) -> None:
    stream = ps.StreamsBuilder().stream("in", key=str, value=int)
    with pytest.raises(TopologyError, match=message):
        stream.filter(ps.expr(text))


def test_where_columns_cannot_be_used() -> None:
    stream = ps.StreamsBuilder().stream("in", key=str, value=int)
    with pytest.raises(TopologyError, match="function of one record"):
        stream.flat_map_values(ps.batch(lambda values: values), value=int)
    with pytest.raises(TopologyError, match="makes a key and a value"):
        stream.map(ps.expr("key"))  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="cannot take"):
        stream.map_values(ps.expr("value"), value=str)
    with pytest.raises(TopologyError, match="timestamp"):
        stream.to_table("t").filter(ps.expr("timestamp > 1"))
    with pytest.raises(TopologyError, match="nobody awaits"):

        @ps.batch
        async def later(values: Any) -> Any:
            return values

    unknown = stream.map_values(lambda value: object())
    with pytest.raises(SerdeMissingError):
        unknown.map_values(ps.batch(lambda values: values))


def test_spark_computes_what_leads() -> None:
    builder = ps.StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    led = stream.filter(ps.expr("value > 1")).map((ps.expr("key || '!'"), ps.expr("value + 1")))
    led.filter(lambda key, value: True).filter(ps.expr("value > 2")).to("out")
    [sub] = builder.build().sub_topologies
    found = [(each.text, each.key, each.value, each.passed) for each in leading_expressions(sub)]
    assert found == [
        ("value > 1", None, None, ()),
        ("key || '!'", None, None, ((0, True),)),
        ("value + 1", None, None, ((0, True),)),
    ]


class Point(msgspec.Struct):
    """A value of msgspec's."""

    x: float
    tags: list[str]
    inner: Beat | None = None


class Loose(TypedDict, total=False):
    """A dictionary of known fields."""

    a: int
    b: dict[str, float]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (int, [1, None, -5]),
        (str, ["ä", None, ""]),
        (bytes, [b"\x00", None]),
        (float, [1.5, None, float("inf")]),
        (bool, [True, None, False]),
        (datetime, [datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), None]),
        (Beat, [Beat(1), None, Beat(2, "x")]),
        (Point, [Point(1.0, ["a", "b"]), None, Point(2.0, [], Beat(1, "y"))]),
        (Loose, [{"a": 1}, None, {"b": {"k": 1.0}}, {}]),
        (list[int], [[1, 2], None, []]),
        (ps.WindowedSerde(serde_of(str), 10), [ps.Windowed("a", 0, 10), None]),
    ],
)
def test_values_come_back_from_columns(kind: Any, values: list[Any]) -> None:
    form = column_form(serde_of(kind))
    assert form is not None
    column = form.column(values)
    assert form.values(column) == values
    assert form.values(column.slice(1)) == values[1:]
    assert form.values(column.take(pa.array([1, 0]))) == [values[1], values[0]]


def test_a_field_that_may_not_be_null_is_refused() -> None:
    with pytest.raises(UserFunctionError, match="'bpm' is null"):
        _run(
            lambda s: s.map_values(
                ps.batch(lambda values: pa.array([{"bpm": None, "place": "x"}] * len(values))),
                value=Beat,
            ).to("out"),
            [1],
        )
