"""Joins, windows, tables, cogroups and processors of test_topology_describe.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import penstock as ps
from penstock.topology import KStream, KTable, Processor, Record, StoreBuilder, StreamsBuilder

MINUTE = timedelta(minutes=1)
MINUTES = ps.tumbling(MINUTE, grace=MINUTE)
SESSIONS = ps.session(MINUTE, grace=MINUTE)
WITHIN = ps.join_window(MINUTE, grace=MINUTE)

Program = Callable[[StreamsBuilder], object]
PROGRAMS: list[Program] = []


def described(program: Program) -> Program:
    """Add to the programs."""
    PROGRAMS.append(program)
    return program


class Pass(Processor[Any, Any, Any, Any]):
    """Forwards what it gets."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def _stream(b: StreamsBuilder, topic: str = "in") -> KStream[Any, Any]:
    return b.stream(topic, key=str, value=str)


def _table(b: StreamsBuilder, topic: str, store: str | None = None) -> KTable[Any, Any]:
    return b.table(topic, store, key=str, value=str)


def _moved(b: StreamsBuilder, topic: str = "in") -> KStream[Any, Any]:
    return _stream(b, topic).select_key(_value)


def _value(_key: str, value: str) -> str:
    return value


def _always(_key: str, _value: object) -> bool:
    return True


def _same(value: str) -> str:
    return value


def _left(left: str, _right: object) -> str:
    return left


def _latest(_old: str, new: str) -> str:
    return new


def _swapped(key: str, value: str) -> tuple[str, str]:
    return value, key


def _aggregate(_key: str, _value: str, aggregate: str) -> str:
    return aggregate


@described
def windowed(b: StreamsBuilder) -> None:
    _stream(b).group_by_key().windowed_by(MINUTES).count("rates").to_stream().to("out")


@described
def windowed_unnamed(b: StreamsBuilder) -> None:
    _stream(b).group_by(_value).windowed_by(MINUTES).count().to_stream().to("out")


@described
def windowed_grouped_named(b: StreamsBuilder) -> None:
    grouped = _stream(b).group_by(_value, name="by-word")
    grouped.windowed_by(MINUTES).reduce(_latest).to_stream().to("out")


@described
def sliding(b: StreamsBuilder) -> None:
    windows = ps.sliding(MINUTE, grace=MINUTE)
    _stream(b).group_by_key().windowed_by(windows).count().to_stream().to("out")


@described
def sessions(b: StreamsBuilder) -> None:
    _stream(b).group_by(_value).windowed_by(SESSIONS).count().to_stream().to("out")


@described
def emit_on_close(b: StreamsBuilder) -> None:
    windows = _stream(b).group_by_key().windowed_by(MINUTES).emit_on_window_close()
    windows.count("rates").to_stream().to("out")


@described
def suppressed(b: StreamsBuilder) -> None:
    rates = _stream(b).group_by_key().windowed_by(MINUTES).count("rates")
    rates.suppress(ps.until_window_closes()).to_stream().to("out")


@described
def suppressed_named(b: StreamsBuilder) -> None:
    rates = _stream(b).group_by_key().windowed_by(MINUTES).count("rates")
    rates.suppress(ps.until_window_closes(), name="final").to_stream().to("out")


@described
def suppressed_time_limit(b: StreamsBuilder) -> None:
    counts = _stream(b).group_by(_value).count()
    held = counts.suppress(ps.until_time_limit(MINUTE, ps.max_records(10)))
    held.filter(_always).to_stream().to("out")


@described
def join_streams(b: StreamsBuilder) -> None:
    _stream(b).join(_stream(b, "other"), _left, WITHIN).to("out")


@described
def left_join_streams(b: StreamsBuilder) -> None:
    _stream(b).left_join(_stream(b, "other"), _left, WITHIN).to("out")


@described
def outer_join_streams(b: StreamsBuilder) -> None:
    _stream(b).outer_join(_stream(b, "other"), _left, WITHIN).to("out")  # type: ignore[arg-type]


@described
def join_streams_named(b: StreamsBuilder) -> None:
    _stream(b).join(_stream(b, "other"), _left, WITHIN, name="pair").to("out")


@described
def left_join_streams_named(b: StreamsBuilder) -> None:
    _stream(b).left_join(_stream(b, "other"), _left, WITHIN, name="pair").to("out")


