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

COUNTS = {"out": 4, "other": 2, "app-again-repartition": 3}
Partitioner = Callable[[str, str, int], Any]


def written(builder: ps.StreamsBuilder, *rows: Row, **limits: Any) -> SliceResult:
    """What the first sub-topology writes."""
    run = RecordRun(
        builder.build().sub_topologies[0],
        application_id="app",
        state=DriverState({}),
        limits=Limits(cache_max_bytes=0, partition_counts=COUNTS, **limits),
    )
    run.process(records(list(rows)))
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
