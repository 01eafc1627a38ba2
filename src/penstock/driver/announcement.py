"""Where commands find a running application: `<state_dir>/<id>/coordinator.json`.

The file holds the run's token, so only its owner may read it. It is a hint, never a lock: what it
says is believed only as far as the process that it names lives and answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.driver.process_id import is_alive, process_start
from penstock.errors import ApplicationUnreachableError
from penstock.instance.tls import Trust
from penstock.serdes.decoders import decoder
from penstock.stores.private_file import read_owned, remove_if_same, write_private
from penstock.topology.naming import check_name

FILE_NAME = "coordinator.json"

_log = logging.getLogger("penstock.driver")


class CoordinatorFile(msgspec.Struct, frozen=True, kw_only=True):
    """A running driver, as it announces itself."""

    application_id: str
    host: str
    pid: int
    process_start: float
    coordinator: str
    """Where its coordinator listens, for those who have the token."""
    token: str
    authorities: str = ""
    """Where the coordinator speaks TLS: whom to trust, and the name that it shows."""
    server_name: str = ""
    certificate: str = ""
    """The files of what a caller shows, if it has to."""
    key: str = ""

    @property
    def trust(self) -> Trust | None:
        """By what a caller knows the coordinator; None where it needs no TLS."""
        if not self.authorities:
            return None
        return Trust(
            authorities=self.authorities,
            server_name=self.server_name,
            certificate=self.certificate,
            key=self.key,
        )


@contextlib.contextmanager
def announced(
    state_dir: Path,
    *,
    application_id: str,
    coordinator: str,
    token: str,
    trust: Trust | None = None,
) -> Iterator[None]:
    """Have the file there, for as long as this lasts.

    A directory that cannot be written to is told in the log: the application runs without.
    """
    path = _path(state_dir, application_id)
    pid = os.getpid()
    about = CoordinatorFile(
        application_id=application_id,
        host=socket.gethostname(),
        pid=pid,
        process_start=process_start(pid),
        coordinator=coordinator,
        token=token,
        authorities="" if trust is None else trust.authorities,
        server_name="" if trust is None else trust.server_name,
        certificate="" if trust is None else trust.certificate,
        key="" if trust is None else trust.key,
    )
    data = msgspec.json.encode(about)
    try:
        write_private(path, data)
    except OSError as error:
        _log.warning("Commands will not find this application: %s: %s", path, error.strerror)
    try:
        yield
    finally:
        remove_if_same(path, data)


def find_driver(application_id: str, state_dir: Path) -> CoordinatorFile:
    """The running driver of an application.

    Raises `ApplicationUnreachableError`, and `TopologyError` for what is no application's id.
    """
    path = _path(state_dir, application_id)
    where = {"application": application_id}
    hint = "Start it with `penstock run`, or give its state directory with --state-dir"
    try:
        found = decoder(CoordinatorFile).decode(read_owned(path))
    except FileNotFoundError:
        raise ApplicationUnreachableError(
            f"It does not run on this machine with its state in {state_dir}", where=where, hint=hint
        ) from None
    except PermissionError:
        raise ApplicationUnreachableError(
            f"{path} belongs to another user", where=where, hint="Ask as the user who runs it"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise ApplicationUnreachableError(
            f"{path} cannot be read: {error}",
            where=where,
            hint="Another version of Penstock may run it: ask with the same one",
        ) from None
    if found.host == socket.gethostname() and not is_alive(found.pid, found.process_start):
        raise ApplicationUnreachableError(
            f"The application's driver, process {found.pid}, has ended", where=where, hint=hint
        )
    return found


def _path(state_dir: Path, application_id: str) -> Path:
    """Where the file lies: an id that is a path would lead out of the state directory."""
    return state_dir / check_name(application_id, "application") / FILE_NAME
