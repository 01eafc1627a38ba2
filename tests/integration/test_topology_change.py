"""A program that does not fit what the last one left is refused; one that does goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.changelog.clients import LogClients
from penstock.changelog.topic_admin import TopicAdmin
from penstock.cli import main
from penstock.config import Config
from penstock.driver.last_run import read_last_run
from penstock.errors import TopologyChangedError
from tests.harness import Scene
from tests.in_process import Run, start_fails

pytestmark = pytest.mark.usefixtures("spark")

RECORDS = [(b"a", b"x"), (b"b", b"y"), (b"a", b"z")]


def one_more_store(app: ps.Application, source: str, results: str) -> None:
    stream = app.stream(source, key=bytes, value=bytes)
    stream.to_table("a-latest")
    stream.group_by_key().count("counts").to_stream().to(results)


def renamed(app: ps.Application, source: str, results: str) -> None:
    app.stream(source, key=bytes, value=bytes).group_by_key().count("totals").to_stream().to(
        results
    )


def other_type(app: ps.Application, source: str, results: str) -> None:
    stream = app.stream(source, key=bytes, value=bytes)
    stream.group_by_key().reduce(lambda old, new: new, "counts").to_stream().to(results)


PROGRAM = """
import penstock as ps
app = ps.Application("{application_id}", bootstrap_servers="{bootstrap}")
app.stream("{source}", key=bytes, value=bytes).group_by_key().count("{store}")
"""


class Shown:
    """What `penstock topology diff` says of a program that has one store of a name."""

    def __init__(self, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        self._scene, self._capsys = scene, capsys

    def __call__(self, store: str) -> tuple[int, str]:
        scene = self._scene
        path = scene.directory / f"shown_{store}.py"
        names = {"application_id": scene.application_id, "source": scene.source}
        path.write_text(PROGRAM.format(store=store, bootstrap=scene.bootstrap, **names))
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["topology", "diff", str(path)])
        assert isinstance(ended.value.code, int)
        return ended.value.code, self._capsys.readouterr().out


def test_what_would_orphan_or_misread_state_is_shown_and_refused(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    config = Config(bootstrap_servers=kafka)
    logs, admin = LogClients(config, scene.application_id), TopicAdmin(config)
    assert read_last_run(scene.application_id, logs, admin).topology is None
    shown = Shown(scene, capsys)
    code, text = shown("counts")
    assert code == 0
    assert "has not run" in text

    total = scene.produce(RECORDS)
    with Run(scene) as run:
        run.wait_committed(total)
    first = read_last_run(scene.application_id, logs, admin)
    assert sorted(first.tasks) == ["counts-0", "counts-1"]

    assert shown("counts") == (0, "Nothing durable differs\n")
    code, text = shown("totals")
    assert code == 1
    assert "orphans   Store 'counts' is gone" in text

    # Refused, and nothing was made.
    error = start_fails(scene, renamed)
    assert isinstance(error, TopologyChangedError)
    assert "give the store its old name 'counts'" in str(error)
    assert f"{scene.application_id}-totals-changelog" not in admin.names()
    error = start_fails(scene, other_type)
    assert "written as long and would be read as bytes" in str(error)

    # A store before the first is no change of names: tasks go on where they were.
    total += scene.produce(RECORDS)
    with Run(scene, one_more_store) as run:
        run.wait_committed(total)
    last = read_last_run(scene.application_id, logs, admin)
    assert last.tasks == first.tasks
    assert last.topology is not None
    assert [sub.name for sub in last.topology.sub_topologies] == ["counts"]
    assert scene.counts() == scene.expected()

    # Allowed, once, and remembered: what was left behind may not come back unnoticed.
    total += scene.produce(RECORDS)
    with Run(scene, renamed, allow_topology_change=True) as run:
        run.wait_committed(total)
    with Run(scene, renamed):
        pass
    last = read_last_run(scene.application_id, logs, admin)
    assert last.topology is not None
    assert last.topology.retired == ("a-latest", "counts")
    error = start_fails(scene)
    assert "'counts' is back" in str(error)
