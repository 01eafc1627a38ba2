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

FILE_NAME = "coordinator.json"

_log = logging.getLogger("penstock.driver")


class DriverFile(msgspec.Struct, frozen=True, kw_only=True):
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
    path = state_dir / application_id / FILE_NAME
    pid = os.getpid()
    about = DriverFile(
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
    try:
        _write(path, msgspec.json.encode(about))
    except OSError as error:
        _log.warning("Commands will not find this application: %s: %s", path, error.strerror)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            # A driver that came after this one has written its own.
            if decoder(DriverFile).decode(path.read_bytes()) == about:
                path.unlink()


def find_driver(application_id: str, state_dir: Path) -> DriverFile:
    """The running driver of an application. Raises `ApplicationUnreachableError`."""
    path = state_dir / application_id / FILE_NAME
    where = {"application": application_id}
    hint = "Start it with `penstock run`, or give its state directory with --state-dir"
    try:
        found = decoder(DriverFile).decode(_owned(path))
    except FileNotFoundError:
        raise ApplicationUnreachableError(
            f"It does not run on this machine with its state in {state_dir}", where=where, hint=hint
        ) from None
    except PermissionError:
        raise ApplicationUnreachableError(
            f"{path} belongs to another user", where=where, hint="Ask as the user who runs it"
        ) from None
    except msgspec.DecodeError as error:
        raise ApplicationUnreachableError(f"{path} is damaged: {error}", where=where) from None
    if found.host == socket.gethostname() and not is_alive(found.pid, found.process_start):
        raise ApplicationUnreachableError(
            f"Its driver, process {found.pid}, has ended", where=where, hint=hint
        )
    return found


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, and never readable by others."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(FILE_NAME + ".tmp")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
        file.write(data)
    new.replace(path)


def _owned(path: Path) -> bytes:
    """The file's bytes; one that another user put there could lead to a listener of theirs."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        if os.fstat(file.fileno()).st_uid not in (os.getuid(), 0):
            raise PermissionError
        return file.read()
