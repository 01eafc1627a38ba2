"""What the docs and the README show runs: Python as it stands, commands as far as their words.

Python blocks of a page run one after the other, in one module. What is said of a block stands in
comments that a reader does not see:

    <!-- before: ... -->      statements that run first: names that the page takes for granted
    <!-- needs: what -->      the next block needs what is not here, and has a test of its own:
                              `registry` an optional package, `application` one that runs, `spark`

A block whose first line is `# name.py` is that file, which later blocks may import; functions named
test_... are called.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli import COMMANDS, _program

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {
    ("docs/serdes.md", "needs registry"): "unit/test_docs_serdes.py",
    ("docs/http.md", "needs application"): "unit/test_docs_commands.py",
    ("docs/spark-sql.md", "needs spark"): "integration/test_spark_tables.py",
}
"""Blocks that need more than is here, and the tests that run them."""
BY_ITSELF = {"docs/custom-stores.md": "unit/test_docs_custom_stores.py"}
"""Pages that take seconds, and whose own tests run all of it."""

BLOCK = re.compile(
    r"<!-- before:\n(?P<before>.*?)-->"
    r"|(?:<!-- needs: (?P<needs>\w+) -->\n)?"
    r"^(?P<indent> *)```python\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
FENCE = re.compile(
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
SHELLS = ("", "sh")
INLINE = re.compile(r"`(penstock [a-z][^`]*)`")


@dataclass(frozen=True)
class Snippet:
    """A piece of Python that a page shows, or runs unseen."""

    code: str
    line: int
    why_not: str = ""


def snippets(page: Path) -> Iterator[Snippet]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        line = text[: found.start()].count("\n") + 1
        if found["before"] is not None:
            yield Snippet(found["before"], line)
        else:
            code = re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE)
            needs = f"needs {found['needs']}" if found["needs"] else ""
            yield Snippet(code, line, needs)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(snippets(p)) and name_of(p) not in BY_ITSELF], ids=name_of
)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = types.ModuleType("shown_on_the_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for snippet in snippets(page):
        code = compile("\n" * snippet.line + snippet.code, name_of(page), "exec")
        if snippet.why_not:
            continue
        named = re.match(r"# (\w+)\.py\n", snippet.code)
        if named:
            (tmp_path / f"{named[1]}.py").write_text(snippet.code)
            # Set and taken away again, so that what the import puts there is removed in the end.
            monkeypatch.setitem(sys.modules, named[1], None)
            del sys.modules[named[1]]
            vars(module).update(vars(importlib.import_module(named[1])))
            vars(module)["__name__"] = "shown_on_the_page"
        else:
            exec(code, vars(module))
    for name, value in list(vars(module).items()):
        if name.startswith("test_") and callable(value):
            value()


def test_what_is_not_run_here_has_a_test_of_its_own() -> None:
    left_out = {(name_of(p), s.why_not) for p in PAGES for s in snippets(p) if s.why_not}
    assert left_out == set(ELSEWHERE)
    for file in (*ELSEWHERE.values(), *BY_ITSELF.values()):
        assert (ROOT / "tests" / file).exists()
    assert not any("<!-- not run" in page.read_text() for page in PAGES)


def commands(page: Path) -> Iterator[str]:
    """The penstock commands in the page's blocks, each on one line."""
    for block in FENCE.finditer(page.read_text()):
        if block["language"] not in SHELLS:
            continue
        for line in block["text"].replace("\\\n", " ").splitlines():
            plain = re.split(r"  #| > | \| ", line.strip().removeprefix("$ "))[0]
            plain = re.sub(r"^(?:[A-Z_]+=\S+ +)+", "", plain)
            if plain.startswith("penstock "):
                yield plain.rstrip(" &")


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, as the parser has it, and the words that are left."""
    command: Any = typer.main.get_command(_program(words[:1]))
    rest = list(words)
    while rest and hasattr(command, "commands"):
        assert rest[0] in command.commands, f"there is no command {' '.join(words)!r}"
        command = command.commands[rest.pop(0)]
    return command, rest


@pytest.mark.parametrize("page", [p for p in PAGES if any(commands(p))], ids=name_of)
def test_commands_can_be_read(page: Path) -> None:
    for line in commands(page):
        command, rest = command_of(shlex.split(line)[1:])
        # Reading the words refuses what the command does not have; nothing is run.
        command.make_context("penstock", rest)


@pytest.mark.parametrize("page", [p for p in PAGES if INLINE.search(p.read_text())], ids=name_of)
def test_commands_in_sentences_are_there(page: Path) -> None:
    for line in INLINE.findall(page.read_text()):
        words = " ".join(line.split()).removeprefix("penstock ").split(" ")
        assert words[0] in COMMANDS, line
        if "|" in words:
            alternatives = " ".join(words[1:]).split(" | ")
            for each in alternatives:
                command_of([words[0], each.split(" ")[0]])
        elif all(re.fullmatch("[a-z-]+", word) for word in words[1:2]):
            command, rest = command_of(words)
            known = {name for each in getattr(command, "params", []) for name in each.opts}
            assert {word for word in rest if re.fullmatch("--[a-z-]+", word)} <= known, line
