"""Tasks that read several topics, on a real Kafka and Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.pipeline import jobs
from tests.harness import Scene
from tests.in_process import Run

pytestmark = pytest.mark.usefixtures("spark")

NARROW = 3


def count_all(app: ps.Application, source: str, results: str) -> None:
    whole = app.builder.stream([source, f"{source}-2"], key=bytes, value=bytes)
    news = app.builder.stream(f"{source}-3", key=bytes, value=bytes, auto_offset_reset="latest")
    whole.merge(news).group_by_key().count("counts").to_stream().to(results)


def records(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (n % 40), b"v%d" % n) for n in range(count)]


def test_records_of_all_topics_meet_in_their_task(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(kafka, tmp_path)
    second, third = f"{scene.source}-2", f"{scene.source}-3"
    scene.create_topics(scene.source, second, third, scene.results)

    def settled(total: int) -> bool:
        return sum(scene.counts().values()) == total

    scene.produce(records(200), third)  # Before the start: of this topic only what is new counts.
    produced = scene.produce(records(500)) + scene.produce(records(300), second)
    with Run(scene, count_all) as run:
        # Little to do: one Spark partition carries all tasks.
        run.wait_for(lambda: settled(produced), what="two topics were counted")
        # One topic alone has something new.
        produced += scene.produce(records(100), second)
        run.wait_for(lambda: settled(produced), what="one topic went on")
        produced += scene.produce(records(60), third)
        run.wait_for(lambda: settled(produced), what="what is new in the third was counted")
    # Much to do: a shuffle brings the rows to their tasks. After a restart, so that it waits there.
    place_of_task, shuffled = jobs._place_of_task, []
    monkeypatch.setattr(jobs, "SMALL_BATCH_RECORDS", 10)
    monkeypatch.setattr(jobs, "_place_of_task", lambda o: shuffled.append(o) or place_of_task(o))
    produced += scene.produce(records(3000)) + scene.produce(records(5000), second)
    with Run(scene, count_all) as run:
        run.wait_for(lambda: settled(produced), what="the rows were shuffled and counted")
    assert shuffled
    for sequence in scene.sequences().values():
        assert sequence == list(range(1, len(sequence) + 1))


def count_through_fewer(app: ps.Application, source: str, results: str) -> None:
    both = app.stream(source, key=bytes, value=bytes).merge(
        app.stream(f"{source}-2", key=bytes, value=bytes)
    )
    narrow = both.repartition(name="narrow", partitions=NARROW)
    narrow.group_by_key().count("counts").to_stream().to(results)


def test_topics_of_other_widths_are_merged_and_sent_through_a_narrower_one(
    kafka: str, tmp_path: Path
) -> None:
    """As many tasks as the wider topic has partitions; behind the narrow one as many as it has."""
    scene = Scene(kafka, tmp_path, partitions=4).create_topics()
    two = Scene(kafka, tmp_path, partitions=2, id=scene.id).create_topics(f"{scene.source}-2")
    produced = scene.produce(records(300)) + two.produce(records(200), f"{scene.source}-2")
    with Run(scene, count_through_fewer) as run:
        run.wait_for(
            lambda: sum(scene.counts().values()) == produced, what="both topics were counted"
        )
    assert scene.counts() == {b"k%d" % n: (8 if n < 20 else 7) + 5 for n in range(40)}
    for sequence in scene.sequences().values():
        assert sequence == list(range(1, len(sequence) + 1))
    topics = scene.admin.list_topics(timeout=30).topics
    widths = [
        len(topics[f"{scene.application_id}-{each}"].partitions)
        for each in ("narrow-repartition", "counts-changelog", "commits")
    ]
    # The commits topic has a partition for the driver, and one for each task.
    assert widths == [NARROW, NARROW, 1 + 4 + NARROW]
