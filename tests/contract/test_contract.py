"""Every kind of store: against its model, against the contract's promises, and damaged."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import StoreContractError, StoreDamagedError
from penstock.serdes.windowed import session_key, split_session_key
from penstock.stores.contract import Change, KeyValueStore, StoreSupplier
from penstock.stores.memory import MemoryStore
from penstock.stores.postgres import Database, PostgresStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.testing import check_store
from penstock.topology.nodes import StoreKind
from tests.contract.in_postgres import DSN_VARIABLE
from tests.contract.machines import IN_POSTGRES, MACHINES, run
from tests.contract.versions import FAST
from tests.postgres_server import PostgresServer


@pytest.fixture(autouse=True)
def in_memory_if_it_can_be(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Thousands of stores are opened here, and each would wait for the disk."""
    with tempfile.TemporaryDirectory(prefix="penstock-contract-", dir=FAST) as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield


EXAMPLES = 100
"""`make contract EXAMPLES=n` runs more."""


@pytest.mark.parametrize("name", [each for each in MACHINES if each != IN_POSTGRES])
def test_a_store_answers_as_its_model_does(name: str) -> None:
    run(name, examples=EXAMPLES)


def test_a_table_of_postgresql_answers_as_its_model_does(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DSN_VARIABLE, postgres.create_database("contract"))
    run(IN_POSTGRES, examples=EXAMPLES)


# The promises, one by one.


def in_memory(name: str, directory: Path) -> KeyValueStore:
    return MemoryStore(name)


@pytest.mark.parametrize(
    ("supplier", "options"),
    [
        (in_memory, {"persistent": False}),
        (in_memory, {"persistent": False, "kind": "session", "finds_by_time": True}),
        (RocksDBStore, {}),
        ("penstock.stores.rocksdb:RocksDBStore", {"finds_by_time": True}),
        (RocksDBStore, {"kind": "window"}),
        (RocksDBStore, {"kind": "window", "finds_by_time": True}),
        (RocksDBStore, {"kind": "session"}),
        (RocksDBStore, {"kind": "session", "finds_by_time": True}),
        (RocksDBStore, {"kind": "versioned"}),
    ],
)
def test_our_own_stores_keep_every_promise(
    supplier: StoreSupplier | str, options: dict[str, Any]
) -> None:
    assert len(check_store(supplier, **options)) >= 18


class InPostgres(PostgresStore):
    """A table for each directory, whose name goes with its files: a copy is the same table."""

    def __init__(self, name: str, directory: Path) -> None:
        known = directory / "table"
        if not known.exists():
            known.write_text(f"checked_{directory.parent.name}")
        self.connection = Database(DSN_VARIABLE, timeout_seconds=10)
        self.connection.connect(first=True)
        super().__init__(name, self.connection, table=[known.read_text()], partition=3)
        self.prepare()

    def close(self) -> None:
        super().close()
        self.connection.close()


def test_a_table_of_postgresql_keeps_every_promise(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DSN_VARIABLE, postgres.create_database("promises"))
    assert len(check_store(InPostgres, keeps_offset=False)) >= 18
    # Stores that forget what they were told last are found out in a database, too.
    for broken in (LosesWhatWasApplied, HidesCuts):
        with pytest.raises(StoreContractError):
            check_store(broken, keeps_offset=False)


class LosesWhatWasApplied(InPostgres):
    """Commits with the next flush, which never comes."""

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        self.connection.execute("BEGIN")
        super().apply(changes, offset=offset)


class HidesCuts(InPostgres):
    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        with contextlib.suppress(ConnectionError):
            super().apply(changes, offset=offset)


