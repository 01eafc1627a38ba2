"""Copies that come before it is known where their task stands: of use, or gone without a trace."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from penstock.changelog.reading import LogRange, never
from penstock.changelog.snapshots import (
    Manifest,
    Snapshot,
    SnapshotFile,
    checksum_of,
    file_names,
    poured,
    read_chunks,
)
from penstock.config import Config
from penstock.errors import SnapshotError
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import StoreOrder, TakeOrder
from penstock.instance.state import TaskStores
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb import RocksDBStore

COUNTS = StoreOrder(name="counts", changelog="clinic-counts-changelog", changelog_id="x")
ORDER = TakeOrder(
    task="0_1",
    name="counts-1",
    epoch=(1, 1),
    inputs=[],
    stores=[COUNTS],
    first_taking=True,
    commits_partition=1,
)


class Peer:
    """Has a copy of the store up to offset 59, which may come otherwise."""

    def __init__(self, directory: Path) -> None:
        self.asked = 0
        self.flaw = ""
        self.coming = threading.Event()
        self.may_answer = threading.Event()
        self._directory = directory

    def has_copy(self, wanted: StoreIdentity) -> bool:
        if self.flaw == "slow":
            assert self.may_answer.wait(10)
        return True

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        assert task == ORDER.name
        self.asked += 1
        if self.flaw == "none yet":
            yield None
            return
        if self.flaw == "other's":
            wanted = msgspec.structs.replace(wanted, changelog_topic_id="y")
        self._make(wanted)
        files = [
            SnapshotFile(name, path.stat().st_size, checksum_of(path))
            for name in file_names(self._directory)
            for path in [self._directory / name]
        ]
        yield Snapshot(Manifest(identity=wanted, offset=59, files=files), self._pour)

    def _make(self, identity: StoreIdentity) -> None:
        store = RocksDBStore("counts", self._directory)
        if self.flaw == "lying":
            identity = msgspec.structs.replace(identity, store="others")
        store.set_identity(identity)
        store.apply([(b"k%05d" % n, b"v" * 100) for n in range(60)], offset=59)
        store.close()

    def _pour(self, file: SnapshotFile, target: Path) -> Iterator[None]:
        if self.flaw == "broken":
            raise SnapshotError("The copy broke off")
        while self.flaw == "endless":
            self.coming.set()
            yield
        yield from poured(read_chunks(self._directory / file.name), target)


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    return Peer(tmp_path / "peer")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDirectory]:
    with StateDirectory.open(tmp_path / "state", "clinic") as directory:
        yield directory


def stores_of(state: StateDirectory, *peers: Peer) -> TaskStores:
    clients = cast(SharedClients, SimpleNamespace(config=Config(), logs=None))
    return TaskStores(ORDER, state, clients, peers=peers)


def begun(stores: TaskStores) -> TaskStores:
    """The stores once nothing comes any more."""
    stores.begin(never)
    thread = stores._early.thread
    if thread is not None:
        thread.join()
    return stores


@pytest.mark.parametrize(
    ("log", "held"),
    [(LogRange(0, 100), 59), (LogRange(0, 60), 59), (LogRange(62, 100), None)],
    ids=["in the middle", "at the end", "too old"],
)
def test_a_copy_that_came_early_is_used_if_the_changelog_goes_on_from_it(
    state: StateDirectory, peer: Peer, log: LogRange, held: int | None
) -> None:
    stores = begun(stores_of(state, peer))
    stores.open(None)
    notes = stores._use_early(COUNTS, log)
    assert [note[:36] for note in notes] == (
        [] if held is None else ["Store counts of task 0_1 comes from "]
    )
    assert stores._open.open(COUNTS).offset() == held
    # What was of no use is not asked for again.
    assert stores._start_from_snapshot(COUNTS, log, never, notes) == log
    assert peer.asked == 1
    stores.close()


def test_a_peer_that_had_no_copy_yet_is_asked_again(state: StateDirectory, peer: Peer) -> None:
    peer.flaw = "none yet"
    stores = begun(stores_of(state, peer))
    assert stores._use_early(COUNTS, LogRange(0, 100)) == []
    assert stores._open.open(COUNTS).offset() is None
    peer.flaw = ""
    stores._start_from_snapshot(COUNTS, LogRange(0, 100), never, [])
    assert (peer.asked, stores.get("counts").offset()) == (2, 59)
    stores.close()


@pytest.mark.parametrize(
    ("flaw", "text"),
    [("broken", "broke off"), ("lying", "holds the store others"), ("other's", "")],
)
def test_a_copy_that_is_not_what_was_asked_for_leaves_an_empty_store(
    state: StateDirectory, peer: Peer, flaw: str, text: str
) -> None:
    peer.flaw = flaw
    stores = begun(stores_of(state, peer))
    notes = stores._use_early(COUNTS, LogRange(0, 100))
    assert len(notes) == bool(text)
    assert all(text in note for note in notes)
    assert stores._open.open(COUNTS).offset() is None
    assert [path.name for path in (state.path / "0_1").iterdir() if path.is_dir()] == ["counts"]
    stores.close()


def test_a_copy_on_its_way_ends_with_its_task(state: StateDirectory, peer: Peer) -> None:
    peer.flaw = "endless"
    stores = stores_of(state, peer)
    stores.begin(never)
    assert peer.coming.wait(10)
    stores.close()
    assert [path for path in (state.path / "0_1").iterdir() if path.is_dir()] == []
    # It is another owner's to take.
    state.lock_task("0_1").unlock()


def test_what_the_disk_has_is_not_copied(state: StateDirectory, peer: Peer) -> None:
    begun(stores_of(state, peer)).close()
    begun(stores_of(state, peer)).close()
    assert peer.asked == 1


def test_a_task_that_others_hold_is_left_to_them(state: StateDirectory, peer: Peer) -> None:
    held = state.lock_task("0_1")
    stores = begun(stores_of(state, peer))
    assert peer.asked == 0
    held.unlock()
    stores.open(None)
    stores.close()


def test_nobody_waits_for_a_peer_that_does_not_say_whether_it_has_a_copy(
    state: StateDirectory, peer: Peer
) -> None:
    peer.flaw = "slow"
    stores = stores_of(state, peer)
    stores.begin(never)
    stores._early.wait()
    thread = stores._early.thread
    stores.close()
    # Its answer comes too late: the directory is another owner's by now.
    peer.may_answer.set()
    assert thread is not None
    thread.join()
    assert peer.asked == 0
