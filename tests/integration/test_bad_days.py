"""Bad input and bad days: each ends in an error that says what, where and what next, and costs nothing.

Method: a real broker and one Spark session for all; the application runs in this process, is broken in
one way, and after the cause is mended goes on from where it was, to the exact counts.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import penstock as ps
from tests.harness import Scene
from tests.in_process import Run, start_fails

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=2).create_topics()


def records(count: int, *, keys: int = 10) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (i % keys), b"value") for i in range(count)]


def assert_exact(scene: Scene) -> None:
    """Every key's counts go up by one from 1, to as often as it is in the source."""
    expected = scene.expected()
    assert scene.counts(scene.changelog) == expected
    assert scene.sequences() == {key: list(range(1, n + 1)) for key, n in expected.items()}


def test_nothing_listens_at_the_bootstrap_address(scene: Scene) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        error = start_fails(scene, bootstrap_servers=address)
    assert isinstance(error, ps.errors.BrokerUnreachableError)
    assert f"Nothing answers at {address}" in str(error)
    assert "penstock dev" in str(error) and "bootstrap_servers" in str(error)


def test_a_missing_topic_is_named_with_the_nearest_one(scene: Scene) -> None:
    def misspelt_source(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source + "s", key=bytes, value=bytes)
        stream.group_by_key().count("counts").to_stream().to(results)

    def misspelt_sink(app: ps.Application, source: str, results: str) -> None:
        stream = app.stream(source, key=bytes, value=bytes)
        stream.group_by_key().count("counts").to_stream().to(results + "put")

    for topology, wrong, right in (
        (misspelt_source, scene.source + "s", scene.source),
        (misspelt_sink, scene.results + "put", scene.results),
    ):
        error = start_fails(scene, topology)
        assert isinstance(error, ps.errors.TopicMissingError)
        assert f"{wrong!r} does not exist" in str(error)
        assert f"Did you mean {right!r}" in str(error)


def test_start_stop_again(scene: Scene) -> None:
    total = scene.produce(records(100))
    with Run(scene) as run:
        run.wait_committed(total)
    total += scene.produce(records(100))
    with Run(scene) as run:
        run.wait_committed(total)
    assert_exact(scene)
