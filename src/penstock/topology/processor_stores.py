"""Stores as processors see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """What a store with timestamps holds for a key; `timestamp` in milliseconds since the epoch."""

    value: V
    timestamp: int


class KeyValueStore(Protocol[K, V]):
    """A key-value store as a processor sees it.

    One of `timestamped_key_value_store` has `ValueAndTimestamp`s for values. What is read of many
    keys is what the store holds at the call: what is put or deleted meanwhile changes nothing.
    """

    def get(self, key: K) -> V | None:
        """The value of a key."""

    def put(self, key: K, value: V | None) -> None:
        """Set a key, or delete it with None."""

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Set many keys, in this order."""

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Set a key that has no value; returns the one that it has."""

    def delete(self, key: K) -> V | None:
        """Delete a key; returns the value that it had."""

    def range(self, lower: K | None, upper: K | None) -> Iterator[tuple[K, V]]:
        """The entries from lower to upper, both included, by their bytes; None is open."""

    def reverse_range(self, lower: K | None, upper: K | None) -> Iterator[tuple[K, V]]:
        """As `range`, from the last to the first."""

    def all(self) -> Iterator[tuple[K, V]]:
        """Every entry, by the keys' bytes."""

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """As `all`, from the last to the first."""

    def prefix_scan(
        self, prefix: Any, serde: type[Any] | Serde[Any] = bytes
    ) -> Iterator[tuple[K, V]]:
        """The entries whose key's bytes begin with those of a prefix."""

    def timestamp(self, key: K) -> int | None:
        """The time of a key's value: that of the record for which it was put."""

    def approximate_num_entries(self) -> int:
        """How many entries there are; all of them are read for it."""


class WindowStore(Protocol[K, V]):
    """A window store as a processor sees it; of `timestamped_window_store`, with timestamps.

    Windows of several keys come by segments of time and then by the bytes of key and start; from a
    store in memory by start and then by key. `backward_...` gives the same from its end.
    """

    def put(self, key: K, value: V | None, start_ms: int) -> None:
        """Set the value of a key's window, or delete it with None."""

    def fetch(self, key: K, start_ms: int) -> V | None:
        """The value of a key's window."""

    def fetch_range(self, key: K, first_ms: int, last_ms: int) -> Iterator[tuple[int, V]]:
        """A key's windows that start in first..last, with their starts, in order."""

    def backward_fetch(self, key: K, first_ms: int, last_ms: int) -> Iterator[tuple[int, V]]:
        """As `fetch_range`, from the last to the first."""

    def fetch_keys(
        self, lower: K | None, upper: K | None, first_ms: int, last_ms: int
    ) -> Iterator[tuple[K, int, V]]:
        """The windows of keys from lower to upper, both included, that start in first..last.

        None is open: key, start, value.
        """

    def backward_fetch_keys(
        self, lower: K | None, upper: K | None, first_ms: int, last_ms: int
    ) -> Iterator[tuple[K, int, V]]:
        """As `fetch_keys`, from the last to the first."""

    def fetch_all(self, first_ms: int, last_ms: int) -> Iterator[tuple[K, int, V]]:
        """All keys' windows that start in first..last: key, start, value. Reads the whole store."""

    def backward_fetch_all(self, first_ms: int, last_ms: int) -> Iterator[tuple[K, int, V]]:
        """As `fetch_all`, from the last to the first."""

    def all(self) -> Iterator[tuple[K, int, V]]:
        """All windows that have not expired: key, start, value."""

    def backward_all(self) -> Iterator[tuple[K, int, V]]:
        """As `all`, from the last to the first."""

    def timestamp(self, key: K, start_ms: int) -> int | None:
        """The time of a window's value: that of the record for which it was put."""


class SessionStore(Protocol[K, V]):
    """A session store as a processor sees it.

    Sessions of several keys come by segments of time and then by the bytes of key, end and start;
    from a store in memory by end and key, the latest start first. `backward_...` gives the same
    from its end.
    """

    def put(self, key: K, start_ms: int, end_ms: int, value: V | None) -> None:
        """Set the value of a session, or delete it with None."""

    def remove(self, key: K, start_ms: int, end_ms: int) -> None:
        """Delete a session."""

    def find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[int, int, V]]:
        """A key's sessions that end not before and start not after: start, end, value."""

    def backward_find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[int, int, V]]:
        """As `find_sessions`, from the last to the first."""

    def find_sessions_of_keys(
        self, lower: K | None, upper: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[K, int, int, V]]:
        """The same of keys from lower to upper, both included, None is open: key, start, ..."""

    def backward_find_sessions_of_keys(
        self, lower: K | None, upper: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[K, int, int, V]]:
        """As `find_sessions_of_keys`, from the last to the first."""

    def fetch(self, key: K) -> Iterator[tuple[int, int, V]]:
        """All sessions of a key: start, end, value."""

    def backward_fetch(self, key: K) -> Iterator[tuple[int, int, V]]:
        """As `fetch`, from the last to the first."""

    def fetch_keys(self, lower: K | None, upper: K | None) -> Iterator[tuple[K, int, int, V]]:
        """All sessions of keys from lower to upper, both included: key, start, end, value."""

    def backward_fetch_keys(
        self, lower: K | None, upper: K | None
    ) -> Iterator[tuple[K, int, int, V]]:
        """As `fetch_keys`, from the last to the first."""

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """The value of exactly that session."""


class VersionedRecord(NamedTuple):
    """A value of a versioned store, and from when until before when it was valid.

    `valid_to` is None for a key's latest value.
    """

    value: Any
    timestamp: int
    valid_to: int | None = None


VALID_TO_UNDEFINED = -1
"""What `VersionedStore.put` returns for a key's latest value: nobody knows yet for how long."""


class VersionedStore(Protocol[K_contra, V_contra]):
    """A store that knows what each key was at a time, as a processor sees it."""

    def put(self, key: K_contra, value: V_contra | None, timestamp: int) -> int | None:
        """Set what a key was from a time on, or with None that it was nothing; any order will do.

        Returns until when that was valid, `VALID_TO_UNDEFINED` if nothing later is known, and None
        if the time is older than the history: then it is dropped.
        """

    def get(self, key: K_contra, as_of_timestamp: int | None = None) -> VersionedRecord | None:
        """The latest value of a key, or the one of a time; None also if that is long past."""

    def delete(self, key: K_contra, timestamp: int) -> VersionedRecord | None:
        """Set that a key was nothing from a time on; returns what it was."""


class SliceStore(Protocol):
    """A store of bytes during one slice, as a store with a shape of its own sees it.

    What is put is found at once, and goes to the changelog under exactly these keys and values.
    """

    @property
    def name(self) -> str:
        """The store's name in the topology."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, in the same order; those not read before cost one call."""

    def put(self, key: bytes, value: bytes, timestamp: int | None = None) -> None:
        """Set a key; without a timestamp it is that of the record that is being processed."""

    def delete(self, key: bytes, timestamp: int | None = None) -> None:
        """Delete a key."""

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The entries with lower <= key < upper, by key."""
