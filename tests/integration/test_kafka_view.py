"""What the console shows of Kafka, on a broker: as it is when somebody looks, and at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.changelog.clients import LogClients
from penstock.changelog.topic_admin import TopicAdmin
from penstock.config import Config
from penstock.driver.kafka_view import KafkaView
from tests.harness import Scene, wait_until


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=1).create_topics()


@pytest.fixture
def view(scene: Scene) -> KafkaView:
    config = Config(bootstrap_servers=scene.bootstrap)
    admin = TopicAdmin(config)
    prepared: Any = SimpleNamespace(
        application_id=scene.application_id,
        layout=SimpleNamespace(changelogs={}, repartitions={}),
        global_tables=(),
        topics=admin.require([scene.source, scene.results]),
        inputs=[(scene.source, 0)],
        config=config,
    )
    logs = LogClients(config, scene.application_id)
    return KafkaView(prepared, logs, lambda topics: {}, describe=admin.describe)


@pytest.fixture
def producer(scene: Scene) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": scene.id})
    producer.init_transactions(30)
    yield producer
    producer.abort_transaction(30)


def _write(producer: Producer, topic: str, values: list[str]) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, "ann", partition=0)
    assert producer.flush(30) == 0


def test_an_open_transaction_does_not_keep_the_latest_records_waiting(
    scene: Scene, view: KafkaView, producer: Producer
) -> None:
    _write(producer, scene.source, ["1", "2", "3"])
    producer.commit_transaction(30)
    # Far more than records that are asked for: what is behind them is found all the same.
    _write(producer, scene.source, ["never"] * 30)
    producer.abort_transaction(30)
    _write(producer, scene.source, ["open", "open"])
    # The markers of both are on their way to the broker's answers.
    wait_until(lambda: view.groups()[0]["end"] == 35, what="two transactions had ended")
    assert [each["value"] for each in view.records(scene.source, 0, 5)] == ["1", "2", "3"]
    assert [each["value"] for each in view.records(scene.source, 0, 2)] == ["2", "3"]


def test_topics_are_shown_as_they_are_now(scene: Scene, view: KafkaView) -> None:
    [before, _] = view.topics()
    assert (before["name"], before["partitions"]) == (scene.source, 1)
    assert "flush.messages" not in before["configs"]
    scene.set_config(scene.source, {"retention.ms": "12345", "flush.messages": "7"})
    [now, _] = view.topics()
    assert now["configs"]["retention.ms"] == "12345"
    assert now["configs"]["flush.messages"] == "7"
    # One that somebody deletes does not take the others away.
    admin = scene.admin
    admin.delete_topics([scene.results])[scene.results].result()
    wait_until(lambda: len(view.topics()) == 1, what="a topic was gone")
    assert view.topics()[0]["name"] == scene.source
