"""What every store promises, whatever keeps its bytes.

A store holds *stored values*: 8 bytes of big-endian timestamp (milliseconds), then the value. It
also holds the offset of the last changelog record that it contains, and whose it is. A store may
hold *more* than its offset says (a crash between two chunks), never less: applying the changelog
again from the offset is always right.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

Change = tuple[bytes, bytes | None]
"""A key and its stored value; None deletes the key."""
Entry = tuple[bytes, bytes]
"""A key and its stored value."""
NOTHING = b""
"""In a versioned store the stored value of a time from which on a key was nothing."""
GAP = b"\x00"
"""As `NOTHING`, where that was the latest version until a value came after it."""

_TIMESTAMP = struct.Struct(">q")
TIMESTAMP_BYTES = _TIMESTAMP.size


@dataclass(frozen=True)
class ChangeColumns:
    """Changes as a column of keys and one of values: cheaper to make than as many pairs.

    >>> columns = ChangeColumns([b"a", b"b"], [b"1", None])
    >>> len(columns), dict(columns)
    (2, {b'a': b'1', b'b': None})
    """

    # Not `keys`: `dict` takes what has that for a mapping.
    key_column: list[bytes]
    value_column: list[bytes | None]

    def __iter__(self) -> Iterator[Change]:
        return zip(self.key_column, self.value_column, strict=True)

    def __len__(self) -> int:
        return len(self.key_column)


class StoreIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a store is, and which changelog its offset counts in."""

    application_id: str
    task: str
    store: str
    changelog_topic: str
    changelog_topic_id: str
    layout: str = "key_value"
    """How the entries lie in the store; one that lies otherwise is rebuilt."""
    filled_as: str = ""
    """Of a global store that code fills: from what it makes what; empty for a topic's own bytes."""


class StateStore(Protocol):
    """One partition of a named store: whose it is, and how much of its changelog it holds.

    One thread writes; any thread may read. After `close` every call raises `TaskNotHereError`.
    """

    @property
    def name(self) -> str:
        """The store's name in the topology."""
        ...

    def apply(self, changes: Iterable[Change], *, offset: int | None) -> None:
        """Write all changes, later ones winning, and only then the changelog offset.

        With `offset=None` the offset stays as it is.
        """
        ...

    def offset(self) -> int | None:
        """The offset of the last changelog record that the store surely holds."""
        ...

    def identity(self) -> StoreIdentity | None:
        """Whose the store is; None for a store that was never given to a task."""
        ...

    def set_identity(self, identity: StoreIdentity) -> None:
        """Record whose the store is; to be called before the first change."""
        ...

    def caught_up_at(self) -> int | None:
        """When (milliseconds) the store last held all of its changelog; None if unknown."""
        ...

    def set_caught_up_at(self, now_ms: int) -> None:
        """Record that the store holds all of its changelog now."""
        ...

    def flush(self) -> None:
        """Make what was applied survive a crash of this process and of the machine."""
        ...

    def close(self) -> None:
        """Flush and release the store; closing twice does nothing."""
        ...


class KeyValueStore(StateStore, Protocol):
    """A store of keys and values, ordered by the keys' bytes."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The stored value of each key, in the same order; None where there is none."""
        ...

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """At most `limit` entries with lower <= key < upper, by key; go on from last key + 0x00."""
        ...

    def all(self, *, page_size: int = 1000) -> Iterator[tuple[bytes, bytes]]:
        """Every entry by key, read a page at a time; writes in between may or may not be seen."""
        ...

    def approximate_num_entries(self) -> int:
        """About how many keys there are."""
        ...


class StoreSupplier(Protocol):
    """Opens the store of a name in a directory that is its own, or makes it there."""

    def __call__(self, name: str, directory: Path) -> KeyValueStore:
        """The open store; what it held before is there again, and the offset is not ahead of it."""
        ...


