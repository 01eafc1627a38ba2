"""`penstock console`: where a running application is watched in a browser."""

from __future__ import annotations

import os
import urllib.parse
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.answers import print_answer
from penstock.cli.liveness import check_driver
from penstock.config import Config
from penstock.queries.driver_file import DriverFile, read_driver_file


def console(
    application: Annotated[
        str, typer.Option("--application", help="The id of an application on this machine.")
    ],
    state_dir: Annotated[
        Path | None, typer.Option(help="Its state directory, if not where usual.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    place = state_dir or Config.build({}, os.environ).state_dir
    driver = read_driver_file(place, application)
    check_driver(application, place)
    address = console_address(driver)
    if open_browser:
        webbrowser.open(address)
    # The address has the run's token: it is as secret as `driver.json`, which it comes from.
    print_answer(address, {"address": address}, as_json=json)


def console_address(driver: DriverFile) -> str:
    """The console's address with the token behind `#`, which a browser sends to nobody.

    >>> facts = DriverFile(application_id="a", process=1, url="http://127.0.0.1:8080", token="t+")
    >>> console_address(facts)
    'http://127.0.0.1:8080/console#token=t%2B'
    """
    return f"{driver.url}/console#token={urllib.parse.quote(driver.token, safe='')}"
