"""The whole path on real Kafka and real Spark: count, stop, start, lose the disk, go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.harness import Scene
from tests.in_process import Run


def records(count: int, *, keys: int = 50) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (i * 7919 % keys), b"value") for i in range(count)]


@pytest.mark.usefixtures("spark")
def test_counts_are_exact_over_restarts_and_a_lost_disk(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path).create_topics()
    total = scene.produce(records(1000))
    with Run(scene) as run:
        run.wait_committed(total)
        assert scene.counts() == scene.expected()
    # The source grows while nobody looks; the state is there.
    total += scene.produce(records(500))
    with Run(scene) as run:
        run.wait_committed(total)
    # The state is gone.
    shutil.rmtree(scene.state_dir)
    total += scene.produce(records(500))
    with Run(scene) as run:
        run.wait_committed(total)
    assert scene.counts() == scene.expected()
    assert scene.counts(scene.changelog) == scene.expected()
    for key, sequence in scene.sequences().items():
        assert sequence == list(range(1, len(sequence) + 1)), key
