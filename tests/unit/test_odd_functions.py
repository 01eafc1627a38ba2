"""What only functions in Python do: both ways of computing a slice tell of it alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import UserFunctionError
from penstock.processors import Limits, RecordRun, choice, runs_in_columns, start_slice
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from penstock.topology import SubTopology
from tests.unit.slices import Row, records

WANTED = ["a", "b"]


def _found(value: str) -> str:
    """As users write it: nobody thinks of what `next` does if there is none."""
    return next(each for each in WANTED if each == value)


def _neither(value: str) -> Any:
    """What numpy says of an array: neither yes nor no."""
    return np.array([True, True]) if value == "c" else True


Program = Callable[[Any], object]
STOPPING: dict[str, Program] = {
    "filter": lambda s: s.filter(lambda k, v: _found(v)).to("out"),
    "map_values": lambda s: s.map_values(_found, value=str).to("out"),
    "map": lambda s: s.map(lambda k, v: (k, _found(v)), key=str, value=str).to("out"),
    "select_key": lambda s: s.select_key(lambda k, v: _found(v), key=str).to("out"),
    "flat_map": lambda s: s.flat_map(lambda k, v: [(k, _found(v))], key=str, value=str).to("out"),
    "flat_map_values": lambda s: s.flat_map_values(lambda v: [_found(v)], value=str).to("out"),
    "peek": lambda s: s.peek(lambda k, v: _found(v)).to("out"),
    "foreach": lambda s: s.foreach(lambda k, v: _found(v)),
    "reduce": lambda s: s.group_by_key().reduce(lambda a, v: _found(v), "s").to_stream().to("out"),
    "table": lambda s: s.to_table("t").map_values(_found, value=str).to_stream().to("out"),
    "rows": lambda s: s.to_table("t").filter(lambda k, v: _found(v)).to_stream().to("out"),
}
UNDECIDED: dict[str, Program] = {
    "filter": lambda s: s.filter(lambda k, v: _neither(v)).to("out"),
    "filter_not": lambda s: s.filter_not(lambda k, v: _neither(v)).to("out"),
    "rows": lambda s: s.to_table("t").filter(lambda k, v: _neither(v)).to_stream().to("out"),
}


def _read_key(value: dict[str, str]) -> bytes:
    return value["id"].encode()


KEYED = ps.serde(_read_key, lambda data: {"id": data.decode()})
UNWRITABLE: dict[str, Program] = {
    "sink": lambda s: s.map_values(_as_row, value=KEYED).to("out"),
    "table": lambda s: s.map_values(_as_row, value=KEYED).to_table("t").to_stream().to("out"),
    "group": lambda s: s.select_key(lambda k, v: _as_row(v), key=KEYED).to("out"),
}


def _as_row(value: str) -> dict[str, str]:
    return {"id": value} if value in WANTED else {"name": value}


def _sub(program: Program, **options: Any) -> SubTopology:
    builder = ps.StreamsBuilder()
    program(builder.stream("in", key=str, value=str, **options))
    [sub] = builder.build().sub_topologies
    return sub


ROWS = [Row(number, 5, b"k", value) for number, value in enumerate([b"a", b"b", b"c", b"a"])]


def _told(sub: SubTopology, *, by_record: bool, inputs: dict[str, list[Row]]) -> tuple[str, Any]:
    """What an error of the slice says."""
    start: Any = RecordRun if by_record else start_slice
    run = start(
        sub,
        application_id="app",
        state=DriverState({spec.name: spec for spec in sub.stores}),
        limits=Limits(cache_max_bytes=0, partition_counts={"out": 1}),
        metadata={},
        partition=0,
        now_ms=0,
    )

    def finish() -> None:
        for topic, rows in inputs.items():
            run.process(records(rows, topic))
        run.finish()

    with pytest.raises(UserFunctionError) as caught:
        finish()
    return caught.value.summary, dict(caught.value.where)


def _both_tell(sub: SubTopology, inputs: dict[str, list[Row]] | None = None) -> tuple[str, Any]:
    assert runs_in_columns(sub)
    given = {"in": ROWS} if inputs is None else inputs
    told = _told(sub, by_record=False, inputs=given)
    assert told == _told(sub, by_record=True, inputs=given)
    assert told[1]["offset"] == 2
    return told


@pytest.mark.parametrize("step", STOPPING)
def test_a_function_that_raises_stop_iteration_has_failed(step: str) -> None:
    """To `map` it looks like the end of the records: those after it would be left out."""
    summary, where = _both_tell(_sub(STOPPING[step]))
    assert "raised StopIteration" in summary
    assert where["file"] == "test_odd_functions.py"


def test_a_timestamp_that_raises_stop_iteration_has_failed() -> None:
    sub = _sub(lambda s: s.to("out"), timestamp=lambda key, value, time: len(_found(value)))
    assert "raised StopIteration" in _both_tell(sub)[0]


@pytest.mark.parametrize("with_key", [False, True])
def test_a_joiner_that_raises_stop_iteration_has_failed(
    with_key: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "FEW_RECORDS", 0)
    builder = ps.StreamsBuilder()
    left, right = (builder.stream(topic, key=str, value=str) for topic in ("in", "right"))
    windows = ps.join_window(timedelta(seconds=1), grace=timedelta(0))
    joiner: Any = (lambda key, a, b: _found(a)) if with_key else (lambda a, b: _found(a))
    left.join(right, joiner, windows, value=str, with_key=with_key).to("out")
    [sub] = builder.build().sub_topologies
    told = _both_tell(sub, {"right": [Row(0, 4, b"k", b"r")], "in": ROWS})
    assert "raised StopIteration" in told[0]


@pytest.mark.parametrize("step", UNDECIDED)
def test_a_predicate_that_says_neither_yes_nor_no_has_failed(step: str) -> None:
    assert "raised ValueError: The truth value" in _both_tell(_sub(UNDECIDED[step]))[0]


@pytest.mark.parametrize("step", UNWRITABLE)
def test_whatever_a_serde_raises_it_cannot_write_the_value(step: str) -> None:
    summary, _ = _both_tell(_sub(UNWRITABLE[step]))
    assert "'custom' cannot write: KeyError: 'id'" in summary


def _half(value: str) -> Any:
    return 1.5 if value == "c" else 1


def test_a_fraction_is_no_whole_number() -> None:
    """Arrow would cut it off, and say nothing."""
    sub = _sub(lambda s: s.map_values(_half, value=int).to("out"))
    assert "cannot write: expected int, got float" in _both_tell(sub)[0]


@pytest.mark.parametrize("program", [*STOPPING.values(), *UNDECIDED.values(), *UNWRITABLE.values()])
def test_the_handlers_are_asked(program: Program) -> None:
    options: Any = {"processing_exception_handler": "continue"}
    app = ps.Application("odd", production_exception_handler="continue", **options)
    program(app.stream("in", key=str, value=str))
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=str)
    for value in ("a", "b", "c", "a"):
        topic.pipe("k", value)
    # A row on which a filter of a table failed is shown to it again, when another takes its place.
    assert driver.dropped["failed"] in (1, 2)


def test_a_branch_that_says_neither_yes_nor_no_is_for_the_handler() -> None:
    app = ps.Application("odd", processing_exception_handler="continue")
    split = app.stream("in", key=str, value=str).split(name="s-")
    split.branch(lambda k, v: _neither(v), name="one").default_branch(name="rest")["s-one"].to(
        "out"
    )
    driver = TopologyTestDriver(app)
    topic = driver.input_topic("in", key=str, value=str)
    for value in ("a", "c", "b"):
        topic.pipe("k", value)
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("k", "a"), ("k", "b")]
