"""Key-value stores: kills, and each way in which a disk can fail; see tests/contract too."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import (
    StateDirectoryError,
    StateDiskFullError,
    StateLockedError,
    StatePermissionError,
    StoreDamagedError,
    TaskNotHereError,
)
from penstock.stores.contract import (
    ChangeColumns,
    split_stored_value,
    stored_value,
)
from penstock.stores.failures import store_error
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import CHUNK_RECORDS, FEW_KEYS, RocksDBStore


@pytest.mark.parametrize("size", [0, 1, CHUNK_RECORDS - 1, CHUNK_RECORDS, 2 * CHUNK_RECORDS + 1])
def test_changes_of_any_number_arrive(tmp_path: Path, size: int) -> None:
    store = RocksDBStore("counts", tmp_path / "counts")
    store.apply(((b"%d" % i, b"v") for i in range(size)), offset=7)
    assert (len(list(store.all())), store.offset()) == (size, 7)
    store.close()


@pytest.mark.parametrize("size", [0, 1, CHUNK_RECORDS - 1, CHUNK_RECORDS, 2 * CHUNK_RECORDS + 1])
def test_columns_of_any_length_arrive(tmp_path: Path, size: int) -> None:
    store = RocksDBStore("counts", tmp_path / "counts")
    store.apply([(b"0", b"old")], offset=6)
    keys = [b"%d" % i for i in range(size)]
    values = [b"v" if i else None for i in range(size)]
    store.apply(ChangeColumns(keys, values), offset=7)
    left = dict.fromkeys(keys[1:], b"v") if size else {b"0": b"old"}
    assert (dict(store.all()), store.offset()) == (left, 7)
    store.close()


def test_columns_of_large_values_arrive(tmp_path: Path) -> None:
    store = RocksDBStore("counts", tmp_path / "counts")
    keys, values = [b"%d" % i for i in range(9)], [os.urandom(700_000) for _ in range(9)]
    store.apply(ChangeColumns(keys, [*values]), offset=7)
    assert (store.get_many(keys), store.offset()) == (values, 7)
    store.close()


def test_few_keys_are_found_in_memory_and_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    store = RocksDBStore("counts", path)
    store.apply([(b"%03d" % n, b"old") for n in range(100)], offset=0)
    store.close()
    store = RocksDBStore("counts", path)
    store.apply([(b"001", b"new"), (b"002", None), (b"003", b"")], offset=1)
    store.delete_range(b"010", b"020")
    keys = [b"000", b"001", b"002", b"003", b"015", b"020", b"none"]
    expected = [b"old", b"new", None, b"", None, b"old", None]
    assert len(keys) < FEW_KEYS
    for _ in range(2):  # What was on the disk alone is in memory the second time.
        assert store.get_many(keys) == expected
    padded = [*keys, *(b"%03d" % n for n in range(20, 20 + FEW_KEYS))]
    assert store.get_many(padded) == [*expected, *[b"old"] * FEW_KEYS]
    store.flush()
    assert store.get_many(keys) == expected
    store.close()


def test_large_values_arrive(tmp_path: Path) -> None:
    store = RocksDBStore("counts", tmp_path / "counts")
    values = {b"%d" % i: os.urandom(700_000) for i in range(9)}
    store.apply(values.items(), offset=7)
    assert store.get_many(list(values)) == list(values.values())
    assert store.offset() == 7
    store.close()


def test_writes_that_must_wait_for_the_disk_all_arrive(tmp_path: Path) -> None:
    """More than the write buffers hold, faster than they are flushed: some writes are refused."""
    store = RocksDBStore("counts", tmp_path / "counts")
    value = os.urandom(50_000)
    store.apply(((b"%d" % i, value) for i in range(4000)), offset=7)
    assert store.offset() == 7
    keys = [b"%d" % i for i in range(4000)]
    assert all(
        found == value for i in range(0, 4000, 500) for found in store.get_many(keys[i : i + 500])
    )
    store.close()


class RefusesTwice:
    """A database that refuses the first two writes, as RocksDB does while its buffers are full."""

    def __init__(self, database: object) -> None:
        self.database = database
        self.refusals = 2

    def write(self, batch: object, options: object) -> None:
        if self.refusals:
            self.refusals -= 1
            # Like a real refusal, it uses the batch up.
            batch.clear()  # type: ignore[attr-defined]
            raise Exception("Result incomplete: Write stall")  # noqa: TRY002 - as rocksdict does
        self.database.write(batch, options)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self.database, name)


def test_a_refused_write_is_tried_again_whole(tmp_path: Path) -> None:
    store = RocksDBStore("counts", tmp_path / "counts")
    refusing = RefusesTwice(store._db)
    store._db = refusing  # type: ignore[assignment]
    store.apply([(b"a", b"1"), (b"b", None)], offset=7)
    assert refusing.refusals == 0
    assert (store.get_many([b"a", b"b"]), store.offset()) == ([b"1", None], 7)
    store.close()


def test_changes_that_fail_halfway_do_not_move_the_offset(tmp_path: Path) -> None:
    def changes() -> Iterator[tuple[bytes, bytes | None]]:
        yield from ((b"%d" % i, b"v") for i in range(3 * CHUNK_RECORDS))
        raise ConnectionError

    store = RocksDBStore("counts", tmp_path / "counts")
    with pytest.raises(ConnectionError):
        store.apply(changes(), offset=7)
    assert store.offset() is None
    store.close()


def test_a_store_that_was_filled_is_read_when_it_is_opened_anew(tmp_path: Path) -> None:
    store = RocksDBStore("counts", tmp_path / "counts", filling=True)
    store.apply([(b"%d" % i, b"old") for i in range(5000)], offset=4999)
    store.apply([(b"1", None), (b"2", b"new")], offset=5001)
    store.close()
    store = RocksDBStore("counts", tmp_path / "counts")
    assert store.offset() == 5001
    assert store.get_many([b"0", b"1", b"2"]) == [b"old", None, b"new"]
    assert len(list(store.all())) == 4999
    store.apply([(b"1", b"back")], offset=5002)
    assert store.get_many([b"1"]) == [b"back"]
    store.close()


WRITER = """
import os, sys
from pathlib import Path
from penstock.stores.rocksdb import RocksDBStore
store = RocksDBStore("counts", Path(sys.argv[1]), filling=sys.argv[2] == "True")
number = (store.offset() or 0) + 1
while True:
    # Sizes differ, or RocksDB's buffers would always be full at the same place of a write.
    value = number.to_bytes(8, "big") + os.urandom(300 + number * 97 % 900)
    store.apply(((b"%d" % key, value) for key in range(5000)), offset=number)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("filling", [False, True])