@runtime_checkable
class CheckpointStore(Protocol):
    """A store of which a copy can be made while it is open."""

    def checkpoint(self, path: Path) -> None:
        """Make a copy that can be opened as a store, where nothing is yet; files are shared."""
        ...


@runtime_checkable
class RangeDeletingStore(Protocol):
    """A store that can forget a stretch of keys at once."""

    def delete_range(self, lower: bytes, upper: bytes) -> None:
        """Delete the entries with lower <= key < upper, at the price of one."""
        ...


@runtime_checkable
class RangesStore(Protocol):
    """A store that looks into many stretches of keys at the price of less than as many looks."""

    def ranges(self, bounds: Sequence[tuple[bytes, bytes]], *, limit: int) -> list[list[Entry]]:
        """For each (lower, upper) what `range` says."""
        ...


class ByteStore(KeyValueStore, CheckpointStore, RangeDeletingStore, Protocol):
    """A store in which other stores arrange their entries."""


@runtime_checkable
class WindowStore(KeyValueStore, Protocol):
    """A store of windows by the keys that they have in the changelog; a window's time is its start.

    Entries older than the retention are no longer found.
    """

    def fetch(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        """The entries of exactly that key with a time in first..last, by time."""
        ...


class SessionStore(WindowStore, Protocol):
    """A store of sessions: as one of windows, and a session's time is its end."""


@runtime_checkable
class TimeIndexedStore(KeyValueStore, Protocol):
    """A store whose entries are found by their time alone."""

    def fetch_times(self, first: int, last: int) -> Iterator[Entry]:
        """The entries with a time in first..last, by time and then by key."""
        ...


@runtime_checkable
class VersionedStore(KeyValueStore, Protocol):
    """A store that knows what each key was at a time.

    Its changes are of *versions*: the key of one is the key and 8 bytes of time, and a value of
    None says that from then on the key was nothing. All that reads without a time reads the latest.
    """

    def versions(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        """What exactly that key was between first and last, in order of time.

        The first is the version that was valid at `first`, if any; each comes under its version's
        key, and `NOTHING` or `GAP` stands for a deletion. A deletion and then a value of the same
        time, the latest, come both.
        """
        ...


def version_key(key: bytes, timestamp_ms: int) -> bytes:
    """What a key was from a time on is found under this.

    >>> version_key(b"a", 1)
    b'a\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01'
    """
    return key + _TIMESTAMP.pack(timestamp_ms)


def split_version_key(data: bytes) -> tuple[bytes, int]:
    """The key and the time of a version.

    >>> split_version_key(version_key(b"a", 1))
    (b'a', 1)
    """
    (timestamp,) = _TIMESTAMP.unpack(data[-TIMESTAMP_BYTES:])
    return data[:-TIMESTAMP_BYTES], timestamp


def stored_value(timestamp_ms: int, value: bytes) -> bytes:
    """A value as stores hold it.

    >>> stored_value(1, b"a")
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01a'
    """
    return _TIMESTAMP.pack(timestamp_ms) + value


def split_stored_value(stored: bytes) -> tuple[int, bytes]:
    """The timestamp and the bare value of a stored value.

    >>> split_stored_value(stored_value(1, b"a"))
    (1, b'a')
    """
    timestamp: int = _TIMESTAMP.unpack_from(stored)[0]
    return timestamp, stored[TIMESTAMP_BYTES:]


def timestamp_of(stored: bytes) -> int:
    """The timestamp of a stored value.

    >>> timestamp_of(stored_value(1, b"a"))
    1
    """
    return int.from_bytes(stored[:TIMESTAMP_BYTES], "big", signed=True)


def pages(
    store: KeyValueStore,
    page_size: int,
    *,
    lower: bytes | None = None,
    upper: bytes | None = None,
) -> Iterator[Entry]:
    """The entries of a store through `range`, so that no native iterator outlives a page."""
    while True:
        page = store.range(lower, upper, limit=page_size)
        yield from page
        if len(page) < page_size:
            return
        lower = page[-1][0] + b"\x00"
