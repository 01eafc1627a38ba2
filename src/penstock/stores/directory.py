"""The state directory: who may use it, and where each task's stores lie in it.

    <state_dir>/<application_id>/     mode 0700
      .lock                           held by one process; names the holder
      process-metadata                {"processId": ..., "applicationId": ...}
      0_3/                            a task
        .lock
        .checkpoint
        pulse-counts/                 a store
      global/                         global tables, laid out as a task is

Names become paths here and nowhere else, and no name leads out of the directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from penstock.errors import (
    PenstockError,
    StateDirectoryError,
    StateForeignError,
    StateLockedError,
    StatePermissionError,
)
from penstock.serdes.decoders import decoder
from penstock.stores.checkpoint_file import (
    Offsets,
    read_checkpoint,
    write_atomically,
    write_checkpoint,
)
from penstock.stores.failures import (
    directory_error,
    doubtful_locks,
    locks_on_one_host,
    no_locks,
)
from penstock.stores.mounts import read_mount
from penstock.topology.naming import check_name

CONSOLE_FILE = "console.html"
DRIVER_FILES = ("driver.json", "coordinator.json", "coordinator.json.tmp", CONSOLE_FILE)
"""Where commands and browsers find the driver; they may be there before the first instance is."""
LOCK_FILE = ".lock"
METADATA_FILE = "process-metadata"
CHECKPOINT_FILE = ".checkpoint"
GLOBAL_DIRECTORY = "global"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_TASK = re.compile(r"[0-9]{1,9}_[0-9]{1,9}")
_REMOVED = ".removed-"
_LOCK_RETRY_SECONDS = 0.1


class _Metadata(msgspec.Struct, frozen=True):
    process_id: str = msgspec.field(name="processId")
    application_id: str = msgspec.field(name="applicationId")


class _Holder(msgspec.Struct, frozen=True):
    pid: int
    host: str


class FileLock:
    """An exclusive lock on a file that ends with its process; the file names the holder."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(
        cls,
        path: Path,
        *,
        wait: timedelta = timedelta(0),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> FileLock:
        """Take the lock, or raise `StateLockedError` naming its holder once `wait` is over."""
        deadline = clock() + wait.total_seconds()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise directory_error(error, path) from error
        try:
            while not _try_lock(descriptor, path):
                if clock() >= deadline:
                    raise _locked(path, descriptor)  # noqa: TRY301 - the descriptor is closed below
                sleep(_LOCK_RETRY_SECONDS)
            _write_holder(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    @classmethod
    def acquire_to_read(cls, path: Path) -> FileLock:
        """As `acquire`, for one who changes nothing: the disk may be mounted to be read only, or
        the directory be another user's, and then nobody learns from the file who holds it."""
        try:
            return cls.acquire(path)
        except StatePermissionError:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError as error:
                raise directory_error(error, path) from error
        try:
            if not _try_lock(descriptor, path):
                raise _locked(path, descriptor)  # noqa: TRY301 - the descriptor is closed below
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    @property
    def held(self) -> bool:
        """Whether this object still holds the lock."""
        return self._descriptor is not None

    def check_excludes(self) -> None:
        """Make sure that a second lock is refused: some file systems grant any number of them.

        Raises `StateDirectoryError`.
        """
        try:
            second = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            raise directory_error(error, self.path) from error
        try:
            granted = _try_lock(second, self.path)
        finally:
            os.close(second)
        if granted:
            raise no_locks(self.path)

    def release(self) -> None:
        """Give the lock back; doing so twice does nothing. The file stays, so that no two files
        of that name can be locked at once."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


class TaskDirectory:
    """The directory of one task, locked; wiping is possible only through it, hence only locked."""

    def __init__(self, task: str, path: Path, lock: FileLock) -> None:
        self.task = task
        self.path = path
        self._lock = lock

    def store_path(self, store: str) -> Path:
        """Where a store lies; the store makes the directory itself."""
        return _inside(self.path, check_name(store, "store"))

    def stores(self) -> list[str]:
        """The stores that have a directory here."""
        entries = self.path.iterdir()
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))

    @contextlib.contextmanager
    def scratch(self, store: str, purpose: str) -> Iterator[Path]:
        """A path beside a store, on the same file system, that is gone afterwards."""
        path = self.store_path(store).with_name(f".{store}.{purpose}")
        _remove(path)
        try:
            yield path
        finally:
            _remove(path)

    def read_checkpoint(self) -> dict[tuple[str, int], int]:
        """The offsets in `.checkpoint`, for people; a store's own offset is what counts."""
        return read_checkpoint(self.path / CHECKPOINT_FILE)

    def write_checkpoint(self, offsets: Offsets) -> None:
        """Export offsets. Flush the stores first: the file must never be ahead of them."""
        self._check_held()
        write_checkpoint(self.path / CHECKPOINT_FILE, offsets)

    def wipe_store(self, store: str) -> None:
        """Delete a closed store, and the checkpoint that may speak of it."""
        self._check_held()
        _remove(self.path / CHECKPOINT_FILE)
        _remove(self.store_path(store))

    def wipe(self) -> None:
        """Delete everything but the lock. Close the stores first; unlock afterwards."""
        self._check_held()
        # The checkpoint goes first: it must not outlive a store that a crash left half deleted.
        _remove(self.path / CHECKPOINT_FILE)
        for entry in sorted(self.path.iterdir()):
            if entry.name != LOCK_FILE:
                _remove(entry)

    def unlock(self) -> None:
        """Let go of the task. Close its stores first."""
        if self._lock.held:
            # From now on it is a copy that nobody uses, whose age counts.
            with contextlib.suppress(OSError):
                os.utime(self.path)
        self._lock.release()

    def _check_held(self) -> None:
        if not self._lock.held:
            raise StateLockedError(
                "The task directory is no longer held by this process", where={"path": self.path}
            )


class StateDirectory:
    """The state directory of one instance, held by this process until `close`.

    >>> import tempfile
    >>> with StateDirectory.open(Path(tempfile.mkdtemp()), "clinic") as state:
    ...     task = state.lock_task("0_3")
    ...     task.store_path("pulse-counts").relative_to(state.path).as_posix()
    '0_3/pulse-counts'

    Raises `StateLockedError`, `StatePermissionError`, `StateDiskFullError`, `StateForeignError`.
    """

    def __init__(
        self,
        path: Path,
        lock: FileLock,
        *,
        application_id: str,
        process_id: str,
        notes: Collection[str] = (),
    ) -> None:
        self.path = path
        self.application_id = application_id
        self.process_id = process_id
        self.notes = notes
        """What whoever runs the application should know of the directory."""
        self._lock = lock
        # Between a task's directory being there and being locked, it must not be set aside.
        self._moving = threading.Lock()

    @classmethod
    def open(
        cls, state_dir: Path, application_id: str, *, wait: timedelta = timedelta(0)
    ) -> StateDirectory:
        """Make or take over the directory; a lock held elsewhere is waited for up to `wait`."""
        check_name(application_id, "application")
        path = _make_directory(state_dir, application_id)
        lock = FileLock.acquire(path / LOCK_FILE, wait=wait)
        try:
            lock.check_excludes()
            notes = _look_at_mount(path)
            process_id = _read_or_make_metadata(path, application_id)
            _remove_leftovers(path)
        except BaseException:
            lock.release()
            raise
        return cls(path, lock, application_id=application_id, process_id=process_id, notes=notes)

    def tasks(self) -> list[str]:
        """The tasks that have a directory here."""
        try:
            return sorted(e.name for e in self.path.iterdir() if _TASK.fullmatch(e.name))
        except OSError as error:
            raise directory_error(error, self.path) from error

    def checkpoints(self, *, but: Collection[str] = ()) -> dict[str, dict[str, int]]:
        """The next offset of each changelog of the tasks here, as far as it was exported."""
        found: dict[str, dict[str, int]] = {}
        for task in set(self.tasks()).difference(but):
            # One that cannot be read, or is being written, tells nothing.
            with contextlib.suppress(StateDirectoryError):
                offsets = read_checkpoint(self.path / task / CHECKPOINT_FILE)
                found[task] = {topic: at + 1 for (topic, _), at in offsets.items() if at >= 0}
        return found

    def lock_task(self, task: str, *, wait: timedelta = timedelta(0)) -> TaskDirectory:
        """Make a task's directory if need be, and lock it."""
        if not _TASK.fullmatch(task):
            raise StateDirectoryError(f"{task!r} is not a task's name", hint="One is like 0_3")
        return self._lock_directory(task, wait)

    def lock_global(self) -> TaskDirectory:
        """Make the directory of global tables if need be, and lock it."""
        return self._lock_directory(GLOBAL_DIRECTORY, timedelta(0))

    def _lock_directory(self, name: str, wait: timedelta) -> TaskDirectory:
        path = _inside(self.path, name)
        with self._moving:
            try:
                path.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise directory_error(error, path) from error
            return TaskDirectory(name, path, FileLock.acquire(path / LOCK_FILE, wait=wait))

    def remove_unused(
        self,
        unused_for: timedelta,
        *,
        now: float,
        keep: Collection[str] = (),
        failed: Callable[[PenstockError], None],
    ) -> list[str]:
        """Delete the tasks that nobody has held for so long; the names of those that went.

        As Kafka Streams' cleaner does. `now` is in seconds since the epoch; tasks to `keep` are on
        their way to being held. One that cannot be deleted is told, and the others go.
        """
        removed: list[str] = []
        for leftover in self.path.glob(f"{_REMOVED}*"):
            with _telling(failed):
                _remove(leftover)
        for task in set(self.tasks()) - set(keep):
            with _telling(failed):
                path = _inside(self.path, task)
                # Out of the way first, and nobody may lock it meanwhile: deleting takes its time.
                with self._moving:
                    aside = self._set_aside(path, before=now - unused_for.total_seconds())
                if aside is not None:
                    _remove(aside)
                    removed.append(task)
        return sorted(removed)

    def _set_aside(self, path: Path, *, before: float) -> Path | None:
        """Rename a task that was last used before that moment; None if it is used, or was later."""
        try:
            # The lock's file is written when the task is taken, the directory when it is let go.
            times = [each.stat().st_mtime for each in (path, path / LOCK_FILE) if each.exists()]
            if max(times, default=before) >= before:
                return None
            lock = FileLock.acquire(path / LOCK_FILE)
        except StateLockedError:
            return None
        except OSError as error:
            raise directory_error(error, path) from error
        try:
            return path.rename(path.with_name(f"{_REMOVED}{path.name}"))
        except OSError as error:
            raise directory_error(error, path) from error
        finally:
            lock.release()

    def close(self) -> None:
        """Let go of the directory. Unlock its tasks first."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@contextlib.contextmanager
def _telling(failed: Callable[[PenstockError], None]) -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        failed(error)


def _inside(parent: Path, name: str) -> Path:
    path = parent / name
    # The name was checked; a symbolic link on the disk could still lead out.
    if path.resolve().parent != parent.resolve():
        raise StateDirectoryError(
            "The path leads out of the state directory",
            where={"path": path},
            hint="Remove the symbolic link, or set state_dir to where it leads",
        )
    return path


def _make_directory(state_dir: Path, application_id: str) -> Path:
    path = state_dir / application_id
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = _inside(state_dir, application_id)
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise directory_error(error, path) from error
    return path.resolve()


def _read_or_make_metadata(path: Path, application_id: str) -> str:
    """The process id kept in the directory, once it is sure that the directory is ours."""
    file = path / METADATA_FILE
    try:
        metadata = decoder(_Metadata).decode(file.read_bytes())
    except FileNotFoundError:
        return _make_metadata(path, application_id)
    except OSError as error:
        raise directory_error(error, file) from error
    except msgspec.DecodeError as error:
        raise StateDirectoryError(
            f"The directory's metadata cannot be read: {error}",
            where={"path": file},
            hint="Delete the directory; changelogs rebuild the state",
        ) from error
    if metadata.application_id != application_id:
        raise StateForeignError(
            f"The state directory was made by the application {metadata.application_id!r}",
            where={"path": path, "application": application_id},
            hint="Set state_dir to another directory, or delete this one",
        )
    return metadata.process_id


def _make_metadata(path: Path, application_id: str) -> str:
    try:
        known = {LOCK_FILE, METADATA_FILE + ".tmp", *DRIVER_FILES}
        others = sorted(entry.name for entry in path.iterdir() if entry.name not in known)
        if others:
            raise StateForeignError(
                f"The state directory holds {others[0]!r}, which Penstock did not put there",
                where={"path": path, "application": application_id},
                hint="Set state_dir to another directory, or delete this one",
            )
        metadata = _Metadata(process_id=str(uuid.uuid4()), application_id=application_id)
        write_atomically(path / METADATA_FILE, msgspec.json.encode(metadata).decode())
    except OSError as error:
        raise directory_error(error, path) from error
    return metadata.process_id


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            return False
        if error.errno in _NO_LOCKS:
            raise no_locks(path) from error
        raise directory_error(error, path) from error
    return True


def _remove_leftovers(path: Path) -> None:
    """Remove what a process that was killed left of copies: nobody asks for them under that name
    again, and they may be as large as the stores.
    """
    for directory in path.iterdir():
        is_ours = directory.name == GLOBAL_DIRECTORY or _TASK.fullmatch(directory.name)
        if is_ours and not directory.is_symlink():
            for entry in directory.glob(".*/"):
                # All harm that it does is the room that it takes.
                with contextlib.suppress(StateDirectoryError):
                    _remove(entry)


def _look_at_mount(path: Path) -> list[str]:
    """What is to be told of the locks here; those that hold on one host alone are refused."""
    mount = read_mount(path)
    if mount is None:
        return []
    if mount.local_locks:
        raise locks_on_one_host(path, mount.local_locks)
    return [doubtful_locks(path, mount.doubtful_locks)] if mount.doubtful_locks else []


def _write_holder(descriptor: int, path: Path) -> None:
    holder = _Holder(pid=os.getpid(), host=socket.gethostname())
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(holder), 0)
    except OSError as error:
        raise directory_error(error, path) from error


def _locked(path: Path, descriptor: int) -> StateLockedError:
    try:
        holder = decoder(_Holder).decode(os.pread(descriptor, 4096, 0))
        who = f"process {holder.pid} on {holder.host}"
    except (OSError, msgspec.DecodeError):
        who = "another process"
    return StateLockedError(
        f"The state directory is held by {who}",
        where={"path": path.parent},
        hint="Stop that process, or set state_dir to another directory",
    )


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise directory_error(error, path) from error