class Forgetful(MemoryStore):
    """A store in memory as a supplier makes it; others make one mistake each."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name)


class WrongName(Forgetful):
    @property
    def name(self) -> str:
        return "another"


class Unordered(Forgetful):
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return super().get_many(sorted(keys))


class FirstWins(Forgetful):
    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        super().apply(list(changes)[::-1], offset=offset)


class OffsetFirst(Forgetful):
    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        super().apply([], offset=offset)
        super().apply(changes, offset=None)


class UpperIncluded(Forgetful):
    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[tuple[bytes, bytes]]:
        return super().range(lower, None if upper is None else upper + b"\x00", limit=limit)


class NoEmptyPage(Forgetful):
    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[tuple[bytes, bytes]]:
        return super().range(lower, upper, limit=max(limit, 1))


class HalfAScan(Forgetful):
    def all(self, *, page_size: int = 1000) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.range(limit=page_size))


class Immortal(Forgetful):
    def close(self) -> None:
        pass


class KeepsNoEmptyValue(Forgetful):
    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        super().apply([(key, value or None) for key, value in changes], offset=offset)


class KeepsBounds(Forgetful):
    def delete_range(self, lower: bytes, upper: bytes) -> None:
        super().delete_range(lower + b"\x00", upper)


class AnotherOwner(Forgetful):
    def set_identity(self, identity: object) -> None:
        pass


class NoIdea(Forgetful):
    def caught_up_at(self) -> int | None:
        return 5


class TornReads(Forgetful):
    """Removes a key before it writes it again: a reader may come in between."""

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        for key, value in changes:
            self._apply_one(key, None)
            self.flush()
            self._apply_one(key, value)
        super().apply([], offset=offset)

    def flush(self) -> None:
        super().flush()
        time.sleep(0)


@pytest.mark.parametrize(
    ("supplier", "promise"),
    [
        (lambda name, directory: object(), "has_every_method"),
        (WrongName, "has_its_name"),
        (Unordered, "answers_in_order"),
        (FirstWins, "later_change_wins"),
        (OffsetFirst, "moves_its_offset_last"),
        (UpperIncluded, "scans_by_key"),
        (NoEmptyPage, "scans_by_key"),
        (HalfAScan, "scans_by_pages"),
        (Immortal, "is_closed_for_good"),
        (KeepsNoEmptyValue, "keeps_any_bytes"),
        (KeepsBounds, "deletes_ranges"),
        (AnotherOwner, "knows_its_owner"),
        (NoIdea, "begins_empty"),
        (TornReads, "reads_while_it_is_written"),
    ],
)
def test_a_broken_promise_is_named(supplier: StoreSupplier, promise: str) -> None:
    with pytest.raises(StoreContractError) as broken:
        check_store(supplier, persistent=False)
    assert broken.value.where["promise"] == promise
    assert "A store breaks a promise." in broken.value.message


class OnDisk(RocksDBStore):
    """RocksDB, with its write-ahead log off, and mistakes that only a crash shows."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)


class NeverFlushes(OnDisk):
    def flush(self) -> None:
        self.offset()


class OffsetOnTheSide(OnDisk):
    """Keeps its offset in a database of its own, which is flushed on its own."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)
        self._side = sqlite3.connect(directory / "offset.db", check_same_thread=False)
        self._side.execute("CREATE TABLE IF NOT EXISTS o (at INTEGER)")

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        super().apply(changes, offset=offset)
        if offset is not None:
            with self._side:
                self._side.execute("DELETE FROM o")
                self._side.execute("INSERT INTO o VALUES (?)", (offset,))

    def offset(self) -> int | None:
        super().offset()
        found = self._side.execute("SELECT at FROM o").fetchone()
        return found[0] if found else None


class InFiles(Forgetful):
    """Honest: it writes all it has, the entries first, in a directory of their own."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)
        self._directory = directory
        for key, value in self._written().items():
            self._apply_one(key, value)
        if (directory / "own").exists():
            own = pickle.loads((directory / "own").read_bytes())
            self._offset, self._identity, self._caught_up_at = own

    def _written(self) -> dict[bytes, bytes]:
        file = self._directory / "data" / "entries"
        return pickle.loads(file.read_bytes()) if file.exists() else {}

    def _write(self, entries: dict[bytes, bytes], *own: object) -> None:
        self._check_open()
        self._put(self._directory, entries, own or self._own())

    def _own(self) -> tuple[object, ...]:
        return self._offset, self._identity, self._caught_up_at

    def _put(self, directory: Path, entries: dict[bytes, bytes], own: tuple[object, ...]) -> None:
        (directory / "data").mkdir(parents=True, exist_ok=True)
        for name, what in (("data/entries", entries), ("own", own)):
            part = directory / f"{name}.part"
            part.write_bytes(pickle.dumps(what))
            part.rename(directory / name)

    def flush(self) -> None:
        self._write(self._entries)

    def checkpoint(self, path: Path) -> None:
        self._put(path, self._entries, self._own())

    def close(self) -> None:
        if not self._closed:
            self._write(self._entries)
        super().close()


