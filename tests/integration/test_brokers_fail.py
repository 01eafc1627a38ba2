"""Brokers die under load: the leader of an input, the coordinator of a task's transactions, and
that of the application's group; and the only one that there is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.local.broker import EmbeddedKafka, KafkaOptions
from tests.crash.world import Feeder
from tests.harness import Scene, wait_until
from tests.in_process import Run

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("spark")]

TRANSACTIONS = "__transaction_state"
OFFSETS = "__consumer_offsets"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    options = KafkaOptions(directory=tmp_path / "kafka", nodes=3, heap_mib=256)
    with EmbeddedKafka(options) as kafka:
        yield kafka


# Three brokers, and three elections that take seconds each.
@pytest.mark.timeout(600)
def test_counts_stay_exact_while_brokers_die(cluster: EmbeddedKafka, tmp_path: Path) -> None:
    scene = Scene(cluster.bootstrap_servers, tmp_path, partitions=2, copies=3).create_topics()
    feeder = Feeder(scene).start()
    try:
        with Run(scene, replication_factor=3) as run:
            watch = Watch(scene)
            watch.wait_committed(run, 100)
            for topic, partition in (
                (scene.source, 0),
                coordinator(scene, TRANSACTIONS, f"{scene.application_id}-counts-0"),
                coordinator(scene, OFFSETS, scene.application_id),
            ):
                wait_until(lambda: has_all_copies(scene), what="all nodes had all records")
                node = leader(scene, topic, partition)
                cluster.kill(node)
                # It goes on without that node.
                watch.wait_moved(run, 500)
                cluster.restart(node)
            feeder.stop()
            watch.wait_committed(run, feeder.records)
    finally:
        feeder.stop()
    expected = scene.expected()
    assert expected.total() == feeder.records
    assert scene.counts(scene.changelog) == expected
    assert scene.sequences() == {key: list(range(1, n + 1)) for key, n in expected.items()}


@pytest.mark.timeout(400)
def test_it_goes_on_when_its_only_broker_is_back(tmp_path: Path) -> None:
    options = KafkaOptions(directory=tmp_path / "kafka", heap_mib=256)
    with EmbeddedKafka(options) as kafka:
        scene = Scene(kafka.bootstrap_servers, tmp_path, partitions=2).create_topics()
        with Run(scene, num_standby_replicas=1, num_instances=2) as run:
            watch = Watch(scene)
            sent = scene.produce(letters(200))
            watch.wait_committed(run, sent)
            kafka.kill(1)
            # Long enough that clients are made anew, beside others that wait for an answer.
            run.wait_for(lambda: run.notices != [], what="it said that Kafka does not answer")
            kafka.restart(1)
            sent += scene.produce(letters(200))
            watch.wait_committed(run, sent)
        assert scene.counts(scene.changelog) == scene.expected()


def letters(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"%d" % (number % 7), b"x") for number in range(count)]


class Watch:
    """The group's offsets, asked for with one client: making one costs more than its question."""

    def __init__(self, scene: Scene) -> None:
        self._partitions = [TopicPartition(scene.source, p) for p in range(scene.partitions)]
        self._consumer = Consumer(
            {"bootstrap.servers": scene.bootstrap, "group.id": scene.application_id, "log_level": 0}
        )
        self._total = 0

    def committed(self) -> int:
        """Their sum, or the last one that was told while no broker tells it."""
        with contextlib.suppress(KafkaException):
            found = self._consumer.committed(self._partitions, timeout=5)
            self._total = sum(max(each.offset, 0) for each in found)
        return self._total

    def wait_committed(self, run: Run, total: int) -> None:
        run.wait_for(lambda: self.committed() >= total, what=f"{total} were committed")

    def wait_moved(self, run: Run, records: int) -> None:
        self.wait_committed(run, self.committed() + records)


def coordinator(scene: Scene, topic: str, name: str) -> tuple[str, int]:
    """Where Kafka keeps what it knows by that name: by the hash that Java has for a string."""
    number = 0
    for character in name:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    partitions = scene.admin.list_topics(topic, timeout=30).topics[topic].partitions
    return topic, (number & 0x7FFFFFFF) % len(partitions)


def leader(scene: Scene, topic: str, partition: int) -> int:
    found = scene.admin.list_topics(topic, timeout=30).topics[topic].partitions[partition].leader
    assert found > 0
    return found


def has_all_copies(scene: Scene) -> bool:
    """Whether every copy of every partition is as far as its leader."""
    topics = scene.admin.list_topics(timeout=30).topics.values()
    partitions = [each for topic in topics for each in topic.partitions.values()]
    return all(len(each.isrs) == len(each.replicas) for each in partitions)
