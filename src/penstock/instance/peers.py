"""Copies of stores from one instance to another, over the network, instead of a replay."""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock.changelog.snapshots import Manifest, Snapshot, SnapshotFile
from penstock.errors import InstanceError, PenstockError, SnapshotError
from penstock.instance import protocol
from penstock.instance.client import FAILURES, Client
from penstock.instance.protocol import PIECES, CopyReply, CopyRequest, Message
from penstock.instance.server import Handler
from penstock.instance.task import OpenTask
from penstock.serdes.decoders import decoder
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine

TRANSFERS_AT_ONCE = 4
"""How many copies an instance gives at the same time: its own work goes on beside them."""
PIECE_BYTES = 1024 * 1024
_QUEUE_SECONDS = 20.0
_ASK_SECONDS = 5.0
_TRANSFER_SECONDS = 3600.0
SILENCE_SECONDS = 30.0
"""A peer that gives nothing for so long is given up. It may have to flush a store first."""
_ENDS = struct.Struct("=ii")
_MANIFEST = -1

_log = logging.getLogger("penstock.instance")


class PeerCopies:
    """Gives other instances copies of the stores here: of tasks that are served, or were."""

    def __init__(
        self,
        directory: StateDirectory,
        engine: RocksDBEngine | None,
        task: Callable[[str], OpenTask | None],
    ) -> None:
        self._directory = directory
        self._engine = engine
        self._task = task
        self._slots = threading.Semaphore(TRANSFERS_AT_ONCE)
        # A copy lies at a place of its own beside its store: one at a time.
        self._copying: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    @property
    def actions(self) -> Mapping[str, Handler]:
        """What peers can ask for."""
        return {"has_copy": self._has_copy}

    def pieces(self, request: CopyRequest) -> Iterator[pa.RecordBatch]:
        """A store's manifest, empty if there is no copy, and then the pieces of its files."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._turn(request.identity))
                manifest, path = held.enter_context(self._copy(request.identity))
            except PenstockError as error:
                # It moved, is being taken, or does not open: whoever asks looks elsewhere.
                _log.info("No copy for a peer: %s", error)
                yield piece(_MANIFEST, b"")
                return
            yield piece(_MANIFEST, msgspec.json.encode(manifest))
            for number, file in enumerate(manifest.files):
                yield from file_pieces(number, path / file.name)

    def _has_copy(self, body: bytes) -> Message:
        wanted = protocol.decode(body, CopyRequest).identity
        return CopyReply(here=self._is_here(wanted))

    def _is_here(self, wanted: StoreIdentity) -> bool:
        task = self._task(wanted.task)
        if task is not None:
            return wanted.store in task.snapshot_stores
        if wanted.task not in self._directory.tasks():
            return False
        return (self._directory.path / wanted.task / wanted.store).is_dir()

    @contextlib.contextmanager
    def _turn(self, wanted: StoreIdentity) -> Iterator[None]:
        """One of the transfers that may run at once."""
        where = (wanted.task, wanted.store)
        with self._lock:
            if where in self._copying or not self._is_here(wanted):
                raise SnapshotError("There is no copy to give", where={"store": wanted.store})
            self._copying.add(where)
        try:
            if not self._slots.acquire(timeout=_QUEUE_SECONDS):
                raise SnapshotError("Too many copies are under way", where={"store": wanted.store})
            try:
                yield
            finally:
                self._slots.release()
        finally:
            with self._lock:
                self._copying.discard(where)

    @contextlib.contextmanager
    def _copy(self, wanted: StoreIdentity) -> Iterator[tuple[Manifest, Path]]:
        task = self._task(wanted.task)
        if task is None:
            with self._at_rest(wanted) as copy:
                yield copy
            return
        # Before the copy is made: it may hold more than it says, never less.
        identity, offset = task.held(wanted.store)
        with task.copy(wanted.store) as path:
            yield manifest_of(identity, offset, path), path

    @contextlib.contextmanager
    def _at_rest(self, wanted: StoreIdentity) -> Iterator[tuple[Manifest, Path]]:
        """The copy of a store that nobody uses here any more."""
        directory = self._directory.lock_task(wanted.task)
        with directory.scratch(wanted.store, "peer") as path:
            try:
                place = directory.store_path(wanted.store)
                store = RocksDBStore(wanted.store, place, engine=self._engine)
                try:
                    identity, offset = store.identity(), store.offset()
                    store.checkpoint(path)
                finally:
                    store.close()
            finally:
                # Not for as long as the transfer: the task may be taken again.
                directory.unlock()
            if identity is None:
                raise SnapshotError("The store was never used", where={"store": wanted.store})
            yield manifest_of(identity, offset, path), path


def manifest_of(identity: StoreIdentity, offset: int | None, directory: Path) -> Manifest:
    """What lies in a directory; its pieces are checked, so the files are not."""
    if offset is None:
        raise SnapshotError("The store is empty", where={"store": identity.store})
    found = sorted(each for each in directory.iterdir() if each.is_file())
    files = [SnapshotFile(path.name, path.stat().st_size, None) for path in found]
    return Manifest(identity=identity, offset=offset, files=files)


def piece(file: int, data: bytes) -> pa.RecordBatch:
    """A piece of a file, with its checksum; -1 is the manifest."""
    # Put together by hand: an array made from bytes is a copy of them.
    buffers = [None, pa.py_buffer(_ENDS.pack(0, len(data))), pa.py_buffer(data)]
    columns = [
        pa.array([file], pa.int32()),
        pa.array([zlib.crc32(data)], pa.int64()),
        pa.Array.from_buffers(pa.binary(), 1, buffers),
    ]
    return pa.record_batch(columns, schema=PIECES)


def file_pieces(number: int, path: Path) -> Iterator[pa.RecordBatch]:
    """All pieces of a file."""
    with path.open("rb", buffering=0) as file:
        while data := file.read(PIECE_BYTES):
            yield piece(number, data)


class PeerSource:
    """The copies that the instance at a location has."""

    def __init__(
        self, location: str, *, token: str, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self._location = location
        self._token = token
        self._silence = silence_seconds

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        """The peer's copy of a store, made when it is asked for; None if it has none."""
        request = CopyRequest(identity=wanted)
        if not self._has(request):
            yield None
            return
        client = Client(self._location, token=self._token, timeout_seconds=_TRANSFER_SECONDS)
        try:
            with _told(self._location, wanted.store):
                reader = client.copy(request)
            transfer = _Transfer(reader, self._location, wanted.store, self._silence)
            try:
                manifest = transfer.manifest()
                yield None if manifest is None else transfer.snapshot(manifest)
            finally:
                # One that does not fit, or broke, is not to be sent to its end.
                transfer.close()
        finally:
            client.close()

    def _has(self, request: CopyRequest) -> bool:
        client = Client(self._location, token=self._token, timeout_seconds=_ASK_SECONDS)
        try:
            return client.call("has_copy", request, CopyReply).here
        except InstanceError as error:
            _log.info("No copy from %s: %s", self._location, error)
            return False
        finally:
            client.close()


