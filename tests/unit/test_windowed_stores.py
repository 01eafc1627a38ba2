"""Stores of windows and sessions, and stores with an index of times; see tests/contract too."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from penstock.errors import ChangelogError
from penstock.serdes.windowed import (
    session_key,
    split_window_key,
    window_key,
)
from penstock.stores.contract import ByteStore, TimeIndexedStore, WindowStore
from penstock.stores.indexed import TimeIndexedKeyValueStore
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.segments import SegmentedStore
from tests.disks import on_disk, wait_until_gone

RETENTION, SEGMENT = 100, 60
LONG = struct.Struct(">q")
LONG_MAX = 2**63 - 1


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


@pytest.mark.parametrize("on_disk", [False, True])
def test_many_questions_have_the_answers_that_each_has_alone(tmp_path: Path, on_disk: bool) -> None:
    inner: ByteStore = MemoryStore("windows")
    if on_disk:
        inner = RocksDBStore("windows", tmp_path / "windows")
    store = window_store(inner, indexed=False)
    keys = [b"", b"a", b"a" + LONG.pack(30), b"b", b"\xff"]
    entries = [(window_key(key, 3 * n % 90, n), b"%d" % n) for n in range(600) for key in keys]
    # More of one key than one look brings.
    entries += [(window_key(b"many", n % 90, n), b"%d" % n) for n in range(2500)]
    store.apply(entries, offset=0)
    store.apply([(window_key(b"c", 150), b"x")], offset=1)
    times = [(0, LONG_MAX), (0, 60), (60, 59), (75, 75), (200, 300)]
    questions = [(key, *time) for key in (*keys, b"many", b"none") for time in times] * 20
    found: dict[int, list[tuple[bytes, bytes]]] = {}
    for number, key, value in store.fetch_all(questions):
        found.setdefault(number, []).append((key, value))
    alone = {each: list(store.fetch(*each)) for each in questions}
    assert [found.get(n, []) for n in range(len(questions))] == [alone[q] for q in questions]
    assert len(alone[b"many", 0, LONG_MAX]) > 1000
    store.close()


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


@pytest.mark.parametrize("kind", ["window", "session"])
def test_not_a_byte_of_an_expired_segment_stays_on_the_disk_of_a_store_that_goes_on(
    kind: Literal["window", "session"], tmp_path: Path
) -> None:
    """One large segment and then small ones, so that nothing but its end makes room for others."""
    path = tmp_path / "windows"
    inner = RocksDBStore("windows", path)
    store = SegmentedStore(inner, kind=kind, retention_ms=RETENTION, segment_ms=SEGMENT)
    make = window_key if kind == "window" else _session
    values = [os.urandom(64) for _ in range(3000)]
    store.apply([(make(b"%06d" % n, 30), value) for n, value in enumerate(values)], offset=0)
    store.flush()
    assert on_disk(path, values) == 3000
    for step in range(1, 13):
        store.apply([(make(b"a", step * 200), b"small")], offset=step)
        store.flush()
    wait_until_gone(path, values)
    store.close()


def _session(key: bytes, end: int) -> bytes:
    return session_key(key, end - 10, end)


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
