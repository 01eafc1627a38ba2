"""Streams of all topics that match a pattern."""

from __future__ import annotations

import re

import pytest

import penstock as ps
from penstock.coordination.layout import lay_out
from penstock.errors import PartitionCountError, TopicMissingError, TopologyError
from penstock.testing import TopologyTestDriver
from penstock.topology import KStream, StreamsBuilder, Topology
from penstock.topology.patterns import matching, patterns_of, with_topics

ORDERS = re.compile("orders-.*")


def orders(builder: StreamsBuilder) -> KStream[str, str]:
    return builder.stream(ORDERS, key=str, value=str)


def counted() -> Topology:
    builder = StreamsBuilder()
    orders(builder).group_by_key().count().to_stream().to("out")
    return builder.build()


def test_the_driver_takes_records_of_every_topic_that_matches() -> None:
    app = ps.Application("patterns")
    stream = app.stream(ORDERS, key=str, value=str)
    stream.group_by_key().count("counts").to_stream().to("out")
    driver = TopologyTestDriver(app)
    for topic in ("orders-eu", "orders-us", "orders-eu"):
        driver.input_topic(topic, key=str, value=str).pipe("k", "v")
    assert dict(driver.store("counts")) == {"k": 3}
    with pytest.raises(TopicMissingError):
        driver.input_topic("old-orders-eu", key=str, value=str)


def test_what_is_written_to_a_topic_that_matches_is_read_again() -> None:
    app = ps.Application("patterns")
    stream = app.stream(ORDERS, key=str, value=str)
    stream.to("seen")
    stream.filter(lambda key, value: value == "again").map_values(lambda v: "once", value=str).to(
        lambda key, value: "orders-found"
    )
    driver = TopologyTestDriver(app)
    driver.input_topic("orders-eu", key=str, value=str).pipe("k", "again")
    seen = driver.output_topic("seen", key=str, value=str).read_pairs()
    assert seen == [("k", "again"), ("k", "once")]


def test_there_are_as_many_tasks_as_the_largest_topic_has_partitions() -> None:
    sizes = {"orders-eu": 2, "orders-us": 3}
    layout = lay_out(with_topics(counted(), set(sizes)), "app", sizes)
    assert [task.inputs for task in layout.tasks] == [
        (("orders-eu", 0), ("orders-us", 0)),
        (("orders-eu", 1), ("orders-us", 1)),
        (("orders-us", 2),),
    ]
    assert layout.tasks[0].name == "orders-count-0"


def test_topics_that_are_joined_have_equally_many_partitions() -> None:
    builder = StreamsBuilder()
    table = builder.table("users", "users", key=str, value=str)
    orders(builder).join(table, lambda order, user: order, value=str).to("out")
    topology = with_topics(builder.build(), {"orders-eu", "orders-us"})
    lay_out(topology, "app", {"orders-eu": 2, "orders-us": 2, "users": 2})
    with pytest.raises(PartitionCountError, match="orders-us"):
        lay_out(topology, "app", {"orders-eu": 2, "orders-us": 3, "users": 2})


def test_a_topic_belongs_to_one_source() -> None:
    builder = StreamsBuilder()
    orders(builder)
    with pytest.raises(TopologyError, match="'orders-eu' is read twice"):
        builder.stream("orders-eu", key=str, value=str)
    other = StreamsBuilder()
    other.stream("orders-eu", key=str, value=str)
    with pytest.raises(TopologyError, match="'orders-eu' is read twice"):
        orders(other)
    orders(builder).to("out")  # A second stream of the same pattern is the first one.
    builder.stream(re.compile("orders-e.*"), key=str, value=str).to("out")
    with pytest.raises(TopologyError, match="'orders-eu' matches two patterns"):
        with_topics(builder.build(), {"orders-eu", "orders-us"})


def test_neither_kafkas_topics_nor_our_own_match() -> None:
    names = ["orders", "__consumer_offsets", "app-counts-changelog", "app-commits", "app-orders"]
    assert matching([re.compile(".*")], names, "app") == {"orders", "app-orders"}
    assert patterns_of(counted()) == (ORDERS,)


def test_a_diagram_shows_the_pattern() -> None:
    assert "orders-.*" in counted().svg()
