"""`penstock topology`: text, pictures, and differences with their exit codes."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from penstock.cli import main

PROGRAM = """
import penstock as ps

app = ps.Application("cli-topology"{options})
app.stream("in", key=str, value=str).group_by_key().count("{store}").to_stream().to("out")
"""


def program(directory: Path, store: str, options: str = "") -> str:
    path = directory / f"program_{store}.py"
    path.write_text(PROGRAM.format(store=store, options=options))
    return str(path)


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["topology", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_text_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = program(tmp_path, "counts")
    assert run("describe", app) == 0
    assert "Processor: KSTREAM-AGGREGATE-0000000001 (stores: [counts])" in capsys.readouterr().out
    assert run("svg", app) == 0
    assert ET.fromstring(capsys.readouterr().out).tag.endswith("svg")
    assert run("mermaid", app) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")
    assert run("mermaid", app, "--json") == 0
    assert json.loads(capsys.readouterr().out)["data"]["mermaid"].startswith("flowchart LR\n")


def test_differences_with_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app, renamed = program(tmp_path, "counts"), program(tmp_path, "totals")
    assert run("describe", "--json", app) == 0
    before = tmp_path / "before.json"
    before.write_text(capsys.readouterr().out)
    assert run("diff", app, "--against", str(before)) == 0
    assert capsys.readouterr().out == "Nothing durable differs\n"
    assert run("diff", renamed, "--against", str(before)) == 1
    assert "orphans   Store 'counts' is gone" in capsys.readouterr().out
    assert run("diff", renamed, "--against", str(before), "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert [each["kind"] for each in answer["data"]["differences"]] == [
        "store_removed",
        "store_added",
    ]


@pytest.mark.parametrize("content", [None, b"\xff", b"{}", b'{"ok": true, "data": 3}'])
def test_a_file_that_is_none_is_named(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tmp_path / "before.json"
    if content is not None:
        before.write_bytes(content)
    assert run("diff", program(tmp_path, "counts"), "--against", str(before)) == (
        2 if content is None else 1
    )
    assert "before.json" in capsys.readouterr().err


def test_a_file_is_for_diff_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = program(tmp_path, "counts")
    assert run("svg", app, "--against", str(tmp_path / "x")) == 2
    assert "--against is for diff" in capsys.readouterr().err


def test_no_broker_is_told_from_a_difference(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    app = program(tmp_path, "counts", options=f', bootstrap_servers="{address}"')
    assert run("diff", app) == 3
