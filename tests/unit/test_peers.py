"""Copies of stores between instances: what comes is the store, or nothing of it stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from penstock.changelog.snapshots import Manifest, SnapshotFile, copy_snapshot
from penstock.errors import SnapshotError
from penstock.instance.peers import PeerCopies, PeerSource, piece
from penstock.instance.protocol import CopyReply, CopyRequest
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
def copies(state: StateDirectory) -> PeerCopies:
    """An instance that was given a task once, and holds none now."""
    task = state.lock_task("0_1")
    store = RocksDBStore("counts", task.store_path("counts"))
    store.set_identity(IDENTITY)
    store.apply([(b"k%05d" % n, b"v" * 1000) for n in range(5000)], offset=4999)
    store.close()
    task.unlock()
    return PeerCopies(state, None, lambda _: None)


@pytest.fixture
def location(tmp_path: Path, copies: PeerCopies) -> Iterator[str]:
    where = f"grpc+unix://{tmp_path}/s.sock"
    with Server(where, token="secret", actions=copies.actions, copies=copies):
        yield where


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


def test_nothing_is_left_beside_the_store(state: StateDirectory, copies: PeerCopies) -> None:
    for _ in copies.pieces(CopyRequest(identity=IDENTITY)):
        pass
    assert not list((state.path / "0_1").glob(".*.peer"))


@pytest.mark.parametrize(
    "wanted", [{"task": "0_2"}, {"store": "other"}, {"store": "../0_1/counts"}], ids=str
)
def test_a_peer_without_a_copy_says_so(location: str, wanted: dict[str, str]) -> None:
    identity = msgspec.structs.replace(IDENTITY, **wanted)
    with PeerSource(location, token="secret").open(TASK, identity) as snapshot:
        assert snapshot is None


def test_a_peer_that_is_gone_has_no_copy(tmp_path: Path) -> None:
    source = PeerSource(f"grpc+unix://{tmp_path}/nobody.sock", token="secret")
    with source.open(TASK, IDENTITY) as snapshot:
        assert snapshot is None


def test_a_stranger_gets_nothing(location: str) -> None:
    with PeerSource(location, token="guessed").open(TASK, IDENTITY) as snapshot:
        assert snapshot is None


def test_a_store_is_copied_for_one_peer_at_a_time(copies: PeerCopies) -> None:
    request = CopyRequest(identity=IDENTITY)
    first, second = copies.pieces(request), copies.pieces(request)
    assert next(first).column("data")[0].as_py()
    assert not next(second).column("data")[0].as_py()
    first.close()  # type: ignore[attr-defined]  # a generator's
    assert next(copies.pieces(request)).column("data")[0].as_py()


def test_a_task_that_is_being_taken_is_not_copied(
    state: StateDirectory, copies: PeerCopies
) -> None:
    task = state.lock_task("0_1")
    [refusal] = copies.pieces(CopyRequest(identity=IDENTITY))
    assert not refusal.column("data")[0].as_py()
    task.unlock()


class Faulty:
    """A peer whose copy has one file of six bytes, and comes otherwise."""

    def __init__(self, rest: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._rest = rest
        self.actions = {"has_copy": lambda body: CopyReply(here=True)}

    def pieces(self, request: CopyRequest) -> Iterator[pa.RecordBatch]:
        manifest = Manifest(identity=IDENTITY, offset=1, files=[SnapshotFile("a.sst", 6, None)])
        yield piece(-1, msgspec.json.encode(manifest))
        yield from self._rest()


def _changed() -> Iterator[pa.RecordBatch]:
    right, wrong = piece(0, b"abcdef"), piece(0, b"abcdeg")
    yield pa.record_batch([*right.columns[:2], wrong.columns[2]], schema=right.schema)


def _cut() -> Iterator[pa.RecordBatch]:
    yield piece(0, b"abc")


def _broken() -> Iterator[pa.RecordBatch]:
    yield piece(0, b"abc")
    raise OSError("the disk is gone")


_RELEASED = threading.Event()


def _silent() -> Iterator[pa.RecordBatch]:
    yield piece(0, b"abc")
    _RELEASED.wait(30)


@pytest.mark.parametrize("rest", [_changed, _cut, _broken, _silent])
def test_a_copy_that_does_not_come_whole_leaves_nothing(
    tmp_path: Path, rest: Callable[[], Iterator[pa.RecordBatch]]
) -> None:
    peer = Faulty(rest)
    where = f"grpc+unix://{tmp_path}/s.sock"
    _RELEASED.clear()
    with Server(where, token="secret", actions=peer.actions, copies=peer):
        source = PeerSource(where, token="secret", silence_seconds=2.0)
        with source.open(TASK, IDENTITY) as snapshot:
            assert snapshot is not None
            with pytest.raises(SnapshotError):
                copy_snapshot(snapshot, tmp_path / "counts")
        _RELEASED.set()
    assert not (tmp_path / "counts").exists()
