"""Bytes, names and offsets are Kafka Streams': Java reads them, takes over, and hands back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock.local.jars import BROKER, STREAMS, JarSet, classpath, ensure
from penstock.local.java import find_java
from tests.harness import Scene, wait_until
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

INTEROP = Path(__file__).parent / "data" / "Interop.java"


def java(jars: JarSet, *arguments: object, classes: Path | None = None) -> str:
    paths = [*ensure(jars), *([classes] if classes else [])]
    command = [find_java().program, "-cp", classpath(paths), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class JavaProgram:
    """A program of one file that uses Kafka Streams, compiled once for several runs."""

    def __init__(self, source: Path, directory: Path) -> None:
        self._name, self._classes = source.stem, directory
        java(STREAMS, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", directory, source)

    def run(self, *arguments: object) -> str:
        return java(STREAMS, self._name, *arguments, classes=self._classes)


def records(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (i * 7 % 10), b"value") for i in range(count)]


def test_java_reads_the_state_takes_over_and_hands_back(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    interop = JavaProgram(INTEROP, tmp_path / "classes")
    total = scene.produce(records(100))
    with Run(scene) as run:
        run.wait_committed(total)

    # A count in the changelog is a long, and the record's timestamp is the count's.
    lines = interop.run("read", kafka, scene.changelog).splitlines()
    last = {key: (int(count), int(at)) for key, count, at in map(str.split, lines)}
    newest: dict[str, int] = {}
    for row in scene.read(scene.source):
        assert row.key is not None
        newest[row.key.decode()] = max(row.timestamp, newest.get(row.key.decode(), 0))
    expected = {key.decode(): count for key, count in scene.expected().items()}
    assert last == {key: (expected[key], newest[key]) for key in expected}

    # Kafka's own tool shows where the group stands.
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    told = java(
        BROKER, tool, "--bootstrap-server", kafka, "--describe", "--group", scene.application_id
    )
    [header, *rows] = [line.split() for line in told.splitlines() if line.strip()]
    lags = [row[header.index("LAG")] for row in rows if scene.source in row]
    assert lags == ["0", "0"]

    # Java goes on under the same application id, from our changelog and offsets.
    total += scene.produce(records(100))
    wait_until(lambda: is_empty(scene), what="our driver left the group")
    arguments = (kafka, scene.application_id, scene.source, scene.results, tmp_path / "java", total)
    interop.run("run", *arguments)
    assert scene.counts() == scene.expected()
    wait_until(lambda: is_empty(scene), what="the group gave Java's member up")

    # And we go on from Java's.
    total += scene.produce(records(100))
    with Run(scene) as run:
        run.wait_committed(total)
    assert any("was moved by someone else" in notice for notice in run.notices)
    counts = scene.expected()
    assert scene.counts(scene.changelog) == counts
    assert scene.sequences() == {key: list(range(1, n + 1)) for key, n in counts.items()}


def is_empty(scene: Scene) -> bool:
    admin = scene.admin
    group = admin.describe_consumer_groups([scene.application_id])[scene.application_id].result()
    return not group.members