@pytest.mark.crash
def test_after_a_kill_the_offset_is_never_ahead_of_the_data(tmp_path: Path, filling: bool) -> None:
    """Each write replaces all 5,000 keys by its number: none may be below the store's offset."""
    path = tmp_path / "counts"
    choice = random.Random(7)
    offsets: list[int] = []
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(filling)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        # So many that the buffers cannot hold them all: something was flushed.
        for _ in range(choice.randrange(14, 22)):
            assert child.stdout.readline()
        time.sleep(choice.uniform(0, 0.05))
        child.kill()
        child.wait()
        store = RocksDBStore("counts", path)
        offset = store.offset()
        if offset is not None:
            offsets.append(offset)
            found = store.get_many([b"%d" % key for key in range(5000)])
            assert all(value and int.from_bytes(value[:8], "big") >= offset for value in found)
        store.close()
    assert offsets, "no kill came after a flush: the test proved nothing"
    assert offsets == sorted(offsets)


def test_closing_twice_is_fine_and_reading_afterwards_is_told(tmp_path: Path) -> None:
    for store in (RocksDBStore("counts", tmp_path / "counts"), MemoryStore("counts")):
        store.close()
        store.close()
        for call in (store.offset, store.flush, lambda: store.get_many([b"a"])):  # noqa: B023
            with pytest.raises(TaskNotHereError):
                call()
        with pytest.raises(TaskNotHereError):
            store.apply([], offset=1)


def test_a_mistake_of_the_caller_is_not_called_damage(tmp_path: Path) -> None:
    store = RocksDBStore("counts", tmp_path / "counts")
    with pytest.raises(TypeError):
        store.get_many(["text"])  # type: ignore[list-item]
    store.close()


