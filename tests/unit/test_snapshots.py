"""Snapshots: whole copies of stores, made once, checked when they are used."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from penstock.changelog.read_ahead import Readers
from penstock.changelog.reading import LogRange
from penstock.changelog.restore import RestoreOutcome, RestoreResult
from penstock.changelog.snapshots import (
    Checksums,
    Manifest,
    Snapshot,
    SnapshotFile,
    SnapshotLocation,
    SnapshotSource,
    checksum_of,
    copy_snapshot,
    read_files,
    reserve,
)
from penstock.config import Config
from penstock.errors import ConfigError, KafkaError, SnapshotError
from penstock.instance import snapshots, state
from penstock.instance.clients import SharedClients
from penstock.instance.protocol import StoreOrder, TakeOrder
from penstock.instance.snapshots import Snapshotter
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb import RocksDBStore
from tests.harness import wait_until
from tests.s3_server import s3_server

IDENTITY = StoreIdentity(
    application_id="clinic",
    task="0_1",
    store="counts",
    changelog_topic="clinic-counts-changelog",
    changelog_topic_id="x",
)
TASK = "counts-1"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    made = RocksDBStore("counts", tmp_path / "original" / "counts")
    made.set_identity(IDENTITY)
    yield made
    made.close()


@pytest.fixture(params=["file", "s3"])
def location(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SnapshotLocation]:
    """In a directory, and in a bucket whose objects are files of the same directory."""
    if request.param == "file":
        yield SnapshotLocation(f"file://{tmp_path}/snapshots", "clinic")
        return
    (tmp_path / "snapshots").mkdir()
    with s3_server(tmp_path) as server:
        yield SnapshotLocation(server.uri("snapshots"), "clinic")


def _fill(store: RocksDBStore, first: int, last: int) -> None:
    store.apply([(b"k%05d" % n, b"v" * 100) for n in range(first, last)], offset=last - 1)


def _write(
    location: SnapshotLocation, store: RocksDBStore, path: Path, known: Checksums | None = None
) -> tuple[Manifest, int]:
    store.checkpoint(path)
    offset = store.offset()
    assert offset is not None
    files = read_files(path, known)
    manifest = Manifest(identity=IDENTITY, offset=offset, files=files)
    return manifest, location.write(TASK, manifest, path)


def _files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "snapshots" / "clinic" / TASK / "counts").iterdir())


def test_a_copy_is_the_store(
    tmp_path: Path, store: RocksDBStore, location: SnapshotLocation
) -> None:
    assert location.manifest(TASK, "counts") is None
    _fill(store, 0, 1000)
    written, size = _write(location, store, tmp_path / "copy")
    assert size == written.size > 100_000
    _fill(store, 1000, 1500)  # What comes later is not in it.
    (tmp_path / "elsewhere").mkdir()
    with location.open(TASK, IDENTITY) as snapshot:
        assert snapshot is not None
        assert snapshot.manifest == written
        copy_snapshot(snapshot, tmp_path / "elsewhere" / "counts")
    copy = RocksDBStore("counts", tmp_path / "elsewhere" / "counts")
    assert copy.identity() == IDENTITY
    assert copy.offset() == 999
    assert len(list(copy.all())) == 1000
    copy.close()


def test_a_copy_is_of_one_store_and_not_ahead_of_its_changelog() -> None:
    snapshot = Snapshot(Manifest(identity=IDENTITY, offset=9, files=[]), lambda *_: iter([]))
    assert snapshot.fits(IDENTITY, LogRange(0, 10))
    assert not snapshot.fits(IDENTITY, LogRange(0, 9))
    assert snapshot.fits(IDENTITY, LogRange(10, 20))
    assert not snapshot.fits(IDENTITY, LogRange(11, 20))
    assert snapshot.fits(IDENTITY, LogRange(11, 20), markers=1)
    for other in ("task", "store", "changelog_topic_id", "layout"):
        another = msgspec.structs.replace(IDENTITY, **{other: "else"})
        assert not snapshot.fits(another, LogRange(0, 10))


def test_what_is_there_is_not_copied_again(
    tmp_path: Path, store: RocksDBStore, location: SnapshotLocation
) -> None:
    _fill(store, 0, 20_000)
    known: Checksums = {}
    first, size = _write(location, store, tmp_path / "one", known)
    _fill(store, 20_000, 20_100)
    second, more = _write(location, store, tmp_path / "two", known)
    assert more < size / 10
    kept = {file.name for file in first.files} & {file.name for file in second.files}
    assert any(name.endswith(".sst") for name in kept)
    # Files of the snapshot before the last one are gone.
    _fill(store, 0, 20_100)
    third, _ = _write(location, store, tmp_path / "three", known)
    names = {f"{f.name}-{f.size}-{f.checksum:016x}" for f in (*second.files, *third.files)}
    assert {path.name for path in _files(tmp_path)} == names | {"manifest.json"}


def test_a_store_that_is_made_anew_has_files_of_the_same_names_and_other_bytes(
    tmp_path: Path,
) -> None:
    known: Checksums = {}
    seen = []
    for value in (b"a", b"b"):
        path = tmp_path / value.decode()
        store = RocksDBStore("counts", path / "counts")
        store.apply([(b"k%03d" % n, value * 20) for n in range(100)], offset=99)
        store.checkpoint(path / "copy")
        seen.append({file.name: file for file in read_files(path / "copy", known)})
        assert {checksum_of(path / "copy" / name) for name, _, _ in known} == {*known.values()}
        store.close()
    [data] = [name for name in seen[0] if name.endswith(".sst")]
    assert seen[0][data].size == seen[1][data].size
    assert seen[0][data].checksum != seen[1][data].checksum
    # What was read before is not read again.
    believed = dict.fromkeys(known, 7)
    again = {file.name: file for file in read_files(tmp_path / "b" / "copy", believed)}
    assert again[data].checksum == 7


class OneTask:
    """A task with one store, as far as who makes snapshots looks at it."""

    def __init__(self, store: RocksDBStore, scratch: Path) -> None:
        self.order = SimpleNamespace(name=TASK, task=IDENTITY.task)
        self.stores = SimpleNamespace(
            snapshot_stores=["counts"],
            get=lambda name: store,
            order=lambda name: StoreOrder(name=name, changelog="log", changelog_id="x"),
            identity=lambda order: IDENTITY,
            copy=self.copy,
        )
        self.told: list[str] = []
        self.tell = self.told.extend
        self._store, self._scratch = store, scratch

    @contextlib.contextmanager
    def copy(self, name: str, purpose: str) -> Iterator[Path]:
        self._store.checkpoint(self._scratch)
        try:
            yield self._scratch
        finally:
            shutil.rmtree(self._scratch)


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
def test_what_is_cut_in_the_location_is_written_again(
    tmp_path: Path, store: RocksDBStore, location: SnapshotLocation, damage: str
) -> None:
    """Though the store has not changed since, and its other files are left as they are."""
    _fill(store, 0, 1000)
    task = OneTask(store, tmp_path / "copy")
    snapshotter = Snapshotter(location, interval_seconds=0.01, tasks=lambda: [cast(OpenTask, task)])
    try:
        wait_until(lambda: location.manifest(TASK, "counts") is not None, what="it was copied")
        before = {path: path.read_bytes() for path in _files(tmp_path)}
        [data] = [path for path in before if ".sst" in path.name]
        if damage == "cut":
            data.write_bytes(before[data][:-1])
        else:
            (data if damage == "gone" else data.with_name("manifest.json")).unlink()

        def is_mended() -> bool:
            manifest = location.manifest(TASK, "counts")
            return manifest is not None and location.is_whole(TASK, manifest)

        wait_until(is_mended, what="it was mended")
    finally:
        snapshotter.close()
    assert data.read_bytes() == before[data]
    assert task.told == []


def test_a_store_that_does_not_change_is_copied_again_before_deletions_are_gone(
    tmp_path: Path, store: RocksDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour, now = 3_600_000, [10**12]
    monkeypatch.setattr(snapshots, "wall_clock_ms", lambda: now[0])
    location = SnapshotLocation(f"file://{tmp_path}/snapshots", "clinic")
    _fill(store, 0, 10)
    task = cast(OpenTask, OneTask(store, tmp_path / "copy"))
    snapshotter = Snapshotter(location, interval_seconds=1_000, tasks=list)
    for at, written in ((0, 0), (11, 0), (13, 13), (24, 13)):
        now[0] = 10**12 + at * hour
        snapshotter._copy(task, "counts")
        manifest = location.manifest(TASK, "counts")
        assert manifest is not None
        assert manifest.written_ms == 10**12 + written * hour
    snapshotter.close()


def test_whatever_keeps_a_copy_from_being_made_the_next_one_is_tried(
    tmp_path: Path, store: RocksDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = SnapshotLocation(f"file://{tmp_path}/snapshots", "clinic")
    _fill(store, 0, 10)
    task = OneTask(store, tmp_path / "copy")
    write, failures = location.write, [ValueError("no such thing"), OSError("no such disk")]

    def writes(*order: Any) -> int:
        if failures:
            raise failures.pop(0)
        return write(*order)

    monkeypatch.setattr(location, "write", writes)
    snapshotter = Snapshotter(location, interval_seconds=0.01, tasks=lambda: [cast(OpenTask, task)])
    try:
        wait_until(lambda: location.manifest(TASK, "counts") is not None, what="it was copied")
    finally:
        snapshotter.close()
    for said, told in zip(("no such thing", "no such disk"), task.told, strict=True):
        assert said in told


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "manifest"])
def test_a_snapshot_that_does_not_match_is_refused_whole(
    tmp_path: Path, store: RocksDBStore, location: SnapshotLocation, damage: str
) -> None:
    _fill(store, 0, 1000)
    manifest, _ = _write(location, store, tmp_path / "copy")
    [data] = [path for path in _files(tmp_path) if ".sst" in path.name]
    if damage == "cut":
        data.write_bytes(data.read_bytes()[:-1])
    elif damage == "changed":
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(bytes(content))
    elif damage == "gone":
        data.unlink()
    else:
        (data.parent / "manifest.json").write_bytes(msgspec.json.encode(manifest)[:-5])
        with pytest.raises(SnapshotError, match="manifest cannot be read"):
            location.manifest(TASK, "counts")
        # The next one takes its place.
        _write(location, store, tmp_path / "again")
        assert location.manifest(TASK, "counts") is not None
        return
    with location.open(TASK, IDENTITY) as snapshot:
        assert snapshot is not None
        with pytest.raises(SnapshotError, match="counts"):
            copy_snapshot(snapshot, tmp_path / "counts")
    assert not (tmp_path / "counts").exists()


TREE = {"CURRENT": b"x", "data/a/CURRENT": b"yy", "data/b.db": b"", "data/a-2.db": b"yy"}


def plant(directory: Path, files: dict[str, bytes] = TREE) -> Path:
    """A copy of a store that has directories of its own."""
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def harvest(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    files = (each for each in directory.rglob("*") if each.is_file())
    return {each.relative_to(directory).as_posix(): each.read_bytes() for each in files}


def _taken(location: SnapshotLocation, path: Path) -> dict[str, bytes]:
    path.parent.mkdir(exist_ok=True)
    with location.open(TASK, IDENTITY) as snapshot:
        assert snapshot is not None
        copy_snapshot(snapshot, path)
    return harvest(path)


def test_directories_of_a_store_are_copied_with_all_that_they_hold(
    tmp_path: Path, location: SnapshotLocation
) -> None:
    first = plant(tmp_path / "copy")
    (first / "empty").mkdir()
    manifest = Manifest(identity=IDENTITY, offset=1, files=read_files(first))
    assert [file.name for file in manifest.files] == sorted(TREE)
    location.write(TASK, manifest, first)
    # What a copy that was broken off has left is no part of the next one.
    left = plant(tmp_path / "one" / ".counts.incoming", {"data/a/left": b"z"})
    assert _taken(location, tmp_path / "one" / "counts") == TREE
    assert not left.exists()
    # What is there is not written again, what is not needed goes, wherever it lay.
    later = plant(tmp_path / "later", {"data/a/CURRENT": b"yy", "data/c/d": b"new"})
    for offset, new in ((2, 3), (3, 0)):
        manifest = Manifest(identity=IDENTITY, offset=offset, files=read_files(later))
        assert location.write(TASK, manifest, later) == new
    assert location.is_whole(TASK, manifest)
    assert len(_files(tmp_path)) == 3
    assert set(_taken(location, tmp_path / "two" / "counts")) == {"data/a/CURRENT", "data/c/d"}


def test_a_store_whose_files_cannot_all_be_copied_is_not_copied_by_half(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not the store's")
    for place, name in enumerate(("link", "data/link", "data/with space", "a/" * 100 + "b")):
        path = plant(tmp_path / str(place), {"CURRENT": b"x", "data/b.db": b"y"})
        if "link" in name:
            (path / name).symlink_to(tmp_path / "secret")
        else:
            plant(path, {name: b""})
        with pytest.raises(SnapshotError, match=r"copy has .*(link|with space|a/a/a)"):
            read_files(path)
    (path := tmp_path / "to a directory").mkdir()
    (path / "data").symlink_to(tmp_path / "0" / "data", target_is_directory=True)
    with pytest.raises(SnapshotError, match="neither a file nor a directory"):
        read_files(path)


HOSTILE = (
    ["../escaped"],
    ["data/../../escaped"],
    ["data/.."],
    ["/tmp/escaped"],
    ["//escaped"],
    ["data//b"],
    ["data/"],
    ["./data"],
    ["data/./b"],
    [""],
    ["."],
    ["manifest.json"],
    ["data\\..\\escaped"],
    ["data~b"],
    ["data\0"],
    ["data/b\n"],
    ["a" * 201],
    ["a/" * 100_000 + "b"],
    ["data", "data/b"],
    ["data/b/c", "data/b"],
    ["data/b", "data/b"],
)


@pytest.mark.parametrize("names", HOSTILE, ids=lambda names: repr(names)[:30])
def test_a_manifest_cannot_write_elsewhere(tmp_path: Path, names: list[str]) -> None:
    files = [SnapshotFile(name, 0, 0) for name in names]
    manifest = Manifest(identity=IDENTITY, offset=0, files=files)
    with pytest.raises(SnapshotError, match="names the file"):
        copy_snapshot(Snapshot(manifest, lambda file, target: iter([])), tmp_path / "counts")
    assert list(tmp_path.iterdir()) == []
    location = SnapshotLocation(tmp_path.as_uri(), "clinic")
    place = tmp_path / "clinic" / TASK / "counts"
    plant(place, {"manifest.json": msgspec.json.encode(manifest)})
    with pytest.raises(SnapshotError, match="names the file"):
        location.manifest(TASK, "counts")


def test_a_location_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="snapshot_location"):
        SnapshotLocation("nowhere", "clinic")


@pytest.mark.parametrize("location", ["file"], indirect=True)
def test_a_location_that_cannot_be_written_is_named(
    tmp_path: Path, store: RocksDBStore, location: SnapshotLocation
) -> None:
    (tmp_path / "snapshots").write_text("a file in the way")
    _fill(store, 0, 10)
    with pytest.raises(SnapshotError, match="cannot be written"):
        _write(location, store, tmp_path / "copy")


def _names(*manifests: Manifest) -> set[str]:
    return {f"{f.name}-{f.size}-{f.checksum:016x}" for each in manifests for f in each.files}


def _earlier(tmp_path: Path) -> list[int]:
    names = [path.name for path in _files(tmp_path)]
    return [int(name[9:-5]) for name in names if name.startswith("manifest-")]


def _rounds(
    tmp_path: Path, store: RocksDBStore, times: Iterable[int], *, keep: int
) -> list[Manifest]:
    """Snapshots of a store that grows, and of which what was there before changes."""
    kept = SnapshotLocation(f"file://{tmp_path}/snapshots", "clinic", keep=keep)
    made: list[Manifest] = []
    for time in times:
        _fill(store, 0, 100 * time)
        path = tmp_path / f"copy-{time}"
        store.checkpoint(path)
        manifest = Manifest(
            identity=IDENTITY, offset=100 * time - 1, files=read_files(path), written_ms=time
        )
        kept.write(TASK, manifest, path)
        made.append(manifest)
    return made


def test_earlier_snapshots_are_kept_and_can_be_copied(
    tmp_path: Path, store: RocksDBStore, location: SnapshotLocation
) -> None:
    made = _rounds(tmp_path, store, range(1, 7), keep=3)
    assert location.history(TASK, "counts") == made[:2:-1]
    assert location.manifest(TASK, "counts") == made[-1]
    assert _earlier(tmp_path) == [4, 5, 6]
    for manifest in made[3:]:
        path = tmp_path / f"again-{manifest.written_ms}"
        copy_snapshot(location.snapshot(TASK, manifest), path)
        copy = RocksDBStore("counts", path)
        assert len(list(copy.all())) == 100 * manifest.written_ms
        copy.close()
    # The files of the one that went last stay for a round, and no others.
    there = {path.name for path in _files(tmp_path) if "manifest" not in path.name}
    assert there == _names(*made[2:])
    assert location.stores() == [(TASK, "counts")]


def test_fewer_are_kept_from_then_on(
    tmp_path: Path, store: RocksDBStore, location: SnapshotLocation
) -> None:
    _rounds(tmp_path, store, range(1, 5), keep=4)
    *_, last = _rounds(tmp_path, store, range(5, 7), keep=1)
    assert location.history(TASK, "counts") == [last]
    assert _earlier(tmp_path) == []


def test_a_damaged_manifest_costs_no_other_snapshot_and_goes_in_time(
    tmp_path: Path, store: RocksDBStore, location: SnapshotLocation
) -> None:
    made = _rounds(tmp_path, store, range(1, 4), keep=3)
    damaged = next(path for path in _files(tmp_path) if path.name == f"manifest-{2:015}.json")
    damaged.write_text("no manifest")
    made += _rounds(tmp_path, store, [4], keep=3)
    # Nobody knows which files it needs: all are there.
    assert _names(*made) <= {path.name for path in _files(tmp_path)}
    made += _rounds(tmp_path, store, [5, 6], keep=3)
    assert location.history(TASK, "counts") == made[:2:-1]
    there = {path.name for path in _files(tmp_path) if "manifest" not in path.name}
    assert _names(*made[3:]) <= there


def test_of_a_store_without_snapshots_there_is_no_history(location: SnapshotLocation) -> None:
    assert location.history(TASK, "counts") == []
    assert location.stores() == []


@contextlib.contextmanager
def task_stores(directory: Path, *snapshots: SnapshotSource) -> Iterator[TaskStores]:
    """A task on an empty disk, with its one store open."""
    counts = StoreOrder(name="counts", changelog="clinic-counts-changelog", changelog_id="x")
    order = TakeOrder(
        task="0_1",
        name=TASK,
        epoch=(1, 1),
        inputs=[],
        stores=[counts],
        first_taking=True,
        commits_partition=1,
    )
    clients = cast(SharedClients, SimpleNamespace(config=Config(), logs=None))
    with StateDirectory.open(directory, "clinic") as state_directory:
        stores = TaskStores(order, state_directory, clients, snapshots=snapshots)
        stores.open(None)
        stores._open.open(counts)
        yield stores
        stores.close()


def test_a_copy_that_the_changelog_does_not_go_on_from_is_passed_over_for_a_newer_one(
    tmp_path: Path, store: RocksDBStore
) -> None:
    # A peer that had the task once has it as it was then.
    old, new = (SnapshotLocation(f"file://{tmp_path}/{name}", "clinic") for name in ("old", "new"))
    _fill(store, 0, 10)
    _write(old, store, tmp_path / "then")
    _fill(store, 10, 60)
    _write(new, store, tmp_path / "now")
    notes: list[str] = []
    with task_stores(tmp_path / "state", old, new) as stores:
        log = LogRange(40, 100)
        order = stores.order("counts")
        assert stores._start_from_snapshot(order, log, lambda: False, notes) == log
        assert "up to offset 59" in notes[0]
        assert stores.get("counts").offset() == 59


@pytest.mark.parametrize(("end", "held"), [(60, 59), (59, None)])
def test_whether_a_copy_is_ahead_of_its_changelog_is_asked_when_it_is_there(
    tmp_path: Path,
    store: RocksDBStore,
    monkeypatch: pytest.MonkeyPatch,
    end: int,
    held: int | None,
) -> None:
    source = SnapshotLocation(f"file://{tmp_path}/location", "clinic")
    _fill(store, 0, 60)
    _write(source, store, tmp_path / "now")
    now = {("clinic-counts-changelog", 1): LogRange(0, end)}
    monkeypatch.setattr(state, "_ranges", lambda *_: now)
    with task_stores(tmp_path / "state", source) as stores:
        before, order = LogRange(0, 40), stores.order("counts")
        log = stores._start_from_snapshot(order, before, lambda: False, [])
        assert (log, stores.get("counts").offset()) == (LogRange(0, end), held)


def test_a_store_whose_changelog_loses_its_start_again_and_again_does_not_pass_for_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = RestoreResult(RestoreOutcome.TRUNCATED, restored=0, bytes=0)
    monkeypatch.setattr(state, "_log_start", lambda *_: 0)
    monkeypatch.setattr(state, "restore", lambda *_, **__: lost)
    consumer = SimpleNamespace(close=lambda: None)
    with task_stores(tmp_path / "state") as stores:
        monkeypatch.setattr(stores._clients, "logs", SimpleNamespace(consumer=lambda: consumer))
        with pytest.raises(KafkaError, match="lost its start again") as failed:
            stores._restore_store(
                stores.order("counts"), LogRange(0, 100), lambda: False, Readers(1)
            )
        # A task that fails for this is taken again.
        assert type(failed.value) is KafkaError


def test_reserved_room_makes_no_file_longer(tmp_path: Path) -> None:
    """One that is cut short must be seen to be that, and more than there is takes nothing."""
    path = tmp_path / "000012.sst"
    with path.open("wb", buffering=0) as file:
        for size in (0, 5_000_000, 2**62):
            reserve(file.fileno(), size)
        reserved = os.fstat(file.fileno()).st_blocks * 512
        file.write(b"abc")
    assert path.read_bytes() == b"abc"
    assert reserved <= 5_000_000 + 2**20
