"""Partitioners of the user's: one partition, several, none, the key's own, and wrong ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.errors import PartitionChoiceError, UserFunctionError
from penstock.processors import Limits, RecordRun, SliceResult
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from tests.unit.slices import Row, records

COUNTS = {
    "out": 4,
    "other": 2,
    "app-again-repartition": 3,
    "app-refer-subscription-registration-topic": 5,
    "app-refer-subscription-response-topic": 4,
}
Partitioner = Callable[[str, str, int], Any]


def written(
    builder: ps.StreamsBuilder, *rows: Row, topic: str = "in", partition: int = 0, **limits: Any
) -> SliceResult:
    """What the sub-topology of a topic writes."""
    topology = builder.build()
    sub = next(each for each in topology.sub_topologies if topic in each.input_topics("app"))
    run = RecordRun(
        sub,
        application_id="app",
        state=DriverState({spec.name: spec for spec in sub.stores}),
        limits=Limits(cache_max_bytes=0, partition_counts=COUNTS, **limits),
    )
    run.process(records(list(rows), topic=topic, partition=partition))
    return run.finish()


def chosen(partitioner: Partitioner, *rows: Row, **limits: Any) -> list[tuple[str, int, bytes]]:
    builder = ps.StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out", partitioner=partitioner)
    result = written(builder, *(rows or (Row(0, 0, b"k", b"v"),)), **limits)
    return [(row["topic"], row["partition"], row["key"]) for row in result.outputs.to_pylist()]


BY_KEY = chosen(lambda _k, _v, _n: None)


def test_it_is_given_the_number_of_partitions_and_chooses_one_or_several() -> None:
    assert chosen(lambda _k, _v, count: count - 1) == [("out", 3, b"k")]
    assert chosen(lambda _k, _v, _n: {3, 0, 2}) == [("out", each, b"k") for each in (0, 2, 3)]
    assert chosen(lambda _k, _v, _n: [1, 1]) == [("out", 1, b"k")]


def test_none_leaves_it_to_the_key_and_an_empty_set_drops_the_record() -> None:
    builder = ps.StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")
    plain = written(builder, Row(0, 0, b"k", b"v")).outputs.to_pylist()
    assert [(row["topic"], row["partition"], row["key"]) for row in plain] == BY_KEY

    builder = ps.StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out", partitioner=lambda _k, _v, _n: set())
    result = written(builder, Row(0, 0, b"k", b"v"))
    assert (result.outputs.num_rows, result.dropped) == (0, {"no_partition": 1})


@pytest.mark.parametrize("wrong", [4, -1, {0, 7}, "1", True, 1.0])
def test_a_partition_that_is_not_there_is_an_error_that_says_topic_partition_and_count(
    wrong: Any,
) -> None:
    with pytest.raises(PartitionChoiceError, match="topic 'out', which has 4: 0 to 3") as caught:
        chosen(lambda _k, _v, _n: wrong)
    where = caught.value.where
    assert (where["output topic"], where["partitions"], where["offset"]) == ("out", 4, 0)
    assert isinstance(caught.value, UserFunctionError)


def test_the_handler_for_production_may_go_on_without_such_a_record() -> None:
    def partition(_key: str, value: str, _count: int) -> int:
        return int(value)

    rows = [Row(n, n, b"k", value) for n, value in enumerate([b"1", b"9", b"2"])]
    found = chosen(partition, *rows, on_production_error="continue")
    assert found == [("out", 1, b"k"), ("out", 2, b"k")]


def test_a_repartition_topic_has_its_own_partitioner() -> None:
    def partition(key: str, _value: str, count: int) -> int:
        return len(key) % count

    builder = ps.StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.repartition(name="again", partitions=3, partitioner=partition).to("out")
    rows = [Row(n, n, key, b"v") for n, key in enumerate([b"a", b"bb", b"ccc"])]
    found = [(row["key"], row["partition"]) for row in written(builder, *rows).outputs.to_pylist()]
    assert found == [(b"a", 1), (b"bb", 2), (b"ccc", 0)]


def test_a_function_names_the_topic_and_another_chooses_in_it() -> None:
    builder = ps.StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.to(lambda _k, topic: topic, partitioner=lambda _k, _v, count: count - 1)
    rows = [Row(0, 0, b"k", b"out"), Row(1, 1, b"k", b"other")]
    found = [(r["topic"], r["partition"]) for r in written(builder, *rows).outputs.to_pylist()]
    assert found == [("out", 3), ("other", 1)]
    with pytest.raises(PartitionChoiceError, match="'absent' does not exist"):
        written(builder, Row(0, 0, b"k", b"absent"))
    driver = TopologyTestDriver(builder.build())
    driver.input_topic("in", key=str, value=str).pipe("k", "anything")
    assert driver.output_topic("anything", key=str, value=str).read_pairs() == [("k", "anything")]


def test_windows_of_a_key_go_together_to_topics_that_a_function_names() -> None:
    minutes = ps.tumbling(timedelta(minutes=1), grace=timedelta(0))

    def counts(**options: Any) -> Counter[int]:
        builder = ps.StreamsBuilder()
        stream = builder.stream("in", key=str, value=str).group_by_key()
        counted = stream.windowed_by(minutes).count("counts").to_stream()
        counted.to(lambda _k, _v: "out", **options)
        rows = [Row(n, n * 60_000, b"k", b"v") for n in range(20)]
        return Counter(row["partition"] for row in written(builder, *rows).outputs.to_pylist())

    assert counts() == {BY_KEY[0][1]: 20}
    # As in Kafka Streams: what a partitioner leaves to the producer goes by the whole key.
    assert len(counts(partitioner=lambda _k, _v, _n: None)) > 1


def foreign_key_join(*, left: bool = False, **partitioners: Any) -> ps.StreamsBuilder:
    """Orders that refer to people, by the first letter of the value."""
    builder = ps.StreamsBuilder()
    orders = builder.table("orders", key=str, value=str, name="orders")
    people = builder.table("people", key=str, value=str, name="people")
    join = orders.left_join if left else orders.join
    joined = join(
        people,
        lambda order, person: f"{order}{person}",
        foreign_key=lambda order: order[:1] or None,
        value=str,
        name="refer",
        **partitioners,
    )
    joined.to_stream().to("out")
    return builder


def sent(builder: ps.StreamsBuilder, *rows: Row, **where: Any) -> list[tuple[Any, int]]:
    """The key and partition of each record."""
    outputs = written(builder, *rows, **where).outputs.to_pylist()
    return [(row["key"], row["partition"]) for row in outputs]


def subscriptions(builder: ps.StreamsBuilder, *orders: bytes) -> list[Row]:
    """What the right side of the join is sent for orders of partition 2."""
    rows = [Row(n, n, b"order%d" % n, each) for n, each in enumerate(orders)]
    made = written(builder, *rows, topic="orders", partition=2).outputs.to_pylist()
    return [Row(n, n, row["key"], row["value"]) for n, row in enumerate(made)]


ASKED = "app-refer-subscription-registration-topic"


def test_a_foreign_key_join_asks_where_the_other_tables_partitioner_puts_keys() -> None:
    seen: list[tuple[Any, ...]] = []

    def by_letter(key: str | None, value: None, count: int) -> int:
        seen.append((key, value, count))
        return 4 if key is None else ord(key) % count

    builder = foreign_key_join(other_partitioner=by_letter)
    orders = [Row(0, 0, b"order", b"a1"), Row(1, 1, b"order", b"b1")]
    # The second asks another person, and tells the first that it no longer does.
    assert sent(builder, *orders, topic="orders") == [(b"a", 2), (b"a", 2), (b"b", 3)]
    assert set(seen) == {("a", None, 5), ("b", None, 5)}
    builder = foreign_key_join(left=True, other_partitioner=by_letter)
    assert sent(builder, Row(0, 0, b"order", b""), topic="orders") == [(None, 4)]
    usual = sent(foreign_key_join(), *orders, topic="orders")
    assert [key for key, _ in usual] == [b"a", b"a", b"b"]
    assert (
        sent(foreign_key_join(other_partitioner=lambda *_: None), *orders, topic="orders") == usual
    )


def test_answers_go_back_to_the_row_that_asked_or_where_the_tables_partitioner_says() -> None:
    builder = foreign_key_join(left=True)
    asked = subscriptions(builder, b"a1", b"b1")
    assert sent(builder, *asked, topic=ASKED) == [(b"order0", 2), (b"order1", 2)]
    seen: list[tuple[Any, ...]] = []

    def by_number(key: str, value: None, count: int) -> set[int]:
        seen.append((key, value, count))
        return {int(key[-1]) % count}

    builder = foreign_key_join(left=True, partitioner=by_number)
    assert sent(builder, *asked, topic=ASKED) == [(b"order0", 0), (b"order1", 1)]
    assert seen == [("order0", None, 4), ("order1", None, 4)]


@pytest.mark.parametrize("several", [set(), {0, 1}])
def test_a_row_of_a_foreign_key_join_is_in_one_partition(several: set[int]) -> None:
    builder = foreign_key_join(other_partitioner=lambda _k, _v, _n: several)
    with pytest.raises(PartitionChoiceError, match=f"chose {len(several)} partitions") as caught:
        written(builder, Row(0, 0, b"order", b"a1"), topic="orders")
    assert caught.value.where["output topic"] == ASKED


def test_the_result_is_the_same_with_partitioners_of_ones_own() -> None:
    builder = foreign_key_join(
        partitioner=lambda _k, _v, count: count - 1, other_partitioner=lambda _k, _v, _n: 0
    )
    driver = TopologyTestDriver(builder.build())
    orders = driver.input_topic("orders", key=str, value=str)
    people = driver.input_topic("people", key=str, value=str)
    orders.pipe("1", "a")
    people.pipe("a", "nn")
    people.pipe("b", "ob")
    orders.pipe("1", "b")
    found = driver.output_topic("out", key=str, value=str).read_pairs()
    assert found == [("1", "ann"), ("1", "bob")]


def test_a_join_by_key_takes_no_partitioner() -> None:
    builder = ps.StreamsBuilder()
    one = builder.table("one", key=str, value=str, name="one")
    two = builder.table("two", key=str, value=str, name="two")
    with pytest.raises(ps.errors.TopologyError, match="Only a join by foreign_key="):
        one.join(two, lambda a, b: a + b, value=str, partitioner=lambda _k, _v, _n: 0)
