"""Where windowed keys lie: in repartition topics by all their bytes, elsewhere by the key inside.

The numbers are Java's (Kafka Streams 4.1.1), of 4 partitions: its sinks of `to` and of the
questions in a foreign-key join have a `WindowedStreamPartitioner`, and none those of repartition
topics.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.coordination.ids import TaskId
from penstock.coordination.layout import lay_out
from penstock.errors import TopologyError
from penstock.pipeline.history import HistoryOrder, encode
from penstock.processors import Limits, RecordRun, SliceRun
from penstock.queries.catalogue import AskedStore, Catalogue
from penstock.queries.told_stores import store_told, told_store
from penstock.serdes import SessionWindowedSerde, StringSerde, Windowed, WindowedSerde
from penstock.testing.stores import DriverState
from penstock.topology import Topology
from tests.unit.slices import Row, records

PARTITIONS = 4
INNER = {"a": 0, "b": 0, "c": 2, "d": 1}
WHOLE = {
    "time": {
        ("a", 0): 2,
        ("a", 10): 2,
        ("a", 20): 3,
        ("b", 0): 3,
        ("b", 10): 0,
        ("b", 20): 3,
        ("c", 0): 2,
        ("c", 10): 2,
        ("c", 20): 3,
        ("d", 0): 0,
        ("d", 10): 2,
        ("d", 20): 2,
    },
    # Sessions that end 5 ms after their start.
    "session": {
        ("a", 0): 3,
        ("a", 10): 2,
        ("a", 20): 0,
        ("b", 0): 3,
        ("b", 10): 2,
        ("b", 20): 1,
        ("c", 0): 0,
        ("c", 10): 1,
        ("c", 20): 2,
        ("d", 0): 2,
        ("d", 10): 2,
        ("d", 20): 2,
    },
}
SERDES: dict[str, Any] = {
    "time": WindowedSerde(StringSerde(), 10),
    "session": SessionWindowedSerde(StringSerde()),
}
SIZES = {"time": 10, "session": 5}


def windowed(kind: str, key: str, start: int) -> Windowed[str]:
    return Windowed(key, start, start + SIZES[kind])


def sent_on(kind: str) -> Topology:
    """Windowed keys in every topic that they can be sent to."""
    builder = ps.StreamsBuilder()
    keys = SERDES[kind]
    stream = builder.stream("in", key=keys, value=str)
    stream.to("out")
    stream.to(lambda _key, _value: "named")
    stream.repartition(name="again").to_table("table")
    stream.group_by(lambda key, _value: key, key=keys, name="grouped").count("counts")
    table = stream.to_table("kept")
    table.group_by(lambda key, value: (key, value), key=keys, value=str, name="regrouped").count(
        "recounts"
    )
    return builder.build()


def written(topology: Topology, kind: str, run: type[RecordRun | SliceRun]) -> dict[str, Any]:
    """By topic, the partition of each key that the sub-topology of `in` writes."""
    sub = next(each for each in topology.sub_topologies if "in" in each.input_topics("app"))
    topics = {*sub.output_topics("app"), "named"}
    slice_run = run(
        sub,
        application_id="app",
        state=DriverState({spec.name: spec for spec in sub.stores}),
        limits=Limits(cache_max_bytes=0, partition_counts=dict.fromkeys(topics, PARTITIONS)),
    )
    keys = [SERDES[kind].serialize(windowed(kind, *each)) for each in WHOLE[kind]]
    slice_run.process(records([Row(n, n, key, b"v") for n, key in enumerate(keys)]))
    found: dict[str, Any] = {}
    for row in slice_run.finish().outputs.to_pylist():
        key = SERDES[kind].deserialize(row["key"])
        found.setdefault(row["topic"], {})[key.key, key.start] = row["partition"]
    return found


def by_inner_key(kind: str) -> dict[tuple[str, int], int]:
    return {(key, start): INNER[key] for key, start in WHOLE[kind]}


@pytest.mark.parametrize("kind", WHOLE)
def test_repartition_topics_go_by_the_whole_key_and_other_topics_by_the_key_inside(
    kind: str,
) -> None:
    assert written(sent_on(kind), kind, RecordRun) == {
        "out": by_inner_key(kind),
        "named": by_inner_key(kind),
        "app-again-repartition": WHOLE[kind],
        "app-grouped-repartition": WHOLE[kind],
        "app-regrouped-repartition": WHOLE[kind],
    }


@pytest.mark.parametrize("kind", WHOLE)
def test_columns_go_where_records_go(kind: str) -> None:
    builder = ps.StreamsBuilder()
    stream = builder.stream("in", key=SERDES[kind], value=str)
    stream.to("out")
    stream.repartition(name="again").to("behind")
    assert written(builder.build(), kind, SliceRun) == {
        "out": by_inner_key(kind),
        "app-again-repartition": WHOLE[kind],
    }


@pytest.mark.parametrize("kind", WHOLE)
def test_the_question_of_a_foreign_key_join_goes_by_the_key_inside(kind: str) -> None:
    keys = SERDES[kind]
    builder = ps.StreamsBuilder()
    left = builder.table("in", key=keys, value=str)
    right = builder.table("windows", key=keys, value=str)
    left.join(
        right,
        lambda row, other: row + other,
        foreign_key=lambda _row: windowed(kind, "d", 10),
        value=str,
        name="refer",
    )
    found = written(builder.build(), kind, RecordRun)
    assert found["app-refer-subscription-registration-topic"] == {("d", 10): INNER["d"]}


def catalogue(topology: Topology) -> Catalogue:
    widths = {sub.name: PARTITIONS for sub in topology.sub_topologies}
    return Catalogue.of(topology, "app", widths)


def places(store: AskedStore, kind: str) -> dict[tuple[str, int], int]:
    """Where questions for windowed keys are sent: by the driver, and by instances."""
    keys = [windowed(kind, *each) for each in WHOLE[kind]]
    data = store.keys_bytes(keys)
    found = store.partitions_of(keys, data)
    assert store_told(told_store(store)).partitions_of(keys, data) == found
    several = store.partitions_of(keys * 3, data * 3)
    assert several == found * 3
    return dict(zip(WHOLE[kind], found, strict=True))


@pytest.mark.parametrize("kind", WHOLE)
def test_a_key_is_asked_for_where_the_stores_input_has_it(kind: str) -> None:
    stores = catalogue(sent_on(kind))
    for name in ("table", "counts", "recounts"):
        assert places(stores.find(name), kind) == WHOLE[kind], name
    # Whoever wrote the topic of a table with `to` had a key's windows lie together.
    assert places(stores.find("kept"), kind) == by_inner_key(kind)


def test_what_is_made_of_windows_lies_where_their_plain_key_does() -> None:
    builder = ps.StreamsBuilder()
    tumbling = ps.tumbling(timedelta(milliseconds=10), grace=timedelta())
    counts = builder.stream("in", key=str, value=str).group_by_key().windowed_by(tumbling)
    table = counts.count("windows")
    table.filter(lambda _key, _value: True, store="many")
    again = table.to_stream().repartition(name="again").group_by_key().windowed_by(tumbling)
    again.count("nested").filter(lambda _key, _value: True, store="several")
    stores = catalogue(builder.build())
    assert stores.find("windows").partitions_of(["d"], [b"d"]) == [INNER["d"]]
    assert places(stores.find("many"), "time") == by_inner_key("time")
    assert places(stores.find("nested"), "time") == WHOLE["time"]
    outer = [Windowed(windowed("time", "d", 10), start, start + 10) for start in (0, 30)]
    several = stores.find("several")
    whole = WHOLE["time"]["d", 10]
    assert several.partitions_of(outer, several.keys_bytes(outer)) == [whole, whole]
    assert several.task(whole) == TaskId(several.sub_topology, whole)


def test_what_a_partitioner_leaves_to_kafka_lies_by_the_whole_key() -> None:
    builder = ps.StreamsBuilder()
    stream = builder.stream("in", key=SERDES["time"], value=str)
    stream.to("out", partitioner=lambda _key, _value, _count: None)
    builder.table("out", "kept", key=SERDES["time"], value=str)
    topology = builder.build()
    assert written(topology, "time", RecordRun) == {"out": WHOLE["time"]}
    store = catalogue(topology).find("kept")
    keys = [windowed("time", *each) for each in WHOLE["time"]]
    assert store.partitions_of(keys, store.keys_bytes(keys)) == list(WHOLE["time"].values())


def test_history_is_put_where_the_stream_puts_it() -> None:
    builder = ps.StreamsBuilder()
    tumbling = ps.tumbling(timedelta(milliseconds=10), grace=timedelta())
    stream = builder.stream("in", key=SERDES["time"], value=str)
    stream.group_by_key().windowed_by(tumbling).count("windows")
    store = catalogue(builder.build()).find("windows")
    order = HistoryOrder(
        config=ps.Config(),
        store=b"",
        changelog="changes",
        tasks=("a", "b", "c", "d"),
        application_id="app",
        now_ms=7,
        is_timed=False,
        unplacing=store.placement.unplacing,
    )
    data = [SERDES["time"].serialize(windowed("time", *each)) for each in WHOLE["time"]]
    count = len(data)
    zeros = [0] * count
    columns = {"value": [1] * count, "window_start": zeros, "origin": zeros, "place": zeros}
    batch = pa.record_batch({"key": pa.array(data, pa.binary()), **columns})
    found = encode(store.spec, order, batch).column("partition").to_pylist()
    assert found == list(by_inner_key("time").values())
    whole = encode(store.spec, replace(order, unplacing=0), batch).column("partition").to_pylist()
    assert whole == list(WHOLE["time"].values())


def joined(*, again: bool = False, foreign: bool = False) -> Topology:
    """Windows that are joined with a table behind a repartition topic of windowed keys."""
    builder = ps.StreamsBuilder()
    tumbling = ps.tumbling(timedelta(milliseconds=10), grace=timedelta())
    counts = builder.stream("in", key=str, value=str).group_by_key().windowed_by(tumbling)
    windows = counts.count("windows")
    behind = windows.to_stream().repartition(name="behind").to_table("behind")
    if again:
        windows = windows.to_stream().repartition(name="again").to_table("again")
    if foreign:
        builder.table("rows", key=str, value=int).join(
            behind,
            lambda row, count: row + count,
            foreign_key=lambda row: windowed("time", "a", row),
            value=int,
            name="refer",
        )
    else:
        windows.join(behind, lambda one, other: one + other, value=int)
    return builder.build()


@pytest.mark.parametrize(("foreign", "way"), [(True, "other_partitioner="), (False, "both sides")])
def test_a_join_whose_windowed_keys_would_never_meet_is_refused(foreign: bool, way: str) -> None:
    topology = joined(foreign=foreign)
    with pytest.raises(TopologyError, match="app-behind-repartition") as caught:
        lay_out(topology, "app", {"in": 4, "rows": 4})
    assert way in str(caught.value.hint)
    lay_out(topology, "app", {"in": 1, "rows": 1})


def test_windows_that_both_went_through_repartition_topics_are_joined() -> None:
    lay_out(joined(again=True), "app", {"in": 4})


def test_a_foreign_key_finds_windows_that_lie_by_the_key_inside() -> None:
    builder = ps.StreamsBuilder()
    tumbling = ps.tumbling(timedelta(milliseconds=10), grace=timedelta())
    counts = builder.stream("in", key=str, value=str).group_by_key().windowed_by(tumbling)
    builder.table("rows", key=str, value=int).join(
        counts.count("windows"),
        lambda row, count: row + count,
        foreign_key=lambda row: windowed("time", "a", row),
        value=int,
    )
    lay_out(builder.build(), "app", {"in": 4, "rows": 4})
