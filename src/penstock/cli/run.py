"""`penstock run`: the application in a file, until Ctrl-C."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.answers import print_progress
from penstock.cli.loading import load_application
from penstock.cli.restore_progress import RestoreProgress
from penstock.driver.events import Event, StateChanged


def run(
    application: Annotated[str, typer.Argument(help="A Python file, and a name: app.py[:app]")],
) -> None:
    app = load_application(application)
    app.on_event(_show)
    on_terminal = sys.stderr.isatty()
    RestoreProgress(Console(stderr=True, soft_wrap=not on_terminal, highlight=False)).listen(app)
    app.run()


def _show(event: Event) -> None:
    if isinstance(event, StateChanged):
        print_progress(event.new)
