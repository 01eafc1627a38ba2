"""From what the disk or RocksDB reports to the error that says what to do.

RocksDB's errors reach Python as text alone. What they mean is decided by facts: the status kind at
the head of the text, the system's own words for an error number in it, the room that is left on the
file system, and whether the lock can be had.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from penstock.errors import (
    PenstockError,
    StateDirectoryError,
    StateDiskFullError,
    StateLockedError,
    StatePermissionError,
    StoreDamagedError,
)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_PERMISSION = (errno.EACCES, errno.EPERM)
_NO_FILES = (errno.EMFILE, errno.ENFILE)
_LOCKED = (errno.EAGAIN, errno.ENOLCK)
_LEAST_ROOM_BYTES = 1024 * 1024
_STALL_ROOM_BYTES = 48 * 1024 * 1024


def directory_error(error: OSError, path: Path) -> StateDirectoryError:
    """The typed error of a failed file operation in the state directory."""
    known = _by_errno(error.errno or 0, path)
    if known is not None:
        return known
    return StateDirectoryError(
        f"The state directory cannot be used: {error.strerror or error}",
        where={"path": path},
        hint="Check the disk, or set state_dir to another one",
    )


def no_locks(path: Path) -> StateDirectoryError:
    """The error of a file system on which two processes could write to one store."""
    return StateDirectoryError(
        "The file system of the state directory has no working locks",
        where={"path": path.parent},
        hint="Set state_dir to a local disk, or mount the file system with locks",
    )


def locks_on_one_host(path: Path, how: str) -> StateDirectoryError:
    """The error of a file system on which two hosts could write to one store."""
    return StateDirectoryError(
        f"The state directory is on a file system whose locks hold on this host alone ({how}): "
        "another host could write to the same stores",
        where={"path": path},
        hint="Mount it with locks that its server keeps (for NFS without nolock and local_lock), "
        "or set state_dir to a local disk",
    )


def doubtful_locks(path: Path, how: str) -> str:
    """What is said of a file system of which nobody knows how far its locks reach."""
    return (
        f"The state directory {path} is on {how}, whose locks may hold on this machine alone: see "
        "to it that no other machine uses the directory, or set state_dir to a local disk"
    )


def store_error(error: Exception, *, store: str, path: Path, opening: bool) -> PenstockError:
    """The typed error of a failed RocksDB operation.

    Whoever gets `StoreDamagedError` wipes the store, so it is what remains when nothing else fits.
    """
    text = str(error).strip()
    where = {"store": store, "path": path}
    code = _errno_in(text)
    if opening and (code in _LOCKED or _is_locked(path / "LOCK")):
        return StateLockedError(
            "The store is open already, here or in another process",
            where=where,
            hint="Stop the other process; two may not share a state directory",
        )
    # What stalls is the writing of a whole buffer, which needs more room than a small file.
    room_needed = _STALL_ROOM_BYTES if is_stall(error) else _LEAST_ROOM_BYTES
    known = _by_errno(code, path) or _by_room(path, room_needed)
    if known is not None:
        return known
    if is_stall(error) or (text.startswith("IO error") and code != errno.ENOENT):
        return StateDirectoryError(
            f"The disk does not do what the store needs: {text}",
            where=where,
            hint="Check the disk, or set state_dir to another one",
        )
    return damaged(text, store=store, path=path)


def is_stall(error: Exception) -> bool:
    """Whether RocksDB refused a write because its buffers wait for the disk."""
    return str(error).startswith("Result incomplete")


def damaged(what: str, *, store: str, path: Path) -> StoreDamagedError:
    """The error of a store whose bytes are not what was written."""
    return StoreDamagedError(
        f"The store cannot be read: {what}",
        where={"store": store, "path": path},
        hint="Wipe the store's directory; its changelog rebuilds it",
    )


def _by_errno(code: int, path: Path) -> StateDirectoryError | None:
    where = {"path": path}
    if code in _NO_ROOM:
        return _disk_full(path)
    if code == errno.EROFS:
        return StatePermissionError(
            "The state directory is on a file system that is read-only",
            where=where,
            hint="Mount it for writing (see why it is not), or set state_dir to another disk",
        )
    if code in _NO_PERMISSION:
        return StatePermissionError(
            f"The state directory cannot be used by this user: {os.strerror(code)}",
            where=where,
            hint="Give this user the directory, or set state_dir to one that it owns",
        )
    if code in _NO_FILES:
        return StateDirectoryError(
            "This process has too many files open",
            where=where,
            hint="Raise the limit (`ulimit -n`), or run more instances",
        )
    return None


def _by_room(path: Path, needed_bytes: int) -> StateDirectoryError | None:
    try:
        room = os.statvfs(path)
    except OSError:
        return None
    if room.f_bavail * room.f_frsize >= needed_bytes:
        return None
    return _disk_full(path)


def _disk_full(path: Path) -> StateDiskFullError:
    return StateDiskFullError(
        "There is no room left for the state; nothing that was committed is lost",
        where={"path": path},
        hint="Free space, or set state_dir to a larger disk, and start again",
    )


def _errno_in(text: str) -> int:
    """The error number whose words are in RocksDB's text; 0 if there are none."""
    for code in (*_NO_ROOM, *_NO_PERMISSION, errno.EROFS, *_NO_FILES, *_LOCKED, errno.ENOENT):
        if os.strerror(code) in text:
            return code
    return 0


def _is_locked(lock: Path) -> bool:
    # Closing any descriptor of a file drops this process's own locks on it; the caller sees to it
    # that this process does not have the store open.
    with contextlib.suppress(OSError), lock.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
