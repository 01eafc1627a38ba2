"""Snapshots of stores: whole copies, so that a restore reads only the changelog's tail.

A snapshot is a manifest and the files that it names, those in directories of the store's too.
RocksDB never changes a file of data once it is written, so a copy that is there already need not be
made again.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import msgspec
import pyarrow as pa
import xxhash
from pyarrow import fs

from penstock.changelog.reading import LogRange
from penstock.errors import ConfigError, SnapshotError
from penstock.hidden import without_secrets
from penstock.serdes.decoders import decoder
from penstock.stores.contract import StoreIdentity
from penstock.stores.failures import directory_error
from penstock.topology.naming import check_name

CHUNK_BYTES = 1024 * 1024
_MANIFEST = "manifest.json"
_EARLIER = re.compile(r"manifest-[0-9]{15}\.json")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_FILE_LENGTH_MAX = 200
"""Of a whole name: in a location it is one name, with size and checksum behind it."""


class SnapshotFile(msgspec.Struct, frozen=True):
    """A file of a store."""

    name: str
    """As from the store's directory, with `/` between directories."""
    size: int
    checksum: int | None
    """XXH3 (64 bits) of its bytes; None if whoever gives the bytes checks them on the way."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Which store a snapshot is of, up to where it holds its changelog, and its files."""

    identity: StoreIdentity
    offset: int
    files: list[SnapshotFile]
    written_ms: int = 0
    """When it was made, in milliseconds since 1970; 0 if that is not known."""

    @property
    def size(self) -> int:
        """How many bytes it is in all."""
        return sum(file.size for file in self.files)


Piece = bytes | memoryview


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that can be copied: `pour` writes one of its files to a path, asked for in order.

    It stops after each piece, and while nothing comes, for whoever wants to give up.
    """

    manifest: Manifest
    pour: Callable[[SnapshotFile, Path], Iterator[None]]
    origin: str = "a snapshot"

    def fits(self, wanted: StoreIdentity, log: LogRange, markers: int = 0) -> bool:
        """Whether it is of this store, and its changelog goes on from there, behind so many
        `markers`: a copy may be ahead of it, or so old that what comes next is gone."""
        offset = self.manifest.offset
        return self.manifest.identity == wanted and log.start - markers <= offset + 1 <= log.end


class SnapshotSource(Protocol):
    """Where snapshots come from."""

    def open(self, task: str, wanted: StoreIdentity) -> AbstractContextManager[Snapshot | None]:
        """The newest snapshot of a store, if there is one; `task` is a task's durable name.

        This and what comes of it raises `SnapshotError`.
        """


Checksums = dict[tuple[str, int, int], int]
"""Of files that were read before, by name, size and when they were written (nanoseconds)."""


def read_files(directory: Path, known: Checksums | None = None) -> list[SnapshotFile]:
    """The files of a closed copy of a store; `known` checksums are believed, and kept up to date.

    A store that was made anew gives its files the names of those before: when they were written is
    what tells them apart, and a link to a file has that too.
    """
    found, checksums = [], Checksums()
    for name in file_names(directory):
        path = directory / name
        stat = path.stat()
        file = (name, stat.st_size, stat.st_mtime_ns)
        checksum = (known or {}).get(file) or checksum_of(path)
        found.append(SnapshotFile(name, stat.st_size, checksum))
        # Data files never change once they are written. The few others are small, and do.
        if path.suffix == ".sst":
            checksums[file] = checksum
    if known is not None:
        known.clear()
        known |= checksums
    return found


def file_names(directory: Path) -> list[str]:
    """All files below a directory, by their names as a manifest has them; empty directories go.

    Raises `SnapshotError` if there is one that no copy may have: better none than half of a store.
    """
    found = sorted(_walk(directory, ""))
    for name in found:
        if not is_file_name(name):
            raise SnapshotError(
                f"A store's copy has the file {name[:80]!r}, and such a name is not copied",
                hint=f"Use A-Z, a-z, 0-9, '.', '_' and '-', {_FILE_LENGTH_MAX} in all with the "
                f"directories; and {_MANIFEST!r} is ours",
            )
    return found


def _walk(directory: Path, prefix: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(directory / entry.name, f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                yield name
            else:
                # A link may lead to anything on this machine.
                raise SnapshotError(
                    f"A store's copy has {name[:80]!r}, which is neither a file nor a directory",
                    hint="Let checkpoint() write files, and no links, pipes or sockets",
                )


def is_file_name(name: str) -> bool:
    """Whether a snapshot's file may have that name: none leads out of the store's directory.

    >>> [is_file_name(name) for name in ("data/000012.sst", "../data", "/data", "data//12", "./12")]
    [True, False, False, False, False]
    """
    parts = name.split("/")
    return (
        len(name) <= _FILE_LENGTH_MAX
        and name != _MANIFEST
        and all(_NAME.fullmatch(part) and part not in (".", "..") for part in parts)
    )


def read_chunks(path: Path) -> Iterator[bytes]:
    """A file's bytes, a piece at a time."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def checksum_of(path: Path) -> int:
    """XXH3 (64 bits) of a file's bytes."""
    checksum = xxhash.xxh3_64()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            checksum.update(buffer[:count])
    return checksum.intdigest()


