"""Orders within a line, and options without a store's name, of test_topology_describe.py."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.topology import KStream, KTable, StreamsBuilder, ValueTransformer
from tests.unit.described_stateful import MINUTE, MINUTES, SESSIONS, Pass, Program

PROGRAMS: list[Program] = []
SLIDING = ps.sliding(MINUTE, grace=MINUTE)


def described(program: Program) -> Program:
    """Add to the programs."""
    PROGRAMS.append(program)
    return program


class Same(ValueTransformer[Any, Any, Any]):
    """Changes nothing."""

    def transform(self, _key: object, value: Any) -> Any:
        return value


def _stream(b: StreamsBuilder, *topics: str) -> KStream[Any, Any]:
    return b.stream(list(topics or ("in",)), key=str, value=str)


def _table(b: StreamsBuilder, topic: str, store: str | None = None) -> KTable[Any, Any]:
    return b.table(topic, store, key=str, value=str)


def _always(_key: object, _value: object) -> bool:
    return True


def _same(value: str) -> str:
    return value


def _left(left: str, _right: str) -> str:
    return left


def _latest(_old: str, new: str) -> str:
    return new


def _folded(_key: str, value: str, _aggregate: str) -> str:
    return value


def _merged(_key: str, _one: str, other: str) -> str:
    return other


def _swapped(key: str, value: str) -> tuple[str, str]:
    return value, key


def _out(table: KTable[Any, Any]) -> None:
    table.to_stream().to("out")


def _looked_at(table: KTable[Any, Any]) -> None:
    table.to_stream().foreach(_always)


@described
def options_of_windows(b: StreamsBuilder) -> None:
    grouped = _stream(b).group_by_key()
    windows = grouped.windowed_by(MINUTES)
    _looked_at(windows.count(caching=False))
    _looked_at(windows.reduce(_latest, caching=False))
    _looked_at(windows.aggregate(str, _folded, caching=False))
    sliding = grouped.windowed_by(SLIDING)
    _looked_at(sliding.count(caching=False))
    _looked_at(sliding.reduce(_latest, caching=False))
    sessions = grouped.windowed_by(SESSIONS)
    _looked_at(sessions.count(caching=False))
    _looked_at(sessions.reduce(_latest, caching=False))
    _looked_at(sessions.aggregate(str, _folded, merger=_merged, caching=False))
    _looked_at(windows.count())


@described
def options_of_aggregates(b: StreamsBuilder) -> None:
    grouped = _stream(b).group_by_key()
    _out(grouped.count(caching=False))
    _out(grouped.reduce(_latest, caching=False))
    _out(grouped.aggregate(str, _folded, caching=False))
    _out(grouped.count("counts", caching=False))
    _out(grouped.count(persistent=True))
    _out(grouped.count())


@described
def options_of_cogroups(b: StreamsBuilder) -> None:
    both = _stream(b).group_by_key().cogroup(_folded)
    _out(both.aggregate(str, caching=False))
    _looked_at(both.windowed_by(MINUTES).aggregate(str, caching=False))
    _looked_at(both.windowed_by(SLIDING).aggregate(str, caching=False))
    _looked_at(both.windowed_by(SESSIONS).aggregate(str, merger=_merged, caching=False))


@described
def options_of_tables(b: StreamsBuilder) -> None:
    table = b.table("a", key=str, value=str, caching=False)
    _out(table.filter(_always, caching=False))
    _out(table.filter_not(_always, caching=False, name="kept"))
    _out(table.map_values(_same, caching=False))
    _out(table.transform_values(Same, caching=False, value=str))
    latest = _stream(b).to_table(caching=False)
    _out(latest.group_by(_swapped).count(caching=False))
    grouped = table.group_by(_swapped)
    _out(grouped.reduce(_latest, _latest, caching=False))
    _out(grouped.aggregate(str, _folded, _folded, caching=False))


@described
def options_of_joins(b: StreamsBuilder) -> None:
    left, right = _table(b, "a"), _table(b, "b")
    _out(left.join(right, _left, caching=False))
    _out(left.left_join(right, _left, caching=False, name="joined"))
    _out(left.outer_join(right, _left, caching=False))  # type: ignore[arg-type]
    _out(left.join(right, _left, foreign_key=_same, caching=False))
    _out(_stream(b).group_by_key().count())


@described
def order_of_topics(b: StreamsBuilder) -> None:
    for topics in (
        ["orders", "payments", "refunds"],
        ["in1", "in2"],
        ["BB", "Aa"],
        ["AaBB", "BBAa"],
        [f"shard-{i}" for i in range(12)],
        [f"piece-{i * 7}" for i in range(13)],
    ):
        _stream(b, *topics).to("out")


def _add_stores(b: StreamsBuilder, *names: str) -> None:
    for name in names:
        b.add_state_store(ps.key_value_store(name, key=str, value=str))


@described
def order_of_stores(b: StreamsBuilder) -> None:
    _add_stores(b, "BB", "Aa", "BBBB", "AaBB", "BBAa", "AaAa")
    stream = _stream(b)
    stream.process(Pass, stores=["BB", "Aa"], key=str, value=str).to("out")
    stream.process(Pass, stores=["Aa", "BB"], key=str, value=str).to("out")
    stores = ["BBAa", "AaAa", "BB", "BBBB", "Aa", "AaBB"]
    stream.process_values(Pass, stores=stores, value=str).to("out")


@described
def order_of_transforming_stores(b: StreamsBuilder) -> None:
    _add_stores(b, "BB", "Aa")
    table = _table(b, "t")
    _out(table.transform_values(Same, "kept-9", stores=["BB", "Aa"], value=str))
    _out(table.transform_values(Same, "kept-15", stores=["Aa", "BB"], value=str))
    _out(table.transform_values(Same, "Bb", stores=["BB"], value=str))
    _out(table.transform_values(Same, stores=["Aa", "BB"], value=str))


@described
def order_of_joined_stores(b: StreamsBuilder) -> None:
    one, other = _table(b, "t", "BB"), _table(b, "u", "Aa")
    both, swapped = one.join(other, _left), other.join(one, _left)
    third = _table(b, "v", "vs")
    _out(both.join(third, _left))
    _out(swapped.join(third, _left))
    _out(both.filter(_always).join(swapped, _left))
    stream = _stream(b)
    stream.join(both, _left).to("out")
    stream.join(swapped, _left).to("out")
    stream.join(third.join(both, _left), _left).to("out")


@described
def order_of_suppressed_stores(b: StreamsBuilder) -> None:
    calm = _table(b, "t", "BB").suppress(
        ps.until_time_limit(MINUTE, ps.unbounded()), name="kept-15"
    )
    _out(calm.join(_table(b, "u", "Aa"), _left))
    _out(calm.filter(_always).join(calm, _left))


@described
def foreign_key_named_held(b: StreamsBuilder) -> None:
    joined = _table(b, "a").left_join(_table(b, "b"), _left, foreign_key=_same, name="refer")
    _out(joined.group_by(_swapped).count())


@described
def order_of_buffer(b: StreamsBuilder) -> None:
    stream = _stream(b)
    versions = ps.versioned_store("store3", history_retention=10 * MINUTE)
    names = b.table("names", versions, key=str, value=str)
    stream.left_join(names, _left, grace=MINUTE, name="join8").to("out")


@described
def order_of_merged(b: StreamsBuilder) -> None:
    stream = _stream(b)
    stream.filter(_always).merge(stream).to("out")
    stream.merge(stream.filter(_always)).to("out")
    split = stream.split(name="split-").branch(_always, name="a").branch(_always, name="b")
    branches = split.default_branch(name="rest")
    one, other, rest = (branches[f"split-{name}"] for name in ("a", "b", "rest"))
    rest.merge(one).merge(other).to("out")
    other.merge(one).map_values(_same).merge(rest).to("out")
    rest.map_values(_same).to("out")


@described
def order_of_children(b: StreamsBuilder) -> None:
    stream = _stream(b)
    for i in range(14):
        each = stream.filter(_always)
        for _ in range(i * 5 % 4):
            each = each.map_values(_same)
        for j in range(i * 3 % 5):
            each.peek(_always).merge(each).to(f"out-{j}")
        each.to("out")
