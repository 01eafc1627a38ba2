"""Finding an application that runs, and asking it how things stand."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.loading import load_application
from penstock.config import usual_state_dir
from penstock.driver.announcement import find_driver
from penstock.driver.coordinator import STARTING
from penstock.driver.overview import Overview, OverviewRequest
from penstock.errors import (
    ApplicationUnreachableError,
    InstanceError,
    InstanceUnreachableError,
    TopologyError,
    UsageError,
)
from penstock.instance.client import Client
from penstock.topology.naming import check_name

ApplicationId = Annotated[str, typer.Option("--application", help="An application by its id.")]
StateDir = Annotated[Path | None, typer.Option(help="Where its state is, if not where usual.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

# A driver that asks Kafka in vain answers after ten seconds. One that stands still is known sooner.
_CALL_SECONDS = 20.0
_WIDTH_WITHOUT_TERMINAL = 250


def console() -> Console:
    """Where tables are printed; without a terminal they are not cut at a width that nobody has."""
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(highlight=False, width=width)


@dataclass(frozen=True)
class Meant:
    """The application that a command is about, and where its state is."""

    application_id: str
    state_dir: Path

    @classmethod
    def of(cls, file: str, application_id: str, state_dir: Path | None) -> Meant:
        """By its program, its id, or because no other runs here. Raises `UsageError`."""
        if file:
            app = load_application(file)
            if application_id not in ("", app.application_id):
                raise UsageError(f"{file} is the application {app.application_id!r}")
            application_id, usual = app.application_id, app.config.state_dir
        else:
            usual = usual_state_dir()
        directory = state_dir or usual
        application_id = application_id or _only_one(directory)
        try:
            check_name(application_id, "application")
        except TopologyError as error:
            raise UsageError(error.message, hint=error.hint) from error
        return cls(application_id, directory)


def is_app_file(word: str) -> bool:
    """Whether a word is `file.py[:name]`, where it might as well be something else.

    >>> is_app_file("ward/app.py:app"), is_app_file("pulse-counts")
    (True, False)
    """
    return re.fullmatch(r".+\.py(:\w+)?", word) is not None


class Running:
    """A running application, to be asked again and again."""

    def __init__(self, file: str, application_id: str, state_dir: Path | None) -> None:
        self._meant = Meant.of(file, application_id, state_dir)
        self.application_id = self._meant.application_id
        self._client: Client | None = self._found()

    def overview(self) -> Overview:
        """How things stand now. Raises `ApplicationUnreachableError`."""
        if self._client is None:
            self._client = self._found()
        try:
            return self._client.call("overview", OverviewRequest(), Overview)
        except InstanceError as error:
            # Started anew it has another address.
            self._client = None
            raise _told(error, self.application_id) from error

    def _found(self) -> Client:
        found = find_driver(self.application_id, self._meant.state_dir)
        return Client(
            found.coordinator,
            token=found.token,
            timeout_seconds=_CALL_SECONDS,
            trust=found.trust,
        )


def _told(error: InstanceError, application_id: str) -> ApplicationUnreachableError:
    """Why there is no overview, without the words of what carried the question."""
    message = "The application's driver does not answer"
    hint = error.hint or "It may be starting or stopping: ask again in a moment"
    # It comes amid words of the call's own.
    if STARTING in error.message:
        message, hint = STARTING, "Ask again in a moment"
    elif type(error) is not InstanceUnreachableError:
        message = f"{message}: {error.message}"
    return ApplicationUnreachableError(message, where={"application": application_id}, hint=hint)


def _only_one(directory: Path) -> str:
    """The application that announced itself in a state directory, if it is the only one."""
    found = sorted(each.parent.name for each in directory.glob("*/coordinator.json"))
    if len(found) == 1:
        return found[0]
    known = f"There is: {', '.join(found)}" if found else f"None runs with its state in {directory}"
    raise UsageError("Which application?", hint=f"Give app.py, or --application ID. {known}")
