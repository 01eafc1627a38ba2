"""Recorded cases through Spark and Kafka, over several partitions: the same stores and results.

Goal: how records are spread over partitions, tasks, slices and jobs changes nothing of what Kafka
Streams answers. Method: a subset of seeds, and a topology for each kind of window, wait and join,
all in one application, with the cache off. The answer that Kafka Streams gave is recorded; the test
driver must give it too. It then gives the answer for records of today (a broker deletes those of
1970), which is compared with what stands in the topics: each key's results in their order, and what
each changelog comes to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

import penstock as ps
from penstock.topology import StoreSpec
from penstock.topology.naming import changelog_topic
from tests.conformance import programs
from tests.conformance.cases import Case
from tests.conformance.compare import difference
from tests.conformance.pipeline_cases import (
    Contents,
    Results,
    alive,
    at,
    by_key,
    driven_apart,
    named_stores,
    prefixed,
)
from tests.conformance.pipeline_programs import PARTITIONS
from tests.conformance.record import recorded_for_pipeline
from tests.harness import Row, Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

HOUR_MS = 3_600_000


def test_the_pipeline_gives_the_recorded_answers(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=PARTITIONS)
    now = time.time_ns() // 1_000_000
    cases: dict[int, list[Case]] = {}
    for case, answer in recorded_for_pipeline():
        assert difference(case, answer, programs.run(case)) is None
        moved = _at_present(prefixed(case, f"{scene.id}-{case.seed}-"), now)
        cases.setdefault(case.seed, []).append(moved)
    steps = tuple(step for parts in cases.values() for step in parts[0].steps)
    records = (record for parts in cases.values() for case in parts for record in case.records)
    together = Case(0, 0, steps, tuple(records))
    inputs = {topic for topic, *_ in together.records}
    expected = [driven_apart(parts) for parts in cases.values()]
    wanted = {topic: rows for each in expected for topic, rows in each.results.items()}
    scene.create_topics(*inputs, *wanted)
    _produce(scene, together)

    def build(app: ps.Application, _source: str, _results: str) -> None:
        programs.build(together, app)

    with Run(scene, build) as run:
        sub_topologies = run.app.build().sub_topologies
        topics = {t for sub in sub_topologies for t in sub.input_topics(scene.application_id)}
        consumer = _of_group(scene)
        run.wait_for(lambda: _is_done(consumer, topics), what="all was processed")
        consumer.close()
    held = {store: rows for each in expected for store, rows in each.stores.items()}
    changelogs = {store: changelog_topic(scene.application_id, store) for store in held}
    written = _read_all(scene, [*wanted, *changelogs.values()])
    # Which of two tables answers first shows in what a join by foreign key gives meanwhile.
    last_only = {
        step["topic"]
        for parts in cases.values()
        if any("foreign_key" in step for step in parts[0].steps)
        for step in parts[0].steps
        if step["op"] == "to"
    }
    for topic, results in wanted.items():
        found = by_key(written[topic])
        assert results, topic
        compared = _last if topic in last_only else dict
        assert compared(found) == compared(results), topic
    for spec in named_stores(together):
        rows = written[changelogs[spec.name]]
        assert _contents(spec, rows) == held[spec.name], spec.name


def _at_present(case: Case, now: int) -> Case:
    """The case with times of late, the last of them an hour ago."""
    return at(case, now - HOUR_MS - case.records[-1][3])


def _produce(scene: Scene, case: Case) -> None:
    producer = Producer({"bootstrap.servers": scene.bootstrap, "partitioner": "murmur2_random"})
    for topic, key, value, timestamp in case.records:
        producer.produce(topic, value, key, timestamp=timestamp)
    assert producer.flush(30) == 0


def _of_group(scene: Scene) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": scene.bootstrap,
            "group.id": scene.application_id,
            "isolation.level": "read_committed",
        }
    )


def _is_done(consumer: Consumer, topics: Iterable[str]) -> bool:
    """Whether every task has read its inputs to the end.

    Offsets first, ends after: results and offsets are one commit, so what was read to an end that
    is still the end has caused nothing that is not read.
    """
    wanted = [TopicPartition(topic, place) for topic in topics for place in range(PARTITIONS)]
    read = consumer.committed(wanted, timeout=30)
    ends = [consumer.get_watermark_offsets(each, timeout=30)[1] for each in read]
    return all(max(each.offset, 0) >= end for each, end in zip(read, ends, strict=True))


def _read_all(scene: Scene, topics: list[str]) -> dict[str, list[Row]]:
    """What is in many topics, to which nobody writes any more, with one consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": scene.bootstrap,
            "group.id": f"{scene.id}-reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
        }
    )
    waiting = {(topic, place) for topic in topics for place in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, place, 0) for topic, place in sorted(waiting)])
    rows: dict[str, list[Row]] = {topic: [] for topic in topics}
    while waiting:
        for message in consumer.consume(10_000, 0.02):
            where, error = (message.topic(), message.partition()), message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                waiting.discard(where)
                continue
            what = (message.key(), message.value(), message.timestamp()[1])
            rows[where[0]].append(Row(where[1], message.offset(), *what))
    consumer.close()
    return rows


def _last(results: Results) -> Results:
    return {key: rows[-1:] for key, rows in results.items()}


def _contents(spec: StoreSpec, rows: Iterable[Row]) -> Contents:
    found: Contents = {}
    for row in rows:
        assert row.key is not None
        if row.value is None:
            found.pop(row.key, None)
        else:
            found[row.key] = (row.value, row.timestamp)
    return alive(spec, found)