@described
def outer_join_streams_named(b: StreamsBuilder) -> None:
    joined = _stream(b).outer_join(_stream(b, "other"), _left, WITHIN, name="pair")  # type: ignore[arg-type]
    joined.to("out")


@described
def join_streams_repartitioned(b: StreamsBuilder) -> None:
    _moved(b).join(_moved(b, "other"), _left, WITHIN).to("out")


@described
def join_streams_repartitioned_left(b: StreamsBuilder) -> None:
    _moved(b).outer_join(_stream(b, "other"), _left, WITHIN).to("out")  # type: ignore[arg-type]


@described
def join_streams_repartitioned_right(b: StreamsBuilder) -> None:
    stream = _stream(b)
    other = _stream(b, "other").map(lambda k, v: (k, v), key=str, value=str)
    stream.left_join(other, _left, WITHIN).to("out")


@described
def join_streams_repartitioned_named(b: StreamsBuilder) -> None:
    _moved(b).join(_moved(b, "other"), _left, WITHIN, name="pair").to("out")


@described
def join_self(b: StreamsBuilder) -> None:
    stream = _stream(b)
    stream.join(stream, _left, WITHIN).to("out")


@described
def join_twice(b: StreamsBuilder) -> None:
    stream = _moved(b)
    first = stream.join(_stream(b, "other"), _left, WITHIN)
    first.join(_stream(b, "third"), _left, WITHIN).to("out")
    stream.left_join(_stream(b, "fourth"), _left, WITHIN).to("out-2")


@described
def join_table(b: StreamsBuilder) -> None:
    table = _table(b, "names", "names")
    _stream(b).join(table, _left).to("out")
    _stream(b, "more").left_join(table, _left).to("out-2")


@described
def join_table_named(b: StreamsBuilder) -> None:
    _stream(b).join(_table(b, "names", "names"), _left, name="named").to("out")


@described
def join_table_repartitioned(b: StreamsBuilder) -> None:
    _moved(b).join(_table(b, "names"), _left).to("out")


@described
def join_table_repartitioned_named(b: StreamsBuilder) -> None:
    _moved(b).left_join(_table(b, "names"), _left, name="named").to("out")


@described
def join_table_view(b: StreamsBuilder) -> None:
    table = _table(b, "names", "names")
    stream = _stream(b)
    stream.join(table.filter(_always).map_values(_same), _left).to("out")


@described
def join_own_count(b: StreamsBuilder) -> None:
    stream = _stream(b)
    stream.join(stream.group_by_key().count(), _left).to("out")


@described
def join_tables(b: StreamsBuilder) -> None:
    _table(b, "a", "as").join(_table(b, "b", "bs"), _left).to_stream().to("out")


@described
def left_join_tables(b: StreamsBuilder) -> None:
    _table(b, "a").left_join(_table(b, "b"), _left).to_stream().to("out")


@described
def outer_join_tables(b: StreamsBuilder) -> None:
    _table(b, "a").outer_join(_table(b, "b"), _left).to_stream().to("out")  # type: ignore[arg-type]


@described
def join_tables_stored(b: StreamsBuilder) -> None:
    _table(b, "a").join(_table(b, "b"), _left, "both").to_stream().to("out")


@described
def join_tables_named(b: StreamsBuilder) -> None:
    joined = _table(b, "a").outer_join(_table(b, "b"), _left, name="pair")  # type: ignore[arg-type]
    joined.to_stream().to("out")


@described
def join_tables_named_stored(b: StreamsBuilder) -> None:
    joined = _table(b, "a").left_join(_table(b, "b"), _left, "both", name="pair")
    joined.to_stream().to("out")


@described
def join_tables_views(b: StreamsBuilder) -> None:
    left = _table(b, "a").filter(_always)
    both = left.join(_table(b, "b").map_values(_same), _left)
    both.join(_table(b, "c"), _left).to_stream().to("out")


@described
def table_filter_stored(b: StreamsBuilder) -> None:
    kept = _table(b, "a").filter(_always, "kept")
    kept.map_values(_same, "mapped").to_stream().to("out")


@described
def foreign_key(b: StreamsBuilder) -> None:
    _table(b, "a").join(_table(b, "b"), _left, foreign_key=_same).to_stream().to("out")


@described
def foreign_key_left(b: StreamsBuilder) -> None:
    joined = _table(b, "a", "as").left_join(_table(b, "b", "bs"), _left, foreign_key=_same)
    joined.to_stream().to("out")


