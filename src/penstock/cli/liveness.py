"""Whether the driver lives that left an application's files behind."""

from __future__ import annotations

from pathlib import Path

from penstock.driver.announcement import FILE_NAME, find_driver
from penstock.errors import ApplicationUnreachableError
from penstock.queries.driver_file import read_driver_file


def check_driver(application_id: str, state_dir: Path) -> None:
    """Raise `ApplicationUnreachableError` if the HTTP service that is written down has ended.

    One that was killed leaves the address of its HTTP service too, where nobody answers any more,
    until the next one has one. A service whose driver has not announced itself is left to be asked.
    """
    if not (state_dir / application_id / FILE_NAME).exists():
        return
    driver = find_driver(application_id, state_dir)
    if read_driver_file(state_dir, application_id).process != driver.pid:
        raise ApplicationUnreachableError(
            f"The application's driver, process {driver.pid}, does not answer over HTTP yet",
            where={"application": application_id},
            hint="Ask again in a moment; with an empty http_listen it never does",
        )
