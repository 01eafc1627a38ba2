"""`penstock reset --application` of what another program left: nothing but names and positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.cli import main
from tests.harness import Scene


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=2).create_topics()


def called(
    scene: Scene, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any]]:
    """The exit status, and the JSON that was printed."""
    place = ["--bootstrap-servers", scene.bootstrap, "--state-dir", str(scene.state_dir)]
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["reset", "--application", scene.application_id, *place, *words, "--json"])
    assert isinstance(ended.value.code, int)
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return ended.value.code, answer


def stand(scene: Scene, group: str, *offsets: int) -> None:
    """Write a group's positions in the source, as a Java application leaves them."""
    consumer = Consumer({"bootstrap.servers": scene.bootstrap, "group.id": group})
    wanted = [TopicPartition(scene.source, p, offset) for p, offset in enumerate(offsets)]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def test_an_application_of_which_nothing_is_known_is_refused(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = called(scene, capsys, "--execute")
    assert status == 1
    assert "not known what" in answer["error"]["message"]
    assert "--input-topics" in answer["error"]["hint"]
    for name in (scene.source, f"{scene.application_id}-results"):
        status, answer = called(scene, capsys, "--internal-topics", name)
        assert status == 1
        assert "no internal topic" in answer["error"]["message"]


def test_a_java_applications_topics_are_told_by_their_names(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other = scene.application_id, f"{scene.application_id}-two"
    results = f"{own}-results"
    repartition, theirs = f"{own}-by-ward-repartition", f"{other}-counts-changelog"
    scene.create_topics(scene.changelog, repartition, theirs, results)
    scene.set_config(scene.changelog, {"cleanup.policy": "compact"})
    total = scene.produce((f"k{n}", "v") for n in range(20))
    scene.produce([("k", "v")] * 3, scene.changelog)
    stand(scene, own, 5, 5)
    stand(scene, other, 1, 1)

    status, answer = called(scene, capsys)
    found = answer["data"]
    assert (status, found["executed"]) == (0, False)
    assert found["topics"] == sorted([scene.changelog, repartition])
    assert found["notes"] == [f"left alone, it may be of {other}: {theirs}"]
    assert {each["from"] for each in found["positions"][scene.source].values()} == {5}
    assert len(scene.read(scene.changelog)) == 3

    status, answer = called(scene, capsys, "--to-latest", "--execute")
    assert (status, answer["data"]["executed"]) == (0, True)
    assert scene.committed() == total
    # Made anew as they were, but empty; what is not its own stays.
    assert scene.read(scene.changelog) == []
    described = scene.admin.list_topics(timeout=10).topics
    assert len(described[scene.changelog].partitions) == 2
    assert {theirs, results} <= set(described)
    _, again = called(scene, capsys, "--input-topics", scene.source)
    assert set(again["data"]["positions"]) == {scene.source}
