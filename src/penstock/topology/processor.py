"""The Processor API: programs that see records one by one, with stores of their own.

class Dedup(Processor[str, str, str, str]):
    def init(self, context): self.seen = context.store("seen")
    def process(self, record):
        if self.seen.get(record.key) is None:
            self.seen.put(record.key, True)
            self.context.forward(record)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from penstock.errors import TopologyError
from penstock.topology.changelogs import Logging, RecoverFrom
from penstock.topology.external import PostgreSQL

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

Headers = tuple[tuple[str, bytes | None], ...]
PunctuationType = Literal["stream_time", "wall_clock_time"]
_MILLISECOND = timedelta(milliseconds=1)
# Histories up to a length, into how many segments they are cut, and how long one is at least.
_SEGMENTS = (
    (timedelta(minutes=1), 3, timedelta(seconds=2)),
    (timedelta(minutes=5), 5, timedelta(seconds=20)),
    (timedelta(hours=1), 12, timedelta(minutes=1)),
)


@dataclass(frozen=True)
class Record(Generic[K, V]):
    """A record as a processor sees it; `timestamp` in milliseconds since the epoch.

    >>> Record("a", 1, 0).with_value(2)
    Record(key='a', value=2, timestamp=0, headers=())
    """

    key: K
    value: V
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: K2) -> Record[K2, V]:
        """The same record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """The same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """The same record at another time."""
        return dataclasses.replace(self, timestamp=timestamp)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """The same record with other headers."""
        return dataclasses.replace(self, headers=headers)


class RecordMetadata(NamedTuple):
    """Where the input record that is being processed came from."""

    topic: str
    partition: int
    offset: int


class Cancellable(Protocol):
    """A scheduled call that can be taken back."""

    def cancel(self) -> None:
        """Call no more."""


class ProcessorContext(Protocol):
    """What a processor can ask and do."""

    @property
    def application_id(self) -> str:
        """The application's id."""

    @property
    def partition(self) -> int:
        """The partition of the task."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The input record's coordinates; None in a punctuator."""

    @property
    def current_stream_time_ms(self) -> int:
        """The latest timestamp that the task has seen; -1 before the first record."""

    @property
    def current_system_time_ms(self) -> int:
        """The wall clock, as the slice began."""

    def forward(self, record: Record[Any, Any], to: str | None = None) -> None:
        """Pass a record on to every step behind this one, or to the one of that name."""

    def store(self, name: str) -> Any:
        """A store that was connected to this processor. Raises `TopologyError` for another."""

    def schedule(
        self, interval: timedelta, kind: PunctuationType, action: Callable[[int], object]
    ) -> Cancellable:
        """Call `action(time)` every `interval` of stream time or wall-clock time."""

    def commit(self) -> None:
        """Ask for a commit; every slice is committed anyway."""


class Processor(Generic[K, V, K2, V2]):
    """Takes records and forwards others.

    One lives for one slice of records: `init` runs at its start and `close` at its end, so state
    belongs in stores. A processor that sets `self.context` in its own `init` should call this one.
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Get ready: look up stores, schedule punctuators."""
        self.context = context

    def process(self, record: Record[K, V]) -> None:
        """Take a record."""
        raise NotImplementedError

    def keys_to_read(self, key: K, value: V) -> Mapping[str, Sequence[Any]]:
        """The keys of each store that `process` will read, so that they are read in bulk.

        By default the record's own key, of every key-value store. A key that was not named here is
        read when it is asked for, which takes a call each.
        """
        del key, value
        return {}

    def close(self) -> None:
        """Let go of what is not a store."""


class ValueTransformer(Generic[K, V, V2]):
    """Makes a table's values of others, with stores to look into; as short-lived as a processor.

    Unlike `map_values` it is shown deletions too: a value that is None.
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Get ready: look up stores."""
        self.context = context

    def transform(self, key: K, value: V | None) -> V2 | None:
        """The new value of a row; None deletes it."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what is not a store."""


