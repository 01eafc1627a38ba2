"""The `penstock` command.

One file per command, named as the command, with a function of the same name, or a program of
several commands. Only the command that is called gets imported, so that `penstock --help` neither
loads Spark nor waits.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli.answers import EXIT_USAGE, print_error
from penstock.cli.gently import import_gently
from penstock.cli.usage import is_help, usage_error
from penstock.errors import PenstockError

# Under which heading `penstock --help` has it; name -> its line there. The file is
# penstock/cli/<name>.py, with _ for -
GROUPS = {
    "Begin": {
        "demo": "Run an example on a real Kafka and Spark, and show its results.",
        "example": "List the examples, or run one on a real Kafka and Spark.",
        "dev": "An Apache Kafka for development: until Ctrl-C, or start, stop, logs.",
        "prepare": "Fetch Kafka's and Spark's Java parts, and prepare them for quick starts.",
        "produce-test-data": "Send an example's test data to a Kafka.",
    },
    "Write and run": {
        "topology": "Describe or draw a topology, or compare it with what last ran.",
        "topics": "Create an application's topics; show, plan or apply the settings of its own.",
        "run": "Run the application in a Python file.",
        "instance": "Run a process that holds state for an application elsewhere.",
        "records": "Send records to a topic of an application, or print them.",
    },
    "Watch and ask": {
        "status": "Show a running application at a glance, or follow it.",
        "tasks": "List a running application's tasks: owners, positions, lag, copies.",
        "console": "Say where a running application is watched in a browser.",
        "query": "Ask a running application what its stores hold.",
    },
    "Look after state": {
        "state": "Look at the state on this machine's disk, compare it, export it.",
        "bootstrap": "Fill a store from history: a table, Parquet files or an old topic.",
        "reset": "Start an application over: choose its positions, remove its state.",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}

_EXAMPLES = {
    "bootstrap": "penstock bootstrap app.py --store pulse-counts --from parquet:/data",
    "console": "penstock console app.py --open",
    "demo": "penstock demo --seconds 20",
    "dev": "penstock dev start --brokers 1",
    "example": "penstock example run word-count --seconds 10",
    "instance": "penstock instance --coordinator driver-host:7077 --name rack-1",
    "prepare": "penstock prepare",
    "produce-test-data": "penstock produce-test-data word-count --rate 1000 --records 1000",
    "query": "penstock query app.py pulse-counts ann",
    "records": "penstock records read app.py pulse-totals",
    "reset": "penstock reset app.py --by-duration 2h",
    "run": "penstock run app.py --dev",
    "state": "penstock state ls app.py",
    "status": "penstock status app.py --watch",
    "tasks": "penstock tasks --application pulse-monitor --json",
    "topics": "penstock topics create app.py --partitions 4",
    "topology": "penstock topology describe app.py",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 refused or different, 2 usage, 3 unreachable."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Anywhere: whoever sees an error presses arrow-up and adds it to the end.
    words = [word for word in given if word != "--debug"]
    _let_all_be_printed()
    try:
        program = parser(words[:1] or completed_command(os.environ))
        # What it returns is the status that a command left with, if it said one.
        sys.exit(program(words, prog_name="penstock", standalone_mode=False) or 0)
    except Exception as error:  # noqa: BLE001 - all of them end as a line and a status
        if is_help(error):
            sys.exit(EXIT_USAGE)
        wrong_words = usage_error(error, words[0] if words else "")
        if words != given and wrong_words is None:
            traceback.print_exception(error)
        known = error if isinstance(error, PenstockError) else None
        told = wrong_words or known or _unexpected(error)
        sys.exit(print_error(told, as_json="--json" in words))


def _let_all_be_printed() -> None:
    """Let no letter that the terminal lacks, or name of a file that is no text, be an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def completed_command(environment: Mapping[str, str]) -> list[str]:
    """The command that a shell asks to complete: it alone is imported.

    >>> completed_command({"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock dev s"})
    ['dev']
    """
    if "_PENSTOCK_COMPLETE" not in environment:
        return []
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:2]


def _unexpected(error: Exception) -> PenstockError:
    """An error that nobody foresaw, here or in the program that a command imports, in one line."""
    if isinstance(error, SyntaxError) and error.filename:
        # Its place is in a program that Python could not even read.
        return PenstockError(
            f"{type(error).__name__}: {error.msg}",
            where={"file": Path(error.filename).name, "line": error.lineno},
            hint="Mend that line, or the one before it",
        )
    # The package's root only hands names on: who asked it for one that it has not is told.
    frames, root = traceback.extract_tb(error.__traceback__), penstock.__file__
    place = next((each for each in reversed(frames) if each.filename != root), frames[-1])
    return PenstockError(
        f"{type(error).__name__}: {error}",
        where={"file": Path(place.filename).name, "line": place.lineno},
        hint="The same command with --debug shows how it came to that",
    )


def _program(called: list[str]) -> typer.Typer:
    program = typer.Typer(
        help="Kafka Streams' stateful processing for Python, run by Spark.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        epilog="Example: penstock demo",
    )
    program.callback()(_for_all)
    for name, line, group in [(n, line, g) for g, own in GROUPS.items() for n, line in own.items()]:
        told: Any = {
            "name": name,
            "help": line,
            "epilog": f"Example: {_EXAMPLES[name]}",
            "rich_help_panel": group,
        }
        command = _command(name) if called == [name] else _not_called
        if isinstance(command, typer.Typer):
            program.add_typer(command, **told)
        else:
            program.command(**told)(command)
    return program


def parser(called: list[str]) -> Any:
    """The parser of the command that is called; of the others it has the names alone."""
    found: Any = typer.main.get_command(_program(called))
    _show_flags_bare(found)
    return found


def _show_flags_bare(command: Any) -> None:
    """Show `--json`, not `--json <bool>`: nobody is to write a value behind it."""
    for each in command.get_params(command.context_class(command)):
        if getattr(each, "is_flag", False):
            each.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _show_flags_bare(inner)


def _command(name: str) -> Callable[..., object] | typer.Typer:
    file = name.replace("-", "_")
    command: Callable[..., object] | typer.Typer
    # An instance may join an application that is at work on this machine.
    load = import_gently if name == "instance" else importlib.import_module
    command = getattr(load(f"penstock.cli.{file}"), file)
    return command


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"penstock {penstock.__version__}")
        raise typer.Exit


def _for_all(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error was raised.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version),
    ] = False,
) -> None:
    """Kafka Streams' stateful processing for Python, run by Spark."""


def _not_called() -> None:
    """Stand for a command in the list; the one that is called is imported in its place."""
