"""A driver that is cut off from Kafka under load, while its Java and its instances are not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.local.kraft import free_ports
from penstock.queries import Client
from penstock.queries.driver_file import read_driver_file
from tests.gate import Gate
from tests.harness import AppProcess, Scene, Stream
from tests.in_process import Run
from tests.integration.test_driver_lease import KEYS, told_roles

SESSION_SECONDS = 6


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[tuple[Gate, str]]:
    """A broker that is reached through a gate only, and where."""
    [port] = free_ports(1)
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    options = KafkaOptions(directory=tmp_path / "kafka", settings=settings)
    with EmbeddedKafka(options) as kafka:
        found = Gate(port, int(kafka.bootstrap_servers.rpartition(":")[2]))
        yield found, f"127.0.0.1:{port}"
        found.close()


@pytest.mark.usefixtures("spark")
def test_a_driver_that_is_cut_off_commits_nothing_answers_nothing_and_ends(
    gate: tuple[Gate, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, servers = gate
    scene = Scene(servers, tmp_path, partitions=2).create_topics()
    state_dir = tmp_path / "first"
    first = AppProcess(
        scene,
        state_dir=str(state_dir),
        session_timeout=SESSION_SECONDS * 1000,
        heartbeat_interval=500,
        num_instances=1,
        statestore_cache_max_bytes=0,
    )
    try:
        with Stream(scene, KEYS) as stream:
            first.wait_running().wait_committed(100)
            network.cut_off(first.process.pid)
            found = read_driver_file(state_dir, scene.application_id)
            # Of one on the same machine it could see that it lives.
            monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
            timeout = timedelta(seconds=SESSION_SECONDS)
            with (
                Run(scene, session_timeout=timeout) as second,
                Client(found.url, token=found.token, timeout=timedelta(seconds=60)) as client,
            ):
                second.wait_committed(stream.sent)
                first.check("while it was cut off")
                # It cannot know that it was replaced, and so does not say that it is the one.
                assert "active" not in told_roles(client)
                network.mend()
                assert first.process.wait(60) == 1
                assert "error fenced: Another driver" in first.text()
                assert "Traceback" not in first.text()
                stream.stop()
                second.wait_committed(stream.sent)
                # The other one never noticed.
                assert not [note for note in second.notices if "taken again" in note]
    finally:
        first.kill()
    assert scene.sequences() == scene.expected_sequences()
