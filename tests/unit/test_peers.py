"""Copies of stores between instances: what comes is the store, or nothing of it stays."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import xxhash

from penstock.changelog.snapshots import Manifest, Snapshot, SnapshotFile, copy_snapshot
from penstock.errors import SnapshotError
from penstock.instance.peers import PeerCopies, PeerSource, listener_for
from penstock.instance.protocol import CopyReply, CopyRequest, encode
from penstock.instance.server import Server
from penstock.instance.task import OpenTask
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb import RocksDBStore
from tests.unit.test_snapshots import HOSTILE, TREE, harvest, plant

IDENTITY = StoreIdentity(
    application_id="clinic",
    task="0_1",
    store="counts",
    changelog_topic="clinic-counts-changelog",
    changelog_topic_id="x",
)
TASK = "counts-1"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDirectory]:
    with StateDirectory.open(tmp_path / "state", "clinic") as directory:
        yield directory


def fill(state: StateDirectory) -> None:
    """Put a store there that nobody holds."""
    task = state.lock_task("0_1")
    store = RocksDBStore("counts", task.store_path("counts"))
    store.set_identity(IDENTITY)
    store.apply([(b"k%05d" % n, b"v" * 1000) for n in range(5000)], offset=4999)
    store.close()
    task.unlock()


@pytest.fixture
def copies(state: StateDirectory) -> Iterator[PeerCopies]:
    """An instance that was given a task once, and holds none now."""
    fill(state)
    made = PeerCopies(state, None, lambda _: None, listener=listener_for("127.0.0.1", state.path))
    yield made
    made.close()


@pytest.fixture
def location(copies: PeerCopies) -> Iterator[str]:
    with Server("grpc+tcp://127.0.0.1:0", token="secret", actions=copies.actions) as server:
        yield f"grpc+tcp://127.0.0.1:{server.port}"


def _asked(copies: PeerCopies, action: str = "make_copy") -> CopyReply:
    reply = copies.actions[action](encode(CopyRequest(identity=IDENTITY)))
    assert isinstance(reply, CopyReply)
    return reply


def test_a_copy_from_a_peer_is_the_store(
    tmp_path: Path, state: StateDirectory, location: str
) -> None:
    with PeerSource(location, token="secret").open(TASK, IDENTITY) as snapshot:
        assert snapshot is not None
        assert (snapshot.manifest.identity, snapshot.manifest.offset) == (IDENTITY, 4999)
        # The task can be taken again while its files are on their way.
        state.lock_task("0_1").unlock()
        copy_snapshot(snapshot, tmp_path / "counts")
    copy = RocksDBStore("counts", tmp_path / "counts")
    assert (copy.identity(), copy.offset()) == (IDENTITY, 4999)
    assert len(list(copy.all())) == 5000
    copy.close()


class Planted:
    """An open task whose store has directories of its own."""

    def __init__(self, directory: Path) -> None:
        self.stores = self
        self.snapshot_stores = ["counts"]
        self._directory = directory

    def get(self, name: str) -> Planted:
        return self

    def order(self, name: str) -> str:
        return name

    def identity(self, order: str) -> StoreIdentity:
        return IDENTITY

    def offset(self) -> int:
        return 7

    @contextlib.contextmanager
    def copy(self, name: str, purpose: str) -> Iterator[Path]:
        yield self._directory


def test_directories_of_a_store_come_from_a_peer(tmp_path: Path, state: StateDirectory) -> None:
    task = cast(OpenTask, Planted(plant(tmp_path / "copy")))
    listener = listener_for("127.0.0.1", state.path)
    copies = PeerCopies(state, None, lambda _: task, listener=listener)
    with Server("grpc+tcp://127.0.0.1:0", token="secret", actions=copies.actions) as server:
        source = PeerSource(f"grpc+tcp://127.0.0.1:{server.port}", token="secret")
        with source.open(TASK, IDENTITY) as snapshot:
            assert snapshot is not None
            copy_snapshot(snapshot, tmp_path / "counts")
        assert harvest(tmp_path / "counts") == TREE
        # One that cannot be copied whole is not given.
        (tmp_path / "copy" / "data" / "link").symlink_to(tmp_path)
        with source.open(TASK, IDENTITY) as snapshot:
            assert snapshot is None
    copies.close()


def test_a_peer_cannot_write_elsewhere(tmp_path: Path) -> None:
    for names in HOSTILE:
        with (
            copy_of(Faulty(WHOLE, silent=False, names=names)) as snapshot,
            pytest.raises(SnapshotError, match="names the file"),
        ):
            copy_snapshot(snapshot, tmp_path / "counts")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wanted", [{"task": "0_2"}, {"store": "other"}, {"store": "../0_1/other"}], ids=str
)
def test_a_peer_without_a_copy_says_so(location: str, wanted: dict[str, str]) -> None:
    identity = msgspec.structs.replace(IDENTITY, **wanted)
    with PeerSource(location, token="secret").open(TASK, identity) as snapshot:
        assert snapshot is None


def test_a_peer_that_is_gone_has_no_copy(tmp_path: Path) -> None:
    source = PeerSource(f"grpc+unix://{tmp_path}/nobody.sock", token="secret")
    with source.open(TASK, IDENTITY) as snapshot:
        assert snapshot is None


def test_a_stranger_gets_nothing(copies: PeerCopies, location: str) -> None:
    with PeerSource(location, token="guessed").open(TASK, IDENTITY) as snapshot:
        assert snapshot is None
    reply = _asked(copies)
    for key in ("", "0" * 64, reply.key[:-1], reply.key.upper()):
        with socket.create_connection(("127.0.0.1", int(reply.address))) as connection:
            connection.sendall(key.encode())
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""


def test_a_key_is_good_for_one_time(copies: PeerCopies) -> None:
    reply = _asked(copies)
    assert reply.manifest is not None
    # Behind each file there are eight bytes of checksum.
    for size in (reply.manifest.size + 8 * len(reply.manifest.files), 0):
        with socket.create_connection(("127.0.0.1", int(reply.address))) as connection:
            connection.sendall(reply.key.encode())
            connection.shutdown(socket.SHUT_WR)
            sent = sum(map(len, iter(lambda: connection.recv(1 << 20), b"")))
            assert sent == size


def test_one_that_had_no_file_left_for_a_caller_serves_the_next(state: StateDirectory) -> None:
    fill(state)
    listener = listener_for("127.0.0.1", state.path)

    class Flaky:
        failures = 2

        def accept(self) -> Any:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return listener.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(listener, name)

    copies = PeerCopies(state, None, lambda _: None, listener=cast(Any, Flaky()))
    reply = _asked(copies)
    with socket.create_connection(("127.0.0.1", int(reply.address))) as connection:
        connection.sendall(reply.key.encode())
        assert connection.recv(1)
    copies.close()


def test_a_store_is_copied_for_one_peer_at_a_time(
    state: StateDirectory, copies: PeerCopies
) -> None:
    assert _asked(copies).here
    assert _asked(copies, "has_copy").here
    assert not _asked(copies).here
    assert list((state.path / "0_1").glob(".*.peer"))
    copies.close()
    assert not list((state.path / "0_1").glob(".*.peer"))


def test_a_task_that_is_being_taken_is_not_copied(
    state: StateDirectory, copies: PeerCopies
) -> None:
    task = state.lock_task("0_1")
    assert not _asked(copies).here
    task.unlock()
    assert _asked(copies).here


class Faulty:
    """A peer whose copy has two files of six bytes, and comes otherwise."""

    def __init__(
        self, sent: bytes, *, silent: bool, names: Sequence[str] = ("CURRENT", "a.sst")
    ) -> None:
        self._names = names
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sent = sent
        self._silent = silent
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def answer(self, body: bytes) -> CopyReply:
        files = [SnapshotFile(name, 6, None) for name in self._names]
        manifest = Manifest(identity=IDENTITY, offset=1, files=files)
        port = str(self._listener.getsockname()[1])
        return CopyReply(here=True, manifest=manifest, address=port, key="k")

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(1)  # The key: left unread it would end the connection with a reset.
            connection.sendall(self._sent)
            if self._silent:
                self._over.wait()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()


def checked(data: bytes) -> bytes:
    return data + xxhash.xxh3_64_intdigest(data).to_bytes(8, "big")


WHOLE = checked(b"abcdef") + checked(b"123456")


@contextlib.contextmanager
def copy_of(peer: Faulty, *, silence_seconds: float = 0.5) -> Iterator[Snapshot]:
    actions = {"has_copy": peer.answer, "make_copy": peer.answer}
    try:
        with Server("grpc+tcp://127.0.0.1:0", token="secret", actions=actions) as server:
            location = f"grpc+tcp://127.0.0.1:{server.port}"
            source = PeerSource(location, token="secret", silence_seconds=silence_seconds)
            with source.open(TASK, IDENTITY) as snapshot:
                assert snapshot is not None
                yield snapshot
    finally:
        peer.close()


def test_a_copy_that_comes_whole_is_taken(tmp_path: Path) -> None:
    with copy_of(Faulty(WHOLE, silent=False)) as snapshot:
        copy_snapshot(snapshot, tmp_path / "counts")
    assert (tmp_path / "counts" / "CURRENT").read_bytes() == b"abcdef"
    assert (tmp_path / "counts" / "a.sst").read_bytes() == b"123456"


def test_a_copy_comes_whole_without_what_the_kernel_may_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger pipe, if this user has many of them, and to write from it, on some file systems."""
    splice, refused = os.splice, list[str]()

    def no_room(*_: int) -> None:
        refused.append("pipe")
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def from_sockets_alone(source: int, target: int, most: int) -> int:
        if stat.S_ISREG(os.fstat(target).st_mode):
            refused.append("file")
            raise OSError(errno.EINVAL, "Invalid argument")
        return splice(source, target, most)

    monkeypatch.setattr("fcntl.fcntl", no_room)
    monkeypatch.setattr("os.splice", from_sockets_alone)
    with copy_of(Faulty(WHOLE, silent=False)) as snapshot:
        copy_snapshot(snapshot, tmp_path / "counts")
    assert set(refused) == {"pipe", "file"}
    assert (tmp_path / "counts" / "CURRENT").read_bytes() == b"abcdef"
    assert (tmp_path / "counts" / "a.sst").read_bytes() == b"123456"


