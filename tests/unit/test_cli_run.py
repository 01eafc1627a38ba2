"""`penstock run`: the options that it sets, and what it says while it starts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import penstock as ps
from penstock.changelog.commit_record import DriverRecord
from penstock.cli import main
from penstock.cli.running import console
from penstock.cli.status import shown
from penstock.config import Config
from penstock.coordination.states import ApplicationState
from penstock.driver.events import StateChanged, Waiting
from penstock.driver.overview import starting

PROGRAM = """
from datetime import timedelta
import penstock as ps
app = ps.Application("dev", commit_interval=timedelta(seconds=5))
app.stream("in", key=str, value=str).to("out")
"""


def test_dev_shows_every_update_soon_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Config] = []
    monkeypatch.setattr(ps.Application, "run", lambda app: ran.append(app.config))
    file = tmp_path / "dev_application.py"
    file.write_text(PROGRAM)
    for options in ([], ["--dev"]):
        with pytest.raises(SystemExit) as end:
            main(["run", str(file), *options])
        assert end.value.code == 0
    usual, dev = ran
    assert (usual.commit_interval, usual.statestore_cache_max_bytes) == (
        timedelta(seconds=5),
        10 * 1024 * 1024,
    )
    assert (dev.commit_interval, dev.statestore_cache_max_bytes) == (timedelta(milliseconds=10), 0)
    assert "--dev: no record cache, a commit every 10 ms" in capsys.readouterr().err


def begin(app: ps.Application) -> None:
    """Tell what an application tells that starts."""
    created, rebalancing, running, *_ = ApplicationState
    app._tell(StateChanged(old=created, new=rebalancing))
    app._tell(Waiting(step="starting Spark"))
    assert app.monitor.waits_for == "starting Spark"
    app._tell(StateChanged(old=rebalancing, new=running))
    assert app.monitor.waits_for == ""


def test_it_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ps.Application, "run", begin)
    file = tmp_path / "starting_application.py"
    file.write_text(PROGRAM)
    with pytest.raises(SystemExit):
        main(["run", str(file)])
    told = capsys.readouterr().err.splitlines()
    assert told == ["rebalancing", "rebalancing: starting Spark", "running"]
    with pytest.raises(SystemExit):
        main(["run", str(file), "--json"])
    told = capsys.readouterr().out.splitlines()
    assert told[1] == ('{"ok":true,"data":{"state":"rebalancing","waits_for":"starting Spark"}}')


def test_the_status_of_one_that_starts_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    prepared = SimpleNamespace(application_id="pulse", config=Config())
    record = DriverRecord(generation=2, host="here", pid=7, process_start=0.0, beat=1)
    found = starting(cast("Any", prepared), record, state="rebalancing", waits_for="starting Spark")
    console().print(shown(found))
    assert "pulse  rebalancing: starting Spark\n" in capsys.readouterr().out
