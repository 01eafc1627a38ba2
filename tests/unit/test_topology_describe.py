"""Goal: `describe()` prints what Kafka Streams prints, to the letter.

Method: data/describe/ holds the texts of Kafka Streams 4.1.1 for the same programs in Java
(data/Descriptions.java wrote them).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.topology import KStream, StreamsBuilder
from tests.unit import described_orders, described_stateful

TEXTS = Path(__file__).parent / "data" / "describe"


def _stream(
    builder: StreamsBuilder, topic: str = "in", name: str | None = None
) -> KStream[Any, Any]:
    return builder.stream(topic, key=str, value=str, name=name)


def _value(_key: str, value: str) -> str:
    return value


def _always(_key: str, _value: object) -> bool:
    return True


def _same(value: str) -> str:
    return value


def _latest(_old: str, new: str) -> str:
    return new


def count(b: StreamsBuilder) -> None:
    _stream(b).group_by_key().count("counts").to_stream().to("out")


def count_unnamed(b: StreamsBuilder) -> None:
    _stream(b).group_by_key().count().to_stream().to("out")


def select_key(b: StreamsBuilder) -> None:
    stream = _stream(b).filter(_always).map_values(_same).select_key(_value)
    stream.group_by_key().count("counts").to_stream().filter(_always).to("out")


def group_by_reduce(b: StreamsBuilder) -> None:
    table = _stream(b).group_by(_value).reduce(_latest, "sums")
    table.to_stream().map_values(_same).to("out")


def grouped_named(b: StreamsBuilder) -> None:
    grouped = _stream(b).group_by(_value, name="by-word")
    table = grouped.aggregate(str, lambda _k, v, g: g + v, "agg")
    table.to_stream().map(lambda k, v: (k, v), key=str, value=str).to("out")


def group_by_unnamed(b: StreamsBuilder) -> None:
    _stream(b).group_by(_value).count().to_stream().to("out")


def group_by_key_named_unnamed_store(b: StreamsBuilder) -> None:
    _stream(b).select_key(_value).group_by_key(name="grouped").count().to_stream().to("out")


def reduce_unnamed(b: StreamsBuilder) -> None:
    _stream(b).group_by(_value).reduce(_latest).to_stream().to("out")


def two_stores(b: StreamsBuilder) -> None:
    stream = _stream(b)
    stream.to("copy")
    grouped = stream.group_by_key()
    grouped.count("counts").to_stream().to("out")
    grouped.reduce(_latest, "latest").to_stream().to("latest-out")


def two_stores_repartitioned(b: StreamsBuilder) -> None:
    grouped = _stream(b).group_by(_value, name="by-word")
    grouped.count("counts").to_stream().to("out")
    grouped.reduce(_latest, "latest").to_stream().to("latest-out")


def two_stores_two_repartitions(b: StreamsBuilder) -> None:
    grouped = _stream(b).group_by(_value)
    grouped.count("counts").to_stream().to("out")
    grouped.reduce(_latest, "latest").to_stream().to("latest-out")


def chained(b: StreamsBuilder) -> None:
    first = _stream(b).group_by(_value).count("first").to_stream()
    first.group_by(lambda _k, n: str(n), key=str).count("second").to_stream().to("out")
    _stream(b, "other").filter_not(_always).peek(_always).to("other-out")


def named(b: StreamsBuilder) -> None:
    stream = _stream(b, name="source").filter(_always, name="keep").map_values(_same, name="shape")
    grouped = stream.select_key(_value, name="rekey").group_by_key(name="grouped")
    grouped.count("counts").to_stream(name="stream").to("out", name="sink")


def two_groupings(b: StreamsBuilder) -> None:
    stream = _stream(b).select_key(_value).map_values(_same)
    stream.group_by_key().count("counts").to_stream().to("out")
    stream.group_by_key().reduce(_latest, "latest").to_stream().to("out2")


def store_after_store(b: StreamsBuilder) -> None:
    first = _stream(b).group_by_key().count("counts").to_stream()
    first.group_by_key().count("twice").to_stream().to("out")


def two_topics(b: StreamsBuilder) -> None:
    b.stream(["b", "a"], key=str, value=str).to("out")


def many_branches(b: StreamsBuilder) -> None:
    stream = _stream(b)
    for i in range(9):
        each = stream.filter(_always)
        for _ in range(i % 4):
            each = each.map_values(_same)
        each.to(f"out-{i}")


def flat_map(b: StreamsBuilder) -> None:
    flat = _stream(b).flat_map_values(lambda v: [v], value=str)
    pairs = flat.flat_map(lambda k, v: [(k, v)], key=str, value=str)
    pairs.group_by_key().count("counts").to_stream().foreach(_always)


def split(b: StreamsBuilder) -> None:
    branches = _stream(b).split().branch(_always).branch(_always, name="-second").default_branch()
    branches["KSTREAM-BRANCH-00000000011"].to("out-1")
    branches["KSTREAM-BRANCH-0000000001-second"].map_values(_same).to("out-2")
    rest = branches["KSTREAM-BRANCH-00000000010"]
    rest.group_by_key().count("counts").to_stream().to("out-0")


def split_named(b: StreamsBuilder) -> None:
    stream = _stream(b)
    branched = stream.split(name="size-").branch(_always, name="large").branch(_always)
    branches = branched.no_default_branch()
    branches["size-large"].to("large")
    branches["size-2"].foreach(_always, name="look")
    stream.to("all")


def tables(b: StreamsBuilder) -> None:
    table = _stream(b).group_by_key().count("counts")
    table.filter(_always).map_values(lambda n: n, value=int).to_stream().to("out")
    table.filter_not(_always, name="keep").to_stream().to("out2")


def to_table(b: StreamsBuilder) -> None:
    stream = _stream(b)
    stream.to_table("latest").to_stream().to("out")
    moved = stream.select_key(_value, key=str).to_table("moved")
    moved.filter(_always).to_stream().to("out2")


def table(b: StreamsBuilder) -> None:
    b.table("in", "latest", key=str, value=str).to_stream().to("out")


def table_named(b: StreamsBuilder) -> None:
    b.table("in", "latest", key=str, value=str, name="patients").to_stream().to("out")


def read_twice(b: StreamsBuilder) -> None:
    b.stream(["in", "more"], key=str, value=str).filter(_always).to("out")
    b.stream(["more", "in"], key=str, value=str, name="again").map_values(len, value=int).to("out2")


PROGRAMS = [
    count,
    count_unnamed,
    select_key,
    group_by_reduce,
    grouped_named,
    group_by_unnamed,
    group_by_key_named_unnamed_store,
    reduce_unnamed,
    two_stores,
    two_stores_repartitioned,
    two_stores_two_repartitions,
    chained,
    named,
    two_groupings,
    store_after_store,
    two_topics,
    many_branches,
    flat_map,
    split,
    split_named,
    tables,
    to_table,
    table,
    table_named,
    read_twice,
    *described_stateful.PROGRAMS,
    *described_orders.PROGRAMS,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_text_is_kafka_streams(program: Callable[[StreamsBuilder], object]) -> None:
    builder = StreamsBuilder(names="kafka_streams")
    program(builder)
    expected = (TEXTS / f"{program.__name__}.txt").read_text()
    assert builder.build().describe() == expected


def _with_options(**options: Any) -> str:
    builder = StreamsBuilder()
    grouped = _stream(builder).group_by_key()
    counts = grouped.count(**options)
    grouped.windowed_by(described_stateful.MINUTES).count(**options).to_stream().foreach(_always)
    table = counts.filter(_always, **options).map_values(str, value=str, **options)
    joined = table.join(counts, lambda text, _count: text, value=str, **options)
    joined.to_stream().to("out")
    return builder.build().describe()


def test_options_move_no_name_that_is_not_java() -> None:
    assert _with_options(caching=False, persistent=True, logging=False) == _with_options()


def test_every_text_has_its_program() -> None:
    assert {path.stem for path in TEXTS.iterdir()} == {each.__name__ for each in PROGRAMS}
