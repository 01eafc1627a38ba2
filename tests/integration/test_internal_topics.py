"""Settings of internal topics on a real broker: shown, compared, put right; at start too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import changelog_topic
from penstock.cli import main
from penstock.config import Config
from penstock.errors import ConfigError, KafkaError
from tests.harness import Scene
from tests.in_process import Run, start_fails

PROGRAM = """
from datetime import timedelta
import penstock as ps

app = ps.Application(
    "{application_id}",
    bootstrap_servers="{bootstrap}",
    windowstore_changelog_additional_retention=timedelta(seconds=1),
    topic={topic},
)
stream = app.stream("{source}", key=str, value=bytes)
stream.group_by_key().count("counts", logging={logging}).to_stream().to("{results}")
stream.group_by_key().windowed_by(ps.tumbling(timedelta(seconds=10), grace=timedelta(0))).count(
    "windows", retention=timedelta(seconds=60)
)
stream.group_by(lambda key, value: key, key=str, name="by-key").count("again")
"""


PLAIN = """
import penstock as ps

app = ps.Application("{application_id}", bootstrap_servers="{bootstrap}")
stream = app.stream("{source}", key=bytes, value=bytes)
stream.group_by_key().count("counts", logging={logging}).to_stream().to("{results}")
"""


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=2).create_topics()


class Commands:
    """`penstock topics` on a program that can be changed."""

    def __init__(
        self, scene: Scene, capsys: pytest.CaptureFixture[str], program: str = PROGRAM
    ) -> None:
        self.scene = scene
        self.program = program
        self.capsys = capsys
        self.versions = 0
        self.write()

    def write(self, *, logging: object = True, topic: object = None) -> None:
        self.versions += 1
        self.path = self.scene.directory / f"program_{self.versions}.py"
        self.path.write_text(
            self.program.format(
                application_id=self.scene.application_id,
                bootstrap=self.scene.bootstrap,
                source=self.scene.source,
                results=self.scene.results,
                logging=logging,
                topic=topic or {},
            )
        )

    def text(self, action: str, *more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["topics", action, str(self.path), *more])
        assert isinstance(ended.value.code, int)
        return ended.value.code, self.capsys.readouterr().out

    def json(self, action: str) -> tuple[int, dict[str, Any]]:
        code, text = self.text(action, "--json")
        return code, json.loads(text)

    def settings(self, topic: str) -> dict[str, dict[str, Any]]:
        code, answer = self.json("describe")
        assert code == 0
        (found,) = [each for each in answer["data"]["topics"] if each["name"] == topic]
        return {each["name"]: each for each in found["settings"]}


def test_topics_are_made_by_apply_and_then_as_planned(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(scene, capsys)
    code, text = commands.text("describe")
    assert code == 0
    assert f"{scene.changelog} (changelog) does not exist; as it would be made:" in text
    code, answer = commands.json("plan")
    assert (code, answer["ok"]) == (1, True)
    app = scene.application_id
    names = {f"{app}-{each}" for each in ("commits", "counts-changelog", "windows-changelog")}
    names |= {f"{app}-again-changelog", f"{app}-by-key-repartition"}
    assert {each["topic"] for each in answer["data"]["create"]} == names
    assert not names & set(scene.admin.list_topics().topics)

    code, text = commands.text("apply")
    assert code == 0
    assert f"created     {scene.changelog}: 2 partitions" in text
    assert names <= set(scene.admin.list_topics().topics)
    assert commands.text("plan") == (0, "The topics are as the program says\n")
    assert commands.text("apply") == (0, "The topics are as the program says\n")

    windows = commands.settings(f"{app}-windows-changelog")
    assert windows["cleanup.policy"]["value"] == "compact,delete"
    assert windows["retention.ms"]["value"] == "61000"
    counts = commands.settings(scene.changelog)
    defaults = {
        "segment.bytes": "1073741824",
        "segment.ms": "604800000",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "9223372036854775807",
    }
    for name, value in defaults.items():
        assert (counts[name]["value"], counts[name]["default"]) == (value, value)
        assert counts[name]["who"] == "default"
    assert counts["cleanup.policy"]["who"] == "program"


def test_what_the_program_names_is_changed_and_nothing_else(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(scene, capsys)
    commands.text("apply")
    scene.set_config(scene.changelog, {"retention.bytes": "123456789", "segment.ms": "700000"})
    commands.write(
        logging={"segment.bytes": "1048576", "segment.ms": "60000"},
        topic={"segment.bytes": "2097152"},
    )
    code, answer = commands.json("plan")
    assert code == 1
    changes = {(each["topic"], each["name"]): each for each in answer["data"]["alter"]}
    app = scene.application_id
    others = {f"{app}-{each}" for each in ("commits", "windows-changelog", "again-changelog")}
    others |= {f"{app}-by-key-repartition"}
    assert {key for key in changes if key[0] != scene.changelog} == {
        (topic, "segment.bytes") for topic in others
    }
    assert changes[scene.changelog, "segment.ms"]["old"] == "700000"
    assert changes[scene.changelog, "segment.bytes"]["new"] == "1048576"
    assert changes[f"{app}-by-key-repartition", "segment.bytes"]["old"] == "52428800"
    by_hand = {"topic": scene.changelog, "name": "retention.bytes", "value": "123456789"}
    assert answer["data"]["left_alone"] == [by_hand]

    code, text = commands.text("apply")
    assert code == 0
    assert f"altered     {scene.changelog}: segment.ms from 700000 to 60000" in text
    assert f"left alone  {scene.changelog}: retention.bytes=123456789, set by hand" in text
    assert commands.text("plan")[0] == 0
    shown = commands.settings(scene.changelog)
    assert (shown["segment.bytes"]["value"], shown["segment.bytes"]["who"]) == (
        "1048576",
        "program",
    )
    assert (shown["retention.bytes"]["value"], shown["retention.bytes"]["who"]) == (
        "123456789",
        "hand",
    )


def test_what_cannot_be_made_right_is_an_error_and_nothing_is_done(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(scene, capsys)
    commands.write(topic={"min.insync.replicas": "2"})
    for action in ("plan", "apply"):
        code, answer = commands.json(action)
        assert (code, answer["ok"], answer["error"]["code"]) == (1, False, "config")
        assert (
            "min.insync.replicas=2, and its replication factor is 1" in answer["error"]["message"]
        )
    assert scene.changelog not in scene.admin.list_topics().topics

    config = Config(bootstrap_servers=scene.bootstrap)
    admin = TopicAdmin(config)
    admin.ensure([changelog_topic(scene.application_id, "counts", partitions=3)])
    commands.write()
    for action in ("plan", "apply"):
        code, answer = commands.json(action)
        assert (code, answer["error"]["code"]) == (1, "partition_count")
        assert answer["error"]["where"] == {"topic": scene.changelog}
    code, text = commands.text("describe")
    assert code == 0
    assert f"{scene.changelog} (changelog): 3 partitions (not 2), 1 replica" in text


@pytest.mark.usefixtures("spark")
def test_a_start_tells_a_difference_or_mends_it(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller = {"segment.bytes": "1048576"}
    admin = TopicAdmin(Config(bootstrap_servers=scene.bootstrap))
    admin.ensure([changelog_topic(scene.application_id, "counts", partitions=2)])
    with Run(scene, topic=smaller) as run:
        pass
    (notice,) = run.notices
    assert f"{scene.changelog}: segment.bytes is 1073741824, not 1048576" in notice
    assert "Run `penstock topics apply`" in notice
    assert admin.describe([scene.changelog])[scene.changelog].config["segment.bytes"] != "1048576"

    with Run(scene, topic=smaller, manage_topics=True) as run:
        pass
    (notice,) = run.notices
    assert f"{scene.changelog}: segment.bytes from 1073741824 to 1048576" in notice
    assert admin.describe([scene.changelog])[scene.changelog].config["segment.bytes"] == "1048576"

    # What would lose state is no difference to live with.
    scene.set_config(scene.changelog, {"cleanup.policy": "delete"})
    error = start_fails(scene)
    assert isinstance(error, KafkaError)
    assert "cleanup.policy=delete, not compact: it would lose state" in error.message
    # What the program no longer names is known for what it is; others' settings too.
    scene.set_config(scene.changelog, {"cleanup.policy": "compact", "retention.bytes": "123456789"})
    commands = Commands(scene, capsys, PLAIN)
    code, text = commands.text("plan")
    assert code == 1
    assert f"to alter    {scene.changelog}: segment.bytes from 1048576 to its default\n" in text
    by_hand = f"left alone  {scene.changelog}: retention.bytes=123456789, set by hand\n"
    assert [line for line in text.splitlines(keepends=True) if "left" in line] == [by_hand]
    code, text = commands.text("describe")
    assert "an earlier version of the program; default 1073741824" in text
    total = scene.produce([(b"a", b"x"), (b"b", b"y"), (b"a", b"z")])
    with Run(scene, manage_topics=True) as run:
        run.wait_committed(total)
    assert scene.counts(scene.changelog) == scene.expected()
    # The one is taken off, the other is not.
    assert f"{scene.changelog}: segment.bytes from 1048576 to its default" in run.notices[0]
    found = admin.describe([scene.changelog])[scene.changelog]
    kept = [found.config[name] for name in ("cleanup.policy", "segment.bytes", "retention.bytes")]
    assert kept == ["compact", "1073741824", "123456789"]

    error = start_fails(scene, topic={"min.insync.replicas": "2"})
    assert isinstance(error, ConfigError)
    assert "min.insync.replicas=2, and its replication factor is 1" in error.message


def deleting(app: ps.Application, source: str, results: str) -> None:
    stream = app.stream(source, key=bytes, value=bytes)
    kept = {"delete.retention.ms": "1"}
    stream.group_by_key().count("counts", logging=kept).to_stream().to(results)


@pytest.mark.usefixtures("spark")
def test_a_store_that_may_have_missed_tombstones_goes_by_its_own_changelog(scene: Scene) -> None:
    total = scene.produce([(b"a", b"x"), (b"b", b"y")])
    with Run(scene, deleting) as run:
        run.wait_committed(total)
    earlier = scene.state_dir.with_name("earlier")
    shutil.copytree(scene.state_dir, earlier)
    for _ in range(2):
        total += scene.produce([(b"a", b"x")])
        with Run(scene, deleting) as run:
            run.wait_committed(total)
        # The first time it has missed nothing; then its disk is one that has.
        shutil.rmtree(scene.state_dir)
        shutil.copytree(earlier, scene.state_dir)
    # Its deletions last for a millisecond, not for Kafka's day.
    assert any("rebuilding the store" in notice for notice in run.notices)
    assert scene.counts(scene.changelog) == scene.expected()
