"""Functions of values that ask for the key: the same results by columns and by record.

`make check` lets mypy read this file too: a lambda of the wrong number of values is an error in
either form, which the ignored lines prove.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.errors import TopologyError
from penstock.processors import choice
from penstock.testing import TopologyTestDriver

SECOND = timedelta(seconds=1)
WINDOW = ps.join_window(SECOND, grace=timedelta(0))


@pytest.fixture(params=["columns", "records"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "records":
        monkeypatch.setattr(choice, "runs_in_columns", lambda _: False)


def outputs(app: ps.Application, *records: tuple[str, str | None, Any]) -> list[tuple[Any, Any]]:
    driver = TopologyTestDriver(app)
    for topic, key, value in records:
        driver.input_topic(topic, key=str, value=str).pipe(key, value)
    return driver.output_topic("out", key=str, value=str).read_pairs()


@ps.batch
def key_and_value(keys: pa.Array, values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(keys, values, "=")


@pytest.mark.usefixtures("engine")
def test_values_of_a_stream() -> None:
    app = ps.Application("streams")
    stream = app.stream("in", key=str, value=str)
    stream.map_values(lambda k, v: f"{k}:{v}", with_key=True, value=str).to("out")
    stream.map_values(key_and_value, with_key=True, value=str).to("out")
    flat = stream.flat_map_values(lambda k, v: [k, v.upper()], with_key=True, value=str)
    flat.filter(lambda _k, v: v != "").to("out")
    assert outputs(app, ("in", "a", "x"), ("in", None, "y")) == [
        ("a", "a:x"),
        ("a", "a=x"),
        ("a", "a"),
        ("a", "X"),
        (None, "None:y"),
        (None, None),
        (None, None),
        (None, "Y"),
    ]


@pytest.mark.usefixtures("engine")
def test_values_of_a_table() -> None:
    app = ps.Application("tables")
    table = app.table("in", "rows", key=str, value=str)
    table.map_values(lambda k, v: f"{k}:{v}", with_key=True, value=str).to_stream().to("out")
    # A deletion is shown to nobody, with or without its key.
    assert outputs(app, ("in", "a", "x"), ("in", "a", None)) == [("a", "a:x"), ("a", None)]


@pytest.mark.usefixtures("engine")
def test_joins_with_tables() -> None:
    app = ps.Application("lookups")
    stream, table = app.stream("in", key=str, value=str), app.table("t", "t", key=str, value=str)
    world = app.global_table("g", "g", key=str, value=str)
    stream.join(table, lambda k, left, r: f"{k}:{left}{r}", with_key=True, value=str).to("out")
    stream.left_join(table, lambda k, left, r: f"{k}-{left}{r}", with_key=True, value=str).to("out")
    # The key is the record's own, not the one that it was joined by.
    stream.join(
        world,
        lambda k, left, r: f"{k}!{left}{r}",
        with_key=True,
        key_selector=lambda _k, v: v,
        value=str,
    ).to("out")
    found = outputs(app, ("t", "a", "1"), ("g", "x", "2"), ("in", "a", "x"), ("in", "b", "y"))
    assert found == [("a", "a:x1"), ("a", "a-x1"), ("a", "a!x2"), ("b", "b-yNone")]


def test_joins_of_streams() -> None:
    app = ps.Application("streams")
    left, right = app.stream("in", key=str, value=str), app.stream("r", key=str, value=str)
    inner = left.join(right, lambda k, a, b: f"{k}:{a}{b}", WINDOW, with_key=True, value=str)
    outer = left.outer_join(right, lambda k, a, b: f"{k}|{a}{b}", WINDOW, with_key=True, value=str)
    inner.merge(outer).to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("r", key=str, value=str).pipe("b", "2", timestamp=0)
    driver.input_topic("in", key=str, value=str).pipe("a", "x", timestamp=0)
    driver.input_topic("r", key=str, value=str).pipe("a", "1", timestamp=10)
    # What meets nothing is told of with its own key, when its time is over.
    driver.input_topic("in", key=str, value=str).pipe("c", "z", timestamp=5000)
    out = driver.output_topic("out", key=str, value=str).read_pairs()
    assert out == [("a", "a:x1"), ("a", "a|x1"), ("b", "b|None2")]


def test_joins_of_tables() -> None:
    app = ps.Application("tables")
    left = app.table("in", "left", key=str, value=str)
    right = app.table("r", "right", key=str, value=str)
    joined = left.outer_join(right, lambda k, a, b: f"{k}:{a}{b}", with_key=True, value=str)
    joined.to_stream().to("out")
    found = outputs(app, ("in", "a", "x"), ("r", "a", "1"), ("in", "a", None), ("r", "b", "2"))
    expected = ["a:xNone", "a:x1", "a:None1", "b:None2"]
    assert [value for _, value in found] == expected


def test_foreign_keys() -> None:
    app = ps.Application("foreign")
    left = app.table("in", "left", key=str, value=str)
    right = app.table("r", "right", key=str, value=str)
    left.join(
        right,
        lambda k, a, b: f"{k}:{a}{b}",
        with_key=True,
        foreign_key=lambda k, v: k if v == "me" else v,
        value=str,
    ).to_stream().to("out")
    found = outputs(
        app, ("r", "a", "1"), ("r", "z", "9"), ("in", "a", "me"), ("in", "b", "z"), ("r", "a", "2")
    )
    assert found == [("a", "a:me1"), ("b", "b:z9"), ("a", "a:me2")]


def test_an_expression_has_the_key_anyway() -> None:
    stream = ps.StreamsBuilder().stream("in", key=str, value=str)
    with pytest.raises(TopologyError, match="names the column key"):
        stream.map_values(ps.expr("key"), with_key=True)  # type: ignore[call-overload]


def test_a_function_of_the_wrong_number_of_values_is_found_by_mypy_and_by_its_step() -> None:
    app = ps.Application("wrong")
    stream, table = app.stream("in", key=str, value=str), app.table("t", "t", key=str, value=str)
    with pytest.raises(TopologyError, match="called with 1 value"):
        stream.map_values(lambda k, v: v, value=str)  # type: ignore[misc, arg-type]
    with pytest.raises(TopologyError, match="called with 2 values"):
        stream.flat_map_values(lambda v: [v], with_key=True, value=str)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="called with 3 values"):
        stream.join(table, lambda a, b: a, with_key=True, value=str)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="called with 2 values"):
        table.join(table, lambda k, a, b: a, value=str)  # type: ignore[misc, arg-type]
    with pytest.raises(TopologyError, match="called with 2 values"):
        table.map_values(lambda v: v, with_key=True, value=str)  # type: ignore[call-overload]
