"""Goal: what is used twice, or meets itself further down, is wired as Kafka Streams wires it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.errors import TopologyError
from penstock.serdes import Windowed, WindowedSerde, serde_of
from penstock.topology import SuppressNode, TableFilterNode, Topology
from penstock.topology.nodes import DropNullKeyNode

Program = Callable[[ps.StreamsBuilder], Any]


def _ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def _stream(builder: ps.StreamsBuilder, topic: str = "in") -> Any:
    return builder.stream(topic, key=str, value=str)


def _counts(builder: ps.StreamsBuilder, topic: str, grace: int) -> Any:
    windows = ps.tumbling(_ms(10), grace=_ms(grace))
    return _stream(builder, topic).group_by_key().windowed_by(windows).count(f"{topic}-counts")


def _sessions(builder: ps.StreamsBuilder) -> Any:
    windows = ps.session(_ms(5), grace=_ms(3))
    return _stream(builder).group_by_key().windowed_by(windows).count("sessions")


def _both(left: str, right: str) -> str:
    return f"{left}{right}"


def _nodes(topology: Topology, kind: type) -> list[Any]:
    subs = topology.sub_topologies
    return [node for sub in subs for node in sub.nodes if isinstance(node, kind)]


def _waits(program: Program) -> int:
    """How long after their end the windows of a program's table are waited for."""
    builder = ps.StreamsBuilder()
    program(builder).suppress(ps.until_window_closes())
    duration: int = _nodes(builder.build(), SuppressNode)[-1].duration_ms
    return duration


def _joined(builder: ps.StreamsBuilder) -> Any:
    return _counts(builder, "a", 5).outer_join(_counts(builder, "b", 20), _both, value=str)


def _merged(builder: ps.StreamsBuilder) -> Any:
    a, b = _counts(builder, "a", 5).to_stream(), _counts(builder, "b", 20).to_stream()
    return a.merge(b).to_table("latest")


def _rekeyed(builder: ps.StreamsBuilder) -> Any:
    def earlier(key: Windowed[str], _: int) -> Windowed[str]:
        return Windowed(key.key[:1], key.start, key.end)

    windowed = WindowedSerde(serde_of(str), 10)
    return _counts(builder, "a", 7).to_stream().select_key(earlier, key=windowed).to_table("t")


def _looked_up(builder: ps.StreamsBuilder) -> Any:
    rows = _counts(builder, "b", 20)
    return _counts(builder, "a", 5).to_stream().join(rows, _both, value=str).to_table("latest")


def _met(builder: ps.StreamsBuilder) -> Any:
    a, b = _counts(builder, "a", 5).to_stream(), _counts(builder, "b", 20).to_stream()
    return a.join(b, _both, ps.join_window(_ms(1), grace=_ms(99)), value=str).to_table("latest")


@pytest.mark.parametrize(
    ("program", "waits"),
    [
        (lambda b: _counts(b, "a", 5), 5),
        (_sessions, 8),
        (lambda b: _counts(b, "a", 5).filter(lambda *_: True).map_values(str, value=str), 5),
        (lambda b: _counts(b, "a", 5).suppress(ps.until_time_limit(_ms(1), ps.unbounded())), 5),
        (lambda b: _counts(b, "a", 5).to_stream().to_table("latest"), 5),
        (lambda b: _counts(b, "a", 5).to_stream().repartition().to_table("latest"), 5),
        (_joined, 20),
        (_merged, 20),
        (_rekeyed, 7),
        # A row that a record only looks up is not what it comes from; a stream that it meets is.
        (_looked_up, 5),
        (_met, 20),
    ],
)
def test_the_longest_grace_on_the_way_is_waited_for(program: Program, waits: int) -> None:
    assert _waits(program) == waits


def _windows_of_a_topic(builder: ps.StreamsBuilder) -> Any:
    windowed = WindowedSerde(serde_of(str), 10)
    return builder.stream("windows", key=windowed, value=int)


@pytest.mark.parametrize(
    "program",
    [
        lambda b: _stream(b).to_table("latest"),
        lambda b: _stream(b).group_by_key().count("counts"),
        # The keys are windows, and yet nobody knows when they close.
        lambda b: _windows_of_a_topic(b).to_table("latest"),
        lambda b: _counts(b, "a", 5).to_stream().merge(_windows_of_a_topic(b)).to_table("latest"),
        # There were windows; the keys are none any more.
        lambda b: (
            _counts(b, "a", 5).to_stream().select_key(lambda k, _: k.key, key=str).to_table("t")
        ),
    ],
)
def test_without_windows_on_every_way_nothing_closes(program: Program) -> None:
    with pytest.raises(TopologyError, match=r"step .* has no windows that could close"):
        program(ps.StreamsBuilder()).suppress(ps.until_window_closes())


def test_a_stream_merged_with_itself_is_one_parent() -> None:
    builder = ps.StreamsBuilder()
    stream = _stream(builder)
    stream.merge(stream, name="same").merge(_stream(builder), name="again").to("out")
    [sub] = builder.build().sub_topologies
    assert sub.sources[0].children == ("same", "again")


def test_a_stream_cogrouped_twice_has_the_last_aggregator_in_the_first_place() -> None:
    def first(key: str, value: str, total: str) -> str:
        return f"{total}-{value}"

    def last(key: str, value: str, total: str) -> str:
        return f"{total}+{value}"

    builder = ps.StreamsBuilder()
    a, b = (_stream(builder, topic).group_by_key() for topic in ("a", "b"))
    grouped = a.cogroup(first).cogroup(b, first).cogroup(a, last)
    assert [aggregator for _, aggregator in grouped.parts] == [last, first]


@pytest.mark.parametrize("joined_first", [False, True])
def test_a_filter_knows_what_rows_were_only_if_the_table_was_kept_already(
    joined_first: bool,
) -> None:
    builder = ps.StreamsBuilder()
    table, stream = _stream(builder).to_table(), _stream(builder, "other")

    def join() -> None:
        stream.join(table, _both, value=str).to("joined")

    if joined_first:
        join()
    table.filter(lambda _, value: value == "a").to_stream().to("out")
    if not joined_first:
        join()
    [wanted] = _nodes(builder.build(), TableFilterNode)
    assert wanted.sends_old is joined_first


@pytest.mark.parametrize(("kind", "kept"), [("join", False), ("left_join", True)])
def test_both_sides_of_a_left_join_are_shown_records_without_a_key(kind: str, kept: bool) -> None:
    builder = ps.StreamsBuilder()
    left, right = (
        _stream(builder, topic).select_key(lambda _, value: value, key=str) for topic in ("a", "b")
    )
    within = ps.join_window(_ms(5), grace=_ms(5))
    getattr(left, kind)(right, _both, within, value=str).to("out")
    drops = _nodes(builder.build(), DropNullKeyNode)
    assert [node.keeps for node in drops] == [kept, kept]
