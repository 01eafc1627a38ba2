"""Stores that are made from their input again: without a changelog, or when it is lost."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import penstock as ps
from penstock.errors import InputLostError
from tests.harness import Scene, wait_until
from tests.in_process import Run, instances_here, start_fails

pytestmark = pytest.mark.usefixtures("spark")

KEYS = 20
KILLS = 4


def unlogged(app: ps.Application, source: str, results: str) -> None:
    grouped = app.stream(source, key=bytes, value=bytes).group_by_key()
    counts = grouped.count("counts", logging=False, recover_from="input")
    counts.to_stream().to(results)


def two_stores(app: ps.Application, source: str, results: str) -> None:
    """One with a changelog and one without, in the same tasks."""
    grouped = app.stream(source, key=bytes, value=bytes).group_by_key()
    grouped.count("counts", recover_from="input").to_stream().to(results)
    grouped.count("again", logging=False, recover_from="input")


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=2).create_topics()


def produce(scene: Scene, count: int) -> int:
    return scene.produce((f"k{n % KEYS}".encode(), b"") for n in range(count))


def check_exact(scene: Scene) -> None:
    """Every count was given out, once and in order."""
    expected = scene.expected()
    assert scene.sequences() == {key: list(range(1, n + 1)) for key, n in expected.items()}


def recovered(run: Run) -> list[str]:
    return [text for text in run.notices if "reads its input again" in text]


def test_a_store_without_changelog_survives_restarts_kills_and_lost_disks(scene: Scene) -> None:
    sent = produce(scene, 300)
    with Run(scene, unlogged) as run:
        run.wait_committed(sent)
    # What was closed in order is whole.
    sent += produce(scene, 100)
    with Run(scene, unlogged) as run:
        run.wait_committed(sent)
        assert not recovered(run)
        # What was in the memory of a process that is killed is not.
        instances_here()[0].kill()
        run.wait_for(lambda: len(recovered(run)) == 2, what="both tasks read again")
        sent += produce(scene, 100)
        run.wait_committed(sent)
    shutil.rmtree(scene.state_dir)
    sent += produce(scene, 100)
    with Run(scene, unlogged) as run:
        run.wait_committed(sent)
        assert len(recovered(run)) == 2
    check_exact(scene)
    check_outputs_are_repeated_if_asked(scene, sent)
    check_input_that_is_gone_is_named(scene, sent)


def check_outputs_are_repeated_if_asked(scene: Scene, sent: int) -> None:
    shutil.rmtree(scene.state_dir)
    with Run(scene, unlogged, recover_outputs="repeat") as run:
        run.wait_for(lambda: len(scene.read(scene.results)) == 2 * sent, what="all was repeated")
    assert Counter(len(each) for each in scene.sequences().values()) == {2 * sent // KEYS: KEYS}
    assert scene.counts() == scene.expected()


def check_input_that_is_gone_is_named(scene: Scene, sent: int) -> None:
    admin = scene.admin
    for future in admin.delete_records([TopicPartition(scene.source, 0, 7)]).values():
        future.result()
    # As long as the store is there, nobody needs them.
    sent += produce(scene, 20)
    with Run(scene, unlogged) as run:
        run.wait_committed(sent)
    shutil.rmtree(scene.state_dir)
    error = start_fails(scene, unlogged)
    assert isinstance(error, InputLostError)
    assert "records 0 to 6 are gone" in str(error)
    assert error.where["topic"] == scene.source


def test_kills_at_any_moment_of_a_recovery_lose_and_double_nothing(scene: Scene) -> None:
    sent = produce(scene, 6_000)
    with Run(scene, unlogged) as run:
        run.wait_committed(sent)
    shutil.rmtree(scene.state_dir)
    sent += produce(scene, 600)
    choice = random.Random(5)
    # Small slices, so that a kill comes in between.
    with Run(scene, unlogged, slice_records_max=500) as run:
        for kills in range(KILLS):
            run.wait_for(lambda n=kills: len(recovered(run)) > n, what="it reads again")  # type: ignore[misc]
            time.sleep(choice.uniform(0, 1.5))
            for process in instances_here():
                process.kill()
        run.wait_for(lambda: len(recovered(run)) > KILLS, what="it reads again")
        run.wait_committed(sent)
    check_exact(scene)


def test_a_changelog_that_is_lost_is_written_anew_and_other_stores_with_it(scene: Scene) -> None:
    sent = produce(scene, 400)
    with Run(scene, two_stores) as run:
        run.wait_committed(sent)
    admin = scene.admin
    admin.delete_topics([scene.changelog])[scene.changelog].result()
    wait_until(
        lambda: scene.changelog not in admin.list_topics(timeout=10).topics, what="it is gone"
    )
    sent += produce(scene, 100)
    with Run(scene, two_stores) as run:
        run.wait_committed(sent)
        assert len(recovered(run)) == 2
    check_exact(scene)
    assert scene.counts(scene.changelog) == scene.expected()
    # The new changelog is as good as the old one was, once the store without one is whole.
    sent += produce(scene, 100)
    with Run(scene, two_stores) as run:
        run.wait_committed(sent)
        assert not recovered(run)
    check_exact(scene)


def test_a_changelog_that_lost_its_start_is_written_again(scene: Scene) -> None:
    def logged(app: ps.Application, source: str, results: str) -> None:
        grouped = app.stream(source, key=bytes, value=bytes).group_by_key()
        grouped.count("counts", recover_from="input", caching=False).to_stream().to(results)
        grouped.aggregate(
            bytes, lambda key, value, _: value or None, "last", value=bytes, recover_from="input"
        )

    sent = produce(scene, 100)
    # Made and deleted, as it may be in one slice.
    sent += scene.produce([(b"gone", b"v"), (b"gone", b"")])
    with Run(scene, logged, statestore_cache_max_bytes=1_000_000) as run:
        run.wait_committed(sent)
    [partition] = {row.partition for row in scene.read(scene.source) if row.key == b"gone"}
    # As if the other changelog had lost its end, and with it the deletion.
    last = f"{scene.application_id}-last-changelog"
    scene.produce([(b"gone", b"v")], last)
    set_policy(scene, "delete")
    admin = scene.admin
    for future in admin.delete_records([TopicPartition(scene.changelog, partition, 5)]).values():
        future.result()
    set_policy(scene, "compact")
    shutil.rmtree(scene.state_dir)
    with Run(scene, logged, statestore_cache_max_bytes=1_000_000) as run:
        done = f"Task 0_{partition} has read its input again"
        run.wait_for(lambda: any(done in text for text in run.notices), what="it read again")
    assert [text for text in recovered(run) if f"task 0_{1 - partition}" in text] == []
    assert [row.value for row in scene.read(last) if row.key == b"gone"][-1] is None
    shutil.rmtree(scene.state_dir)
    sent += produce(scene, 100)
    with Run(scene, logged, statestore_cache_max_bytes=1_000_000) as run:
        run.wait_committed(sent)
        assert not recovered(run)
    check_exact(scene)


def set_policy(scene: Scene, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, scene.changelog, incremental_configs=[entry])
    admin = scene.admin
    admin.incremental_alter_configs([resource])[resource].result()