class FlushForgetsDeletes(InFiles):
    def flush(self) -> None:
        self._write({**self._written(), **self._entries})


class FlushKeepsOldValues(InFiles):
    def flush(self) -> None:
        old = self._written()
        self._write({key: old.get(key, value) for key, value in self._entries.items()})


class FlushLosesAge(InFiles):
    def flush(self) -> None:
        self._write(self._entries, self._offset, self._identity, None)


class CopyLosesAge(InFiles):
    def checkpoint(self, path: Path) -> None:
        self._put(path, self._entries, (self._offset, self._identity, None))


class CopyIsOfTheLastFlush(InFiles):
    def checkpoint(self, path: Path) -> None:
        shutil.copytree(self._directory, path)


class CopyIsALink(InFiles):
    def checkpoint(self, path: Path) -> None:
        super().checkpoint(path / "made")
        for name in ("own", "data"):
            (path / name).symlink_to(path / "made" / name)


class CopyIsElsewhere(InFiles):
    """Its copy says where the entries lie."""

    def checkpoint(self, path: Path) -> None:
        super().checkpoint(path)
        kept = path.with_name("kept")
        (path / "data" / "entries").rename(kept)
        (path / "place").write_text(str(kept))

    def _written(self) -> dict[bytes, bytes]:
        place = self._directory / "place"
        file = Path(place.read_text()) if place.exists() else self._directory / "data" / "entries"
        return pickle.loads(file.read_bytes()) if file.exists() else {}


class Offset32(InFiles):
    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        super().apply(changes, offset=None if offset is None else offset & 0x7FFFFFFF)


class OffsetIsAFloat(InFiles):
    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        super().apply(changes, offset=None if offset is None else int(float(offset)))


class CopiesNothing(OnDisk):
    def checkpoint(self, path: Path) -> None:
        path.mkdir()


@pytest.mark.parametrize(
    ("supplier", "promise"),
    [
        (in_memory, "survives_being_closed"),
        (NeverFlushes, "keeps_what_was_flushed"),
        (OffsetOnTheSide, "holds_no_less_than_its_offset"),
        (CopiesNothing, "copies_itself"),
        (FlushForgetsDeletes, "keeps_what_was_flushed"),
        (FlushKeepsOldValues, "keeps_what_was_flushed"),
        (FlushLosesAge, "keeps_what_was_flushed"),
        (CopyLosesAge, "copies_itself"),
        (CopyIsOfTheLastFlush, "copies_itself"),
        (CopyIsALink, "copies_itself"),
        (CopyIsElsewhere, "copies_itself"),
        (Offset32, "keeps_large_offsets"),
        (OffsetIsAFloat, "keeps_large_offsets"),
    ],
)
def test_a_promise_that_only_a_disk_breaks_is_named(supplier: StoreSupplier, promise: str) -> None:
    with pytest.raises(StoreContractError) as broken:
        check_store(supplier)
    assert broken.value.where["promise"] == promise


