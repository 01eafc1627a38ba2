"""Stores on disk, looked at by someone who does not run the application.

A store that a living instance holds is not opened. RocksDB could be read beside its writer, but
what was written since the last flush is in the writer's memory alone (there is no write-ahead log),
and files that it compacts away vanish under the reader: the answer would be old, or an error.

Of a store that a program brought itself, its directory is all that can be seen here. Whoever knows
the supplier can look inside: it opens a copy, since what it does to its files is its own affair.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.coordination.ids import TaskId
from penstock.errors import CustomStoreError, StateDirectoryError
from penstock.instance.open_stores import shaped
from penstock.instance.protocol import StoreOrder
from penstock.stores.checkpoint_file import read_checkpoint
from penstock.stores.contract import ByteStore, KeyValueStore, StoreIdentity, WindowStore
from penstock.stores.custom import open_custom
from penstock.stores.directory import (
    CHECKPOINT_FILE,
    GLOBAL_DIRECTORY,
    LOCK_FILE,
    METADATA_FILE,
    FileLock,
)
from penstock.stores.failures import directory_error
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.segments import LAYOUTS, kept_ms
from penstock.stores.versioned import history_ms
from penstock.stores.whole_topic import LAYOUT, WholeTopicStore

_DATABASE_FILE = "CURRENT"
_MANIFEST = "MANIFEST-"
_DEPTH_MAX = 4
"""From a state directory to a store: instance, application, task, store."""


@dataclass(frozen=True, kw_only=True)
class StoreOnDisk:
    """A store's directory, and what its place tells."""

    path: Path
    place: str
    """Where it lies below the directory that was searched."""
    custom: bool = False
    """Whether a program brought it, so that only its supplier can open it."""

    @property
    def name(self) -> str:
        """The store's name."""
        return self.path.name

    @property
    def task(self) -> str:
        """The task whose it is, as `0_3`; `global` for a global table."""
        return self.path.parent.name

    @property
    def partition(self) -> int | None:
        """The task's partition; None for a global table."""
        return None if self.task == GLOBAL_DIRECTORY else TaskId.parse(self.task).partition

    @property
    def application_path(self) -> Path:
        """The application's directory, which one process holds."""
        return self.path.parent.parent

    @property
    def application_id(self) -> str:
        """The application, by its directory's name."""
        return self.application_path.name

    @property
    def size_bytes(self) -> int:
        """What its files take."""
        return sum(map(_size, self.path.rglob("*")))

    def checkpoint(self) -> dict[tuple[str, int], int]:
        """What the task's `.checkpoint` says, which is never ahead of its stores."""
        return read_checkpoint(self.path.parent / CHECKPOINT_FILE)


@dataclass(frozen=True, kw_only=True)
class OpenStore:
    """A store that is open for reading."""

    disk: StoreOnDisk
    identity: StoreIdentity | None
    order: StoreOrder
    store: KeyValueStore
    positions: dict[int, int]
    """Of a global table: the next offset of each partition of its topic."""


def stores_below(directory: Path) -> list[StoreOnDisk]:
    """The stores in a state directory, an application's, or a task's, by their places."""
    if not directory.is_dir():
        raise StateDirectoryError(
            "There is no such directory",
            where={"path": directory},
            hint="Name a state directory that is on this machine, as the option state_dir does",
        )
    found: list[StoreOnDisk] = []
    for path, names, files in os.walk(directory.resolve(), onerror=_refuse):
        place = Path(path).relative_to(directory.resolve())
        custom = _is_custom(Path(path), files)
        if custom or _is_ours(files):
            found.append(StoreOnDisk(path=Path(path), place=str(place), custom=custom))
            names.clear()
        if len(place.parts) >= _DEPTH_MAX:
            names.clear()
        # A disk's own directory beside those of applications is of no concern.
        names[:] = [name for name in names if not name.startswith(".") and name != "lost+found"]
    return sorted((each for each in found if _is_task(each.task)), key=lambda each: each.place)


@contextlib.contextmanager
def held(stores: Iterable[StoreOnDisk]) -> Iterator[None]:
    """Keep instances out of these stores' directories; `StateLockedError` names who is in one."""
    with contextlib.ExitStack() as stack:
        for path in sorted({each.application_path for each in stores}):
            # A copy of a single task lies anywhere, and nobody can hold it.
            if (path / METADATA_FILE).exists():
                stack.callback(FileLock.acquire_to_read(path / LOCK_FILE).release)
        yield


