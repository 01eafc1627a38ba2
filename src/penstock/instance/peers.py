"""Copies of stores from one instance to another, over the network, instead of a replay.

What is asked and answered goes over Flight, with the run's token. The files come over a socket,
which has TLS where Flight has it, for a key that the answer bears: Flight costs a multiple of the
processor's time. Behind each file comes the checksum of what was sent.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import logging
import os
import secrets
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from penstock.changelog.snapshots import (
    Manifest,
    Piece,
    Snapshot,
    SnapshotFile,
    checksum_of,
    file_names,
    poured,
    reserve,
)
from penstock.errors import InstanceError, PenstockError, SnapshotError, TopologyError
from penstock.instance import protocol
from penstock.instance.client import TLS_SCHEME, Client
from penstock.instance.protocol import CopyReply, CopyRequest, Message, StoreOrder
from penstock.instance.server import Handler
from penstock.instance.task import OpenTask
from penstock.instance.tls import Trust
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine
from penstock.topology.naming import check_name

TRANSFERS_AT_ONCE = 4
"""How many copies an instance gives at the same time: its own work goes on beside them."""
PIECE_BYTES = 1024 * 1024
_QUEUE_SECONDS = 20.0
_ASK_SECONDS = 5.0
_MAKE_SECONDS = 60.0
"""A copy may have to wait for others, and for its store to be flushed."""
SILENCE_SECONDS = 30.0
"""A peer that gives or takes nothing for so long is given up."""
KEY_SECONDS = 10.0
"""TLS and the key must have come from whoever connects after this long."""
STRANGERS_MAX = 64
"""How many may be connected that have not shown a key yet; further ones are hung up on."""
_LOOK_SECONDS = 0.25
"""How long whoever waits for a peer's bytes does not hear that it is to stop."""
_KEY_BYTES = 32
_CHECKSUM = struct.Struct(">Q")

_log = logging.getLogger("penstock.instance")


@dataclass(frozen=True)
class _Made:
    """A copy that waits to be fetched; closing `held` makes it go."""

    manifest: Manifest
    path: Path
    held: contextlib.ExitStack


class PeerCopies:
    """Gives other instances copies of the stores here: of tasks that are served, or were."""

    def __init__(
        self,
        directory: StateDirectory,
        engine: RocksDBEngine | None,
        task: Callable[[str], OpenTask | None],
        *,
        listener: socket.socket,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._context = context
        self._directory = directory
        self._engine = engine
        self._task = task
        self._listener = listener
        self._slots = threading.Semaphore(TRANSFERS_AT_ONCE)
        # A copy lies at a place of its own beside its store: one at a time.
        self._copying: set[tuple[str, str]] = set()
        self._made: dict[str, _Made] = {}
        self._strangers: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        threading.Thread(target=self._accept, name="copies", daemon=True).start()

    @property
    def actions(self) -> Mapping[str, Handler]:
        """What peers can ask for."""
        return {"has_copy": self._has_copy, "make_copy": self._make_copy}

    def close(self) -> None:
        """Give no more copies; those under way break off."""
        self._closing.set()
        # Only this wakes the thread that waits for callers.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for key in list(self._made):
            self._discard(key)
        for each in list(self._strangers):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _has_copy(self, body: bytes) -> Message:
        try:
            return CopyReply(here=self._is_here(protocol.decode(body, CopyRequest).identity))
        except TopologyError as error:
            _log.warning("A peer asks for what no store can be called: %s", error)
            return CopyReply(here=False)

    def _make_copy(self, body: bytes) -> Message:
        wanted = protocol.decode(body, CopyRequest).identity
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._turn(wanted))
                manifest, path = held.enter_context(self._copy(wanted))
            except PenstockError as error:
                # It moved, is being taken, or does not open: whoever asks looks elsewhere.
                _log.info("No copy for a peer: %s", error)
                return CopyReply(here=False)
            key = secrets.token_hex(_KEY_BYTES)
            self._made[key] = _Made(manifest, path, held.pop_all())
        patience = threading.Timer(SILENCE_SECONDS, self._discard, [key])
        patience.daemon = True
        patience.start()
        return CopyReply(here=True, manifest=manifest, address=self._address(), key=key)

    def _discard(self, key: str) -> None:
        """A copy that nobody came for goes."""
        made = self._made.pop(key, None)
        if made is not None:
            made.held.close()

    def _address(self) -> str:
        name = self._listener.getsockname()
        return name if isinstance(name, str) else str(name[1])

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
                self._begin(connection)
            except (OSError, RuntimeError) as error:
                # No file or thread is to be had now, or a caller went: the next one may be served.
                if not self._closing.wait(_LOOK_SECONDS):
                    _log.warning("A peer that asks for a copy is not served: %s", error)

    def _begin(self, connection: socket.socket) -> None:
        if len(self._strangers) >= STRANGERS_MAX:
            connection.close()
            return
        self._strangers.add(connection)
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except RuntimeError:
            self._strangers.discard(connection)
            connection.close()  # Whoever waits for it goes elsewhere.
            raise

    def _serve(self, plain: socket.socket) -> None:
        """Send the files of the copy whose key comes first; a stranger gets nothing."""
        with contextlib.ExitStack() as stack:
            stack.callback(plain.close)
            try:
                try:
                    connection = self._secured(plain, stack)
                    made = self._made.pop(_key_from(connection), None)
                finally:
                    self._strangers.discard(plain)
                if made is None:
                    return
                connection.settimeout(SILENCE_SECONDS)
                with made.held:
                    _send([made.path / file.name for file in made.manifest.files], connection)
            except OSError as error:
                _log.info("A copy was not sent: %s", error)

    def _secured(self, plain: socket.socket, stack: contextlib.ExitStack) -> socket.socket:
        # A handshake takes no longer than this in all, however its pieces come.
        plain.settimeout(KEY_SECONDS)
        if self._context is None:
            return plain
        connection = self._context.wrap_socket(plain, server_side=True)
        stack.callback(connection.close)
        return connection

    def _is_here(self, wanted: StoreIdentity) -> bool:
        task = self._task(wanted.task)
        if task is not None:
            return wanted.store in task.stores.snapshot_stores
        if (
            wanted.task not in self._directory.tasks()
            or StoreOrder.of_layout("", wanted.layout).supplier
        ):
            return False
        # A name from the network is not to become a path before it was looked at. And nothing but
        # RocksDB's own is to be opened as that.
        store = check_name(wanted.store, "store")
        return (self._directory.path / wanted.task / store / "CURRENT").is_file()

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
        offset = task.stores.get(wanted.store).offset()
        with task.stores.copy(wanted.store, "peer") as path:
            yield (
                manifest_of(task.stores.identity(task.stores.order(wanted.store)), offset, path),
                path,
            )

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


