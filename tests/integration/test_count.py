"""The whole path on real Kafka and real Spark: count, stop, start, lose the disk, go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.observability.catalogue import METRICS
from penstock.observability.prometheus import render
from tests.harness import Scene
from tests.in_process import Run


def records(count: int, *, keys: int = 50) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (i * 7919 % keys), b"value") for i in range(count)]


def assert_metrics_tell_of(run: Run, total: int) -> None:
    """Whatever process counted it, it is seen at the driver, under Kafka Streams' names."""

    def added_up(group: str, name: str) -> float:
        found = [v for key, v in run.app.metrics().items() if key[:2] == (group, name)]
        return sum(float(value) for value in found)

    # The group's offsets are seen a moment before the driver hears of the slice.
    run.wait_for(
        lambda: added_up("stream-thread-metrics", "process-total") == total, what="all were counted"
    )
    assert added_up("stream-thread-metrics", "commit-total") > 0
    assert added_up("stream-topic-metrics", "records-produced-total") == total
    assert added_up("stream-state-metrics", "put-rate") > 0
    assert added_up("stream-state-metrics", "get-rate") > 0
    assert added_up("stream-state-metrics", "bytes-written-total") > 0
    assert added_up("stream-state-metrics", "estimate-num-keys") > 0
    assert added_up("consumer-fetch-manager-metrics", "records-lag") == 0
    assert added_up("penstock-job-metrics", "runs-total") > 0
    assert added_up("penstock-instance-metrics", "up") >= 1
    assert run.app.monitor.health().ready
    # What queries ask of a store is among its reads.
    assert len(list(run.app.store("counts").all())) == 50
    assert added_up("stream-state-metrics", "all-rate") > 0
    snapshot = run.app.monitor.snapshot()
    assert {(each.group, each.name) for each in snapshot} <= {(m.group, m.name) for m in METRICS}
    text = render(snapshot).decode()
    assert "kafka_streams_stream_state_metrics_put_latency_avg{" in text


@pytest.mark.usefixtures("spark")
def test_counts_are_exact_over_restarts_and_a_lost_disk(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path).create_topics()
    total = scene.produce(records(1000))
    with Run(scene, metrics_recording_level="TRACE") as run:
        run.wait_committed(total)
        assert scene.counts() == scene.expected()
        assert_metrics_tell_of(run, total)
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