def copy_snapshot(
    snapshot: Snapshot, path: Path, *, stop: Callable[[], bool] = lambda: False
) -> None:
    """Copy a snapshot's files to where a store is to lie; all of them are checked, or none stay.

    Raises `SnapshotError` if a file is missing, cut short or different, or if `stop` says so.
    """
    store = check_files(snapshot.manifest).identity.store
    incoming = path.with_name(f".{path.name}.incoming")
    try:
        _empty(incoming)
        for file in snapshot.manifest.files:
            target = incoming / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            for _ in snapshot.pour(file, target):
                if stop():
                    raise SnapshotError("The copy was given up half-way", where={"store": store})
            _check_file(incoming, file, store)
        incoming.rename(path)
    except OSError as error:
        raise directory_error(error, path) from error
    finally:
        # What did not come whole is no use, and may take much room.
        shutil.rmtree(incoming, ignore_errors=True)


def check_files(manifest: Manifest) -> Manifest:
    """The manifest, if its files have names of files, each its own: it comes from elsewhere.

    Raises `SnapshotError`.
    """
    seen: set[str] = set()
    directories = {parent for file in manifest.files for parent in _parents(file.name)}
    for file in manifest.files:
        if not is_file_name(file.name) or file.name in seen or file.name in directories:
            raise SnapshotError(
                f"A snapshot names the file {file.name[:80]!r}",
                where={"store": manifest.identity.store},
                hint="The store is restored from its changelog; see who can write to the location",
            )
        seen.add(file.name)
    return manifest


def _parents(name: str) -> list[str]:
    """The directories that a file lies in.

    >>> _parents("a/b/c")
    ['a', 'a/b']
    """
    # What is too long is refused anyway, and its parents would be long, and many.
    parts = name[: _FILE_LENGTH_MAX + 1].split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def poured(chunks: Iterable[Piece], target: Path) -> Iterator[None]:
    """Write the pieces to a file, one at a time."""
    with target.open("wb", buffering=0) as file:
        for chunk in chunks:
            file.write(chunk)
            yield


def reserve(descriptor: int, size: int) -> None:
    """Have the file system find room for so many bytes at once, where it knows how to.

    If it finds room as the bytes come, whoever receives a copy takes a third more of a processor.
    The file stays as long as what was written to it; and if there is no room, the writes say so.
    """
    find_room = _room_finder()
    if find_room is None or not size:
        return
    disk = os.fstatvfs(descriptor)
    # Else what there is would be taken from everybody, just to hear that it is too little.
    if size < disk.f_bavail * disk.f_frsize:
        find_room(descriptor, _KEEP_SIZE, 0, size)


_KEEP_SIZE = 1


@functools.cache
def _room_finder() -> Callable[[int, int, int, int], int] | None:
    """Linux's own call: the one in `os` writes to every block where a file system does not know."""
    with contextlib.suppress(OSError, AttributeError):
        found = ctypes.CDLL(None).fallocate64
        found.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        return cast("Callable[[int, int, int, int], int]", found)
    return None