def filled(path: Path) -> None:
    store = RocksDBStore("counts", path)
    store.apply(((b"%d" % i, b"v" * 50) for i in range(1000)), offset=7)
    store.close()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_damage_is_reported_and_never_read_as_data(
    tmp_path: Path, pattern: str, damage: str
) -> None:
    path = tmp_path / "counts"
    filled(path)
    for file in path.glob(pattern):
        if damage == "flip":
            flip(file)
        elif damage == "truncate":
            file.write_bytes(file.read_bytes()[:-30] if file.stat().st_size > 30 else b"")
        else:
            file.unlink()
    with contextlib.suppress(StoreDamagedError):
        store = RocksDBStore("counts", path)
        try:
            # Without CURRENT the store is a new one. That is safe: its offset is gone as well.
            assert (list(store.all()), store.offset()) == ([], None)
        finally:
            store.close()


def test_a_damaged_block_does_not_look_like_the_end_of_a_scan(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    filled(path)
    for file in path.glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[20] ^= 0xFF
        file.write_bytes(data)
    store = RocksDBStore("counts", path)
    with pytest.raises(StoreDamagedError):
        list(store.all())
    with pytest.raises(StoreDamagedError):
        # A look elsewhere must not make it forget.
        store.ranges([(b"", b"\xff"), (b"\xfe", b"\xff")], limit=10)
    store.close()
    # Nothing of the failed scan keeps the lock.
    RocksDBStore("counts", path).close()


def test_a_store_is_opened_once(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    store = RocksDBStore("counts", path)
    with pytest.raises(StateLockedError):
        RocksDBStore("counts", path)
    code = (
        "import sys; from pathlib import Path; from penstock.errors import StateLockedError\n"
        "from penstock.stores.rocksdb import RocksDBStore\n"
        "try: RocksDBStore('counts', Path(sys.argv[1]))\n"
        "except StateLockedError as error: print(error.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stdout.strip() == "state_locked", done.stderr
    store.apply([(b"a", b"1")], offset=1)
    store.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IO error: No space left on device: While appending to file", StateDiskFullError),
        ("IO error: While open a file: x: Permission denied", StatePermissionError),
        ("IO error: While open a file: x: Read-only file system", StatePermissionError),
        ("Corruption: IO error: x: Too many open files", StateDirectoryError),
        ("Result incomplete: Write stall", StateDirectoryError),
        ("IO error: While pread: x: Input/output error", StateDirectoryError),
        ("IO error: lock hold by current process: No locks available", StateLockedError),
        ("IO error: No such file or directory: While opening MANIFEST", StoreDamagedError),
        ("Corruption: block checksum mismatch", StoreDamagedError),
        ("expected value at line 1 column 1", StoreDamagedError),
    ],
)
def test_native_errors_become_the_error_that_says_what_to_do(
    tmp_path: Path, text: str, kind: type[Exception]
) -> None:
    error = store_error(Exception(text), store="counts", path=tmp_path, opening=True)
    assert type(error) is kind
    assert error.where["path"] == tmp_path
    assert error.hint


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB; only root can have one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_loses_nothing_that_the_offset_counts(small_disk: Path) -> None:
    store = RocksDBStore("counts", small_disk / "counts")
    value = os.urandom(1000)

    def fill() -> None:
        for number in range(1000):
            changes = ((b"%d-%d" % (number, i), value) for i in range(1000))
            store.apply(changes, offset=number)

    with pytest.raises(StateDiskFullError):
        fill()
    with pytest.raises(StateDiskFullError):
        store.close()
    again = RocksDBStore("counts", small_disk / "counts")
    offset = again.offset()
    assert offset is not None
    keys = [b"%d-%d" % (number, i) for number in range(offset + 1) for i in range(1000)]
    assert all(found == value for found in again.get_many(keys))
    with contextlib.suppress(StateDiskFullError):
        again.close()


def test_stored_values_carry_their_timestamp() -> None:
    assert stored_value(258, b"x") == b"\x00\x00\x00\x00\x00\x00\x01\x02x"
    for timestamp in (0, -1, 2**62):
        assert split_stored_value(stored_value(timestamp, b"")) == (timestamp, b"")