class KeyValueStore(Protocol[K, V]):
    """A key-value store as a processor sees it."""

    def get(self, key: K) -> V | None:
        """The value of a key."""

    def put(self, key: K, value: V | None) -> None:
        """Set a key, or delete it with None."""

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Set a key that has no value; returns the one that it has."""

    def delete(self, key: K) -> V | None:
        """Delete a key; returns the value that it had."""

    def range(self, lower: K | None, upper: K | None) -> Iterator[tuple[K, V]]:
        """The entries from lower to upper, both included, by their bytes; None is open."""

    def all(self) -> Iterator[tuple[K, V]]:
        """Every entry, by the keys' bytes."""

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, V]]:
        """The entries whose key's bytes begin so."""

    def approximate_num_entries(self) -> int:
        """How many entries there are; all of them are read for it."""


class WindowStore(Protocol[K_contra, V]):
    """A window store as a processor sees it."""

    def put(self, key: K_contra, value: V | None, start_ms: int) -> None:
        """Set the value of a key's window, or delete it with None."""

    def fetch(self, key: K_contra, start_ms: int) -> V | None:
        """The value of a key's window."""

    def fetch_range(self, key: K_contra, first_ms: int, last_ms: int) -> Iterator[tuple[int, V]]:
        """A key's windows that start in first..last, with their starts, in order."""

    def fetch_all(self, first_ms: int, last_ms: int) -> Iterator[tuple[Any, int, V]]:
        """All keys' windows that start in first..last: key, start, value. Reads the whole store."""


class SessionStore(Protocol[K_contra, V]):
    """A session store as a processor sees it."""

    def put(self, key: K_contra, start_ms: int, end_ms: int, value: V | None) -> None:
        """Set the value of a session, or delete it with None."""

    def find_sessions(
        self, key: K_contra, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[int, int, V]]:
        """A key's sessions that end not before and start not after: start, end, value."""

    def fetch(self, key: K_contra) -> Iterator[tuple[int, int, V]]:
        """All sessions of a key: start, end, value."""

    def fetch_session(self, key: K_contra, start_ms: int, end_ms: int) -> V | None:
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


@dataclass(frozen=True)
class Shape:
    """A class of the user's that makes its own of a store of bytes: `made_of(store, **options)`."""

    made_of: str | Callable[..., Any]
    """The class, or where it is, as `module:name`."""
    options: Mapping[str, Any]

    @property
    def format(self) -> str:
        """What must stay, for the changelog to keep its meaning: the class's name.

        >>> Shape("mypackage:CountMinSketch", {}).format
        'CountMinSketch'
        """
        if isinstance(self.made_of, str):
            return self.made_of.rpartition(":")[2]
        name: str = getattr(self.made_of, "__qualname__", type(self.made_of).__qualname__)
        return name


@dataclass(frozen=True)
class StoreBuilder:
    """A store to be added with `add_state_store`; see `key_value_store` and its kin."""

    name: str
    key: Any
    value: Any
    kind: Literal["key_value", "window", "session", "versioned"] = "key_value"
    persistent: bool = True
    logging: Logging = True
    recover_from: RecoverFrom = "changelog"
    retention: timedelta | None = None
    segment_interval: timedelta | None = None
    window: timedelta | None = None
    max_entries: int | None = None
    supplier: str | None = None
    shape: Shape | None = None
    kept_in: PostgreSQL | None = None


def lru_store(
    name: str,
    *,
    key: Any,
    value: Any,
    max_entries: int,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
) -> StoreBuilder:
    """A key-value store that forgets the key which was not used for longest, when it is full.

    >>> lru_store("recent", key=str, value=int, max_entries=10).max_entries
    10
    """
    return StoreBuilder(
        name, key, value, logging=logging, recover_from=recover_from, max_entries=max_entries
    )


