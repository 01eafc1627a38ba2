"""Where the stores of tables, aggregations and joins are kept: on disk, or in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.config import Config
from penstock.errors import ConfigError, TopologyError
from penstock.testing import TopologyTestDriver
from penstock.topology import StreamsBuilder

SECOND = timedelta(seconds=1)
MINUTES = ps.tumbling(timedelta(minutes=1), grace=SECOND)
SESSIONS = ps.session(timedelta(minutes=1), grace=SECOND)
NEAR = ps.join_window(SECOND, grace=SECOND)

Keep = dict[str, Any]


def _grouped(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=str, value=int).group_by_key()


def _add(_key: str, value: int, total: int) -> int:
    return total + value


def _merge(_key: str, left: int, right: int) -> int:
    return left + right


def _text(left: int | None, right: int | None) -> str:
    return f"{left}+{right}"


def _joined(builder: StreamsBuilder, keep: Keep) -> Any:
    left, right = (builder.stream(topic, key=str, value=int) for topic in ("in", "in2"))
    return left.outer_join(right, _text, NEAR, name="join", **keep)


def _cogrouped(builder: StreamsBuilder) -> Any:
    other = builder.stream("in2", key=str, value=int).group_by_key()
    return _grouped(builder).cogroup(_add).cogroup(other, _add)


KINDS: dict[str, Callable[[StreamsBuilder, Keep], Any]] = {
    "count": lambda b, keep: _grouped(b).count("s", **keep),
    "reduce": lambda b, keep: _grouped(b).reduce(int.__add__, "s", **keep),
    "aggregate": lambda b, keep: _grouped(b).aggregate(int, _add, "s", **keep),
    "sum": lambda b, keep: _grouped(b).sum("s", **keep),
    "limited": lambda b, keep: _grouped(b).count("s", max_entries=3, **keep),
    "windowed count": lambda b, keep: _grouped(b).windowed_by(MINUTES).count("s", **keep),
    "windowed reduce": lambda b, keep: (
        _grouped(b).windowed_by(MINUTES).reduce(int.__add__, "s", **keep)
    ),
    "session count": lambda b, keep: _grouped(b).windowed_by(SESSIONS).count("s", **keep),
    "session aggregate": lambda b, keep: (
        _grouped(b).windowed_by(SESSIONS).aggregate(int, _add, "s", merger=_merge, **keep)
    ),
    "cogroup": lambda b, keep: _cogrouped(b).aggregate(int, "s", **keep),
    "windowed cogroup": lambda b, keep: (
        _cogrouped(b).windowed_by(MINUTES).aggregate(int, "s", **keep)
    ),
    "table": lambda b, keep: b.table("in", "s", key=str, value=int, **keep),
    "to_table": lambda b, keep: b.stream("in", key=str, value=int).to_table("s", **keep),
    "grouped table": lambda b, keep: (
        b.table("in", "t", key=str, value=int, **keep)
        .group_by(lambda key, value: (key, value), key=str, value=int)
        .count("s", **keep)
    ),
    "global table": lambda b, keep: b.global_table("in", "s", key=str, value=int, **keep),
    "joined streams": _joined,
}


def _kept(builder: StreamsBuilder) -> dict[str, bool]:
    stores = builder.build().stores
    return {each.name: each.persistent for each in stores if not each.name.endswith("-recency")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_is_in_memory_where_one_says_so(kind: str) -> None:
    on_disk, in_memory = StreamsBuilder(), StreamsBuilder()
    KINDS[kind](on_disk, {})
    KINDS[kind](in_memory, {"persistent": False})
    assert set(_kept(on_disk).values()) == {True}
    assert set(_kept(in_memory).values()) == {False}


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_holds_for_every_store_that_says_nothing(kind: str) -> None:
    silent, outspoken = (StreamsBuilder(dsl_store="memory") for _ in range(2))
    KINDS[kind](silent, {})
    KINDS[kind](outspoken, {"persistent": True})
    assert set(_kept(silent).values()) == {False}
    assert set(_kept(outspoken).values()) == {True}


def test_the_default_holds_for_stores_that_nobody_named() -> None:
    builder = StreamsBuilder(dsl_store="memory")
    left, right = (builder.table(topic, key=str, value=int) for topic in ("in", "in2"))
    left.join(right, _text, value=str, foreign_key=str).to_stream().to("far")
    left.join(right, _text, "near", value=str).map_values(len, store="sizes", value=int)
    assert len(_kept(builder)) >= 5
    assert not any(_kept(builder).values())


def test_the_default_leaves_alone_what_says_itself_where_it_is() -> None:
    builder = StreamsBuilder(dsl_store="memory")
    versions = ps.versioned_store("versions", history_retention=timedelta(hours=1))
    builder.table("in", versions, key=str, value=int)
    builder.add_state_store(ps.key_value_store("seen", key=str, value=int))
    builder.table("in2", "mine", key=str, value=int, supplier="my_stores:open")
    stream = builder.stream("in3", key=str, value=int)
    stream.process(ps.Processor, stores=["seen"], key=str, value=int)
    assert _kept(builder) == {"versions": True, "seen": True, "mine": True}


@pytest.mark.parametrize("kind", ["table", "global table"])
def test_a_join_with_a_table_keeps_nothing_itself(kind: str) -> None:
    builder = StreamsBuilder()
    table = KINDS[kind](builder, {})
    selector = (lambda key, value: key) if kind == "global table" else None
    with pytest.raises(TopologyError, match="keeps nothing"):
        builder.stream("in2", key=str, value=int).join(
            table, _text, key_selector=selector, persistent=False
        )


def test_an_application_says_it_for_all() -> None:
    app = ps.Application("memory", dsl_store="memory")
    app.stream("in", key=str, value=int).group_by_key().count("counts").to_stream().to("out")
    app.table("in2", "names", key=str, value=str, persistent=True)
    assert {each.name: each.persistent for each in app.build().stores} == {
        "counts": False,
        "names": True,
    }
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=int).pipe_all([("a", 1), ("a", 2)])
    assert driver.output_topic("out", key=str, value=int).read_pairs() == [("a", 1), ("a", 2)]
    assert dict(driver.store("counts")) == {"a": 2}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("dsl.store.suppliers.class", "InMemoryDslStoreSuppliers", "memory"),
        ("dsl.store.suppliers.class", "RocksDBDslStoreSuppliers", "rocksdb"),
        ("default.dsl.store", "in_memory", "memory"),
        ("default.dsl.store", "rocksDB", "rocksdb"),
    ],
)
def test_javas_names_are_understood(name: str, value: str, kept: str) -> None:
    if name.startswith("dsl"):
        value = f"org.apache.kafka.streams.state.BuiltInDslStoreSuppliers${value}"
    assert Config.from_properties({name: value}).dsl_store == kept


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="dsl_store"):
        Config.from_properties({"dsl.store.suppliers.class": "com.example.MyStores"})
