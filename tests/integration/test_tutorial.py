"""The tutorial, and the README's first program, typed as a person would, in several terminals.

Which terminal a block of the page is typed in stands before it, where a reader does not see it:

    <!-- terminal: second -->

The examples that `--help` shows are about the same application: they are typed here too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import pytest

from penstock.cli import main
from penstock.local.jars import SPARK_KAFKA, ensure
from penstock.local.kraft import free_ports
from tests.harness import wait_until
from tests.terminals import PATIENCE_SECONDS, Terminal
from tests.unit.test_cli_help import examples

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
README = ROOT / "README.md"
PORT_ON_THE_PAGE = "7600"
# The repository is installed already; what the demo says is in test_cli_demo.py.
INSTALLS = ("make demo", "source .venv/bin/activate", "penstock prepare")
NOT_TYPED = {
    "bootstrap": "it starts a Spark; test_docs_on_kafka.py types it, which has one",
    "demo": "it starts a Kafka and a Spark; test_cli_demo.py has what it says, without them",
    "dev start --brokers 3": "three brokers take long to start; the page starts one",
    "dev stop": "the page ends with it",
    "example run": "it starts a Kafka and a Spark; test_examples.py has what it runs",
    "instance": "its coordinator is on another machine; the page has one that is not",
    "run": "the page types it",
}
"""Examples of `--help` that are only read, by tests/unit/test_cli_help.py, and why."""
AT_REST = ("state", "reset")
"""What is typed when the application has ended: it holds its stores while it runs."""

BLOCK = re.compile(
    r"(?:<!-- terminal: (?P<terminal>\w+) -->\n)?^```(?P<language>sh|python)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
README_BLOCK = re.compile(r"^```(?:python)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Commands to be typed, or a file to be written."""

    terminal: str
    is_file: bool
    text: str


def blocks() -> Iterator[Block]:
    for found in BLOCK.finditer(PAGE.read_text()):
        yield Block(found["terminal"] or "first", found["language"] == "python", found["text"])


@dataclass
class Reader:
    """Who follows the page."""

    folder: Path
    environment: dict[str, str]
    port: str
    terminals: dict[str, Terminal] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    """What short commands said, by their words; the last time, if typed twice."""
    has_killed: bool = False

    def terminal(self, name: str) -> Terminal:
        if name not in self.terminals:
            # The first one is in the repository; it makes the folder that the others are in.
            place = self.folder / ("repository" if name == "first" else "pulse")
            self.terminals[name] = Terminal(place, self.environment)
        return self.terminals[name]

    def follow(self, block: Block) -> None:
        if block.is_file:
            named = re.match(r"# (\w+\.py)\n", block.text)
            assert named is not None
            (self.folder / "pulse" / named[1]).write_text(block.text)
            return
        terminal = self.terminal(block.terminal)
        for line in block.text.splitlines():
            if line not in INSTALLS:
                self.enter(terminal, line.replace(PORT_ON_THE_PAGE, self.port))

    def enter(self, terminal: Terminal, line: str) -> None:
        if "PROCESS" in line:
            line = line.replace("PROCESS", str(self.instances()["second"]["pid"]))
            self.has_killed = True
        for beginning, wait in self.endless().items():
            if line.startswith(beginning):
                looks = terminal.looks
                terminal.type(line)
                wait(terminal, looks)
                return
        is_question = line.startswith(("penstock query", "penstock records read"))
        if is_question and "--stale" not in line:
            # What was sent a moment ago may be on its way; a person types more slowly.
            wait_until(lambda: self.lag() == 0, what="all was read", seconds=PATIENCE_SECONDS)
        self.answers[line] = terminal.run(line)

    def endless(self) -> dict[str, Callable[[Terminal, int], None]]:
        """Commands that go on, and what a person waits for before going on."""

        def watch(terminal: Terminal, looks: int) -> None:
            # Who presses Ctrl-C before anything is shown may meet the shell, which drops it.
            terminal.wait_for("second", looks=looks)
            if self.has_killed:
                wait_until(is_missed, what="the killed one was missed", seconds=PATIENCE_SECONDS)
            terminal.interrupt()

        def is_missed() -> bool:
            left = self.instances()
            return len(left) > 0 and "second" not in left

        return {
            "penstock run": lambda terminal, _: terminal.wait_for("\nrunning"),
            "penstock instance": lambda terminal, _: self.wait_shared(),
            "penstock status pulse_monitor.py --watch": watch,
        }

    def overview(self) -> dict[str, Any]:
        """What `penstock status` says, asked here: a process would take a second each time."""
        words = ["status", "--application", "pulse-monitor", "--json"]
        said = io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment),
            contextlib.redirect_stdout(said),
            contextlib.suppress(SystemExit),
        ):
            main(words)
        answer: dict[str, Any] = json.loads(said.getvalue())
        return answer["data"] if answer["ok"] else {"instances": [], "tasks": []}

    def instances(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self.overview()["instances"]}

    def lag(self) -> int:
        lags = [task["lag"] for task in self.overview()["tasks"]]
        return sum(lags) if lags and min(lags) >= 0 else -1

    def wait_shared(self) -> None:
        """Two tasks here, two there, and each follows the other's."""

        def is_shared() -> bool:
            found = self.instances().values()
            return [(each["active"], each["standby"]) for each in found] == [(2, 2)] * 2

        wait_until(is_shared, what="tasks were shared", seconds=PATIENCE_SECONDS)

    def settings(self) -> dict[str, str]:
        """What a terminal knows that has read the page's settings."""
        told = (self.folder / "pulse" / "settings.sh").read_text()
        return {**self.environment, **dict(re.findall(r"(PENSTOCK_\w+)=(\S+)", told))}

    def close(self) -> None:
        for terminal in self.terminals.values():
            terminal.close()
        command = [sys.executable, "-m", "penstock.cli", "dev", "stop"]
        subprocess.run(command, env=self.environment, capture_output=True, check=False)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    ensure(SPARK_KAFKA)
    (tmp_path / "repository").mkdir()
    port = str(free_ports(1)[0])
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "VIRTUAL_ENV": sys.prefix,
        "VIRTUAL_ENV_DISABLE_PROMPT": "1",
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "TERM": "xterm",
        # Opening the console is to open no window.
        "BROWSER": "true",
    }
    reader = Reader(tmp_path, environment, port)
    yield reader
    reader.close()


