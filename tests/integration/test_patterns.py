"""A stream of all topics that match a pattern, also of those that come while it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock as ps
from penstock.driver import watch
from penstock.errors import TopicMissingError
from tests.harness import Scene
from tests.in_process import Run, start_fails

pytestmark = pytest.mark.usefixtures("spark")


def matching(app: ps.Application, source: str, results: str) -> None:
    stream = app.stream(re.compile(re.escape(source) + "-.*"), key=str, value=str)
    stream.group_by_key().count("counts").to_stream().to(results)


def test_topics_that_match_are_read_from_the_start_or_from_when_they_come(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.2)
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    assert isinstance(start_fails(scene, matching), TopicMissingError)
    keys = [b"k%d" % n for n in range(10)]
    one, two = f"{scene.source}-one", f"{scene.source}-two"
    scene.create_topics(one)
    # With fewer partitions: only the first task reads it.
    Scene(kafka, tmp_path, partitions=1, id=scene.id).create_topics(two)

    def send(topic: str) -> None:
        scene.produce([(key, b"v") for key in keys], topic)

    def counted() -> int:
        rows = scene.read(scene.results)
        return sum(1 for _ in rows)

    send(one)
    send(two)
    with Run(scene, matching) as run:
        run.wait_for(lambda: counted() == 20, what="both topics were counted")
        three = f"{scene.source}-three"
        scene.create_topics(three)
        send(three)
        run.wait_for(lambda: counted() == 30, what="the new topic was counted")
        assert any(f"{three} is new" in notice for notice in run.notices)
        send(one)
        run.wait_for(lambda: counted() == 40, what="the old ones are still read")
    # A key's first task may count it a second time where a topic has fewer partitions.
    last: dict[tuple[int, bytes], int] = {}
    for row in scene.read(scene.changelog):
        assert row.key is not None
        assert row.value is not None
        last[row.partition, row.key] = int.from_bytes(row.value, "big")
    assert sum(last.values()) == 40
