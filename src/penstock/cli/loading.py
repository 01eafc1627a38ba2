"""Finding the application that a command is about: `file.py[:name]`."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.application import Application
from penstock.errors import UsageError

AppFile = Annotated[
    str,
    typer.Argument(
        metavar="APP", help="The program: app.py, or app.py:name if it has several applications."
    ),
]
"""How every command is told of an application by its program."""


def load_application(place: str) -> Application:
    """The application in a Python file; importing the file must not run it.

    Raises `UsageError` when the file or the application is not there, or when there are several.
    """
    path_text, _, name = place.partition(":")
    path = Path(path_text)
    if not path.is_file():
        raise UsageError(f"There is no file {path_text}", hint="Give a file as `app.py[:name]`")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(
            f"{path_text} is no Python file: its name does not end with .py",
            hint="Give a file as `app.py[:name]`",
        )
    module = importlib.util.module_from_spec(spec)
    # Spark's pickler refers to functions of modules by name where it can; workers have not loaded
    # this file, so its functions must travel by value, as those of `__main__` do.
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        # What it prints would be in the way of the command's answer.
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except SystemExit as end:
        raise UsageError(
            f"{path_text} ended while it was imported",
            hint='Put what is to happen when it is run below `if __name__ == "__main__":`',
        ) from end
    _travel_by_value(path.stem)
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, Application):
            there = ", ".join(sorted(_applications(module.__dict__))) or "none"
            raise UsageError(
                f"{path_text} has no application {name!r}", hint=f"At the top of the file: {there}"
            )
        return found
    return _only_application(module.__dict__, path_text)


def _applications(names: dict[str, object]) -> dict[str, Application]:
    """Those at the top of the file, each by one of its names."""
    found = {id(v): (k, v) for k, v in names.items() if isinstance(v, Application)}
    return dict(found.values())


def _only_application(names: dict[str, object], path: str) -> Application:
    found = _applications(names)
    if len(found) != 1:
        known = sorted(found)
        raise UsageError(
            f"{path} must have one application at the top of the file; it has "
            f"{', '.join(known) or 'none'}",
            hint=f"Say which: {path}:{known[0]}"
            if known
            else 'Write `app = penstock.Application("id")` there, not in a function',
        )
    [application] = found.values()
    return application


def _travel_by_value(module_name: str) -> None:
    from penstock.pipeline.jobs import send_module_by_value

    send_module_by_value(module_name)
