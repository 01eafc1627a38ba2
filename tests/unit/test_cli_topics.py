"""`penstock topics` without a broker: usage, and nobody there."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from penstock.cli import main

PROGRAM = """
import penstock as ps

app = ps.Application("cli-topics", bootstrap_servers="{address}")
app.stream("in", key=str, value=str).group_by_key().count("counts").to_stream().to("out")
"""


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["topics", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("action", ["describe", "plan", "apply"])
def test_no_broker_is_told_from_a_difference(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    path = tmp_path / f"program_topics_{action}.py"
    path.write_text(PROGRAM.format(address=address))
    assert run(action, str(path)) == 3
    told = capsys.readouterr().err
    assert f"Nothing answers at {address}" in told
    assert "PENSTOCK_BOOTSTRAP_SERVERS" in told
    assert run(action, str(path), "--json") == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["error"]["code"] == "broker_unreachable"


def test_usage_is_an_exit_status_of_its_own(tmp_path: Path) -> None:
    assert run("mend", str(tmp_path / "app.py")) == 2
    assert run("plan") == 2
    assert run("plan", str(tmp_path / "nothing.py")) == 2


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("topics", "plann"), "'create'. Did you mean 'plan'?"),
        (("topics", "foo"), "'create'."),
        (("topology", "draw-svg"), "'diff'."),
        (("topology", "dif"), "'diff'. Did you mean 'diff'?"),
    ],
)
def test_a_word_that_is_none_of_those_is_told_with_what_is_near(
    words: tuple[str, str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "app.py"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    what = f"penstock: Invalid value for 'action': {words[1]!r} is not one of 'describe'"
    assert told.startswith(what)
    assert f"{meant} `penstock {words[0]} --help`" in told.replace("?.", "?")
