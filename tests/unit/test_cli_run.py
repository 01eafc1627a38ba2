"""`penstock run`: the options that it sets, and what it says while it starts."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import penstock as ps
from penstock.changelog.commit_record import DriverRecord
from penstock.cli import main
from penstock.cli.run import _log_dev
from penstock.cli.running import Running, console
from penstock.cli.status import shown, silent
from penstock.config import Config
from penstock.coordination.states import ApplicationState
from penstock.driver.events import StateChanged, Waiting
from penstock.driver.overview import Overview, starting
from penstock.errors import ApplicationUnreachableError

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


def test_a_log_of_json_has_no_other_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ps.Application, "run", begin)
    monkeypatch.setenv("PENSTOCK_LOG_FORMAT", "json")
    file = tmp_path / "collected_application.py"
    file.write_text(PROGRAM)
    with pytest.raises(SystemExit):
        main(["run", str(file), "--dev"])
    assert capsys.readouterr() == ("", "")
    with pytest.raises(SystemExit):
        main(["run", str(file), "--json"])
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 3
    assert told.err == ""


def test_dev_says_so_in_a_log_of_json(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock.cli")
    _log_dev(Waiting(step="starting Spark"))
    assert caplog.messages == []
    _log_dev(StateChanged(old=ApplicationState.REBALANCING, new=ApplicationState.RUNNING))
    assert caplog.messages == ["--dev: no record cache, a commit every 10 ms"]


def overview(state: str, waits_for: str = "") -> Overview:
    prepared = SimpleNamespace(application_id="pulse", config=Config())
    record = DriverRecord(generation=2, host="here", pid=7, process_start=0.0, beat=1)
    return starting(cast("Any", prepared), record, state=state, waits_for=waits_for)


def test_the_status_of_one_that_starts_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(shown(overview("rebalancing", "starting Spark")))
    assert "pulse  rebalancing: starting Spark\n" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_who_watches_sees_an_application_go_and_come_back(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = ApplicationUnreachableError("The application's driver, process 7, has ended")
    script: list[Overview | BaseException] = [
        *(overview("running"), gone, gone, overview("rebalancing"), KeyboardInterrupt())
    ]

    def told(_: object) -> Overview:
        found = script.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(Running, "__init__", lambda *_: None)
    monkeypatch.setattr(Running, "overview", told)
    with pytest.raises(SystemExit) as ended:
        main(["status", "--application", "pulse", "--watch", "--interval", "0.1", *options])
    text = capsys.readouterr().out
    assert (ended.value.code or 0, script) == (0, [])
    if options:
        answers = [json.loads(line) for line in text.splitlines()]
        assert [each["ok"] for each in answers] == [True, False, False, True]
        assert answers[1]["error"]["code"] == "application_unreachable"
    else:
        # Into a pipe each look goes below the last, at once, and not the last of all in the end.
        heads = [line for line in text.splitlines() if line.startswith("pulse")]
        assert heads == ["pulse  running", *["pulse  last seen running"] * 2, "pulse  rebalancing"]


def test_what_is_no_longer_true_is_not_shown_as_if_it_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = ApplicationUnreachableError("The application's driver, process 7, has ended")
    console().print(silent(overview("running"), gone, 12.0))
    text = capsys.readouterr().out
    assert "pulse  last seen running\n" in text
    assert (
        "The application's driver, process 7, has ended. All above is as of 12 s ago; asking again"
        in text
    )
