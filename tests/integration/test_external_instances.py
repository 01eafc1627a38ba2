"""Instances that an operator starts: before the application, restarted one by one, and paused."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.driver.events import Event, Rebalanced
from penstock.errors import ConfigError, QueryError
from penstock.instance.process import TOKEN_VARIABLE
from penstock.queries import Client
from penstock.queries.contract import Question
from penstock.queries.driver_file import read_driver_file
from penstock.stores.directory import StateDirectory
from tests.certificates import Authority
from tests.harness import Scene, Stream, wait_until
from tests.in_process import Run, start_fails

pytestmark = pytest.mark.usefixtures("spark")

KEYS = [b"k%d" % i for i in range(40)]


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=4).create_topics()


@pytest.fixture
def address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    token = secrets.token_hex(32)
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    return token


class Operator:
    """Starts instances, and ends them with the test."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self.tls: dict[str, str] = {}
        self._environment = {**os.environ, TOKEN_VARIABLE: token}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock.cli", "instance", "--slot", name]
        command += ["--coordinator", self._address, *options]
        self._processes[name] = process = subprocess.Popen(
            command,
            env=self._environment | {f"PENSTOCK_{k.upper()}": v for k, v in self.tls.items()},
        )
        return process

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def operator(address: str, token: str) -> Iterator[Operator]:
    operator = Operator(address, token)
    yield operator
    operator.close()


def records(count: int) -> list[tuple[bytes, bytes]]:
    return [(KEYS[i % 40], b"v") for i in range(count)]


def wait_until_ended(process: subprocess.Popen[bytes]) -> int:
    wait_until(lambda: process.poll() is not None, what="the instance ended")
    return process.returncode


def test_static_instances_restarted_one_by_one_under_load_cause_no_rebalance(
    scene: Scene, address: str, operator: Operator
) -> None:
    def start(name: str) -> subprocess.Popen[bytes]:
        return operator.start(name, "--group-instance-id", name)

    # With TLS, as on several hosts.
    authority = Authority(scene.directory, "ward")
    shown = authority.issue("ward")
    operator.tls = {
        "tls_certificate_file": str(shown.certificate),
        "tls_key_file": str(shown.key),
        "tls_ca_file": str(authority.certificate),
    }
    options: dict[str, Any] = {**operator.tls, "coordinator_listen": address}
    # They wait for an application that is not there yet.
    running = {name: start(name) for name in ("ward-0", "ward-1")}
    total = scene.produce(records(400))
    with Run(scene, **options, session_timeout=timedelta(minutes=5)) as run:
        run.wait_committed(total)
        run.wait_for(lambda: run.app.totals.rebalances > 0 and settled(run), what="both have tasks")
        rebalances = run.app.totals.rebalances
        with Stream(scene, KEYS) as stream:
            for name in list(running):
                running[name].send_signal(signal.SIGTERM)
                assert wait_until_ended(running[name]) == 0
                running[name] = start(name)
                run.wait_for(
                    lambda name=name: any(f"{name} is back in time" in n for n in run.notices),
                    what=f"{name} was back",
                )
                run.wait_committed(total + stream.sent)
        run.wait_committed(total + stream.sent)
        assert run.app.totals.rebalances == rebalances
    assert scene.sequences() == scene.expected_sequences()
    # They were told that it ends.
    assert [wait_until_ended(each) for each in running.values()] == [0, 0]


def settled(run: Run) -> bool:
    return str(run.app.state) == "running"


def loads(run: Run) -> list[int]:
    """How many tasks each instance serves."""
    lags = run.app.all_local_store_partition_lags()
    return sorted(Counter(each.instance for each in lags if each.role == "active").values())


def test_an_instance_that_was_paused_for_too_long_commits_nothing_answers_nothing_and_ends(
    scene: Scene, address: str, operator: Operator
) -> None:
    total = scene.produce(records(400))
    moved: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Rebalanced):
            moved.extend(event.rebalance.why)

    paused = operator.start("one", "--name", "one", "--capacity", "3", "--http", "127.0.0.1:0")
    operator.start("two", "--name", "two")
    run = Run(
        scene,
        coordinator_listen=address,
        session_timeout=timedelta(seconds=6),
        commit_interval=timedelta(milliseconds=100),
    )
    run.app.on_event(hear)
    with run, contextlib.ExitStack() as stack:
        run.wait_committed(total)
        run.wait_for(lambda: loads(run) == [1, 3], what="each had tasks by its capacity")
        run.wait_for(lambda: settled(run), what="all tasks are served")
        stream = stack.enter_context(Stream(scene, KEYS))
        run.wait_committed(total + 100)
        client = stack.enter_context(client_of(scene, "one"))
        paused.send_signal(signal.SIGSTOP)
        run.wait_for(
            lambda: any("lost" in why for why in moved) and settled(run), what="it was given up"
        )
        run.wait_committed(total + stream.sent)
        # They are heard when it goes on, before it can know what became of it.
        pool = stack.enter_context(ThreadPoolExecutor(4))
        asked = [pool.submit(who_is_active, client) for _ in range(4)]
        wait_until(lambda: all(each.running() for each in asked), what="it was asked")
        paused.send_signal(signal.SIGCONT)
        # Refused: the coordinator does not know it any more.
        assert wait_until_ended(paused) == 1
        assert not any("one" in each.result() for each in asked)
        StateDirectory.open(scene.state_dir / "one", scene.application_id).close()
        stream.stop()
        run.wait_committed(total + stream.sent)
    assert scene.sequences() == scene.expected_sequences()


def test_an_instance_whose_disk_takes_no_task_ends_and_others_go_on(
    scene: Scene, address: str, operator: Operator
) -> None:
    own = scene.state_dir / "two" / scene.application_id
    own.mkdir(parents=True)
    for partition in range(scene.partitions):
        # Nothing can be kept where a file is in the way.
        (own / f"0_{partition}").touch()
    instances = [operator.start("one"), operator.start("two")]
    total = scene.produce(records(400))
    with Run(
        scene, coordinator_listen=address, heartbeat_interval=timedelta(milliseconds=500)
    ) as run:
        run.wait_committed(total)
        assert wait_until_ended(instances[1]) == 1
        run.wait_for(lambda: loads(run) == [4], what="the other one had all tasks")
        total += scene.produce(records(100))
        run.wait_committed(total)
    assert scene.sequences() == scene.expected_sequences()


def client_of(scene: Scene, instance: str) -> Client:
    """Whoever asks that instance over HTTP."""
    found = read_driver_file(scene.state_dir, scene.application_id)
    with Client(found.url, token=found.token) as driver:
        url = driver.instances()[instance]
    return Client(url, token=found.token, timeout=timedelta(seconds=60))


def who_is_active(client: Client) -> set[str]:
    """Those who spoke as active."""
    try:
        answer = client.ask("counts", Question(kind="get", keys=tuple(KEYS)))
    except QueryError:
        return set()
    return {source.instance for source in answer.sources if source.role == "active"}


def test_whoever_listens_needs_a_token(
    scene: Scene, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    error = start_fails(scene, coordinator_listen=address)
    assert isinstance(error, ConfigError)
    assert TOKEN_VARIABLE in str(error)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))):
        monkeypatch.setenv(TOKEN_VARIABLE, "short")
        assert isinstance(start_fails(scene, coordinator_listen=address), ConfigError)
