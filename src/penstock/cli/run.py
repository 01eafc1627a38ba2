"""`penstock run`: the application in a file, until Ctrl-C."""

from __future__ import annotations

import dataclasses
import logging
import sys
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.answers import print_answer, print_progress
from penstock.cli.loading import AppFile, load_application
from penstock.cli.restore_progress import RestoreProgress
from penstock.coordination.states import ApplicationState
from penstock.driver.events import Event, StateChanged, Waiting

_DEV_COMMIT_INTERVAL = timedelta(milliseconds=10)
_DEV_TOLD = (
    f"--dev: no record cache, a commit every {_DEV_COMMIT_INTERVAL // timedelta(milliseconds=1)} ms"
)
_log = logging.getLogger("penstock.cli")


def run(
    application: AppFile,
    dev: Annotated[
        bool, typer.Option("--dev", help="Show every update soon: no cache, frequent commits.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print each state as a JSON object on a line.")
    ] = False,
) -> None:
    app = load_application(application)
    if dev:
        app.config = dataclasses.replace(
            app.config, statestore_cache_max_bytes=0, commit_interval=_DEV_COMMIT_INTERVAL
        )
    # A log of JSON says all of this itself, and who reads it wants no other lines between.
    is_told = app.config.log_format != "json"
    if dev and is_told:
        print_progress(_DEV_TOLD)
    elif dev:
        app.on_event(_log_dev)
    if json or is_told:
        app.on_event(partial(_show, as_json=json))
    if is_told:
        console = Console(stderr=True, soft_wrap=not sys.stderr.isatty(), highlight=False)
        RestoreProgress(console).listen(app)
    app.run()


def _log_dev(event: Event) -> None:
    """What `--dev` does, as a line of the log: before it runs, that is not written as JSON yet."""
    if isinstance(event, StateChanged) and event.new is ApplicationState.RUNNING:
        _log.info(_DEV_TOLD)


def _show(event: Event, *, as_json: bool) -> None:
    match event:
        case StateChanged(new=state):
            told: dict[str, object] = {"state": state}
            line = str(state)
        case Waiting(step=step):
            state = ApplicationState.REBALANCING
            told, line = {"state": state, "waits_for": step}, f"{state}: {step}"
        case _:
            return
    if as_json:
        print_answer("", told, as_json=True)
    else:
        print_progress(line)