def key_value_store(
    name: str,
    *,
    key: Any,
    value: Any,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
    kept_in: PostgreSQL | None = None,
) -> StoreBuilder:
    """A key-value store for processors; with `kept_in` a database keeps it.

    `supplier` names, as `module:name`, what opens a store of yours on every instance:
    `supplier(name, directory)` gives a `penstock.stores.KeyValueStore`.

    >>> key_value_store("seen", key=str, value=int).kind
    'key_value'
    """
    return StoreBuilder(
        name,
        key,
        value,
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        kept_in=kept_in,
    )


def custom_store(
    name: str,
    made_of: str | Callable[..., Any],
    *,
    persistent: bool = True,
    logging: Logging = True,
    supplier: str | None = None,
    **options: Any,
) -> StoreBuilder:
    """A store with a shape of its own: processors are given `made_of(store, **options)`.

    `made_of` is a class, or where it is as `module:name`. It is called for each slice with a
    `SliceStore` of bytes, and decides by itself under which keys it keeps what: that is also its
    changelog's format. Its method `flush()`, if it has one, is called at the slice's end.

    >>> custom_store("visits", "mypackage:CountMinSketch", depth=4).shape.options
    {'depth': 4}
    """
    return StoreBuilder(
        name,
        bytes,
        bytes,
        persistent=persistent,
        logging=logging,
        supplier=supplier,
        shape=Shape(made_of, options),
    )


def window_store(
    name: str,
    *,
    key: Any,
    value: Any,
    retention: timedelta,
    window: timedelta,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
) -> StoreBuilder:
    """A window store for processors; entries older than `retention` expire.

    Raises `TopologyError` for windows that would expire before they end.
    """
    if window < timedelta(0) or retention < window:
        raise TopologyError(
            f"The store {name!r} keeps windows of {window} for {retention}",
            hint="Let retention be at least the window, and neither be negative",
        )
    return StoreBuilder(
        name,
        key,
        value,
        kind="window",
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        retention=retention,
        window=window,
    )


def session_store(
    name: str,
    *,
    key: Any,
    value: Any,
    retention: timedelta,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
) -> StoreBuilder:
    """A session store for processors; sessions that ended longer ago than `retention` expire."""
    if retention < timedelta(0):
        raise TopologyError(
            f"The store {name!r} keeps sessions for {retention}",
            hint="Let retention be 0 or more",
        )
    return StoreBuilder(
        name,
        key,
        value,
        kind="session",
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        retention=retention,
    )


def versioned_store(
    name: str,
    *,
    history_retention: timedelta,
    segment_interval: timedelta | None = None,
    key: Any = None,
    value: Any = None,
    persistent: bool = True,
    logging: Logging = True,
    recover_from: RecoverFrom = "changelog",
    supplier: str | None = None,
) -> StoreBuilder:
    """A store that knows what each key was in the last `history_retention` of stream time.

    It goes where a table's store is named, or into `add_state_store` for processors, and only there
    `key` and `value` are to be said. What is older than the history is no longer accepted.
    Versions leave the disk a `segment_interval` at a time.

    >>> versioned_store("prices", history_retention=timedelta(hours=1)).segment_interval
    datetime.timedelta(seconds=300)

    Raises `TopologyError` for a negative history or an interval that is not positive.
    """
    if history_retention < timedelta(0) or (
        segment_interval is not None and segment_interval < _MILLISECOND
    ):
        raise TopologyError(
            f"The store {name!r} has a history of {history_retention} in segments of "
            f"{segment_interval}",
            hint="A history is not negative, and a segment lasts a millisecond or more",
        )
    return StoreBuilder(
        name,
        key,
        value,
        kind="versioned",
        persistent=persistent,
        logging=logging,
        recover_from=recover_from,
        supplier=supplier,
        retention=history_retention,
        segment_interval=segment_interval or _segment_interval(history_retention),
    )


def _segment_interval(history: timedelta) -> timedelta:
    """Kafka Streams' choice: the longer the history, the more segments."""
    for most, parts, least in _SEGMENTS:
        if history <= most:
            return max(history / parts, least)
    return max(history / 24, timedelta(minutes=5))
