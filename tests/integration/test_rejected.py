"""Records that Kafka does not take: the production handler says what becomes of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

import penstock as ps
from penstock.errors import ProductionError
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

LIMIT = 2_000
"""What the narrow topic takes at most, in bytes."""
GROWN = {b"huge": 2_000_000, b"wide": LIMIT + 1, b"wider": 2 * LIMIT}
"""What becomes of some values: the first is more than any topic takes."""


def routed(app: ps.Application, source: str, results: str) -> None:
    """Each value to where it says: `narrow`, `compacted`, `missing`, or the results."""

    def topic(key: bytes | None, value: bytes) -> str:
        ways = {b"n": "narrow", b"w": "narrow", b"c": "compacted", b"m": "missing"}
        way = ways.get(value[:1])
        return f"{results}-{way}" if way else results

    stream = app.stream(source, key=bytes, value=bytes)
    stream = stream.map_values(lambda v: v.ljust(GROWN.get(v, 0), b"."), value=bytes)
    stream.to(topic)


def decide(failure: ps.RecordFailure) -> str:
    assert isinstance(failure.error, ProductionError)
    assert failure.record is not None
    if failure.record.value.startswith(b"missing"):
        return "fail" if failure.record.value == b"missing, and told to stop" else "continue"
    return "dead_letter"


def test_a_handler_decides_about_what_kafka_does_not_take(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=1).create_topics()
    dead, narrow = f"{scene.id}-dead", f"{scene.results}-narrow"
    compacted = f"{scene.results}-compacted"
    scene.create_topics(dead)
    configs = {
        narrow: {"max.message.bytes": str(LIMIT)},
        compacted: {"cleanup.policy": "compact"},
    }
    admin = scene.admin
    for made in admin.create_topics(
        [NewTopic(name, 1, 1, config=config) for name, config in configs.items()]
    ).values():
        made.result()
    # Together more than the narrow topic takes at once, each less: Java would split the batch.
    small = [(b"k", b"n%04d" % number) for number in range(LIMIT)]
    some = [(b"k", b"1"), (b"k", b"huge"), (None, b"compacted"), (b"k", b"compacted"), (b"k", b"2")]
    total = scene.produce([*some, (b"k", b"wide"), *small, (b"k", b"wider"), (b"k", b"missing")])
    # Too large by its headers alone, and equal to another one but for those.
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(scene.source, b"n0000", b"k", headers=[("large", bytes(LIMIT))])
    assert producer.flush(30) == 0
    total += 1
    options = {
        "production_exception_handler": decide,
        "errors_dead_letter_queue_topic_name": dead,
        "num_instances": 1,
        # So long a topic is waited for that is not there; else for a quarter of session_timeout.
        "kafka": {"topic.metadata.propagation.max.ms": "1000"},
    }
    with Run(scene, routed, **options) as run:
        run.wait_committed(total)
        # The driver hears of a commit after Kafka does.
        run.wait_for(
            lambda: run.app.totals.dropped == {"failed": 6}, seconds=30, what="six were dropped"
        )
        assert [
            each
            for each in run.notices
            if f"{narrow} refused a batch" in each and f"{LIMIT} bytes" in each
        ]
        scene.produce([(b"k", b"3"), (b"k", b"missing, and told to stop")])
        with pytest.raises(ProductionError, match=f"{scene.results}-missing.*Create the topic"):
            run.wait_end()

    values = [row.value for row in scene.read(scene.results)]
    assert values == [b"1", b"2"], "each once, and nothing of the slice that failed"
    assert [row.value for row in scene.read(narrow)] == [value for _, value in small]
    assert [(row.key, row.value) for row in scene.read(compacted)] == [(b"k", b"compacted")]
    # Dead letters are the input's records, as they came. Those of different topics are in the order
    # in which their brokers refused them, which is any.
    letters = scene.read(dead)
    expected = [b"compacted", b"huge", b"n0000", b"wide", b"wider"]
    assert sorted(row.value for row in letters) == expected
    reasons = Counter(
        str(value)
        for row in letters
        for name, value in row.headers
        if name == "__streams.errors.exception"
    )
    assert reasons == {str(b"penstock.errors.ProductionError"): 5}
