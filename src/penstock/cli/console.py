"""`penstock console`: where a running application is watched in a browser."""

from __future__ import annotations

import html
import urllib.parse
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.answers import print_answer, print_progress
from penstock.cli.liveness import check_driver
from penstock.cli.loading import AppFile
from penstock.cli.running import ApplicationId, Json, Meant, StateDir
from penstock.errors import ServiceUnreachableError
from penstock.queries.driver_file import DriverFile, driver_path, read_driver_file
from penstock.stores.directory import CONSOLE_FILE
from penstock.stores.private_file import write_private


def console(
    app: AppFile = "",
    application: ApplicationId = "",
    state_dir: StateDir = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    json: Json = False,
) -> None:
    meant = Meant.of(app, application, state_dir)
    try:
        driver = read_driver_file(meant.state_dir, meant.application_id)
    except ServiceUnreachableError as error:
        # Its hint is for those who can name an address instead.
        hint = "Start it with `penstock run`, or give its state directory with --state-dir"
        raise ServiceUnreachableError(error.message, where=error.where, hint=hint) from error
    check_driver(meant.application_id, meant.state_dir)
    address = console_address(driver)
    # The address has the run's token: it is as secret as `driver.json`, which it comes from.
    print_answer(address, {"address": address}, as_json=json)
    # Afterwards: a browser may take the terminal, and where there is none the address is there.
    page = driver_path(meant.state_dir, meant.application_id).with_name(CONSOLE_FILE)
    if open_browser and not open_page(page, address):
        print_progress("No browser could be started here: open the address in one")


def open_page(page: Path, address: str) -> bool:
    """Whether a browser was started, with a page that leads to the address and is its owner's
    alone: what it is started with, all users of the machine can read.
    """
    leads = f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">'
    try:
        write_private(page, f"<!doctype html>{leads}<title>Penstock</title>".encode())
    except OSError:
        return False
    return webbrowser.open(page.resolve().as_uri())


def console_address(driver: DriverFile) -> str:
    """The console's address with the token behind `#`, which a browser sends to nobody.

    >>> facts = DriverFile(application_id="a", process=1, url="http://127.0.0.1:8080", token="t+")
    >>> console_address(facts)
    'http://127.0.0.1:8080/console#token=t%2B'
    """
    return f"{driver.url}/console#token={urllib.parse.quote(driver.token, safe='')}"
