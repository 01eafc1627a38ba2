"""`penstock run`: the options that it sets."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli import main
from penstock.config import Config

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
