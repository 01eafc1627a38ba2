"""Goal: a program whose records would go round for ever is refused, with the way that they go."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import TopologyError

_COUNTS = "counts-repartition"
_ANSWERS = "orders-table-people-table-foreign-key-subscription-response-topic"
Write = Callable[[ps.StreamsBuilder], object]


def _stream(builder: ps.StreamsBuilder, topic: str) -> Any:
    return builder.stream(topic, key=str, value=str)


def _table(builder: ps.StreamsBuilder, topic: str) -> Any:
    return builder.table(topic, key=str, value=str)


def _topology(write: Write) -> ps.Topology:
    builder = ps.StreamsBuilder()
    write(builder)
    return builder.build()


def _there_and_back(builder: ps.StreamsBuilder) -> None:
    _stream(builder, "a").to("b", name="there")
    _stream(builder, "b").to("a", name="back")


def _over_repartitions(builder: ps.StreamsBuilder) -> None:
    _stream(builder, "a").repartition(name="middle").filter(lambda _k, _v: True).to("b")
    _stream(builder, "b").group_by(lambda _k, v: v, key=str).count("counts").to_stream().map_values(
        str, value=str
    ).to("a")


def _by_a_tables_rows(builder: ps.StreamsBuilder) -> None:
    table = _table(builder, "rows")
    _stream(builder, "a").join(table, lambda a, _b: a, value=str).to("rows")


def _by_a_global_tables_rows(builder: ps.StreamsBuilder) -> None:
    rows = builder.global_table("rows", key=str, value=str)
    _stream(builder, "a").join(rows, lambda a, _b: a, key_selector=lambda k, _v: k, value=str).to(
        "rows"
    )


def _by_a_foreign_key(builder: ps.StreamsBuilder) -> None:
    orders, people = _table(builder, "orders"), _table(builder, "people")
    joined = orders.join(people, lambda o, _p: o, foreign_key=lambda o: o, value=str)
    joined.to_stream().to("people")


def _one_of_several_topics(builder: ps.StreamsBuilder) -> None:
    builder.stream(["x", "a"], key=str, value=str).to("a")


@pytest.mark.parametrize(
    ("write", "topics"),
    [
        (_there_and_back, ["a", "b", "b", "a"]),
        (lambda b: _stream(b, "a").to("a"), ["a", "a"]),
        (_over_repartitions, ["a", "middle-repartition", "b", _COUNTS, "a"]),
        (lambda b: _table(b, "a").to_stream().to("a"), ["a", "a"]),
        (_by_a_foreign_key, ["people", _ANSWERS, _ANSWERS, "people"]),
        (_one_of_several_topics, ["a", "a"]),
    ],
)
def test_a_cycle_is_refused_with_its_steps_and_topics(write: Write, topics: list[str]) -> None:
    with pytest.raises(TopologyError, match="The topology has a cycle: step") as caught:
        _topology(write)
    told = re.findall(r"topic '([^']+)'", caught.value.message)
    assert list(dict.fromkeys(told)) == list(dict.fromkeys(topics))
    assert told[0] == told[-1] == topics[0]
    assert "Write to a topic that none of these steps reads" in caught.value.hint


def test_the_steps_are_told_in_the_order_that_records_pass_them() -> None:
    with pytest.raises(TopologyError) as caught:
        _topology(_there_and_back)
    source, back = "KSTREAM-SOURCE-0000000000", "KSTREAM-SOURCE-0000000002"
    assert caught.value.message == (
        f"The topology has a cycle: step {source} reads topic 'a', step there writes topic 'b', "
        f"step {back} reads topic 'b', step back writes topic 'a'"
    )
    assert caught.value.where == {"steps": f"{source}, there, {back}, back"}


def _chain(builder: ps.StreamsBuilder) -> None:
    _stream(builder, "a").to("b")
    _stream(builder, "b").to("c")
    _stream(builder, "c").join(_table(builder, "rows"), lambda a, _b: a, value=str).to("d")


def _to_a_table_that_another_stream_is_joined_with(builder: ps.StreamsBuilder) -> None:
    table = _table(builder, "rows")
    _stream(builder, "a").to("rows")
    _stream(builder, "b").join(table, lambda a, _b: a, value=str).to("out")


def _topic_by_function(builder: ps.StreamsBuilder) -> None:
    _stream(builder, "a").to(lambda _k, _v: "a")


def _topic_by_pattern(builder: ps.StreamsBuilder) -> None:
    builder.stream(re.compile("a.*"), key=str, value=str).to("ab")


def _merged_with_itself(builder: ps.StreamsBuilder) -> None:
    stream = _stream(builder, "a")
    stream.merge(stream.map_values(str, value=str)).to("out")


def _joined_with_its_own_count(builder: ps.StreamsBuilder) -> None:
    stream = _stream(builder, "a")
    counts = stream.group_by_key().count("counts")
    stream.join(counts, lambda a, n: f"{a}{n}", value=str).to("out")


@pytest.mark.parametrize(
    "write",
    [
        _chain,
        _to_a_table_that_another_stream_is_joined_with,
        _topic_by_function,
        _topic_by_pattern,
        _merged_with_itself,
        _joined_with_its_own_count,
    ],
)
def test_what_is_no_cycle_or_cannot_be_known_is_built(write: Write) -> None:
    assert _topology(write).sub_topologies


@pytest.mark.parametrize("write", [_by_a_tables_rows, _by_a_global_tables_rows])
def test_rows_that_later_records_find_are_no_cycle(write: Write) -> None:
    builder = ps.StreamsBuilder()
    write(builder)
    builder.build()