class _Transfer:
    """The pieces of a copy as they come, file by file."""

    def __init__(self, reader: Any, location: str, store: str, silence_seconds: float) -> None:
        self._reader = reader
        self._location = location
        self._store = store
        self._silence = silence_seconds
        self._ahead: pa.RecordBatch | None = None
        self._waiting_since: float | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="peer-watch", daemon=True).start()

    def close(self) -> None:
        """Have no more of it."""
        self._closed.set()
        self._reader.cancel()

    def manifest(self) -> Manifest | None:
        """What comes; None if the peer no longer has it."""
        data = b"".join(self.chunks(_MANIFEST))
        if not data:
            return None
        try:
            return decoder(Manifest).decode(data)
        except msgspec.DecodeError as error:
            raise self._error(f"has a manifest that cannot be read: {error}") from error

    def snapshot(self, manifest: Manifest) -> Snapshot:
        """The files of this manifest, to be asked for in its order."""
        return Snapshot(manifest, lambda file: self.chunks(manifest.files.index(file)))

    def chunks(self, number: int) -> Iterator[memoryview]:
        """The bytes of the file with this number; an empty file has none."""
        while (piece := self._ahead or self._next()) is not None:
            of_file, checksum, data = (column[0] for column in piece.columns)
            if of_file.as_py() != number:
                self._ahead = piece
                return
            self._ahead = None
            buffer = memoryview(data.as_buffer())
            if zlib.crc32(buffer) != checksum.as_py():
                raise self._error("was changed on its way")
            yield buffer

    def _next(self) -> pa.RecordBatch | None:
        self._waiting_since = time.monotonic()
        try:
            with _told(self._location, self._store):
                return self._reader.read_chunk().data
        except StopIteration:
            return None
        finally:
            self._waiting_since = None

    def _watch(self) -> None:
        """Give up a peer that was stopped: reading from it would never end."""
        while not self._closed.wait(self._silence / 10):
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._silence:
                self._reader.cancel()
                return

    def _error(self, what: str) -> SnapshotError:
        return SnapshotError(f"The copy from {self._location} {what}", where={"store": self._store})


@contextlib.contextmanager
def _told(location: str, store: str) -> Iterator[None]:
    """Turn what a lost peer makes of a stream into an error of ours; an end is none."""
    try:
        yield
    except StopIteration:
        raise
    except FAILURES as error:
        reason = str(error).split(". gRPC", 1)[0].strip().splitlines()
        raise SnapshotError(
            f"The copy from {location} broke off: {reason[0] if reason else type(error).__name__}",
            where={"store": store},
        ) from error
