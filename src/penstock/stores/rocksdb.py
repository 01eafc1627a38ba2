"""A key-value store on disk: RocksDB, one column family, its write-ahead log off.

The changelog is the log: what a crash takes from memory is applied again from the changelog. For
that the offset lies in the same column family as the data and is written after it. RocksDB flushes
one family's writes in order, so a file that holds the offset never lacks the data before it. (An
offset in a family of its own is flushed apart from the data, and may survive it.)

Keys of users are any bytes, so they carry the prefix 0x01, and our own records 0x00.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rocksdict import (
    AccessType,
    Checkpoint,
    DbClosedError,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from penstock.errors import StateLockedError, StoreDamagedError, TaskNotHereError
from penstock.serdes.decoders import decoder
from penstock.stores.contract import Change, ChangeColumns, StoreIdentity, pages
from penstock.stores.failures import damaged, is_stall, store_error
from penstock.stores.rocksdb_engine import RocksDBEngine, default_engine

CHUNK_RECORDS = 2_000
"""A write holds the GIL; 2,000 small records take about 3 ms, which no heartbeat notices."""
CHUNK_BYTES = 1024 * 1024
GET_CHUNK_KEYS = 10_000
FEW_KEYS = 32
"""So few are looked for in memory first. That keeps the GIL, for microseconds: beside threads at
work, who gives it back for a read waits for half a millisecond and more to have it again."""
_STALL_PAUSE_SECONDS = 0.002
_STALL_SECONDS_MAX = 15.0
_FILLING_STALL_SECONDS_MAX = 600.0
"""A store of gibibytes that is filled waits for its files to be put together; nobody else does."""

_OWN = b"\x00"
_USER = b"\x01"
_END = b"\x02"
_OFFSET = _OWN + b"offset"
_IDENTITY = _OWN + b"identity"
_CAUGHT_UP_AT = _OWN + b"caught-up-at"
_OWN_RECORDS_MAX = 3
_LONG = struct.Struct(">q")
_value = operator.itemgetter(1)

_open_paths: set[Path] = set()
_open_paths_lock = threading.Lock()


class RocksDBStore:
    """A store that survives its process; `RocksDBStore(name, directory)` opens or makes it.

    With `read_only` it must be there, and is left as it is; nobody may write to it meanwhile. With
    `filling` it takes writes at a multiple of the speed, and is to be opened anew to be read.

    >>> import tempfile
    >>> store = RocksDBStore("counts", Path(tempfile.mkdtemp()) / "counts")
    >>> store.apply([(b"a", b"1")], offset=0)
    >>> store.get_many([b"a", b"b"]), store.offset()
    ([b'1', None], 0)
    >>> store.close()

    Raises `StoreDamagedError`, `StateLockedError`, `StatePermissionError` or `StateDiskFullError`.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        engine: RocksDBEngine | None = None,
        read_only: bool = False,
        filling: bool = False,
    ) -> None:
        self._name = name
        self._path = directory.resolve()
        self._closed = False
        self._engine = engine or default_engine()
        _claim(self._path, name)
        try:
            self._stall_seconds_max = _FILLING_STALL_SECONDS_MAX if filling else _STALL_SECONDS_MAX
            options = self._options = self._engine.options(name, filling=filling)
            access = AccessType.read_only() if read_only else AccessType.read_write()
            if read_only:
                options.create_if_missing(False)
            else:
                _forget_options(self._path)
            self._db = Rdict(str(self._path), options, access_type=access)
        except Exception as error:
            _release(self._path)
            raise store_error(error, store=name, path=self._path, opening=True) from error
        self._write_options = WriteOptions()
        # The stub calls it a method; it is a property.
        self._write_options.disable_wal = True  # type: ignore[method-assign,assignment]
        # Else a write that must wait for the disk waits with the GIL held: for ever, once the disk
        # is full, and with every heartbeat of the process.
        self._write_options.no_slowdown = True

    @property
    def name(self) -> str:
        return self._name

    @property
    def path(self) -> Path:
        """Where the store lies."""
        return self._path

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if len(keys) > FEW_KEYS:
            return self._read_many(keys)
        seen = self._in_memory(keys)
        rest = [
            key for key, (may_be, value) in zip(keys, seen, strict=True) if may_be and not value
        ]
        read = iter(self._read_many(rest) if rest else ())
        return [next(read) if may_be and not value else value for may_be, value in seen]

    def _in_memory(self, keys: Sequence[bytes]) -> list[tuple[bool, bytes | None]]:
        """Of each key whether it may be there, and its value, if the disk need not be asked: that
        may stand still, and with the GIL held the whole process with it.
        """
        with self._native():
            look: Callable[..., Any] = self._db.key_may_exist
            return [look(_USER + key, fetch=True) for key in keys]

    def _read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        with self._native():
            for start in range(0, len(keys), GET_CHUNK_KEYS):
                chunk = [_USER + key for key in keys[start : start + GET_CHUNK_KEYS]]
                found += self._db.get(chunk)  # type: ignore[arg-type]
        return found

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        for chunk, last in _chunks(changes):
            self._write(functools.partial(_batch, chunk, offset if last else None))

    def delete_range(self, lower: bytes, upper: bytes) -> None:
        self._write(lambda: _range_deletion(_USER + lower, _USER + upper))

    def _write(self, make_batch: Callable[[], WriteBatch]) -> None:
        give_up = time.monotonic() + self._stall_seconds_max
        while True:
            # A batch is spent once it was tried, whatever became of it.
            batch = make_batch()
            try:
                self._db.write(batch, self._write_options)
            except Exception as error:
                if not is_stall(error) or time.monotonic() > give_up:
                    with self._native():
                        raise
            else:
                break
            time.sleep(_STALL_PAUSE_SECONDS)
        if self._engine.is_over_budget:
            self.flush()

    def offset(self) -> int | None:
        return self._read_long(_OFFSET)

    def identity(self) -> StoreIdentity | None:
        data = self._read(_IDENTITY)
        if data is None:
            return None
        try:
            return decoder(StoreIdentity).decode(data)
        except msgspec.DecodeError as error:
            raise self._damaged(f"its identity cannot be decoded: {error}") from error

    def set_identity(self, identity: StoreIdentity) -> None:
        self._write_own(_IDENTITY, msgspec.json.encode(identity))

    def caught_up_at(self) -> int | None:
        return self._read_long(_CAUGHT_UP_AT)

    def set_caught_up_at(self, now_ms: int) -> None:
        self._write_own(_CAUGHT_UP_AT, _LONG.pack(now_ms))

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[tuple[bytes, bytes]]:
        return self._between(lower, upper, limit)

    def range_back(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """As `backward.BackwardStore` says."""
        return self._between(lower, upper, limit, back=True)

    def _between(
        self, lower: bytes | None, upper: bytes | None, limit: int, *, back: bool = False
    ) -> list[tuple[bytes, bytes]]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(_END if upper is None else _USER + upper)
        entries: list[tuple[bytes, bytes]] = []
        with self._native():
            iterator = self._db.iter(bounds)
            go_on = iterator.prev if back else iterator.next
            try:
                first = _USER + (lower or b"")
                iterator.seek_to_last() if back else iterator.seek(first)
                while len(entries) < limit and iterator.valid():
                    key = iterator.key()
                    if key < first:
                        break  # Backwards only: what is too small, and our own records.
                    entries.append((key[1:], iterator.value()))
                    go_on()
                # A damaged block looks like the end; only `status` tells the two apart.
                iterator.status()
            finally:
                # A living iterator (kept by a traceback, say) keeps the lock after `close`.
                del iterator, go_on
        return entries

    def ranges(
        self, bounds: Sequence[tuple[bytes, bytes]], *, limit: int
    ) -> list[list[tuple[bytes, bytes]]]:
        """As `contract.RangesStore` says: one iterator, which goes from one stretch to the next."""
        found: list[list[tuple[bytes, bytes]]] = []
        with self._native():
            iterator = self._db.iter()
            seek, go_on, valid = iterator.seek, iterator.next, iterator.valid
            key_of, value_of = iterator.key, iterator.value
            try:
                for lower, upper in bounds:
                    entries: list[tuple[bytes, bytes]] = []
                    end = _USER + upper
                    seek(_USER + lower)
                    while len(entries) < limit:
                        if not valid():
                            # The end, or a damaged block; the next `seek` would forget which.
                            iterator.status()
                            break
                        key = key_of()
                        if key >= end:
                            break
                        entries.append((key[1:], value_of()))
                        go_on()
                    found.append(entries)
            finally:
                # As in `_between`.
                del iterator, seek, go_on, valid, key_of, value_of
        return found

    def all(self, *, page_size: int = 1000) -> Iterator[tuple[bytes, bytes]]:
        return pages(self, page_size)

    def approximate_num_entries(self) -> int:
        with self._native():
            estimate = self._db.property_int_value("rocksdb.estimate-num-keys") or 0
        return max(0, estimate - _OWN_RECORDS_MAX)

    def properties(self, names: Iterable[str]) -> dict[str, int]:
        """What RocksDB says of itself, by the names that it has behind `rocksdb.`."""
        with self._native():
            found = {name: self._db.property_int_value(f"rocksdb.{name}") for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def statistics(self) -> str | None:
        """What RocksDB has counted since the store was opened; None if it does not count."""
        text: str | None = self._options.get_statistics()
        return text

    def flush(self) -> None:
        with self._native():
            self._db.flush()

    def checkpoint(self, path: Path) -> None:
        # First a flush of its own: that one lets other threads run meanwhile.
        self.flush()
        with self._native():
            Checkpoint(self._db).create_checkpoint(str(path))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            # Flushes; where that fails, the database is closed all the same.
            with self._native():
                self._db.close()
        finally:
            _release(self._path)

    def _read(self, key: bytes) -> bytes | None:
        with self._native():
            data: bytes | None = self._db.get(key)
        return data

    def _read_long(self, key: bytes) -> int | None:
        data = self._read(key)
        if data is None:
            return None
        if len(data) != _LONG.size:
            raise self._damaged(f"its record {key[1:].decode()} has {len(data)} bytes")
        number: int = _LONG.unpack(data)[0]
        return number

    def _write_own(self, key: bytes, data: bytes) -> None:
        self._write(lambda: _own_record(key, data))

    def _damaged(self, what: str) -> StoreDamagedError:
        return damaged(what, store=self._name, path=self._path)

    @contextlib.contextmanager
    def _native(self) -> Iterator[None]:
        """Turn what rocksdict raises into typed errors; the one place that does."""
        try:
            yield
        except DbClosedError as error:
            raise TaskNotHereError("The store was closed", where={"store": self._name}) from error
        except Exception as error:
            # Errors of RocksDB are plain Exceptions; a kind of it is a mistake of the caller's.
            if type(error) is not Exception:
                raise
            raise store_error(error, store=self._name, path=self._path, opening=False) from error


_Chunk = list[Change] | ChangeColumns


def _chunks(changes: Iterable[Change]) -> Iterator[tuple[_Chunk, bool]]:
    """The changes as writes that are not too large, and of each whether it is the last."""
    for chunk, last in _cut(changes) if isinstance(changes, ChangeColumns) else _taken(changes):
        *parts, rest = _split(chunk)
        for part in parts:
            yield part, False
        yield rest, last


def _cut(columns: ChangeColumns) -> Iterator[tuple[_Chunk, bool]]:
    for start in range(0, max(1, len(columns)), CHUNK_RECORDS):
        end = start + CHUNK_RECORDS
        keys, values = columns.key_column[start:end], columns.value_column[start:end]
        yield ChangeColumns(keys, values), end >= len(columns)


def _taken(changes: Iterable[Change]) -> Iterator[tuple[_Chunk, bool]]:
    remaining = iter(changes)
    last = False
    while not last:
        chunk = list(itertools.islice(remaining, CHUNK_RECORDS))
        last = len(chunk) < CHUNK_RECORDS
        yield chunk, last


def _split(chunk: _Chunk) -> Sequence[_Chunk]:
    """The changes in parts of about `CHUNK_BYTES` of values; at least one, be it empty."""
    values = chunk.value_column if isinstance(chunk, ChangeColumns) else map(_value, chunk)
    if sum(map(len, filter(None, values))) < CHUNK_BYTES:
        return [chunk]
    parts: list[list[Change]] = [[]]
    size = 0
    for change in chunk:
        if size >= CHUNK_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(change)
        size += len(change[1] or b"")
    return parts


def _batch(chunk: _Chunk, offset: int | None) -> WriteBatch:
    """The changes with our prefix, and behind them the offset."""
    batch = WriteBatch(raw_mode=True)
    for key, value in chunk:
        # Not `put` and `delete`: calls cost a quarter more than items.
        if value is None:
            del batch[_USER + key]
        else:
            batch[_USER + key] = value
    if offset is not None:
        batch[_OFFSET] = _LONG.pack(offset)
    return batch


def _own_record(key: bytes, data: bytes) -> WriteBatch:
    batch = WriteBatch(raw_mode=True)
    batch.put(key, data)
    return batch


def _range_deletion(lower: bytes, upper: bytes) -> WriteBatch:
    batch = WriteBatch(raw_mode=True)
    batch.delete_range(lower, upper)
    return batch


def _forget_options(path: Path) -> None:
    """Have a store opened as we say: rocksdict prefers what RocksDB wrote down the last time.

    Else new settings would never apply, and a store that was opened again would be outside of the
    budget of memory, which cannot be written down.
    """
    with contextlib.suppress(OSError):
        for file in path.glob("OPTIONS-*"):
            file.unlink()


def _claim(path: Path, store: str) -> None:
    with _open_paths_lock:
        if path in _open_paths:
            raise StateLockedError(
                "This process has the store open already", where={"store": store, "path": path}
            )
        _open_paths.add(path)


def _release(path: Path) -> None:
    with _open_paths_lock:
        _open_paths.discard(path)
