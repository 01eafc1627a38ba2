"""Where a running application is found on its machine: `<state_dir>/<id>/driver.json`.

It holds the address of the HTTP service and a token of the run, so only its owner may read it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import ConfigError, ServiceUnreachableError
from penstock.serdes.decoders import decoder
from penstock.stores.failures import directory_error
from penstock.topology.naming import check_name

NAME = "driver.json"


@dataclass(frozen=True, kw_only=True)
class DriverFile:
    """What a driver writes down for those who look for it."""

    application_id: str
    process: int
    url: str
    token: str = field(repr=False)
    certificate: str = ""
    """The file of the service's TLS certificate, to be trusted for this address."""


def write_driver_file(state_dir: Path, facts: DriverFile) -> Path:
    """Write it with mode 0600; whoever reads sees an old one or a new one, never half of one.

    Raises `StateDirectoryError`.
    """
    path = driver_path(state_dir, facts.application_id)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = path.with_name(f".{NAME}.{secrets.token_hex(8)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(scratch, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(facts))
        scratch.replace(path)
    except OSError as error:
        raise directory_error(error, path) from error
    return path


def remove_driver_file(state_dir: Path, facts: DriverFile) -> None:
    """Remove it if it is still this one: another driver may have written its own."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        path = driver_path(state_dir, facts.application_id)
        if decoder(DriverFile).decode(path.read_bytes()) == facts:
            path.unlink()


def read_driver_file(state_dir: Path, application_id: str) -> DriverFile:
    """Where an application is. Raises `ServiceUnreachableError` if none runs there."""
    path = driver_path(state_dir, application_id)
    where = {"file": path}
    try:
        data = _owned(path)
    except FileNotFoundError:
        raise ServiceUnreachableError(
            f"No application {application_id!r} with an HTTP service runs on this machine",
            where=where,
            hint="Start it, or say where it is: --state-dir, or --url and --token-file",
        ) from None
    except OSError as error:
        raise directory_error(error, path) from error
    try:
        return decoder(DriverFile).decode(data)
    except msgspec.DecodeError as error:
        raise ConfigError(f"The file is none of ours: {error}", where=where) from error


def driver_path(state_dir: Path, application_id: str) -> Path:
    """Where it lies. Raises `TopologyError` for what is no application's id."""
    return state_dir / check_name(application_id, "application") / NAME


def _owned(path: Path) -> Any:
    """The file's bytes; another user could have put an address of theirs there."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        if os.fstat(file.fileno()).st_uid not in (os.getuid(), 0):
            raise ConfigError("Another user made the file", where={"file": path})
        return file.read()
