"""Whether the driver lives that left an application's files behind."""

from __future__ import annotations

from pathlib import Path

from penstock.driver.announcement import FILE_NAME, find_driver


def check_driver(application_id: str, state_dir: Path) -> None:
    """Raise `ApplicationUnreachableError` if the application's driver has ended.

    One that was killed leaves the address of its HTTP service too, where nobody answers any more.
    A service whose driver has not announced itself is left to be asked.
    """
    if (state_dir / application_id / FILE_NAME).exists():
        find_driver(application_id, state_dir)
