"""Which runs go into the results file, and what a row is kept with."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bench import results
from bench.__main__ import described, keep, parse
from bench.display import Terminal
from bench.lab import Lab, Settings
from bench.readme import section
from bench.results import Row
from bench.systems import System

ROW = Row(
    name="count",
    guarantee="exactly_once",
    unit="records/s",
    figures={"penstock": [2.0], "kafka_streams": [1.0]},
    targets={"kafka_streams": 2.0},
    exact=True,
)


def lab(settings: Settings) -> Lab:
    system = System(
        name="penstock", title="Penstock", version="1", settings="plain", commands=lambda _: []
    )
    return Lab(
        bootstrap_servers="",
        systems={"penstock": system},
        directory=Path(),
        display=Terminal(Console(file=io.StringIO())),
        settings=settings,
    )


@pytest.fixture
def latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "latest.json"
    monkeypatch.setattr(results, "LATEST", path)
    return path


def test_a_full_run_is_kept_with_what_is_needed_to_judge_it(latest: Path) -> None:
    whole = lab(Settings())
    keep(None, [described(ROW, whole, busiest=0.5)], whole, Console(file=io.StringIO()))
    document = results.read(latest)
    assert document is not None
    assert set(document) == {"schema", "commit", "machine", "versions", "rows"}
    assert document["rows"][0]["settings"] == {"penstock": "plain"}
    assert document["rows"][0]["met"] is True
    assert document["rows"][0]["others_share_max"] == 0.5
    assert "say little: count." in section(document)
    assert document["versions"]["penstock"] == "1"


def test_a_quick_look_leaves_the_results_alone(latest: Path) -> None:
    quick = lab(Settings(rounds=1))
    said = io.StringIO()
    keep(None, [described(ROW, quick, busiest=0.0)], quick, Console(file=said))
    assert not latest.exists()
    assert "Not kept" in said.getvalue()


def test_no_arguments_mean_the_whole_benchmark() -> None:
    options = parse([])
    assert (options.row, options.rounds, options.records) == ("", 3, 4_000_000)
    assert tuple(options.systems) == Settings().systems


def test_a_row_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["cuont"])
    assert "rows are count" in capsys.readouterr().err
