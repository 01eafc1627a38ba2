"""Who is the driver, when Kafka refuses the producer by which it says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.changelog.clients import LogClients
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TopicSpec, commits_name
from penstock.config import Config
from penstock.driver.lease import DriverLease
from tests.harness import Scene


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path)


@contextmanager
def driver(scene: Scene) -> Iterator[DriverLease]:
    """The lease of a driver that says only when told to that it is at work."""
    config = Config(
        bootstrap_servers=scene.bootstrap,
        heartbeat_interval=timedelta(seconds=100),
        session_timeout=timedelta(seconds=300),
    )
    TopicAdmin(config).create([TopicSpec(commits_name(scene.application_id), 2, {}, 1)])
    lease = DriverLease(scene.application_id, config, LogClients(config, scene.application_id))
    lease.acquire()
    lease.name_tasks(["counts-0"], b"{}")
    try:
        yield lease
    finally:
        lease.release(lambda member: None)


def beats(scene: Scene) -> int:
    return len(scene.read(commits_name(scene.application_id)))


def test_a_driver_goes_on_whose_producer_was_refused_though_nobody_took_over(scene: Scene) -> None:
    with driver(scene) as lease:
        other = Producer(
            {
                "bootstrap.servers": scene.bootstrap,
                "transactional.id": f"{scene.application_id}-driver",
            }
        )
        other.init_transactions(30)
        lease.beat()
        assert lease.lost is None
        before = beats(scene)
        lease.beat()
        assert beats(scene) == before + 1


def test_a_driver_that_was_replaced_stops_and_leaves_the_other_alone(scene: Scene) -> None:
    with driver(scene) as first, driver(scene) as second:
        first.beat()
        assert first.lost is not None
        second.beat()
        assert second.lost is None