def counts(said: str) -> dict[str, int]:
    """The rows of an answer."""
    found = re.findall(r"^(ann|bob|eve) = (\d+)", said, re.MULTILINE)
    return {key: int(count) for key, count in found}


def chosen(*, at_rest: bool) -> Iterable[str]:
    """The examples of `--help` that are typed while the application runs, or after it."""
    for line in examples():
        words = line.removeprefix("penstock ")
        is_typed = not words.startswith(tuple(NOT_TYPED))
        if is_typed and (words.split()[0] in AT_REST) == at_rest:
            yield line


def type_examples(reader: Reader, lines: Iterable[str]) -> None:
    """Type what `--help` shows as it stands; only /data is elsewhere. Each must end well."""
    data = reader.folder / "examples"
    for line in lines:
        said, told = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, reader.settings()),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(told),
            pytest.raises(SystemExit) as ended,
        ):
            main([word.replace("/data", str(data)) for word in shlex.split(line)[1:]])
        assert (ended.value.code or 0) == 0, f"{line}\n{told.getvalue()}"
        assert said.getvalue().strip() or line.endswith("-f"), line


def interrupted(_seconds: float) -> NoReturn:
    raise KeyboardInterrupt


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """For commands in this process: what is followed is left at once, and no window opens."""
    for followed in ("status", "dev"):
        clock = SimpleNamespace(sleep=interrupted, monotonic=time.monotonic)
        monkeypatch.setattr(f"penstock.cli.{followed}.time", clock)
    monkeypatch.setattr(webbrowser, "open", lambda _address: True)
    return monkeypatch


@pytest.mark.timeout(600)
def test_the_tutorial_goes_as_it_is_written(reader: Reader, typing: pytest.MonkeyPatch) -> None:
    told = list(blocks())
    last = next(n for n, block in enumerate(told) if "penstock reset" in block.text)
    for block in told[:last]:
        reader.follow(block)
    said = reader.answers
    assert "1 passed" in said["pytest test_pulse_monitor.py"]
    assert "/console#token=" in said["penstock console --application pulse-monitor --open"]
    asked = "penstock query pulse-counts --all --application pulse-monitor"
    assert counts(said[asked]) == {"ann": 4, "bob": 2, "eve": 2}
    # How old that answer is depends on how fast the machine is; that there is one does not.
    assert set(counts(said[f"{asked} --stale"])) == {"ann", "bob", "eve"}
    typing.chdir(reader.folder / "pulse")
    shutil.copy("pulse_monitor.py", "app.py")
    type_examples(reader, chosen(at_rest=False))
    first = reader.terminal("first")
    assert first.interrupt().endswith("=0")
    copies = [reader.folder / "examples" / f"instance-{number}" for number in (0, 1)]
    for copy in copies:
        broker = shutil.ignore_patterns("dev-kafka*")
        shutil.copytree(reader.folder / "data" / "penstock", copy, ignore=broker)
    type_examples(reader, chosen(at_rest=True))
    for block in told[last:]:
        reader.follow(block)
    assert "removed: " in said["penstock reset pulse_monitor.py --execute"]
    assert "Kafka has stopped" in said["penstock dev stop"]
    shown = said["penstock records read pulse_monitor.py pulse-totals"]
    assert [line for line in shown.splitlines() if line.startswith("ann")][-1].split()[1] == "3"


@pytest.mark.timeout(600)
def test_the_readmes_first_program_goes_as_it_is_written(reader: Reader) -> None:
    section = README.read_text().split("## A first program")[1].split("\n## ")[0]
    program, start, send, shown, ask = README_BLOCK.findall(section)
    (reader.folder / "pulse").mkdir()
    reader.follow(Block("one", is_file=True, text=program))
    for terminal, lines in (("one", start), ("other", send), ("other", ask)):
        reader.follow(Block(terminal, is_file=False, text=lines))
    said = reader.answers
    assert shown in said["penstock records read pulse_monitor.py pulse-totals"]
    assert counts(said["penstock query pulse_monitor.py pulse-counts ann bob"]) == {
        "ann": 3,
        "bob": 1,
    }
    [console] = [line for line in said if line.startswith("penstock console")]
    assert "/console#token=" in said[console]
    assert reader.terminal("one").interrupt().endswith("=0")
