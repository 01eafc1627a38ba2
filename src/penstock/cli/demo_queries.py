"""What the demo asks its own application: by command, by HTTP and by Spark SQL."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import urllib3

from penstock.cli.console import console_address
from penstock.errors import PenstockError
from penstock.queries.driver_file import DriverFile, driver_path, read_driver_file

_log = logging.getLogger("penstock.cli")
_STORE = "pulse-counts"
_SQL = "SELECT key, max(value) AS beats FROM {store} GROUP BY key ORDER BY beats DESC LIMIT 3"
_SECONDS = 20.0
_WIDTH = 120


@dataclass(frozen=True)
class DemoQueries:
    """Asks the application that runs under a state directory, and reports what was said."""

    application_id: str
    state_dir: Path
    report: Callable[[str], None]

    def show_console(self) -> None:
        """Say where the application can be watched."""
        driver = self._driver()
        if driver is not None:
            self.report(f"Watch it in a browser: {console_address(driver)}")

    def ask(self, key: str) -> None:
        """Ask for the minutes of one patient, in three ways."""
        try:
            driver = read_driver_file(self.state_dir, self.application_id)
            self._by_command(key)
            self._by_http(driver, key)
            self._by_spark()
        except Exception as error:  # noqa: BLE001 - the demo may end at any moment, and Spark with it
            _log.info("The demo asks no further: %s", error)
            if driver_path(self.state_dir, self.application_id).exists():
                self.report(f"It could not be asked: {next(iter(str(error).splitlines()), '')}")

    def _driver(self) -> DriverFile | None:
        try:
            return read_driver_file(self.state_dir, self.application_id)
        except PenstockError as error:
            self.report(str(error))
            return None

    def _by_command(self, key: str) -> None:
        words = ["query", _STORE, key, "--application", self.application_id, "--limit", "1"]
        # Whoever types it in another terminal needs that too.
        words += ["--state-dir", str(self.state_dir)]
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", *words],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        # How to go on is of no use to who only looks.
        said = [line for line in done.stdout.splitlines() if "--page" not in line]
        told = _indented("\n".join(said))
        self.report(f"Asked by command: penstock {' '.join(words)}\n{told}")

    def _by_http(self, driver: DriverFile, key: str) -> None:
        path = f"/v1/stores/{_STORE}/windows/{key}?limit=1"
        answer = urllib3.request(
            "GET",
            driver.url + path,
            headers={"Authorization": f"Bearer {driver.token}"},
            timeout=_SECONDS,
        )
        self.report(f"Asked over HTTP: GET {path}\n{_indented(answer.data.decode())}")

    def _by_spark(self) -> None:
        from penstock.pipeline.tables import first_rows

        rows = first_rows(
            _SQL, application=self.application_id, store=_STORE, state_dir=self.state_dir
        )
        told = "\n".join(f"{row['key']}: {row['beats']}" for row in rows)
        self.report(f"Asked by Spark SQL: {_SQL}\n{_indented(told)}")


def _indented(text: str) -> str:
    """Lines below what they belong to, cut where they would fill the screen.

    >>> _indented("a\\nb")
    '    a\\n    b'
    """
    return "\n".join(
        f"    {line[:_WIDTH]}{'...' if len(line) > _WIDTH else ''}"
        for line in text.strip().splitlines()
    )
