"""Who is the driver, when Kafka refuses the producer by which it says so, or it stood still."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from penstock.changelog.clients import LogClients
from penstock.changelog.groups import live_members
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TopicSpec, commits_name
from penstock.config import Config
from penstock.driver.lease import DriverLease
from penstock.errors import QueryError, StateLockedError
from penstock.queries import Client
from penstock.queries.contract import Question
from penstock.queries.driver_file import read_driver_file
from penstock.stores.directory import StateDirectory
from tests.harness import AppProcess, Scene, Stream, wait_until
from tests.in_process import Run

SELDOM = timedelta(seconds=100)


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path)


@contextmanager
def driver(scene: Scene, *, beat: timedelta = SELDOM) -> Iterator[DriverLease]:
    """The lease of a driver that says only when told to that it is at work."""
    config = Config(
        bootstrap_servers=scene.bootstrap,
        heartbeat_interval=beat,
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


def test_a_driver_takes_its_place_in_the_group_back_from_one_that_is_none(scene: Scene) -> None:
    """As from one that was paused: its client joins again before it can know of the next one."""
    with driver(scene, beat=timedelta(milliseconds=300)) as lease:
        wait_until(
            lambda: bool(live_members(scene.admin, scene.application_id, timeout_seconds=30)),
            what="it had joined",
        )
        other = Consumer(
            {
                "bootstrap.servers": scene.bootstrap,
                "group.id": scene.application_id,
                "group.instance.id": f"{scene.application_id}-driver",
                "heartbeat.interval.ms": 300,
            }
        )
        joined = threading.Event()
        other.subscribe([commits_name(scene.application_id)], on_assign=lambda *_: joined.set())

        def is_driven_out() -> bool:
            message = other.poll(0.05)
            error = None if message is None else message.error()
            return error is not None and error.code() == KafkaError._FATAL

        wait_until(is_driven_out, what="the place was taken back")
        other.close()
        assert joined.is_set()
        assert lease.lost is None


KEYS = [b"k%d" % number for number in range(40)]
SESSION_SECONDS = 6


@pytest.mark.usefixtures("spark")
def test_a_driver_that_stood_still_commits_nothing_answers_nothing_and_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process stopped as by the kernel; its Java, its workers and its instance go on."""
    scene.create_topics()
    first = AppProcess(
        scene,
        state_dir=str(scene.directory / "first"),
        session_timeout=SESSION_SECONDS * 1000,
        heartbeat_interval=500,
        num_instances=1,
        statestore_cache_max_bytes=0,
    )
    try:
        with Stream(scene, KEYS) as stream:
            first.wait_running().wait_committed(100)
            first.process.send_signal(signal.SIGSTOP)
            take_over(scene, first, stream, monkeypatch)
    finally:
        first.kill()
    assert scene.sequences() == scene.expected_sequences()


def take_over(
    scene: Scene, first: AppProcess, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have another driver take over from the one that stands still, which goes on after that."""
    found = read_driver_file(scene.directory / "first", scene.application_id)
    # Of one on the same machine it could see that it lives.
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    timeout = timedelta(seconds=SESSION_SECONDS)
    with (
        Run(scene, session_timeout=timeout) as second,
        ThreadPoolExecutor(4) as pool,
        Client(found.url, token=found.token, timeout=timedelta(seconds=60)) as client,
    ):
        second.wait_committed(stream.sent)
        second.wait_for(lambda: is_free(scene.directory / "first", scene), what="its lock was free")
        # They are heard when it goes on, before it can know what became of it.
        asked = [pool.submit(told_roles, client) for _ in range(4)]
        wait_until(lambda: all(each.running() for each in asked), what="it was asked")
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(60) == 1
        assert [each.result() for each in asked] == [set()] * 4
        assert f"error fenced: Another driver of '{scene.application_id}' took over" in first.text()
        assert "Traceback" not in first.text()
        stream.stop()
        second.wait_committed(stream.sent)
        # The other one never noticed.
        assert not [note for note in second.notices if "taken again" in note]


def is_free(state_dir: Path, scene: Scene) -> bool:
    """Whether no instance holds the application's state there."""
    with contextlib.suppress(StateLockedError):
        StateDirectory.open(state_dir, scene.application_id).close()
        return True
    return False


def told_roles(client: Client) -> set[str]:
    """As what those spoke that answered."""
    try:
        answer = client.ask("counts", Question(kind="get", keys=tuple(KEYS)))
    except QueryError:
        return set()
    return {source.role for source in answer.sources}
