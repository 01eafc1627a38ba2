"""Goal: an error says which step, topic or store it is about, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.coordination.layout import lay_out
from penstock.errors import PartitionCountError, TopologyError, UserFunctionError
from penstock.testing import TopologyTestDriver

Write = Callable[[ps.StreamsBuilder], object]
_SECOND = timedelta(seconds=1)


class Odd:
    """A type that has no serde."""


def _stream(builder: Any, topic: str = "in") -> Any:
    return builder.stream(topic, key=str, value=str)


def _table(builder: Any, topic: str, *store: str) -> Any:
    return builder.table(topic, *store, key=str, value=str)


def _first(left: Any, _right: Any) -> Any:
    return left


@pytest.mark.parametrize(
    ("write", "place"),
    [
        (lambda b: b.stream("in", key=Odd, value=str), "the key of the stream of 'in'"),
        (lambda b: b.stream("in", key=str, value=Odd), "the value of the stream of 'in'"),
        (lambda b: b.table("in", key=str, value=Odd), "the value of the table of 'in'"),
        (lambda b: b.global_table("in", key=Odd, value=str), "the key of the global table of 'in'"),
        (
            lambda b: b.add_state_store(ps.key_value_store("held", key=str, value=Odd)),
            "the value of the store 'held'",
        ),
        (
            lambda b: _stream(b).map_values(str, value=Odd, name="m"),
            r"the value of map_values \(step m\)",
        ),
        (
            lambda b: _stream(b).to("out", value=Odd, name="o"),
            "the value of what step o writes to topic 'out'",
        ),
        (
            lambda b: _stream(b).repartition(key=Odd, name="r"),
            "the key of the repartition topic 'r'",
        ),
        (
            lambda b: _stream(b).group_by_key().aggregate(str, max, "held", value=Odd),
            r"the value of aggregate \(behind step KSTREAM-SOURCE-0000000000\)",
        ),
        (
            lambda b: _stream(b).join(_table(b, "t"), _first, value=Odd),
            r"the value of join \(of step KSTREAM-SOURCE-0000000000\)",
        ),
    ],
)
def test_a_type_without_a_serde_is_named_with_its_place(write: Write, place: str) -> None:
    with pytest.raises(TopologyError, match=f"no serde for <class .*Odd'>, which is {place}"):
        write(ps.StreamsBuilder())


def _two_counts(builder: ps.StreamsBuilder) -> None:
    _stream(builder).group_by_key().count("n")
    _stream(builder, "in2").group_by_key().count("n")


def _added_and_counted(builder: ps.StreamsBuilder) -> None:
    builder.add_state_store(ps.key_value_store("n", key=str, value=str))
    _stream(builder).group_by_key().count("n")


def _counted_and_added(builder: ps.StreamsBuilder) -> None:
    _stream(builder).group_by_key().count("n")
    builder.add_state_store(ps.key_value_store("n", key=str, value=str))


@pytest.mark.parametrize(
    ("write", "where"),
    [
        (
            _two_counts,
            "one of step KSTREAM-AGGREGATE-0000000001, and one behind step KSTREAM-SOURCE-",
        ),
        (_added_and_counted, "one that was added, and one behind step KSTREAM-SOURCE-0000000000"),
        (_counted_and_added, "one of step KSTREAM-AGGREGATE-0000000001, and one that is added"),
    ],
)
def test_two_stores_of_one_name_are_told_apart(write: Write, where: str) -> None:
    message = f"Two stores are called 'n': {where}"
    with pytest.raises(TopologyError, match=message):
        write(ps.StreamsBuilder())


@pytest.mark.parametrize(
    ("write", "where"),
    [
        (lambda b: _stream(b).group_by_key().count("../n"), "step count of in"),
        (lambda b: _stream(b).filter(max, name="../n"), "step KSTREAM-FILTER-0000000001"),
        (
            lambda b: _stream(b).to("../n"),
            "step KSTREAM-SINK-0000000001, behind KSTREAM-SOURCE-0000000000",
        ),
        (lambda b: _stream(b, "../n"), "step KSTREAM-SOURCE-0000000000, the stream of '../n'"),
        (lambda b: _table(b, "t", "../n"), "step table of t"),
    ],
)
def test_a_name_that_cannot_be_used_is_told_with_its_step_and_one_that_can(
    write: Write, where: str
) -> None:
    with pytest.raises(TopologyError, match=r"name '\.\./n' cannot be used") as caught:
        write(ps.StreamsBuilder())
    assert where in str(caught.value)
    assert "'n', for example" in caught.value.hint


def test_sliding_windows_need_a_length() -> None:
    with pytest.raises(TopologyError, match="less than a millisecond"):
        ps.sliding(timedelta(microseconds=1), grace=_SECOND)


@pytest.mark.parametrize(
    ("windows", "least"),
    [
        (ps.tumbling(_SECOND, grace=_SECOND), "the windows' size and grace"),
        (ps.sliding(_SECOND, grace=_SECOND), "twice the windows' difference, and the grace"),
        (ps.session(_SECOND, grace=_SECOND), "the sessions' gap and grace"),
    ],
)
def test_a_short_retention_is_told_what_its_windows_need(windows: Any, least: str) -> None:
    grouped = _stream(ps.StreamsBuilder()).group_by_key().windowed_by(windows)
    with pytest.raises(TopologyError, match=f"Let retention be at least {least}"):
        grouped.count("n", retention=_SECOND)


def _named_by(topic: Any, **options: Any) -> TopologyTestDriver:
    app = ps.Application("app", **options)
    _stream(app).to(lambda _key, value: topic if value == "bad" else "out", name="o")
    driver = TopologyTestDriver(app)
    for value in ("good", "bad", "better"):
        driver.input_topic("in", key=str, value=str).pipe("k", value)
    return driver


@pytest.mark.parametrize("topic", [None, 5, ["out"], "a/b", ""])
def test_a_function_that_names_no_topic_fails_with_the_records_place(topic: Any) -> None:
    with pytest.raises(UserFunctionError, match="names the topic of step o returned") as caught:
        _named_by(topic)
    assert caught.value.where == {"topic": "in", "partition": 0, "offset": 1, "step": "o"}


def test_a_record_without_a_topic_is_dropped_where_the_handler_goes_on() -> None:
    driver = _named_by(None, production_exception_handler="continue")
    out = driver.output_topic("out", key=str, value=str)
    assert out.read_pairs() == [("k", "good"), ("k", "better")]
    assert driver.dropped == {"failed": 1}


class Writer(ps.Processor[str, str, str, str]):
    def process(self, record: ps.Record[str, str]) -> None:
        store = self.context.store("shared")
        assert store.get(record.key) is None
        getattr(store, record.value)(*([record.key, "x"][: 1 if record.value == "delete" else 2]))


@pytest.mark.parametrize("method", ["put", "put_if_absent", "delete"])
def test_a_write_into_a_global_store_is_refused(method: str) -> None:
    builder = ps.StreamsBuilder()
    builder.global_table("rows", "shared", key=str, value=str)
    _stream(builder).process(Writer, stores=["shared"], name="p")
    driver = TopologyTestDriver(builder.build())
    with pytest.raises(TopologyError, match="step p writes to the global store 'shared'"):
        driver.input_topic("in", key=str, value=str).pipe("k", method)


def _stream_and_table(builder: ps.StreamsBuilder) -> None:
    _stream(builder, "a").join(_table(builder, "b"), _first, value=str).to("out")


def _tables(builder: ps.StreamsBuilder) -> None:
    _table(builder, "a").join(_table(builder, "b", "kept"), _first, value=str).to_stream().to("out")


@pytest.mark.parametrize(
    ("write", "hint"),
    [
        (_stream_and_table, r"call repartition\(\) on the stream of 'a' before it is joined"),
        (_tables, r"read 'b' as a stream, and join stream\(...\).repartition\(\).to_table"),
    ],
)
def test_tables_of_other_widths_are_told_what_to_write(write: Write, hint: str) -> None:
    builder = ps.StreamsBuilder()
    write(builder)
    with pytest.raises(PartitionCountError, match=f"'a' has 2 .* 'b' has 3.* or {hint}"):
        lay_out(builder.build(), "app", {"a": 2, "b": 3})
