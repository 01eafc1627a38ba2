"""Names that survive change: unrelated steps rename nothing that is durable."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

import penstock as ps
from penstock.errors import TopologyError
from penstock.testing import TopologyTestDriver
from penstock.topology import StreamsBuilder
from penstock.topology.diff import diff
from penstock.topology.manifest import TopologyManifest, manifest_of
from tests.unit import described_stateful, test_topology_describe

Program = Callable[[StreamsBuilder], object]


def unrelated(builder: StreamsBuilder) -> None:
    """Steps, a store, a join and a repartition topic that have nothing to do with the rest."""
    stream = builder.stream("unrelated", key=str, value=str).map_values(lambda v: v, value=str)
    stream.group_by(lambda k, v: v, key=str).count().to_stream().to("unrelated-out")
    windows = ps.join_window(timedelta(seconds=1), grace=timedelta(0))
    other = builder.stream("unrelated-2", key=str, value=str)
    stream.join(other, lambda a, b: a, windows, value=str).to("unrelated-out")


def manifest(*programs: Program) -> TopologyManifest:
    builder = StreamsBuilder()
    for program in programs:
        program(builder)
    return manifest_of(builder.build(), "app")


def by_branch_names(program: Program) -> bool:
    """Whether a program looks branches up by their generated names, which have numbers."""
    return program.__name__ == "split"


PROGRAMS = [each for each in test_topology_describe.PROGRAMS if not by_branch_names(each)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_unrelated_part_before_renames_nothing(program: Program) -> None:
    alone, after = manifest(program), manifest(unrelated, program)
    assert set(alone.sub_topologies) <= set(after.sub_topologies)
    assert alone.global_tables == after.global_tables
    assert {each.severity for each in diff(alone, after)} == {"harmless"}


def test_numbers_would_be_renamed() -> None:
    def numbered(*programs: Program) -> TopologyManifest:
        builder = StreamsBuilder(names="kafka_streams")
        for program in programs:
            program(builder)
        return manifest_of(builder.build(), "app")

    program = test_topology_describe.group_by_unnamed
    found = diff(numbered(program), numbered(unrelated, program))
    assert {each.kind for each in found} >= {"store_removed", "repartition_removed"}


def test_a_stateless_step_before_a_store_renames_nothing() -> None:
    def plain(b: StreamsBuilder) -> None:
        b.stream("in", key=str, value=str).group_by(lambda k, v: v, key=str).count()

    def longer(b: StreamsBuilder) -> None:
        stream = b.stream("in", key=str, value=str).filter(lambda k, v: True)
        stream = stream.map_values(lambda v: v, value=str).peek(lambda k, v: None)
        stream.group_by(lambda k, v: v, key=str).count()

    assert diff(manifest(plain), manifest(longer)) == []
    assert list(manifest(plain).stores) == list(manifest(longer).stores)
    assert list(manifest(plain).repartitions) == list(manifest(longer).repartitions)


def test_two_joins_of_the_same_topics_have_two_names() -> None:
    def twice(b: StreamsBuilder) -> None:
        left, right = (b.stream(topic, key=str, value=str) for topic in ("l", "r"))
        windows = ps.join_window(timedelta(seconds=1), grace=timedelta(0))
        for _ in range(2):
            left.join(right, lambda x, y: x, windows, value=str).to("out")

    assert list(manifest(twice).stores) == [
        "l-r-join-this-join-store",
        "l-r-join-other-join-store",
        "l-r-join-2-this-join-store",
        "l-r-join-2-other-join-store",
    ]


def test_records_without_a_key_are_dropped_before_a_repartition_topic() -> None:
    app = ps.Application("app")
    app.stream("in", key=str, value=str).repartition(name="again").to("out")
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([(None, "n"), ("k", "v")])
    assert driver.output_topic("out", key=str, value=str).read_pairs() == [("k", "v")]


@pytest.mark.parametrize(("left", "expected"), [(True, [(None, "n"), ("v", "v")]), (False, [])])
def test_a_left_join_has_results_for_records_that_lost_their_key(
    left: bool, expected: list[tuple[str | None, str]]
) -> None:
    app = ps.Application("app")
    table = app.table("rows", "rows", key=str, value=str)
    stream = app.stream("in", key=str, value=str).select_key(
        lambda k, v: None if v == "n" else v, key=str
    )
    join = stream.left_join if left else stream.join
    join(table, lambda value, row: value, value=str).to("out")  # type: ignore[operator]
    driver = TopologyTestDriver(app)
    driver.input_topic("in", key=str, value=str).pipe_all([("k", "n"), ("k", "v")])
    assert driver.output_topic("out", key=str, value=str).read_pairs() == expected


def test_every_description_has_a_program_here() -> None:
    assert set(described_stateful.PROGRAMS) <= set(PROGRAMS)


def test_an_application_takes_kafka_streams_names() -> None:
    app = ps.Application("taken-over", names="kafka_streams")
    app.stream("in", key=str, value=str).group_by_key().count().to_stream().to("out")
    assert [store.name for store in app.build().stores] == [
        "KSTREAM-AGGREGATE-STATE-STORE-0000000001"
    ]


def test_names_that_nobody_knows_are_refused() -> None:
    with pytest.raises(TopologyError, match="no names 'java' for steps"):
        ps.Application("app", names="java")  # type: ignore[arg-type]
