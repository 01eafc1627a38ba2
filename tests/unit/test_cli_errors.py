"""Errors are one line, tracebacks are for those who ask, and shells can complete commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.cli import main
from penstock.config import Config
from penstock.driver.announcement import announced, find_driver
from penstock.driver.coordinator import Coordinator
from penstock.errors import ApplicationUnreachableError, TopologyError
from penstock.instance.protocol import Settings
from penstock.queries.driver_file import DriverFile, write_driver_file
from penstock.stores.directory import METADATA_FILE


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A program with a mistake that Python finds when it is imported."""
    path = tmp_path / "broken_program.py"
    path.write_text("import penstock as ps\napp = ps.Aplication('a')\n")
    return str(path)


def test_an_unforeseen_error_is_one_line(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topology", "describe", broken])
    assert ended.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("penstock: AttributeError: module 'penstock' has no attribute")
    assert "(file broken_program.py, line 2). The same command with --debug" in line


def test_a_program_that_python_cannot_read_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "unread_program.py"
    path.write_text("import penstock as ps\napp = ps.Application('a'\n")
    assert ran("topology", "describe", str(path)) == 1
    assert capsys.readouterr().err == (
        "penstock: SyntaxError: '(' was never closed (file unread_program.py, line 2). "
        "Mend that line, or the one before it\n"
    )


def test_what_a_program_does_when_it_is_imported_is_not_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talking_program.py"
    path.write_text("import penstock as ps\nprint('hello')\napp = ps.Application('talks')\n")
    assert ran("status", str(path), "--state-dir", str(tmp_path), "--json") == 3
    told = capsys.readouterr()
    assert msgspec.json.decode(told.out)["error"]["where"] == {"application": "talks"}
    assert told.err == "hello\n"
    path.write_text("raise SystemExit(0)\n")
    assert ran("status", str(path), "--json") == 2
    told = capsys.readouterr()
    assert "ended while it was imported" in msgspec.json.decode(told.out)["error"]["message"]


@pytest.mark.parametrize("place", [0, 3])
def test_debug_shows_where(broken: str, place: int, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["topology", "describe", broken]
    words.insert(place, "--debug")
    with pytest.raises(SystemExit):
        main(words)
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "AttributeError" in told


def test_with_debug_the_status_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["status", "--application", "x", "--state-dir", str(tmp_path), "--debug", "--json"])
    assert ended.value.code == 3
    told = capsys.readouterr()
    assert "Traceback" in told.err
    assert msgspec.json.decode(told.out)["ok"] is False


def test_an_application_that_does_not_run_is_unreachable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tasks", "--application", "x", "--state-dir", str(tmp_path), "--json"])
    assert ended.value.code == 3
    answer = msgspec.json.decode(capsys.readouterr().out)
    assert answer["error"]["code"] == "application_unreachable"
    assert "penstock run" in answer["error"]["hint"]


def test_a_driver_is_found_while_it_announces_itself(tmp_path: Path) -> None:
    where = {"application_id": "x", "coordinator": "grpc+unix:///nowhere", "token": "t"}
    with announced(tmp_path, **where):
        path = tmp_path / "x" / "coordinator.json"
        assert path.stat().st_mode & 0o777 == 0o600
        assert find_driver("x", tmp_path).pid == os.getpid()
        text = path.read_bytes()
    with pytest.raises(ApplicationUnreachableError, match="does not run"):
        find_driver("x", tmp_path)
    # One that was killed leaves the file behind.
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path.write_bytes(text.replace(b'"pid":%d' % os.getpid(), b'"pid":%d' % dead.pid))
    with pytest.raises(ApplicationUnreachableError, match="has ended"):
        find_driver("x", tmp_path)


def ran(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def test_an_application_that_starts_says_only_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.of("x", Config(state_dir=tmp_path), over_tcp=False, global_tables=[])
    coordinator = Coordinator(settings, token="t")
    place = ("--application", "x", "--state-dir", str(tmp_path))
    try:
        where = {"application_id": "x", "coordinator": coordinator.location, "token": "t"}
        with announced(tmp_path, **where):
            assert ran("status", *place) == 3
            told = capsys.readouterr().err
            assert told == (
                "penstock: The application is starting (application x). Ask again in a moment\n"
            )
    finally:
        coordinator.close(1.0)


def test_how_a_driver_was_asked_is_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = {"application_id": "x", "coordinator": "grpc+unix:///nowhere", "token": "t"}
    with announced(tmp_path, **where):
        assert ran("status", "--application", "x", "--state-dir", str(tmp_path)) == 3
    assert capsys.readouterr().err == (
        "penstock: The application's driver does not answer (application x). "
        "It may be starting or stopping: ask again in a moment\n"
    )


@pytest.mark.parametrize("command", ["console", "query", "status"])
def test_every_command_knows_a_driver_that_was_killed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    url = "http://127.0.0.1:1"
    write_driver_file(
        tmp_path, DriverFile(application_id="x", process=dead.pid, url=url, token="t")
    )
    where = {"application_id": "x", "coordinator": "grpc+unix:///nowhere", "token": "t"}
    with announced(tmp_path, **where):
        path = tmp_path / "x" / "coordinator.json"
        text = path.read_bytes()
        path.write_bytes(text.replace(b'"pid":%d' % os.getpid(), b'"pid":%d' % dead.pid))
        assert ran(command, "--application", "x", "--state-dir", str(tmp_path)) == 3
    told = capsys.readouterr()
    assert f"The application's driver, process {dead.pid}, has ended" in told.err
    assert url not in told.out


@pytest.mark.parametrize("command", ["console", "query"])
def test_the_address_of_a_killed_run_is_not_that_of_the_next(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "http://127.0.0.1:1"
    write_driver_file(tmp_path, DriverFile(application_id="x", process=1, url=url, token="t"))
    where = {"application_id": "x", "coordinator": "grpc+unix:///nowhere", "token": "t"}
    with announced(tmp_path, **where):
        assert ran(command, "--application", "x", "--state-dir", str(tmp_path)) == 3
    told = capsys.readouterr()
    assert (
        f"The application's driver, process {os.getpid()}, does not answer over HTTP yet"
        in told.err
    )
    assert url not in told.out


def test_a_driver_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    for name in ("..", "../x", "a/b", "", "/etc"):
        with pytest.raises(TopologyError):
            find_driver(name, tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "coordinator.json").symlink_to("/etc/hostname")
    with pytest.raises(ApplicationUnreachableError, match="cannot be read"):
        find_driver("x", tmp_path)


def test_an_older_driver_leaves_the_file_of_a_newer_one(tmp_path: Path) -> None:
    where = {"application_id": "x", "coordinator": "grpc+unix:///nowhere"}
    with announced(tmp_path, **where, token="old"):
        newer = announced(tmp_path, **where, token="new")
        newer.__enter__()
    assert find_driver("x", tmp_path).token == "new"
    newer.__exit__(None, None, None)


@pytest.mark.parametrize("address", ["localhost:99999", "ward..example:9092", "a b:c:d", "[::1]:1"])
def test_an_address_that_there_cannot_be_is_unreachable(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("produce-test-data", "word-count", "--bootstrap-servers", address) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"penstock: Nothing answers at {address}. Set bootstrap_servers")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("penstock sta", {"state", "status"}),
        ("penstock dev s", {"start", "stop"}),
        ("penstock topics a", {"apply"}),
        ("penstock topology d", {"describe", "diff"}),
        ("penstock example run wo", {"word-count"}),
        ("penstock produce-test-data re", {"recent"}),
        ("penstock reset --to-e", {"--to-earliest"}),
    ],
)
def test_shells_complete_commands(
    shell: str,
    line: str,
    wanted: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_PENSTOCK_COMPLETE", f"complete_{shell}")
    if shell == "bash":
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    else:
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit):
        main([])
    told = capsys.readouterr().out
    form = r'^(?:_arguments .*\(\()?"(\S+?)"' if shell == "zsh" else r"^(\S+)"
    assert set(re.findall(form, told, re.MULTILINE)) == wanted


def test_the_state_of_an_application_goes_without_its_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, others = (tmp_path / "0" / name for name in ("clinic", "clinic-two"))
    for directory in (own, others):
        directory.mkdir(parents=True)
        (directory / METADATA_FILE).touch()
    words = ["reset", "--application", "clinic", "--state-dir", str(tmp_path), "--state-only"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert (ended.value.code, own.exists()) == (0, True)
    assert f"would be removed: {own}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words, "--execute"])
    assert (own.exists(), others.exists()) == (False, True)


_INTERRUPTED_IMPORT = """
import sys
import penstock_command

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "penstock.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
penstock_command.main()
"""


def test_ctrl_c_while_the_command_loads_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_IMPORT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
