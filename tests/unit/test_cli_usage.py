"""Words that a command cannot take: exit status 2, one line, and an object with `--json`."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from penstock.cli import COMMANDS, main
from penstock.cli.answers import print_error
from penstock.cli.dev import logs
from penstock.cli.instance import _tell
from penstock.cli.query import _split
from penstock.cli.running import Meant
from penstock.errors import (
    ApplicationUnreachableError,
    MemberRefusedError,
    PenstockError,
    UserFunctionError,
)
from penstock.instance.process import TOKEN_VARIABLE, Ending
from tests.unit.test_cli_help import inner_names

PROGRAM = "import penstock as ps\napp = ps.Application('ward')\nother = ps.Application('lab')\n"

MISTAKES = {
    "bootstrap app.py": "Missing option '--store'",
    "bootstrap app.py --store s --from nowhere": "--from is 'nowhere'",
    "bootstrap app.py --store s --from topic:t --offsets t=1": "is no offset",
    "console": "Which application?",
    "console two.py": "must have one application",
    "console two.py:app --application other": "is the application 'ward'",
    "demo --seconds soon": "Invalid value for '--seconds'",
    "dev --brokers 7": "Invalid value for '--brokers'",
    "dev start here": "unexpected extra argument",
    "dev stop --brokers x": "Invalid value for '--brokers'",
    "dev logs --follow=1": "",
    "example run": "Missing argument",
    "example run nothing": "There is no example 'nothing'",
    "instance": "Missing option '--coordinator'",
    "instance --coordinator nowhere": "'nowhere' is no address",
    "instance --coordinator h:1 --name a --group-instance-id b": "Leave --name",
    "instance --coordinator h:1 --client-tag zone": "--client-tag is 'zone'",
    "instance --coordinator h:1 --capacity 0": "Invalid value for '--capacity'",
    "instance --coordinator h:1 --tls-key-file k": "Some of the options for TLS",
    "prepare all": "unexpected extra argument",
    "produce-test-data nothing": "There is no example 'nothing'",
    "produce-test-data word-count --rate 0": "Invalid value for '--rate'",
    "query": "Which application?",
    "query counts k --start noon": "'noon' is no time. Use 2026-01-31T00:00:00Z",
    "query counts k --as-of 1960-01-01": "is no time",
    "query counts k --application a --url http://h:1": "said twice where to ask",
    "query counts k --url http://h:1": "--url takes --token-file",
    "query counts k --url http://h:1 --token-file missing": "cannot be read",
    "query counts k --url nonsense --token-file two.py": "'nonsense' is no address",
    "query counts k --url http://localhost:99999 --token-file two.py": "is no address",
    "query counts k --url http://localhost:1 --token-file two.py": "the token is none. It is one",
    "records send two.py:app t": "There is nothing to send",
    "records send two.py:app t k=v --file f": "here and in a file",
    "records read": "Missing argument",
    "reset": "Which application?",
    "reset two.py:app --application ward": "Which application?",
    "reset two.py:app --input-topics t": "says itself",
    "reset two.py:app --to-latest --shift-by 3": "several places",
    "reset two.py:app --by-duration soon": "no duration",
    "reset two.py:app --by-duration 99999999999d": "no duration",
    "reset two.py:app --state-only --to-latest": "leaves positions where they are",
    "reset two.py:app --to-datetime soon": "no time",
    "run": "Missing argument",
    "run missing.py": "There is no file missing.py",
    "run two.py": "it has app, other. Say which: two.py:app",
    "run two.py:no": "has no application 'no'. At the top of the file: app, other",
    "state ls two.py:app --application other": "is the application 'ward'",
    "state snapshots": "not said whose snapshots",
    "state show": "Missing argument",
    "status": "Which application? Give app.py",
    "status --application ../x": "'../x' cannot be used",
    "status --interval 0": "Invalid value for '--interval'",
    "tasks": "Which application?",
    "topics sort two.py:app": "'sort' is not one of",
    "topics create two.py:app --partitions 0": "Invalid value for '--partitions'",
    "topology descibe two.py:app": "Did you mean 'describe'?",
    "topology svg two.py:app --against f": "--against is for diff",
    "topology diff two.py:app --against f": "cannot be read",
}
"""What was typed, and what is told."""


def ran(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with a program of two applications, in which no application runs."""
    (tmp_path / "two.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv(TOKEN_VARIABLE, "t")


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_wrong_word_is_told_in_a_line_and_as_an_object(
    typed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(*typed.split()) == 2
    told = capsys.readouterr()
    [line] = told.err.splitlines()
    assert (told.out, line.startswith("penstock: ")) == ("", True)
    assert MISTAKES[typed] in line
    monkeypatch.setenv(TOKEN_VARIABLE, "t")
    assert ran(*typed.split(), "--json") == 2
    told = capsys.readouterr()
    answer = msgspec.json.decode(told.out)
    assert (answer["ok"], answer["error"]["code"], told.err) == (False, "usage", "")
    assert answer["error"]["hint"]


def test_every_command_has_a_wrong_word_above() -> None:
    assert {typed.split()[0] for typed in MISTAKES} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_tells_of_an_option_that_it_has_not(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in [(name,), *((name, inner) for inner in inner_names(name))]:
        assert ran(*words, "--no-such-option", "--json") == 2
        told = capsys.readouterr()
        answer = msgspec.json.decode(told.out)
        assert answer["error"]["message"].startswith("No such option: --no-such-option")
        assert answer["error"]["hint"] == f"`penstock {' '.join(words)} --help` shows what it takes"
        assert told.err == ""


def test_a_command_that_there_is_not_is_a_wrong_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("stat", "--json") == 2
    assert "No such command 'stat'" in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("state",)])
def test_without_words_there_is_help(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(*words) == 2
    told = capsys.readouterr()
    assert "Usage: penstock" in told.out + told.err
    assert "penstock: " not in told.err


def test_a_function_that_raised_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = UserFunctionError(
        "The function of step s raised ValueError: a", where={"file": "app.py"}, hint="Mend it"
    )
    error.details = "Traceback (most recent call last):\n  File ..."
    assert print_error(error, as_json=False) == 1
    assert capsys.readouterr().err == (
        "penstock: The function of step s raised ValueError: a (file app.py). Mend it; "
        "the same command with --debug shows the traceback\n"
    )
    assert print_error(error, as_json=True) == 1
    assert "Traceback" not in capsys.readouterr().out


def test_whatever_an_error_says_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(PenstockError("two\n  lines\x1b[2J", hint="look"), as_json=False)
    assert capsys.readouterr().err == "penstock: two lines\\x1b[2J. look\n"


@pytest.mark.parametrize(("text", "encoding"), [("\udcff.py", "utf-8"), ("Größe", "ascii")])
def test_an_object_is_json_whatever_is_in_it(
    text: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding=encoding))
    print_error(PenstockError("It is no text", where={"file": text}), as_json=True)
    assert json.loads(printed.getvalue())["error"]["where"] == {"file": text}


def test_an_answer_that_a_terminal_cannot_show_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    monkeypatch.setattr("penstock.cli.answers._json", lambda _answer: "1 → 2")
    assert ran("example", "list", "--json") == 0
    assert printed.getvalue() == b"1 \\u2192 2\n"


class _Full(io.StringIO):
    """A file on a disk without room."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_object_that_there_is_no_room_for_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", _Full())
    assert ran("status", "--json") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("penstock: Which application? Give app.py")


def test_why_an_instance_ended_is_told_by_a_status_of_the_design(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _tell(Ending.ASKED)
    with pytest.raises(ApplicationUnreachableError) as lost:
        _tell(Ending.DRIVER_LOST)
    with pytest.raises(MemberRefusedError) as given_up:
        _tell(Ending.GIVEN_UP)
    assert print_error(lost.value, as_json=False) == 3
    assert print_error(given_up.value, as_json=False) == 1
    assert capsys.readouterr().err.count("Start this instance again") == 2


def test_an_instance_that_was_asked_to_end_is_an_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    command = sys.modules["penstock.cli.instance"]
    monkeypatch.setattr(command, "run_instance", lambda *_, **__: Ending.ASKED)
    assert ran("instance", "--coordinator", "127.0.0.1:7600", "--name", "ward-7", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "data": {"instance": "ward-7"}}


def test_logs_are_followed_as_objects_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "background.log"
    log.write_text("first\n")
    looks = iter(["second\nthird\n", "fourth\n"])

    def look(_seconds: float) -> None:
        added = next(looks, None)
        if added is None:
            raise KeyboardInterrupt
        with log.open("a") as opened:
            opened.write(added)

    monkeypatch.setattr(time, "sleep", look)
    logs(directory=tmp_path, follow=True, json=True)
    told = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    lines: list[Any] = [each["data"]["lines"] for each in told]
    assert lines == [["first"], ["second"], ["third"], ["fourth"]]


def test_who_has_no_logs_is_told_where_they_would_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("dev", "logs", "--directory", str(tmp_path)) == 0
    assert capsys.readouterr().err == f"Nothing is logged in {tmp_path}\n"


def test_a_kafka_of_whose_start_nobody_waits_the_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = mock.Mock()
    process.stdout.readline.side_effect = KeyboardInterrupt
    monkeypatch.setattr(subprocess, "Popen", lambda *_words, **_options: process)
    assert ran("dev", "start", "--directory", str(tmp_path)) == 130
    process.terminate.assert_called_once()


def test_a_program_says_which_application_is_meant(tmp_path: Path) -> None:
    meant = Meant.of("two.py:other", "", None)
    assert meant == Meant("lab", tmp_path / "state")
    assert _split(["two.py:other", "counts", "k"]) == ("two.py:other", "counts", ("k",))
    assert _split([]) == ("", "", ())


@pytest.mark.parametrize("command", ["console", "query"])
def test_commands_that_ask_take_a_program(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(command, "two.py:app") == 3
    assert "No application 'ward'" in capsys.readouterr().err