def test_a_store_with_directories_of_its_own_keeps_every_promise() -> None:
    assert any("checkpoint" in each for each in check_store(InFiles))


class EverlastingWindows(Forgetful):
    """Arranges windows by itself, and never forgets one."""

    def fetch(self, key: bytes, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
        for found, value in self.range(limit=1_000_000):
            time = int.from_bytes(found[-12:-4], "big")
            if found[:-12] == key and first <= time <= last:
                yield found, value


class NearWindows(EverlastingWindows):
    def fetch(self, key: bytes, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
        return (each for each in self.range(limit=99) if each[0].startswith(key))


class Sessions(Forgetful):
    """Arranges sessions by itself, and honestly but for what it forgets."""

    def fetch(self, key: bytes, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
        for found, value in self.range(limit=1_000_000):
            name, _, end = split_session_key(found)
            if name == key and first <= end <= last:
                yield found, value


class SessionsWithoutStart(Sessions):
    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        super().apply([(self._cut(key), value) for key, value in changes], offset=offset)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return super().get_many([self._cut(key) for key in keys])

    def _cut(self, key: bytes) -> bytes:
        name, _, end = split_session_key(key)
        return session_key(name, 0, end)


class WindowsWithoutSequence(SessionsWithoutStart):
    fetch = EverlastingWindows.fetch

    def _cut(self, key: bytes) -> bytes:
        return key[:-4] + bytes(4)


@pytest.mark.parametrize(
    ("supplier", "promise"),
    [
        (EverlastingWindows, "forgets_what_is_old"),
        (NearWindows, "finds_a_keys_entries"),
        (WindowsWithoutSequence, "tells_entries_of_one_time_apart"),
        (SessionsWithoutStart, "tells_entries_of_one_time_apart"),
        (Sessions, "forgets_what_is_old"),
    ],
)
def test_a_promise_of_windows_is_named(supplier: type[Forgetful], promise: str) -> None:
    kind: StoreKind = "session" if supplier.__name__.startswith("Sessions") else "window"
    with pytest.raises(StoreContractError) as broken:
        check_store(supplier, persistent=False, kind=kind)
    assert broken.value.where["promise"] == promise


# Damage.

_HISTORY: dict[int | None, list[tuple[bytes, bytes]]] = {None: []}


@pytest.fixture
def whole() -> Path:
    """A store of several files; what it held at each offset is in `_HISTORY`."""
    path = Path(tempfile.mkdtemp()) / "counts"
    store = RocksDBStore("counts", path)
    for offset in range(3):
        changes: list[Change] = [
            (b"%04d" % n, b"%d-%d" % (n, offset) * 5) for n in range(offset, 900, offset + 1)
        ]
        store.apply([*changes, (b"%04d" % offset, None)], offset=offset)
        store.flush()
        _HISTORY[offset] = list(store.all())
    store.close()
    return path


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_a_damaged_store_says_so_or_is_right(whole: Path, data: st.DataObject) -> None:
    """Whatever byte is wrong: an error, or what was there at the offset that the store says."""
    pick = data.draw(st.integers(0, 10**9), label="file")
    copy = whole.with_name("damaged")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    files = sorted(each for each in copy.iterdir() if _matters(each))
    file = files[pick % len(files)]
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1), label="place")
    content[place] ^= data.draw(st.integers(1, 255), label="flip")
    file.write_bytes(content)
    try:
        store = RocksDBStore("counts", copy)
    except StoreDamagedError:
        return
    try:
        offset = store.offset()
        expected = _HISTORY[offset]
        assert list(store.all()) == expected
        keys = [b"%04d" % n for n in range(900)]
        assert store.get_many(keys) == [dict(expected).get(key) for key in keys]
    except StoreDamagedError:
        pass
    finally:
        store.close()


def _matters(file: Path) -> bool:
    return file.suffix == ".sst" or file.name.startswith(("MANIFEST", "CURRENT", "OPTIONS"))
