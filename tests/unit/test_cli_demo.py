"""`penstock demo` says where it can be watched while it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import penstock.cli.demo  # noqa: F401 - so that it is among the modules
from penstock.cli import main
from penstock.examples.running import Listeners, Summary
from penstock.queries.driver_file import DriverFile, write_driver_file

# `penstock.cli.demo` names the command, too.
DEMO = sys.modules["penstock.cli.demo"]


def test_the_demo_says_where_its_console_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "patient-monitoring"
    facts = DriverFile(application_id=name, process=1, url="http://127.0.0.1:1", token="secret")
    write_driver_file(tmp_path, facts)
    while_it_runs: list[str] = []

    def run(_: object, *, listeners: Listeners, **__: Any) -> Summary:
        listeners.on_place(name, tmp_path)
        listeners.on_state("running")
        while_it_runs.append(capsys.readouterr().out)
        return Summary(sent=0, results=0, settled=True)

    monkeypatch.setattr(DEMO, "run_on_own_kafka", run)
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--seconds", "1"])
    assert not ended.value.code
    assert "http://127.0.0.1:1/console#token=secret" in while_it_runs[0]
