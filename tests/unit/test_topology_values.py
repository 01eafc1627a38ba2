"""Goal: names and numbers that cannot work are refused when the topology is built, with the step
and with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.config import Config
from penstock.errors import ConfigError, TopologyError

Write = Callable[[ps.StreamsBuilder], object]
_SECOND = timedelta(seconds=1)
_WITHIN = ps.join_window(_SECOND, grace=timedelta(0))


def _stream(builder: ps.StreamsBuilder, topic: str = "in") -> Any:
    return builder.stream(topic, key=str, value=str)


def _table(builder: ps.StreamsBuilder, topic: str) -> Any:
    return builder.table(topic, key=str, value=str)


def _first(left: Any, _right: Any) -> Any:
    return left


def _joined(builder: ps.StreamsBuilder, **options: Any) -> Any:
    return _stream(builder).join(_stream(builder, "in2"), _first, _WITHIN, value=str, **options)


def _joined_by_foreign_key(builder: ps.StreamsBuilder, *store: str, **options: Any) -> Any:
    left, right = _table(builder, "left"), _table(builder, "right")
    return left.join(right, _first, *store, foreign_key=str, value=str, **options)


def _joined_tables(builder: ps.StreamsBuilder, store: str) -> Any:
    return _table(builder, "left").join(_table(builder, "right"), _first, store, value=str)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b: _joined(b, name="../x"), "The join name '../x' .*step KSTREAM-SOURCE"),
        (lambda b: _joined_by_foreign_key(b, name="a/b"), "The join name 'a/b' .*'a-b', for ex"),
        (lambda b: _joined_by_foreign_key(b, "a/b"), "'a/b.* cannot be used"),
        (lambda b: _joined_tables(b, "../x"), "The store name '../x' cannot be used"),
        (
            lambda b: _stream(b).join(_table(b, "t"), _first, value=str, name="../x"),
            "The join name '../x' cannot be used",
        ),
        (
            lambda b: _stream(b).group_by_key().count("c", max_entries=0),
            "store 'c' is to keep 0 entries. Let max_entries be 1 or more",
        ),
        (
            lambda b: b.add_state_store(ps.lru_store("c", key=str, value=str, max_entries=-1)),
            "store 'c' is to keep -1 entries",
        ),
        (
            lambda b: _stream(b).repartition(partitions=0, name="z"),
            "topic 'z-repartition' behind step KSTREAM-SOURCE-0000000000 is to have 0 partitions",
        ),
        (lambda _: ps.max_records(-1), "buffer of suppress is to hold -1 records"),
        (lambda _: ps.unbounded().with_max_bytes(-1), "buffer of suppress is to hold -1 bytes"),
        (lambda _: ps.until_time_limit(-_SECOND, ps.unbounded()), "negative limit"),
        (
            lambda _: ps.window_store(
                "w", key=str, value=str, retention=_SECOND, window=2 * _SECOND
            ),
            "store 'w' keeps windows of 0:00:02 for 0:00:01. Let retention be at least the window",
        ),
        (
            lambda _: ps.session_store("s", key=str, value=str, retention=-_SECOND),
            "store 's' keeps sessions for",
        ),
        (
            lambda b: b.stream("in", key=str, value=str, timestamp="bogus"),  # type: ignore[arg-type]
            "The stream of 'in' takes its records' time by 'bogus'. Use one of",
        ),
        (
            lambda b: b.table("in", key=str, value=str, timestamp="bogus"),  # type: ignore[arg-type]
            "The table of 'in' takes its records' time by 'bogus'. Use one of",
        ),
        (
            lambda b: b.global_table("in", key=str, value=str, timestamp="bogus"),  # type: ignore[arg-type]
            "The global table of 'in' takes its records' time by 'bogus'. Use one of",
        ),
        (
            lambda b: _stream(b).group_by_key().windowed_by(_WITHIN),
            "step KSTREAM-SOURCE-0000000000 cannot be divided by JoinWindows. Use tumbling",
        ),
        (
            lambda b: _stream(b).group_by_key().cogroup(max).windowed_by(_WITHIN),
            "step KSTREAM-SOURCE-0000000000 cannot be divided by JoinWindows",
        ),
        (
            lambda b: _stream(b).join(
                _stream(b, "in2"), _first, ps.tumbling(_SECOND, grace=_SECOND), value=str
            ),
            "needs a window of time .*given TimeWindows",
        ),
    ],
)
def test_names_and_numbers_that_cannot_work_are_refused(write: Write, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        write(ps.StreamsBuilder())
    assert caught.value.hint


def _repartitioned(counts: tuple[int | None, int | None]) -> ps.Topology:
    builder = ps.StreamsBuilder()
    left = _stream(builder).repartition(partitions=counts[0], name="one")
    right = _stream(builder, "in2").map_values(str, value=str)
    right = right.repartition(partitions=counts[1], name="two")
    left.filter(lambda _k, _v: True).join(right, _first, _WITHIN, value=str).to("out")
    return builder.build()


def test_a_join_of_repartition_topics_of_other_widths_is_refused() -> None:
    message = "'one-repartition' is to have 2 partitions and 'two-repartition' 3, and they are join"
    with pytest.raises(TopologyError, match=message):
        _repartitioned((2, 3))


@pytest.mark.parametrize("counts", [(2, 2), (2, None), (None, 3), (None, None)])
def test_a_join_of_repartition_topics_that_can_agree_is_built(
    counts: tuple[int | None, int | None],
) -> None:
    assert _repartitioned(counts).sub_topologies


def test_a_negative_cache_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"statestore_cache_max_bytes is -1\. Use a number >= 0"):
        Config(statestore_cache_max_bytes=-1)
