"""Commands of the docs that need a Kafka do what their page says; the tutorial has its own test."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli import main
from tests.harness import Scene
from tests.unit.test_cli_help import examples
from tests.unit.test_docs_commands import PROGRAM
from tests.unit.test_docs_snippets import ROOT, commands, snippets

CHANGELOGS = ROOT / "docs" / "concepts" / "changelogs.md"
README = ROOT / "README.md"
OPERATING = ROOT / "docs" / "operating.md"


@pytest.fixture
def scene(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", kafka)
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))
    return Scene(kafka, tmp_path, partitions=2).create_topics()


def of_scene(text: str, scene: Scene) -> str:
    """A page's names, as those of topics that only this test has."""
    names = {"pulse-monitor": scene.application_id, "pulse-events": scene.source}
    for name, own in {**names, "pulse-totals": scene.results}.items():
        text = text.replace(name, own)
    return text


def typed(line: str) -> int:
    """Type a command; the status with which it ends."""
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line)[1:])
    return int(ended.value.code or 0)


def test_topics_are_planned_and_applied_as_the_page_shows(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    describe, plan, apply = [line for line in commands(CHANGELOGS) if " topics " in line]
    [program] = [each.code for each in snippets(CHANGELOGS) if '"pulse-counts"' in each.code]
    [shown] = re.findall(r"^```\n(to alter .*?)^```$", CHANGELOGS.read_text(), re.DOTALL | re.M)
    # One broker has one replica.
    program = of_scene(program, scene).replace('"2"', '"1"').replace("=3", "=1").split("same =")[0]
    wanted = [line for line in of_scene(shown, scene).splitlines() if "insync" not in line]
    app = scene.directory / "app.py"
    app.write_text(re.sub(r", logging=\{.*\}", "", program))
    assert typed(apply) == 0
    app.write_text(program)
    scene.set_config(
        f"{scene.application_id}-pulse-counts-changelog", {"retention.bytes": "123456789"}
    )
    capsys.readouterr()
    assert typed(plan) == 1
    assert capsys.readouterr().out.splitlines() == wanted
    assert typed(describe) == 0
    assert typed(apply) == 0
    assert typed(plan) == 0


def test_test_data_is_sent_as_the_readme_shows_until_ctrl_c(scene: Scene) -> None:
    [line] = [each for each in commands(README) if "produce-test-data" in each]
    words = shlex.split(line.replace("localhost:9092", scene.bootstrap))
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *words[1:]], stdout=-1, stderr=-1, text=True
    )
    assert process.stderr is not None
    assert any("Ctrl-C ends" in told for told in process.stderr)
    process.send_signal(signal.SIGINT)
    sent, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.fullmatch(r"[\d,]+ records? sent\.\n", sent)


@pytest.mark.usefixtures("spark")
def test_a_store_is_filled_from_history_as_the_page_shows(scene: Scene) -> None:
    [line] = [each for each in commands(OPERATING) if each.startswith("penstock bootstrap")]
    (scene.directory / "pulse_monitor.py").write_text(of_scene(PROGRAM, scene))
    when = datetime(2026, 1, 30, tzinfo=UTC)
    rows = {"patient": ["ann", "bob"], "beats": [72, 64], "last_beat": [when, when]}
    (scene.directory / "counts").mkdir()
    pq.write_table(pa.table(rows), scene.directory / "counts" / "part.parquet")
    assert typed(line.replace("/data/counts", str(scene.directory / "counts"))) == 0
    changelog = f"{scene.application_id}-pulse-counts-changelog"
    assert scene.counts(changelog) == {b"ann": 72, b"bob": 64}
    # What `--help` shows is another way to the same store.
    [line] = [each for each in examples() if each.startswith("penstock bootstrap")]
    (scene.directory / "app.py").write_text(of_scene(PROGRAM, scene))
    history = scene.directory / "history"
    history.mkdir()
    rows = {"key": ["ann", "eve"], "value": [80, 70]}
    pq.write_table(pa.table(rows), history / "part.parquet")
    assert typed(f"{line.replace('/data', str(history))} --replace") == 0
    assert scene.counts(changelog) == {b"ann": 80, b"bob": 64, b"eve": 70}
