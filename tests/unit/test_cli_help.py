"""Every `--help` shows an example, and every example is a command that there is.

They are run by tests/integration/test_tutorial.py, beside the page's application.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

import penstock
from penstock.cli import COMMANDS, _program, main


def command_of(*words: str) -> Any:
    """The command as the parser has it."""
    command: Any = typer.main.get_command(_program(list(words[:1])))
    for word in words:
        command = command.commands[word]
    return command


def inner_names(*words: str) -> list[str]:
    return list(getattr(command_of(*words), "commands", {}))


def examples() -> list[str]:
    """The line of every command that has one."""
    paths = [(name, *inner) for name in COMMANDS for inner in [(), *zip(inner_names(name))]]
    found = [str(command_of(*path).epilog).removeprefix("Example: ") for path in paths]
    return list(dict.fromkeys(found))


def shown(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_program_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Example: penstock demo" in shown((), capsys)


def test_examples_are_lines_that_can_be_copied() -> None:
    # A usual terminal has 80 columns; in two lines a command is two commands.
    assert [each for each in examples() if len(f" Example: {each}") > 79] == []


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"


def test_flags_are_shown_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert "bool" not in shown(("status",), capsys) + shown((), capsys)


def test_the_program_is_called_the_same_in_every_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in ("run", "status", "reset", "bootstrap", "topics", "topology"):
        assert " APP " in shown((words,), capsys), words


def test_the_list_of_commands_says_who_creates_topics() -> None:
    assert "create" in COMMANDS["topics"].lower()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_can_be_read(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in [(name,), *((name, inner) for inner in inner_names(name))]:
        found = re.search(rf"Example: penstock ({' '.join(words)}\b.*)", shown(words, capsys))
        assert found is not None, words
        path, rest = [name], shlex.split(found[1])[1:]
        if inner_names(name):
            path.append(rest.pop(0))
        # Reading the words refuses what the command does not have; nothing is run.
        command_of(*path).make_context(name, rest)
