"""Stores of windows and sessions, and stores with an index of times, against simple models."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import ChangelogError
from penstock.serdes.windowed import (
    session_key,
    split_session_key,
    split_window_key,
    window_key,
)
from penstock.stores.contract import ByteStore, TimeIndexedStore, WindowStore
from penstock.stores.indexed import TimeIndexedKeyValueStore
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.segments import SegmentedStore

RETENTION, SEGMENT = 100, 60
LONG = struct.Struct(">q")
LONG_MAX = 2**63 - 1

# Few bytes, so that keys are often prefixes of each other and look like another key's time.
KEYS = st.lists(st.sampled_from([0x00, 0x01, 0x61, 0xFF]), max_size=4).map(bytes) | st.sampled_from(
    [b"a" + LONG.pack(30), b"a" + LONG.pack(30) + b"\x00" * 4, b"\xff" * 9]
)
TIMES = st.integers(0, 400)
BOUNDS = st.integers(-5, 420) | st.sampled_from([-(2**63), LONG_MAX])
VALUES = st.none() | st.binary(max_size=3)


class Bytes:
    """The inner store of a test: in memory, or on disk and sometimes reopened."""

    def __init__(self, backing: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-store-"))
        self.backing = backing
        self.memory = MemoryStore("windows")

    def open(self) -> ByteStore:
        if self.backing == "memory":
            return self.memory
        return RocksDBStore("windows", self.directory / "windows")

    def remove(self) -> None:
        shutil.rmtree(self.directory)


class SegmentedAgainstModel(RuleBasedStateMachine):
    """Every answer equals that of a dictionary and the latest time."""

    backing: Literal["memory", "rocksdb"] = "memory"
    kind: Literal["window", "session"] = "window"
    indexed = False

    def __init__(self) -> None:
        super().__init__()
        self.bytes = Bytes(self.backing)
        self.model: dict[bytes, bytes] = {}
        self.latest = -1
        self.offset: int | None = None

    @initialize()
    def open(self) -> None:
        self.inner = self.bytes.open()
        self.store = SegmentedStore(
            self.inner,
            kind=self.kind,
            retention_ms=RETENTION,
            segment_ms=SEGMENT,
            indexed=self.indexed,
        )

    def key(self, key: bytes, time: int, other: int) -> bytes:
        """A changelog key; `other` is the sequence number or the session's start."""
        if self.kind == "window":
            return window_key(key, time, other)
        return session_key(key, time - min(other, time), time)

    def time(self, key: bytes) -> int:
        return split_window_key(key)[1] if self.kind == "window" else split_session_key(key)[2]

    def rank(self, key: bytes) -> tuple[object, ...]:
        """Where an entry stands among all, by time, as Kafka Streams orders them."""
        if self.kind == "window":
            inner, start, sequence = split_window_key(key)
            return start, inner + struct.pack(">i", sequence)
        inner, start, end = split_session_key(key)
        return end, start, inner

    @property
    def visible(self) -> dict[bytes, bytes]:
        longer = self.indexed and self.kind == "window"
        return self.since(self.latest - RETENTION + (0 if longer else 1))

    def since(self, oldest: int) -> dict[bytes, bytes]:
        return {k: v for k, v in sorted(self.model.items()) if self.time(k) >= oldest}

    @rule(
        changes=st.lists(st.tuples(KEYS, TIMES, st.integers(0, 3), VALUES), max_size=30),
        moves=st.booleans(),
    )
    def apply(self, changes: list[tuple[bytes, int, int, bytes | None]], moves: bool) -> None:
        offset = (self.offset or 0) + 1 if moves else None
        wanted = [(self.key(key, time, other), value) for key, time, other, value in changes]
        self.store.apply(iter(wanted), offset=offset)
        self.offset = self.offset if offset is None else offset
        for key, value in wanted:
            self.latest = max(self.latest, self.time(key))
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(keys=st.lists(st.tuples(KEYS, TIMES, st.integers(0, 3)), max_size=20))
    def get_many(self, keys: list[tuple[bytes, int, int]]) -> None:
        wanted = [self.key(*each) for each in keys] + list(self.model)
        assert self.store.get_many(wanted) == [self.visible.get(key) for key in wanted]

    @rule(key=KEYS, first=BOUNDS, last=BOUNDS)
    def fetch(self, key: bytes, first: int, last: int) -> None:
        tail = 12 if self.kind == "window" else 16
        expected = sorted(
            (
                (found, value)
                for found, value in self.visible.items()
                if found[:-tail] == key and first <= self.time(found) <= last
            ),
            key=lambda entry: self.rank(entry[0]),
        )
        assert list(self.store.fetch(key, first, last)) == expected

    @rule(first=BOUNDS, last=BOUNDS)
    def fetch_times(self, first: int, last: int) -> None:
        if self.indexed:
            found = self.visible
            if self.kind == "session":
                # Sessions are found by time as long as their segment is there.
                found = self.since((self.latest - RETENTION) // SEGMENT * SEGMENT)
            inside = (e for e in found.items() if first <= self.time(e[0]) <= last)
            expected = sorted(inside, key=lambda entry: self.rank(entry[0]))
            assert list(self.store.fetch_times(first, last)) == expected

    @rule(lower=st.none() | KEYS, upper=st.none() | KEYS, limit=st.integers(0, 10))
    def scan(self, lower: bytes | None, upper: bytes | None, limit: int) -> None:
        inside = [
            (key, value)
            for key, value in self.visible.items()
            if (lower is None or key >= lower) and (upper is None or key < upper)
        ]
        assert self.store.range(lower, upper, limit=limit) == inside[:limit]

    @rule(page_size=st.integers(1, 5))
    def scan_all(self, page_size: int) -> None:
        assert list(self.store.all(page_size=page_size)) == list(self.visible.items())

    @rule()
    def reopen(self) -> None:
        if self.backing == "rocksdb":
            self.store.close()
            self.open()

    @invariant()
    def nothing_expired_is_kept(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.offset() == self.offset
        assert self.store.latest_time == self.latest
        assert self.store.approximate_num_entries() >= 0
        first = max(self.latest - RETENTION, 0) // SEGMENT
        rows = [key for key, _ in self.inner.range(limit=10_000)]
        assert all(LONG.unpack(row[1:9])[0] >= first for row in rows if row[:1] == b"d")
        index = [row for row in rows if row[:1] == b"i"]
        assert len(index) == (sum(row[:1] == b"d" for row in rows) if self.indexed else 0)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.bytes.remove()


class IndexedAgainstModel(RuleBasedStateMachine):
    """A key-value store with an index of times."""

    backing: Literal["memory", "rocksdb"] = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.bytes = Bytes(self.backing)
        self.model: dict[bytes, bytes] = {}

    @initialize()
    def open(self) -> None:
        self.inner = self.bytes.open()
        self.store = TimeIndexedKeyValueStore(self.inner)

    @rule(changes=st.lists(st.tuples(KEYS, VALUES, BOUNDS), max_size=30))
    def apply(self, changes: list[tuple[bytes, bytes | None, int]]) -> None:
        wanted = [(key, value and value + LONG.pack(time)) for key, value, time in changes]
        wanted = [(key, value or None) for key, value in wanted]
        self.store.apply(iter(wanted), offset=None)
        for key, value in wanted:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(keys=st.lists(KEYS, max_size=20))
    def get_many(self, keys: list[bytes]) -> None:
        assert self.store.get_many(keys) == [self.model.get(key) for key in keys]

    @rule(first=BOUNDS, last=BOUNDS)
    def fetch_times(self, first: int, last: int) -> None:
        timed = ((LONG.unpack(value[-8:])[0], key) for key, value in self.model.items())
        expected = [(k, self.model[k]) for time, k in sorted(timed) if first <= time <= last]
        assert list(self.store.fetch_times(first, last)) == expected

    @rule(lower=st.none() | KEYS, upper=st.none() | KEYS, limit=st.integers(0, 10))
    def scan(self, lower: bytes | None, upper: bytes | None, limit: int) -> None:
        inside = [
            (key, value)
            for key, value in sorted(self.model.items())
            if (lower is None or key >= lower) and (upper is None or key < upper)
        ]
        assert self.store.range(lower, upper, limit=limit) == inside[:limit]
        assert list(self.store.all(page_size=3)) == sorted(self.model.items())

    @invariant()
    def one_index_row_for_each_entry(self) -> None:
        if hasattr(self, "store"):
            assert len(self.inner.range(limit=10_000)) == 2 * len(self.model)

    @rule()
    def reopen(self) -> None:
        if self.backing == "rocksdb":
            self.store.close()
            self.open()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.bytes.remove()


QUICK = settings(
    max_examples=20,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("backing", ["memory", "rocksdb"])
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("kind", ["window", "session"])
def test_windows_and_sessions(backing: str, kind: str, indexed: bool) -> None:
    attributes = {"backing": backing, "kind": kind, "indexed": indexed}
    machine = type("Machine", (SegmentedAgainstModel,), attributes).TestCase
    machine.settings = QUICK
    machine().runTest()


@pytest.mark.parametrize("backing", ["memory", "rocksdb"])
def test_an_index_of_times(backing: str) -> None:
    machine = type("Machine", (IndexedAgainstModel,), {"backing": backing}).TestCase
    machine.settings = QUICK
    machine().runTest()


def window_store(inner: ByteStore, *, indexed: bool = True) -> SegmentedStore:
    return SegmentedStore(
        inner, kind="window", retention_ms=RETENTION, segment_ms=SEGMENT, indexed=indexed
    )


def test_what_kind_of_reads_a_store_answers() -> None:
    assert isinstance(window_store(MemoryStore("a")), WindowStore)
    assert isinstance(TimeIndexedKeyValueStore(MemoryStore("a")), TimeIndexedStore)
    assert not isinstance(MemoryStore("a"), WindowStore | TimeIndexedStore)


def test_a_write_into_a_live_segment_is_kept_and_one_into_an_expired_segment_is_not() -> None:
    """Retention 100, segments of 60: at 290 segment 3 (180..239) is the first that lives."""
    inner = MemoryStore("windows")
    store = window_store(inner, indexed=False)
    store.apply([(window_key(b"a", 290), b"x")], offset=0)
    store.apply([(window_key(b"a", 179), b"x"), (window_key(b"a", 180), b"y")], offset=1)
    kept = [key[9:] for key, _ in inner.range(b"d", b"e", limit=10)]
    assert kept == [window_key(b"a", 180), window_key(b"a", 290)]
    # 180 is still held, and no longer found: 290 - 100 + 1 is the first that is.
    assert list(store.fetch(b"a", 0, 300)) == [(window_key(b"a", 290), b"x")]


def test_a_key_that_looks_like_another_key_and_its_time_is_not_taken_for_it() -> None:
    store = window_store(MemoryStore("windows"))
    wanted, long = window_key(b"a", 30), window_key(b"a" + LONG.pack(30), 40)
    store.apply([(wanted, b"x"), (long, b"y"), (window_key(b"", 30), b"z")], offset=0)
    assert list(store.fetch(b"a", 0, 100)) == [(wanted, b"x")]
    assert list(store.fetch(b"a" + LONG.pack(30), 0, 100)) == [(long, b"y")]
    assert [value for _, value in store.fetch_times(0, 100)] == [b"z", b"x", b"y"]


def test_a_deletion_moves_time_too() -> None:
    store = window_store(MemoryStore("windows"))
    store.apply([(window_key(b"a", 10), b"x")], offset=0)
    store.apply([(window_key(b"b", 500), None)], offset=1)
    assert store.get_many([window_key(b"a", 10)]) == [None]


def test_scans_of_more_than_a_page(tmp_path: Path) -> None:
    store = window_store(RocksDBStore("windows", tmp_path / "windows"))
    entries = [(window_key(b"k%d" % (n % 2), n % 90, n), b"%d" % n) for n in range(5000)]
    store.apply(entries, offset=0)
    assert len(list(store.fetch(b"k0", 0, 90))) == 2500
    assert len(list(store.fetch_times(0, 90))) == 5000
    assert list(store.all(page_size=700)) == sorted(entries)
    store.close()


def test_a_key_without_a_time_is_named() -> None:
    store = window_store(MemoryStore("windows"))
    with pytest.raises(ChangelogError, match="store windows has 3 bytes and no room"):
        store.apply([(b"abc", b"x")], offset=0)


def test_expired_segments_leave_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "windows"
    inner = RocksDBStore("windows", path)
    store = window_store(inner)
    sizes = []
    for step in range(12):
        changes = [(window_key(b"%06d" % n, step * 200), b"v" * 100) for n in range(5000)]
        store.apply(changes, offset=step)
        store.flush()
        sizes.append(sum(file.stat().st_size for file in path.glob("*.sst")))
    store.close()
    written = 12 * 5000 * 150
    assert sizes[-1] < written / 2, sizes


KILLED = """
import os, sys
from pathlib import Path
from penstock.serdes.windowed import window_key
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.segments import SegmentedStore
inner = RocksDBStore("windows", Path(sys.argv[1]))
store = SegmentedStore(inner, kind="window", retention_ms=100, segment_ms=60, indexed=True)
for step in range(200):
    store.apply([(window_key(b"%d" % n, step * 40), b"v" * 300) for n in range(500)], offset=step)
    if step % 37 == 0:
        store.flush()
os.kill(os.getpid(), 9)
"""


@pytest.mark.crash
def test_after_a_kill_the_changelog_mends_what_was_lost(tmp_path: Path) -> None:
    path = tmp_path / "windows"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    inner = RocksDBStore("windows", path)
    store = window_store(inner)
    offset = store.offset()
    assert offset is not None
    assert offset < 199
    for step in range(offset + 1, 200):
        changes = [(window_key(b"%d" % n, step * 40), b"v" * 300) for n in range(500)]
        store.apply(changes, offset=step)
    alive = [step * 40 for step in range(200) if step * 40 > 199 * 40 - RETENTION]
    assert len(list(store.all())) == len(list(store.fetch_times(0, LONG_MAX))) == 500 * len(alive)
    assert [split_window_key(key)[1] for key, _ in store.fetch(b"7", 0, LONG_MAX)] == alive
    store.close()