@described
def foreign_key_stored(b: StreamsBuilder) -> None:
    joined = _table(b, "a").join(_table(b, "b"), _left, "joined", foreign_key=_same)
    joined.to_stream().to("out")


@described
def foreign_key_named(b: StreamsBuilder) -> None:
    left, right = _table(b, "a"), _table(b, "b")
    joined = left.join(right, _left, "joined", foreign_key=_same, name="refer")
    joined.to_stream().to("out")


@described
def foreign_key_named_unstored(b: StreamsBuilder) -> None:
    joined = _table(b, "a").left_join(_table(b, "b"), _left, foreign_key=_same, name="refer")
    joined.to_stream().to("out")


@described
def foreign_key_of_views(b: StreamsBuilder) -> None:
    left = _table(b, "a").filter(_always)
    joined = left.join(_table(b, "b").map_values(_same), _left, foreign_key=_same)
    joined.filter(_always).to_stream().to("out")


@described
def cogroup(b: StreamsBuilder) -> None:
    first = _stream(b).group_by_key().cogroup(_aggregate)
    both = first.cogroup(_stream(b, "other").group_by_key(), _aggregate)
    both.aggregate(str, "both").to_stream().to("out")


@described
def cogroup_unnamed(b: StreamsBuilder) -> None:
    first = _stream(b).group_by_key().cogroup(_aggregate)
    both = first.cogroup(_stream(b, "other").group_by_key(), _aggregate)
    both.aggregate(str).to_stream().to("out")


@described
def cogroup_one(b: StreamsBuilder) -> None:
    one = _stream(b).group_by_key().cogroup(_aggregate)
    one.aggregate(str, "one").to_stream().to("out")


@described
def cogroup_repartitioned(b: StreamsBuilder) -> None:
    first = _stream(b).group_by(_value).cogroup(_aggregate)
    both = first.cogroup(_stream(b, "other").group_by_key(), _aggregate)
    every = both.cogroup(_stream(b, "third").group_by_key(), _aggregate)
    every.aggregate(str, "all").to_stream().to("out")


@described
def cogroup_repartitioned_unnamed(b: StreamsBuilder) -> None:
    first = _stream(b).group_by_key().cogroup(_aggregate)
    both = first.cogroup(_stream(b, "other").group_by(_value), _aggregate)
    both.aggregate(str).to_stream().to("out")


@described
def cogroup_grouped_named(b: StreamsBuilder) -> None:
    first = _stream(b).group_by(_value, name="first").cogroup(_aggregate)
    both = first.cogroup(_stream(b, "other").group_by(_value, name="second"), _aggregate)
    both.aggregate(str, "both").to_stream().to("out")


@described
def cogroup_windowed(b: StreamsBuilder) -> None:
    first = _stream(b).group_by_key().cogroup(_aggregate)
    both = first.cogroup(_stream(b, "other").group_by(_value), _aggregate)
    both.windowed_by(MINUTES).aggregate(str, "both").to_stream().to("out")


@described
def cogroup_sessions(b: StreamsBuilder) -> None:
    first = _stream(b).group_by_key().cogroup(_aggregate)
    both = first.cogroup(_stream(b, "other").group_by_key(), _aggregate)
    table = both.windowed_by(SESSIONS).aggregate(str, merger=lambda _k, left, _r: left)
    table.to_stream().to("out")


@described
def grouped_table(b: StreamsBuilder) -> None:
    _table(b, "a").group_by(_swapped).count("sizes").to_stream().to("out")


@described
def grouped_table_unnamed(b: StreamsBuilder) -> None:
    _table(b, "a").group_by(_swapped).reduce(_latest, _latest).to_stream().to("out")


@described
def grouped_table_named(b: StreamsBuilder) -> None:
    grouped = _table(b, "a").group_by(_swapped, name="by-value")
    grouped.aggregate(str, _aggregate, _aggregate).to_stream().to("out")


@described
def merged(b: StreamsBuilder) -> None:
    stream = _stream(b).filter(_always).merge(_stream(b, "other"))
    stream.group_by_key().count("counts").to_stream().to("out")


@described
def merged_named(b: StreamsBuilder) -> None:
    both = _stream(b).merge(_stream(b, "other"), name="all")
    both.merge(_stream(b, "third")).to("out")


