"""Where a running application is found on its machine: `<state_dir>/<id>/driver.json`.

It holds the address of the HTTP service and a token of the run, so only its owner may read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.errors import ConfigError, ServiceUnreachableError
from penstock.serdes.decoders import decoder
from penstock.stores.failures import directory_error
from penstock.stores.private_file import read_owned, remove_if_same, write_private
from penstock.topology.naming import check_name

NAME = "driver.json"


@dataclass(frozen=True, kw_only=True)
class DriverFile:
    """What a driver writes down for those who look for it."""

    application_id: str
    process: int
    url: str
    token: str = field(repr=False)
    local_url: str = ""
    """The same service for who asks on this machine, where its name may not be known."""
    certificate: str = ""
    """The file of the service's TLS certificate, to be trusted for both."""


def write_driver_file(state_dir: Path, facts: DriverFile) -> Path:
    """Write it with mode 0600; whoever reads sees an old one or a new one, never half of one.

    Raises `StateDirectoryError`.
    """
    path = driver_path(state_dir, facts.application_id)
    try:
        write_private(path, msgspec.json.encode(facts))
    except OSError as error:
        raise directory_error(error, path) from error
    return path


def remove_driver_file(state_dir: Path, facts: DriverFile) -> None:
    """Remove it if it is still this one: another driver may have written its own."""
    remove_if_same(driver_path(state_dir, facts.application_id), msgspec.json.encode(facts))


def read_driver_file(state_dir: Path, application_id: str) -> DriverFile:
    """Where an application is. Raises `ServiceUnreachableError` if none runs there."""
    path = driver_path(state_dir, application_id)
    where = {"file": path}
    try:
        data = read_owned(path)
    except FileNotFoundError:
        raise ServiceUnreachableError(
            f"No application {application_id!r} with an HTTP service runs on this machine",
            where=where,
            hint="Start it, or say where it is: --state-dir, or --url and --token-file",
        ) from None
    except PermissionError as error:
        raise ServiceUnreachableError(
            "The file belongs to another user", where=where, hint="Ask as the user who runs it"
        ) from error
    except OSError as error:
        raise directory_error(error, path) from error
    try:
        return decoder(DriverFile).decode(data)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"The file is none of ours: {error}",
            where=where,
            hint="Another version of Penstock may run it: ask with the same one",
        ) from error


def driver_path(state_dir: Path, application_id: str) -> Path:
    """Where it lies. Raises `TopologyError` for what is no application's id."""
    return state_dir / check_name(application_id, "application") / NAME
