"""Copies of stores between instances: what comes is the store, or nothing of it stays."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.changelog.snapshots import Manifest, SnapshotFile, copy_snapshot
from penstock.errors import SnapshotError
from penstock.instance.peers import PeerCopies, PeerSource, listener_for
from penstock.instance.protocol import CopyReply, CopyRequest, encode
from penstock.instance.server import Server
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb import RocksDBStore

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


@pytest.fixture
def copies(state: StateDirectory) -> Iterator[PeerCopies]:
    """An instance that was given a task once, and holds none now."""
    task = state.lock_task("0_1")
    store = RocksDBStore("counts", task.store_path("counts"))
    store.set_identity(IDENTITY)
    store.apply([(b"k%05d" % n, b"v" * 1000) for n in range(5000)], offset=4999)
    store.close()
    task.unlock()
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
    for size in (reply.manifest.size, 0):
        with socket.create_connection(("127.0.0.1", int(reply.address))) as connection:
            connection.sendall(reply.key.encode())
            connection.shutdown(socket.SHUT_WR)
            assert sum(map(len, iter(lambda: connection.recv(1 << 20), b""))) == size


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

    def __init__(self, sent: bytes, *, silent: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sent = sent
        self._silent = silent
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def answer(self, body: bytes) -> CopyReply:
        checksum = zlib.crc32(b"abcdef")
        files = [SnapshotFile("CURRENT", 6, checksum), SnapshotFile("a.sst", 6, None)]
        manifest = Manifest(identity=IDENTITY, offset=1, files=files)
        port = str(self._listener.getsockname()[1])
        return CopyReply(here=True, manifest=manifest, address=port, key="k")

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.sendall(self._sent)
            if self._silent:
                self._over.wait()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize(
    ("sent", "silent"),
    [(b"abcdeg123456", False), (b"abcdef123", False), (b"", False), (b"abcdef", True)],
    ids=["changed", "cut short", "nothing", "silent"],
)
def test_a_copy_that_does_not_come_whole_leaves_nothing(
    tmp_path: Path, sent: bytes, silent: bool
) -> None:
    peer = Faulty(sent, silent=silent)
    actions = {"has_copy": peer.answer, "make_copy": peer.answer}
    with Server("grpc+tcp://127.0.0.1:0", token="secret", actions=actions) as server:
        location = f"grpc+tcp://127.0.0.1:{server.port}"
        source = PeerSource(location, token="secret", silence_seconds=1.0)
        with source.open(TASK, IDENTITY) as snapshot:
            assert snapshot is not None
            with pytest.raises(SnapshotError):
                copy_snapshot(snapshot, tmp_path / "counts")
    peer.close()
    assert not (tmp_path / "counts").exists()
