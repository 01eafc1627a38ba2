"""Every instance answers over HTTP what any of them holds, also when the driver is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import StoreUnavailableError
from penstock.queries import Client
from penstock.queries.contract import Bound, Question
from penstock.queries.driver_file import read_driver_file
from tests.certificates import Authority
from tests.harness import AppProcess, Scene, running
from tests.integration.test_external_instances import Operator, address, operator, token

__all__ = ["address", "operator", "token"]

PARTITIONS = 4
KEYS = [b"k%d" % number for number in range(40)]
QUESTION = Question(kind="get", keys=tuple(KEYS))
PATIENT = timedelta(seconds=30)


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=PARTITIONS).create_topics()


@pytest.fixture
def app(scene: Scene, address: str, operator: Operator) -> Iterator[AppProcess]:
    """Two instances of an operator's, with certificates that all show to one another."""
    authority = Authority(scene.directory, "ward")
    shown = authority.issue("ward")
    operator.tls = {
        "tls_certificate_file": str(shown.certificate),
        "tls_key_file": str(shown.key),
        "tls_ca_file": str(authority.certificate),
        "tls_verify_clients": "true",
    }
    for name in ("one", "two"):
        operator.start(name, "--http", "127.0.0.1:0")
    options = {**operator.tls, "tls_verify_clients": True}
    with running(
        scene,
        coordinator_listen=address,
        num_standby_replicas=1,
        session_timeout=300_000,
        **options,
    ) as app:
        yield app


def test_each_instance_answers_for_all_and_without_a_driver_stale(
    scene: Scene, app: AppProcess
) -> None:
    expected = [3] * len(KEYS)
    app.wait_committed(scene.produce((key, b"v") for key in KEYS * 3))
    found = read_driver_file(scene.state_dir, scene.application_id)
    with ExitStack() as stack:
        driver = stack.enter_context(Client(found.url, token=found.token, timeout=PATIENT))
        app.wait_for(lambda: len(driver.instances()) == 2, what="both instances answer")
        app.wait_for(lambda: _copies(driver) == {(0, 2)}, what="every task has a copy")
        instances = {
            name: stack.enter_context(Client(url, token=found.token, timeout=PATIENT))
            for name, url in driver.instances().items()
        }
        answer = driver.ask("counts", QUESTION)
        assert [row.value for row in answer.rows] == expected
        owners = {source.instance for source in answer.sources}
        # Each is asked for what the other one holds.
        assert owners == set(instances)
        for client in instances.values():
            assert client.ask("counts", QUESTION, timeout=PATIENT) == answer
            assert client.lags() == driver.lags()
            assert client.instances() == driver.instances()
        app.kill()
        for client in instances.values():
            stale = client.ask("counts", QUESTION, bound=Bound(stale=True), timeout=PATIENT)
            assert stale.rows == answer.rows
            assert {source.role for source in stale.sources} == {"standby"}
            assert all(source.age > timedelta() for source in stale.sources)
            with pytest.raises(StoreUnavailableError, match="the driver does not answer"):
                client.ask("counts", QUESTION, timeout=timedelta(seconds=1))


def _copies(client: Client) -> set[tuple[int, int]]:
    """What copies lack, with how many there are of each partition."""
    lags = client.lags()
    return {(lag.lag, sum(each.partition == lag.partition for each in lags)) for lag in lags} or {
        (-1, 0)
    }