def _check_file(directory: Path, file: SnapshotFile, store: str) -> None:
    path = directory / file.name
    size = path.stat().st_size
    checksum = None if file.checksum is None else checksum_of(path)
    if (size, checksum) != (file.size, file.checksum):
        raise SnapshotError(
            f"A file of the snapshot has {size} bytes and checksum {checksum}, its manifest says "
            f"{file.size} and {file.checksum}",
            where={"store": store, "file": file.name},
        )


def _empty(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(mode=0o700)


class SnapshotLocation:
    """Snapshots in a directory or an object store, by `file:///...`, `s3://...` and so on.

    Below it: `<application>/<task>/<store>/manifest.json`, and beside that the files (`~` for `/`
    in their names); and as many `manifest-<time>.json` as are to be kept, if that is more than the
    newest. They share files.
    """

    def __init__(self, uri: str, application_id: str, *, keep: int = 1) -> None:
        try:
            self._files, root = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, ValueError, OSError) as error:
            # Of a bucket Arrow asks where it is, and finds no network, or none of that name.
            raise ConfigError(
                f"Option snapshot_location is {without_secrets(uri)!r}: "
                f"{without_secrets(str(error))}",
                hint="Write file:///directory or s3://bucket/prefix",
            ) from None  # Arrow's text repeats the address, with a password perhaps.
        self._keep = keep
        self._root = f"{root}/{check_name(application_id, 'application')}"

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        """The newest snapshot of a store, if there is one."""
        manifest = self.manifest(task, wanted.store)
        yield None if manifest is None else self.snapshot(task, manifest)

    def snapshot(self, task: str, manifest: Manifest) -> Snapshot:
        """The snapshot that a manifest of this location describes."""
        chunks = functools.partial(self.chunks, task, manifest.identity.store)
        return Snapshot(manifest, lambda file, target: poured(chunks(file), target))

    def tasks(self, store: str) -> list[str]:
        """The tasks, by their durable names, that have a snapshot of a store."""
        names = self._directories(self._root)
        return [name for name in names if self.manifest(name, store) is not None]

    def stores(self) -> list[tuple[str, str]]:
        """Tasks and stores of which there are snapshots."""
        return [
            (task, store)
            for task in self._directories(self._root)
            for store in self._directories(f"{self._root}/{task}")
        ]

    def _directories(self, path: str) -> list[str]:
        try:
            found = self._files.get_file_info(fs.FileSelector(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise SnapshotError(f"The location cannot be read: {error}") from error
        return sorted(each.base_name for each in found if each.type == fs.FileType.Directory)

    def history(self, task: str, store: str) -> list[Manifest]:
        """All snapshots of a store that are kept, the newest first."""
        newest = self.manifest(task, store)
        if newest is None:
            return []
        try:
            names = sorted(filter(_EARLIER.fullmatch, self._sizes(task, store)), reverse=True)
        except OSError as error:
            raise SnapshotError(f"The location cannot be read: {error}") from error
        # One that was removed since the list was made is gone.
        found = [self.manifest(task, store, name) for name in names]
        return [newest, *(each for each in found if each is not None and each != newest)]

    def manifest(self, task: str, store: str, name: str = _MANIFEST) -> Manifest | None:
        """What the newest snapshot of a store is, or that of such a name; None if there is none."""
        try:
            with self._files.open_input_stream(self._path(task, store, name)) as stream:
                found = check_files(decoder(Manifest).decode(stream.read()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise SnapshotError(
                f"The snapshot's manifest cannot be read: {error}", where={"store": store}
            ) from error
        if any(file.checksum is None for file in found.files):
            raise SnapshotError("The snapshot's files have no checksums", where={"store": store})
        return found

    def chunks(self, task: str, store: str, file: SnapshotFile) -> Iterator[bytes]:
        """A file's bytes."""
        try:
            with self._files.open_input_stream(self._path(task, store, _stored(file))) as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise SnapshotError(
                f"A file of the snapshot cannot be read: {error}",
                where={"store": store, "file": file.name},
            ) from error

    def is_whole(self, task: str, manifest: Manifest) -> bool:
        """Whether a snapshot's files are there, as long as they were written."""
        try:
            sizes = self._sizes(task, manifest.identity.store)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise SnapshotError(f"The location cannot be read: {error}") from error
        return _MANIFEST in sizes and not _lacking(manifest, sizes)

    def write(self, task: str, manifest: Manifest, directory: Path) -> int:
        """Store a snapshot whose files lie in a directory; returns how many bytes were copied.

        The manifest goes last, so that it never names what is not there. Files that no snapshot
        needs any more go after it. One that was cut since it was written is written again.
        """
        store = manifest.identity.store
        try:
            before = self.manifest(task, store)
        except SnapshotError:
            before = None  # A damaged one is replaced.
        try:
            self._files.create_dir(self._path(task, store), recursive=True)
            sizes = self._sizes(task, store)
            there, new = set(sizes), _lacking(manifest, sizes)
            for file in new:
                self._put(
                    self._path(task, store, _stored(file)), read_chunks(directory / file.name)
                )
            data = msgspec.json.encode(manifest)
            earlier = set(filter(_EARLIER.fullmatch, there))
            if self._keep > 1:
                name = f"manifest-{manifest.written_ms:015}.json"
                self._put(self._path(task, store, name), iter([data]))
                earlier.add(name)
            self._put(self._path(task, store, _MANIFEST), iter([data]))
            self._clean(task, [manifest, *([before] if before else [])], there, earlier)
        except OSError as error:
            raise SnapshotError(
                f"A snapshot cannot be written: {error}",
                where={"store": store, "location": self._root},
                hint="See whether the location has room, and who may write there",
            ) from error
        return sum(file.size for file in new)

    def _clean(self, task: str, newest: list[Manifest], there: set[str], earlier: set[str]) -> None:
        """Remove what no snapshot needs that is kept."""
        store = newest[0].identity.store
        kept = set(sorted(earlier)[-self._keep :]) if self._keep > 1 else set()
        # Somebody may be reading one that goes now, or the one before: for one more round the files
        # of both stay.
        manifests = list(newest)
        for name in sorted(earlier):
            try:
                found = self.manifest(task, store, name)
            except SnapshotError:
                if name in kept:
                    return  # Nobody knows what it needs; it is out of date soon.
                continue
            manifests += [found] if found is not None else []
        needed = {_stored(file) for each in manifests for file in each.files}
        for name in (there | earlier) - needed - kept - {_MANIFEST}:
            self._files.delete_file(self._path(task, store, name))

    def _put(self, path: str, chunks: Iterator[bytes]) -> None:
        local = isinstance(self._files, fs.LocalFileSystem)
        # An object appears whole; a file does not.
        target = f"{path}.part" if local else path
        with self._files.open_output_stream(target) as stream:
            for chunk in chunks:
                stream.write(chunk)
        if local:
            self._files.move(target, path)

    def _sizes(self, task: str, store: str) -> dict[str, int]:
        """What lies there, by name, and how many bytes it has."""
        found = self._files.get_file_info(fs.FileSelector(self._path(task, store)))
        return {each.base_name: each.size for each in found if each.type == fs.FileType.File}

    def _path(self, task: str, store: str, name: str = "") -> str:
        for each in (task, store):
            if not _NAME.fullmatch(each) or each in (".", ".."):
                raise SnapshotError(f"{each[:80]!r} is no name of a task or a store")
        return f"{self._root}/{task}/{store}/{name}".rstrip("/")


def _lacking(manifest: Manifest, sizes: Mapping[str, int]) -> list[SnapshotFile]:
    """The files of a snapshot that are not there, or not as long as they should be."""
    return [file for file in manifest.files if sizes.get(_stored(file)) != file.size]


def _stored(file: SnapshotFile) -> str:
    """A file's name in the location: what is there under it, in that length, has its bytes.

    There are no directories below a store's: "~" is in no name of a file.
    """
    return f"{file.name.replace('/', '~')}-{file.size}-{file.checksum:016x}"
