"""Files that hold a run's token: there as a whole or not at all, and for their owner alone."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Put a file of mode 0600 there; whoever reads sees the old one or the new one, never half.

    Raises `OSError`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A name that nobody can foresee: two drivers that start at once do not write into one file.
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(scratch, flags, 0o600), "wb") as file:
            file.write(data)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def read_owned(path: Path) -> bytes:
    """The bytes of a file of this user's or root's.

    Raises `OSError`: a file that another user put there could lead to a listener of theirs, and
    gives `PermissionError`.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        if os.fstat(file.fileno()).st_uid not in (os.getuid(), 0):
            raise PermissionError(1, "Another user made the file", str(path))
        return file.read()


def remove_if_same(path: Path, data: bytes) -> None:
    """Remove a file that still holds this: a later run may have written its own."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            path.unlink()