@contextlib.contextmanager
def opened(
    disk: StoreOnDisk, *, retention_ms: int | None = None, supplier: str = ""
) -> Iterator[OpenStore]:
    """The store, to be read while its directory is held. Nothing in it is changed.

    Windows and versions older than `retention_ms` are not found, as the application would not find
    them; without it everything is that is still on the disk. A program's own store needs its
    `supplier`, or `CustomStoreError` is raised.
    """
    with _inner(disk, supplier) as inner:
        identity = inner.identity()
        layout = "key_value" if identity is None else identity.layout
        positions: dict[int, int] = {}
        if layout == LAYOUT:
            order = StoreOrder(name=disk.name)
            store: KeyValueStore = WholeTopicStore(inner)
            positions = WholeTopicStore(inner).positions()
        else:
            order = StoreOrder.of_layout(disk.name, layout, retention_ms=retention_ms or 0)
            if retention_ms is None:
                kept = _kept_ms(inner, order)
                order = StoreOrder.of_layout(disk.name, layout, retention_ms=kept)
            store = shaped(inner, order)
        yield OpenStore(disk=disk, identity=identity, order=order, store=store, positions=positions)


def _kept_ms(inner: ByteStore, order: StoreOrder) -> int:
    """How long a store keeps what it has, by what is still there."""
    if order.kind == "versioned":
        return history_ms(inner, order.segment_ms)
    if order.kind in LAYOUTS and not isinstance(inner, WindowStore):
        return kept_ms(inner, order.segment_ms)
    return 0


@contextlib.contextmanager
def _inner(disk: StoreOnDisk, supplier: str) -> Iterator[ByteStore]:
    if not disk.custom:
        with (
            _openable(disk.path) as path,
            contextlib.closing(RocksDBStore(disk.name, path, read_only=True)) as inner,
        ):
            yield inner
        return
    if not supplier:
        raise CustomStoreError(
            f"The store {disk.name} is one that the program brings, which alone can open it",
            where={"store": disk.name, "task": disk.task},
            hint="Name the program, as in `penstock state show STORE app.py`",
        )
    with tempfile.TemporaryDirectory(prefix="penstock-look-") as scratch:
        try:
            copy = shutil.copytree(disk.path, Path(scratch) / disk.name)
        except OSError as error:
            raise directory_error(error, disk.path) from error
        with contextlib.closing(open_custom(supplier, disk.name, copy, task=disk.task)) as custom:
            yield custom


@contextlib.contextmanager
def _openable(path: Path) -> Iterator[Path]:
    """Where RocksDB can be opened to be read: it writes small files even then.

    Where it may not, all that is small is copied to where it may, with links to the data.
    """
    if os.access(path, os.W_OK):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="penstock-look-") as scratch:
        beside = Path(scratch) / path.name
        try:
            shutil.copytree(path, beside, ignore=shutil.ignore_patterns("*.sst", "LOG*", "LOCK"))
            for data in path.glob("*.sst"):
                (beside / data.name).symlink_to(data)
            beside.chmod(0o700)
        except OSError as error:
            raise directory_error(error, path) from error
        yield beside


def _refuse(error: OSError) -> None:
    """What cannot be read is not told as if nothing were there; what went meanwhile is gone."""
    if not isinstance(error, FileNotFoundError):
        raise directory_error(error, Path(error.filename)) from error


def _size(file: Path) -> int:
    """What a file takes; nothing if it went meanwhile, as those do that RocksDB compacts, or if
    this user may not see it.
    """
    try:
        found = file.stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def holder_of(disk: StoreOnDisk) -> str:
    """Who holds the store's directory, as it stands in the lock's file; empty if nobody does."""
    try:
        with held([disk]):
            return ""
    except StateDirectoryError as error:
        return error.message


def _is_custom(path: Path, files: list[str]) -> bool:
    """Whether a task has a store there, and one that is none of ours."""
    in_task = _is_task(path.parent.name) and path.parent.name != GLOBAL_DIRECTORY
    return in_task and not _is_ours(files) and not _is_task(path.name)


def _is_ours(files: list[str]) -> bool:
    """Whether these are a RocksDB, be it one that lost the file which says where it begins."""
    return any(name == _DATABASE_FILE or name.startswith(_MANIFEST) for name in files)


def _is_task(name: str) -> bool:
    first, _, second = name.partition("_")
    return name == GLOBAL_DIRECTORY or (first.isdigit() and second.isdigit())
