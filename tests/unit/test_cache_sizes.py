"""A larger record cache says less on the way, and leaves the same behind.

That is so for whatever is computed from what a table holds. It is not so where a step sees the
changes on the way: a table that is joined with one made of itself, and a group of a table's rows
that comes and goes while the cache hides it, which leaves a row of nothing (a count of 0) only
where it was seen. Nor do joined rows always have the same times: the deletion of a row that is not
there is told, and is a time, but not where a cache knows that nobody saw the row. And a row that
comes and goes inside its cache is told to nobody, though a join from the other side may have read
it there meanwhile: what it joined stays, so the tables that are joined into a store here are never
deleted from. It is the same in Kafka Streams.

Joined rows of which the next step has to know what they were are right with every cache, and with
deletions. In Kafka Streams they are not.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.processors import Limits
from penstock.processors.choice import start_slice
from penstock.testing.stores import DriverState
from penstock.topology import Topology
from tests.unit.slices import Row, records

CACHES = (0, 150, 400, 1_500, 10_000_000)
TIME_BYTES = 8
INTERNAL = ("-repartition", "-topic")


def _ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def _last_or_none(old: str, new: str) -> str | None:
    return None if new == "x" else old[-6:] + new


def _told(key: str, value: str | None, aggregate: str) -> str:
    return f"{aggregate[-6:]}{value}"


def _merged(key: str, left: str, right: str) -> str:
    return left + right


def _pair(left: str | None, right: str | None) -> str:
    return f"({left},{right})"


class _Program:
    """A topology over the topics `in` and `in2`; its tables go to topics."""

    def __init__(self) -> None:
        self.builder = ps.StreamsBuilder()

    @property
    def stream(self) -> ps.KStream[str, str]:
        return self.builder.stream("in", key=str, value=str)

    def table(self, topic: str = "in2") -> Any:
        return self.builder.table(topic, f"{topic}-rows", key=str, value=str)


def _aggregates(program: _Program) -> None:
    grouped = program.stream.group_by_key()
    grouped.count("counts").to_stream().to("out")
    grouped.reduce(_last_or_none, "reduced").to_stream().to("out-reduced")
    grouped.aggregate(str, _told, "told", value=str).to_stream().to("out-told")


def _windows(program: _Program) -> None:
    grouped = program.stream.group_by_key()
    hopping = ps.hopping(_ms(20), advance=_ms(10), grace=_ms(10))
    grouped.windowed_by(hopping).count("hopping").to_stream().to("out")
    sliding = grouped.windowed_by(ps.sliding(_ms(8), grace=_ms(10)))
    sliding.aggregate(str, _told, "sliding", value=str).to_stream().to("out-sliding")


def _sessions(program: _Program) -> None:
    sessions = program.stream.group_by_key().windowed_by(ps.session(_ms(5), grace=_ms(20)))
    sessions.aggregate(str, _told, "sessions", merger=_merged, value=str).to_stream().to("out")


def _derived(program: _Program) -> None:
    kept = program.table().filter(lambda key, value: value != "b", store="kept")
    kept.map_values(lambda value: value + "!", value=str, store="marked").to_stream().to("out")


def _table_joins(program: _Program) -> None:
    left = program.stream.group_by_key().aggregate(str, _told, "told", value=str)
    right = program.table()
    for kind in ("join", "left_join", "outer_join"):
        joined = getattr(left, kind)(right, _pair, kind.replace("_", "-"), value=str)
        joined.to_stream().to(f"out-{kind}")


def _joined_rows(program: _Program) -> Any:
    """Of three tables, none of the joins in a store."""
    left = program.stream.group_by_key().reduce(_last_or_none, "reduced")
    outer = left.outer_join(program.table(), _pair, value=str)
    return outer.left_join(program.table("in3"), _pair, value=str)


def _filtered_joins(program: _Program) -> None:
    joined = _joined_rows(program).filter(lambda key, value: "b" in value)
    joined.to_stream().to("out")
    joined.map_values(lambda value: value + "!", value=str, store="marked").to_stream().to("out2")


def _grouped_joins(program: _Program) -> None:
    grouped = _joined_rows(program).group_by(
        lambda key, value: (value[-3:], value), key=str, value=str
    )
    grouped.aggregate(
        lambda: 0,
        lambda key, value, count: count + 1,
        lambda key, value, count: count - 1 or None,
        "groups",
        value=int,
    ).to_stream().to("out")


def _foreign_keys(program: _Program) -> None:
    """Of joined rows, and to joined rows."""
    pairs, others = _joined_rows(program), program.table("in4")
    found = pairs.join(others, _pair, foreign_key=lambda value: value[-2:-1], value=str)
    found.to_stream().to("out")
    back = others.left_join(pairs, _pair, foreign_key=lambda value: value, value=str)
    back.to_stream().to("out2")


def _stream_table_join(program: _Program) -> None:
    joined = program.stream.left_join(program.table(), _pair, value=str)
    joined.group_by_key().aggregate(str, _told, "told", value=str).to_stream().to("out")


PROGRAMS: dict[str, Callable[[_Program], None]] = {
    "aggregates": _aggregates,
    "windows": _windows,
    "sessions": _sessions,
    "derived tables": _derived,
    "table joins": _table_joins,
    "filtered joins": _filtered_joins,
    "grouped joins": _grouped_joins,
    "foreign keys": _foreign_keys,
    "stream-table join": _stream_table_join,
}
TIMED = {"aggregates", "windows", "sessions", "derived tables", "stream-table join"}
TOPICS = ("in", "in2", "in3", "in4")
ROWS = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.sampled_from(["a", "b", "cc"]),
        st.sampled_from(["a", "b", "x", None]),
        st.integers(0, 60),
    ),
    max_size=40,
)


def _bare(store: str, value: bytes) -> bytes:
    """What a store holds without the time; of a subscription, without what it was asked for."""
    start = 2 if store.endswith("subscription-store") else 0
    return value[TIME_BYTES + start :]


def _end(topology: Topology, slices: list[dict[str, list[Row]]], cache: int, *, timed: bool) -> Any:
    """All stores, and of each key of an output the last value that is one, with their times."""
    subs = sorted(topology.sub_topologies, key=lambda sub: sub.number)
    state = DriverState({spec.name: spec for sub in subs for spec in sub.stores})
    counts = {topic: 1 for sub in subs for topic in sub.output_topics("app")}
    metadata: dict[int, dict[str, str]] = {sub.number: {} for sub in subs}
    told: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    waiting: dict[str, list[Row]] = {}
    # The answers to a foreign key come back a slice later, twice at the most.
    for inputs in [*slices, {}, {}]:
        waiting |= inputs
        for sub in subs:
            run = start_slice(
                sub,
                application_id="app",
                state=state,
                limits=Limits(cache_max_bytes=cache, partition_counts=counts),
                metadata=metadata[sub.number],
                partition=0,
                now_ms=0,
            )
            for topic in set(waiting) & set(sub.input_topics("app")):
                run.process(records(waiting.pop(topic), topic))
            result = run.finish()
            state.apply(result.changes)
            metadata[sub.number] = dict(result.metadata)
            for number, row in enumerate(result.outputs.to_pylist()):
                told[row["topic"], row["key"]] = (row["value"], row["timestamp"])
                if row["topic"].endswith(INTERNAL):
                    moved = Row(number, row["timestamp"], row["key"], row["value"])
                    waiting.setdefault(row["topic"], []).append(moved)
    last = {
        key: value
        for key, value in told.items()
        if not key[0].endswith(INTERNAL) and value[0] is not None
    }
    stores = {name: dict(state.of(name)) for sub in subs for name in (s.name for s in sub.stores)}
    if timed:
        return stores, last
    bare = {
        name: {key: _bare(name, value) for key, value in held.items()}
        for name, held in stores.items()
    }
    return bare, {key: value for key, (value, _) in last.items()}


@pytest.mark.parametrize("name", PROGRAMS)
@given(rows=ROWS, size=st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_every_cache_leaves_the_same_behind(name: str, rows: Any, size: int) -> None:
    program = _Program()
    PROGRAMS[name](program)
    topology = program.builder.build()
    if name == "table joins":
        rows = [row for row in rows if row[0] == "in" or row[2] is not None]
    slices: list[dict[str, list[Row]]] = []
    for first in range(0, len(rows), size):
        inputs: dict[str, list[Row]] = {}
        for number, (topic, key, value, time) in enumerate(rows[first : first + size]):
            data = None if value is None else value.encode()
            inputs.setdefault(topic, []).append(Row(first + number, time, key.encode(), data))
        slices.append(inputs)
    ends = [_end(topology, slices, cache, timed=name in TIMED) for cache in CACHES]
    for cache, end in zip(CACHES, ends, strict=True):
        assert end == ends[0], f"with {cache} bytes"