@described
def merged_rekeyed(b: StreamsBuilder) -> None:
    stream = _moved(b).merge(_stream(b, "other"))
    stream.group_by_key().count("counts").to_stream().to("out")


@described
def repartitioned(b: StreamsBuilder) -> None:
    _stream(b).repartition().group_by_key().count().to_stream().to("out")


@described
def repartitioned_named(b: StreamsBuilder) -> None:
    _moved(b).repartition(name="moved").group_by_key().count().to_stream().to("out")


@described
def repartitioned_twice(b: StreamsBuilder) -> None:
    _stream(b).repartition().map_values(_same).repartition().to("out")


def _versions(store: str) -> StoreBuilder:
    return ps.versioned_store(store, history_retention=10 * MINUTE)


@described
def versioned_table(b: StreamsBuilder) -> None:
    table = b.table("names", _versions("names"), key=str, value=str)
    table.filter(_always).map_values(_same, _versions("mapped")).to_stream().to("out")
    _stream(b).join(table, _left).to("joined")


@described
def versioned_join_waiting(b: StreamsBuilder) -> None:
    table = b.table("names", _versions("names"), key=str, value=str)
    stream = _stream(b)
    stream.join(table, _left, grace=MINUTE).to("out")
    stream.left_join(table.filter(_always), _left, grace=MINUTE, name="named").to("named-out")


@described
def versioned_join_waiting_rekeyed(b: StreamsBuilder) -> None:
    stream = _moved(b)
    table = b.table("names", _versions("names"), key=str, value=str)
    stream.left_join(table, _left, grace=MINUTE).to("out")


@described
def versioned_aggregates(b: StreamsBuilder) -> None:
    counts = _stream(b).group_by_key().count(_versions("counts"))
    counts.group_by(lambda k, v: (k, v), key=str, value=int).count(
        _versions("again")
    ).to_stream().to("out")
    latest = _stream(b, "other").to_table(_versions("latest"))
    latest.join(latest.map_values(_same), _left, _versions("pairs")).to_stream().to("pairs")


@described
def joined_global(b: StreamsBuilder) -> None:
    table = b.global_table("names", "names", key=str, value=str)
    first = _stream(b).join(table, _left, key_selector=_value)
    first.left_join(table, _left, key_selector=_value).to("out")


@described
def joined_global_unnamed(b: StreamsBuilder) -> None:
    stream = _stream(b)
    table = b.global_table("names", key=str, value=str)
    stream.join(table, _left, key_selector=_value, name="named").to("out")


@described
def processed(b: StreamsBuilder) -> None:
    b.add_state_store(ps.key_value_store("seen", key=str, value=str))
    b.add_state_store(ps.key_value_store("also", key=str, value=str))
    stream = _stream(b)
    first = stream.process(Pass, stores=["seen"], key=str, value=str)
    first.process_values(Pass, stores=["also", "seen"], value=str).to("out")
    stream.process(Pass, name="watch").foreach(_always)


@described
def processed_two_sources(b: StreamsBuilder) -> None:
    b.add_state_store(ps.key_value_store("shared", key=str, value=str))
    _stream(b).process(Pass, stores=["shared"], key=str, value=str).to("out")
    values = _stream(b, "other").process_values(Pass, stores=["shared"], value=str, name="values")
    values.group_by_key().count().to_stream().to("out-2")


@described
def processed_then_counted(b: StreamsBuilder) -> None:
    stream = _stream(b).process(Pass, key=str, value=str)
    stream.group_by_key().count().to_stream().to("out")


@described
def global_stores(b: StreamsBuilder) -> None:
    _stream(b).to("out")
    first, second = (ps.key_value_store(n, key=str, value=str) for n in ("first", "second"))
    b.add_global_store("first-topic", first, Pass)
    b.add_global_store("second-topic", second, Pass, name="keep")
    b.global_table("names", key=str, value=str, name="names-table")
    _stream(b, "other").process(Pass, stores=["first"], key=str, value=str).to("out-2")


@described
def by_pattern(b: StreamsBuilder) -> None:
    orders = b.stream(re.compile("orders-.*"), key=str, value=str)
    orders.group_by_key().count().to_stream().to("out")
    moved = _stream(b, "other").select_key(_value)
    pages = b.stream(re.compile("pages-[0-9]+"), key=str, value=str)
    moved.join(pages, _left, WITHIN).to("out-2")
