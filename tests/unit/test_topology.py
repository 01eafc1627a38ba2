"""Goal: a program compiles to the graph that it says, and one that cannot run says why at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.errors import SerdeMissingError, TopologyError
from penstock.serdes import LongSerde, StringSerde
from penstock.topology import (
    AggregateNode,
    DropNullKeyNode,
    Processor,
    SinkNode,
    SourceNode,
    StreamsBuilder,
    Topology,
    key_value_store,
    session_store,
    tumbling,
    window_store,
)
from penstock.topology.naming import changelog_topic, check_name, repartition_topic


def _words(builder: StreamsBuilder) -> Any:
    return builder.stream("words", key=bytes, value=str)


def _build(write: Callable[[Any], object]) -> Topology:
    builder = StreamsBuilder()
    write(_words(builder))
    return builder.build()


def test_a_count_is_one_sub_topology_named_after_its_store() -> None:
    topology = _build(lambda s: s.group_by_key().count("counts").to_stream().to("out"))
    (sub,) = topology.sub_topologies
    assert (sub.number, sub.name) == (0, "counts")
    assert [type(node).__name__ for node in sub.nodes] == [
        "SourceNode",
        "AggregateNode",
        "ToStreamNode",
        "SinkNode",
    ]
    (store,) = sub.stores
    assert (store.name, store.key_serde.name, store.value_serde.name) == ("counts", "bytes", "long")
    assert sub.input_topics("app") == ("words",)
    assert sub.output_topics("app") == ("out",)
    assert topology.sub_topology("counts") is sub


def test_re_keying_ends_a_sub_topology_with_a_repartition_topic() -> None:
    topology = _build(
        lambda s: s.group_by(lambda _k, v: v, key=str).count("counts").to_stream().to("out")
    )
    first, second = topology.sub_topologies
    assert (first.name, second.name) == ("from-words", "counts")
    drop, sink = first.nodes[-2:]
    assert isinstance(drop, DropNullKeyNode)
    assert isinstance(sink, SinkNode)
    assert (sink.topic, sink.repartition) == ("counts-repartition", True)
    assert sink.key_serde == StringSerde()
    (source,) = second.sources
    assert (source.topics, source.repartition) == (("counts-repartition",), True)
    assert first.output_topics("app") == second.input_topics("app") == ("app-counts-repartition",)


def test_map_values_and_filter_need_no_repartition_topic() -> None:
    topology = _build(
        lambda s: (
            s.map_values(len, value=int).filter(lambda _k, n: n > 0).group_by_key().count("counts")
        )
    )
    assert len(topology.sub_topologies) == 1


def test_a_grouping_without_re_keying_after_a_repartition_stays() -> None:
    topology = _build(
        lambda s: (
            s.group_by(lambda _k, v: v, key=str)
            .count("first")
            .to_stream()
            .group_by_key()
            .count("second")
        )
    )
    assert [sub.name for sub in topology.sub_topologies] == ["from-words", "first"]


def test_return_annotations_name_serdes() -> None:
    def length(value: str) -> int:
        return len(value)

    def swapped(key: int, value: int) -> tuple[str, int | None]:
        return str(key), value

    topology = _build(lambda s: s.map_values(length).map(swapped).to("out"))
    (sink,) = topology.sub_topologies[0].sinks
    assert (sink.key_serde, sink.value_serde) == (StringSerde(), LongSerde())


def test_an_initializer_names_the_serde_of_an_aggregate() -> None:
    topology = _build(lambda s: s.group_by_key().aggregate(int, lambda _k, _v, n: n + 1, "n"))
    assert topology.stores[0].value_serde == LongSerde()


@pytest.mark.parametrize(
    ("write", "needs", "says"),
    [
        (lambda s: s.map_values(lambda v: v).to("out"), "topic 'out'", "value="),
        (lambda s: s.select_key(lambda _k, v: v).to("out"), "topic 'out'", "key="),
        (lambda s: s.group_by(lambda _k, v: v).count("n"), "store 'n'", "key="),
        (
            lambda s: s.map_values(lambda v: v).select_key(lambda _k, v: v, key=str).group_by_key()
            .count("n"),
            "repartition topic of store 'n'",
            "value=",
        ),
        (
            lambda s: s.group_by_key().aggregate(lambda: 0, lambda _k, _v, n: n, "n"),
            "store 'n'",
            "value=",
        ),
    ],
)  # fmt: skip
def test_a_missing_serde_is_asked_for_where_bytes_are_needed(
    write: Callable[[Any], object], needs: str, says: str
) -> None:
    with pytest.raises(SerdeMissingError) as caught:
        _build(write)
    assert needs in str(caught.value)
    assert says in caught.value.hint


def test_an_unknown_type_that_is_never_written_is_no_error() -> None:
    topology = _build(lambda s: s.map_values(lambda v: v).map_values(len, value=int).to("out"))
    assert topology.sub_topologies[0].sinks[0].value_serde == LongSerde()


def test_generated_store_names_survive_unrelated_changes() -> None:
    def program(s: Any) -> None:
        s.group_by_key().count()
        s.group_by_key().count()
        s.group_by(lambda _k, v: v, key=str, name="by-word").reduce(lambda a, _v: a)

    before = _build(program)
    after = _build(lambda s: (s.filter(lambda _k, _v: True).to("more"), program(s)))
    names = ["words-count", "words-count-2", "by-word-reduce"]
    assert [store.name for store in before.stores] == names
    assert [store.name for store in after.stores] == names


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda s: (s.group_by_key().count("n"), s.group_by_key().count("n")), "Two stores"),
        (lambda s: (s.to("a", name="x"), s.to("b", name="x")), "Two steps"),
        (lambda s: s.group_by_key().count("a/b"), "'a/b' cannot be used"),
        (lambda s: s.group_by_key().count(".."), "cannot be used"),
        (lambda s: s.to(""), "cannot be used"),
        (lambda s: s.group_by_key().count("n", logging={"segment.ms": 1}), "segment.ms=1, which"),
        (lambda s: s.group_by_key().count("n", logging=None), "'n' has logging=None"),
        (lambda s: s.to("x" * 250), "250 characters"),
    ],
)
def test_what_cannot_run_is_refused_while_building(
    write: Callable[[Any], object], says: str
) -> None:
    with pytest.raises(TopologyError, match=says):
        _build(write)


def test_settings_of_changelogs_reach_every_kind_of_store() -> None:
    config = {"segment.bytes": "536870912"}
    hour = timedelta(hours=1)
    windows = tumbling(hour, grace=timedelta(0))
    builder = StreamsBuilder()
    stream = _words(builder)
    grouped = stream.group_by_key()
    table = builder.table("names", "names", key=bytes, value=str, logging=config)
    grouped.count("a", logging=config)
    grouped.reduce(max, "b", logging=config)
    grouped.aggregate(str, lambda k, v, old: v, "c", logging=config)
    grouped.windowed_by(windows).count("d", logging=config)
    grouped.windowed_by(windows).reduce(max, "e", logging=config)
    grouped.windowed_by(windows).aggregate(str, lambda k, v, old: v, "f", logging=config)
    grouped.cogroup(lambda k, v, old: v).aggregate(str, "g", logging=config)
    grouped.cogroup(lambda k, v, old: v).windowed_by(windows).aggregate(str, "h", logging=config)
    regrouped = table.group_by(lambda k, v: (k, v), key=bytes, value=str)
    regrouped.count("i", logging=config)
    table.join(stream.to_table("j", logging=config), max, "k", value=str, logging=config)
    builder.add_state_store(key_value_store("l", key=str, value=str, logging=config))
    builder.add_state_store(
        window_store("m", key=str, value=str, retention=hour, window=hour, logging=config)
    )
    builder.add_state_store(session_store("n", key=str, value=str, retention=hour, logging=config))
    stream.process_values(Processor, stores=["l", "m", "n"])
    found = {store.name: store.changelog_config for store in builder.build().stores}
    assert found == dict.fromkeys(["names", *"abcdefghijklmn"], config)


def test_a_store_has_a_changelog_unless_told_otherwise() -> None:
    for logging, has in ((True, True), ({}, True), (False, False)):
        topology = _build(lambda s, told=logging: s.group_by_key().count("n", logging=told))
        assert (topology.stores[0].logging, topology.stores[0].changelog_config) == (has, {})


def test_an_empty_program_and_a_topic_read_twice_are_refused() -> None:
    with pytest.raises(TopologyError, match="nothing to run"):
        StreamsBuilder().build()
    for second in (
        lambda b: b.table("words", key=str, value=str),
        lambda b: b.global_table("words", key=str, value=str),
        lambda b: b.stream(["words", "more"], key=str, value=str),
        lambda b: b.stream("words", key=bytes, value=int),
        lambda b: b.stream("words", key=bytes, value=str, timestamp=lambda _k, _v, time: time),
        lambda b: b.stream("words", key=bytes, value=str, auto_offset_reset="latest"),
    ):
        builder = StreamsBuilder()
        _words(builder)
        with pytest.raises(TopologyError, match="'words' is read twice"):
            second(builder)


def test_an_offset_reset_that_there_is_not_is_refused() -> None:
    for wrong in ("none", "by_duration"):
        with pytest.raises(TopologyError, match="'earliest', 'latest'"):
            StreamsBuilder().stream("in", key=str, value=str, auto_offset_reset=wrong)  # type: ignore[arg-type]


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    topology = _build(lambda s: s.group_by_key().count("counts"))
    with pytest.raises(TopologyError, match="There are: counts"):
        topology.sub_topology("count")
    with pytest.raises(TopologyError, match="no store 'x'"):
        topology.sub_topologies[0].store("x")


def test_names_of_internal_topics() -> None:
    assert repartition_topic("app", "counts-repartition") == "app-counts-repartition"
    assert changelog_topic("app", "counts") == "app-counts-changelog"
    with pytest.raises(TopologyError):
        changelog_topic("a/b", "counts")
    with pytest.raises(TopologyError):
        check_name("a" * 249 + "b", "topic")


def test_a_topology_with_lambdas_travels() -> None:
    topology = _build(
        lambda s: s.filter(lambda _k, v: v != "").group_by_key().reduce(lambda a, v: a + v, "r")
    )
    again = cloudpickle.loads(cloudpickle.dumps(topology))
    assert again.describe() == topology.describe()
    node = next(n for n in again.sub_topologies[0].nodes if isinstance(n, AggregateNode))
    assert node.aggregator is not None
    assert node.aggregator("a", "b") == "ab"
    assert isinstance(again.sub_topologies[0].nodes[0], SourceNode)


def test_async_functions_are_refused_with_the_steps_name() -> None:
    async def later(value: bytes) -> bytes:
        return value

    with pytest.raises(TopologyError, match=r"mapper of step .* is an async"):
        _build(lambda s: s.map_values(later, value=bytes).to("out"))