@pytest.mark.parametrize(
    ("sent", "silent", "text"),
    [
        (b"abcdeg" + WHOLE[6:], False, "changed on its way"),
        (WHOLE.replace(b"123", b"124"), False, "changed on its way"),
        (WHOLE[:-1], False, "cut short"),
        (WHOLE[:13], False, "cut short"),
        (b"", False, "cut short"),
        (WHOLE[:6], True, "broke off: timed out"),
        (WHOLE[:10], True, "broke off: timed out"),
    ],
    ids=["changed", "changed data", "no checksum", "short", "nothing", "silent", "silent later"],
)
def test_a_copy_that_does_not_come_whole_leaves_nothing(
    tmp_path: Path, sent: bytes, silent: bool, text: str
) -> None:
    with (
        copy_of(Faulty(sent, silent=silent)) as snapshot,
        pytest.raises(SnapshotError, match=text),
    ):
        copy_snapshot(snapshot, tmp_path / "counts")
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_is_under_way_stops_when_told(tmp_path: Path) -> None:
    """Its peer has sent a part, and would be waited for much longer than this test may last."""
    looked: list[bool] = []

    def stop() -> bool:
        looked.append(len(looked) >= 3)
        return looked[-1]

    with (
        copy_of(Faulty(WHOLE[:10], silent=True), silence_seconds=3600.0) as snapshot,
        pytest.raises(SnapshotError, match="given up"),
    ):
        copy_snapshot(snapshot, tmp_path / "counts", stop=stop)
    assert looked == [False, False, False, True]
    assert list(tmp_path.iterdir()) == []