def _send(files: list[Path], connection: socket.socket) -> None:
    # One thread reads what the other sends: what is in memory is read in no time, and the kernel
    # sends without this process seeing a byte.
    with ThreadPoolExecutor(1, thread_name_prefix="checksums") as pool:
        checksums = pool.map(checksum_of, files)
        try:
            for path in files:
                with path.open("rb") as data:
                    connection.sendfile(data)
                connection.sendall(_CHECKSUM.pack(next(checksums)))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def manifest_of(identity: StoreIdentity, offset: int | None, directory: Path) -> Manifest:
    """What lies in a directory; its checksums are sent behind the files."""
    if offset is None:
        raise SnapshotError("The store is empty", where={"store": identity.store})
    names = file_names(directory)
    files = [SnapshotFile(name, (directory / name).stat().st_size, None) for name in names]
    return Manifest(identity=identity, offset=offset, files=files)


class PeerSource:
    """The copies that the instance at a location has."""

    def __init__(
        self,
        location: str,
        *,
        token: str,
        silence_seconds: float = SILENCE_SECONDS,
        trust: Trust | None = None,
    ) -> None:
        self._location = location
        self._trust = trust if location.startswith(TLS_SCHEME) else None
        self._token = token
        self._silence = silence_seconds

    def has_copy(self, wanted: StoreIdentity) -> bool:
        """Whether the peer has a store; one that does not answer soon has none."""
        return self._ask("has_copy", CopyRequest(identity=wanted), _ASK_SECONDS).here

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        """The peer's copy of a store, made when it is asked for; None if it has none."""
        request = CopyRequest(identity=wanted)
        reply = CopyReply(here=self.has_copy(wanted))
        if reply.here:
            reply = self._ask("make_copy", request, _MAKE_SECONDS)
        if reply.manifest is None:
            yield None
            return
        with self._connected(reply.address, wanted.store) as connection:
            with self._told(wanted.store):
                connection.sendall(reply.key.encode())
            pour = functools.partial(self._pour, connection)
            yield Snapshot(reply.manifest, pour, origin="another instance's copy")

    def _ask(self, action: str, request: CopyRequest, timeout_seconds: float) -> CopyReply:
        client = Client(
            self._location, token=self._token, timeout_seconds=timeout_seconds, trust=self._trust
        )
        try:
            return client.call(action, request, CopyReply)
        except InstanceError as error:
            _log.info("No copy from %s: %s", self._location, error)
            return CopyReply(here=False)
        finally:
            client.close()

    def _connected(self, address: str, store: str) -> socket.socket:
        with self._told(store):
            if not address.isdecimal():
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(self._silence)
                connection.connect(address)
                return connection
            host = self._location.split("://", 1)[1].rsplit(":", 1)[0].strip("[]")
            plain = socket.create_connection((host, int(address)), timeout=self._silence)
            if self._trust is None:
                return plain
            context, name = self._trust.wrap(host)
            try:
                return context.wrap_socket(plain, server_hostname=name)
            except BaseException:
                plain.close()
                raise

    def _pour(self, connection: socket.socket, file: SnapshotFile, target: Path) -> Iterator[None]:
        """Write the file's bytes to the target.

        Raises `SnapshotError` if they do not match the checksum behind them.
        """
        connection.settimeout(min(_LOOK_SECONDS, self._silence))
        if hasattr(os, "splice") and not isinstance(connection, ssl.SSLSocket):
            yield from self._spliced(connection, file, target)
        else:
            yield from poured(self._pieces(connection, file.size, file.name), target)
        sent = b""
        for piece in self._pieces(connection, _CHECKSUM.size, file.name):
            sent += piece
            yield
        # Cut short, it has no checksum.
        if sent != _CHECKSUM.pack(checksum_of(target)):
            raise SnapshotError(
                f"The copy from {self._location} was cut short or changed on its way",
                where={"file": file.name},
            )

    def _spliced(
        self, connection: socket.socket, file: SnapshotFile, target: Path
    ) -> Iterator[None]:
        """Have the kernel move the bytes: they come through a pipe, not through this process."""
        readable = select.poll()
        readable.register(connection, select.POLLIN)
        with _pipe() as (out, into), target.open("wb", buffering=0) as data:
            reserve(data.fileno(), file.size)

            def receive(most: int) -> int:
                if not readable.poll((connection.gettimeout() or 0.0) * 1000):
                    raise TimeoutError("timed out")
                return os.splice(connection.fileno(), into, most)

            for count in self._counts(file.size, file.name, receive):
                missing = count
                while missing:
                    missing -= _move(out, data.fileno(), missing)
                yield

    def _pieces(self, connection: socket.socket, missing: int, what: str) -> Iterator[Piece]:
        """So many bytes; each piece is to be used before the next one is asked for."""
        buffer = memoryview(bytearray(min(missing, PIECE_BYTES)))

        def receive(most: int) -> int:
            return connection.recv_into(buffer[:most])

        for count in self._counts(missing, what, receive):
            yield buffer[:count]

    def _counts(self, missing: int, what: str, receive: Callable[[int], int]) -> Iterator[int]:
        """Receive so many bytes, or fewer if the peer has no more, and say how many each time.

        That is none now and then, while nothing comes.
        """
        heard = time.monotonic()
        while missing:
            with self._told(what):
                try:
                    count = receive(min(missing, PIECE_BYTES))
                except TimeoutError:
                    if time.monotonic() - heard > self._silence:
                        raise
                    count = -1
            if not count:
                return
            if count > 0:
                heard = time.monotonic()
                missing -= count
            yield max(count, 0)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SnapshotError(
                f"The copy from {self._location} broke off: {error}", where={"store": what}
            ) from error


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """The end to read from, and the one to write to, of a pipe that holds a whole piece."""
    out, into = os.pipe()
    try:
        # Of what the pipes of all of a user's processes hold there is a limit. It works with less.
        with contextlib.suppress(OSError):
            fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIECE_BYTES)
        yield out, into
    finally:
        os.close(out)
        os.close(into)


def _move(out: int, target: int, most: int) -> int:
    """Move at most so many bytes from a pipe to a file; how many it was."""
    try:
        return os.splice(out, target, most)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    # Some file systems do not know how.
    data = os.read(out, most)
    left = memoryview(data)
    while left:
        left = left[os.write(target, left) :]
    return len(data)


def listener_for(host: str, sockets: Path) -> socket.socket:
    """A socket on which copies are fetched: TCP if there are other hosts."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, 0), family=family)
    listener = socket.socket(socket.AF_UNIX)
    path = sockets / "copies.sock"
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    return listener


def _key_from(connection: socket.socket) -> str:
    """The key that comes first, or what has come of it when its sender has no more.

    Raises `TimeoutError` if it does not come in time, however slowly its bytes do.
    """
    deadline = time.monotonic() + KEY_SECONDS
    data = b""
    while len(data) < 2 * _KEY_BYTES:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        more = connection.recv(2 * _KEY_BYTES - len(data))
        if not more:
            break
        data += more
    return data.decode("ascii", "replace")
