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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from penstock.topology.changelogs import Logging, RecoverFrom
from penstock.topology.external import PostgreSQL

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

Headers = tuple[tuple[str, bytes | None], ...]
PunctuationType = Literal["stream_time", "wall_clock_time"]


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


@dataclass(frozen=True, kw_only=True)
class RecordFailure:
    """A record that a step could not process or write, as a handler of such failures is told."""

    error: Exception
    """What the function raised."""
    step: str
    record: Record[Any, Any] | None
    """What the step was given; None where it was a punctuator that failed."""
    topic: str
    """Of the input record that was being processed; empty in a punctuator."""
    partition: int
    offset: int


class Cancellable(Protocol):
    """A scheduled call that can be taken back."""

    def cancel(self) -> None:
        """Call no more."""


class Counter(Protocol):
    """Events of one kind, which are counted."""

    def add(self, amount: float = 1) -> None:
        """Count one, or so many."""


class Measure(Protocol):
    """Values of one kind, of which the average, the least, the largest and the sum are known."""

    def record(self, value: float) -> None:
        """Take a value in."""


class Timer(Protocol):
    """How long something takes: `with timer: ...`."""

    def record(self, value: float) -> None:
        """Take so many seconds in."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ProcessorMetrics(Protocol):
    """A processor's own metrics, by name; the same name gives the same one.

    They are told when the slice is committed, so that what is run again counts once; those of a
    global store's processor, which belongs to no task, are not. Each name is a metric for ever:
    take no record's value for it, and 100 at most.
    """

    def counter(self, name: str) -> Counter:
        """One that counts: `count-rate` and `count-total`."""

    def measure(self, name: str) -> Measure:
        """One that takes values: `value-avg`, `-min`, `-max`, `-total`, and how many there were."""

    def timer(self, name: str) -> Timer:
        """One that takes times: `latency-avg` and `-max` in ms, and how many there were."""


class ProcessorContext(Protocol):
    """What a processor can ask and do."""

    @property
    def application_id(self) -> str:
        """The application's id."""

    @property
    def task_id(self) -> str:
        """The task's id, as Kafka Streams writes it: `0_3` is partition 3 of sub-topology 0."""

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
        """Call `action(time)` every `interval` of stream time or wall-clock time.

        What `init` schedules may be any function. While records are processed it must be a method
        of the processor: the next slice has a new one, which goes on with it.
        """

    @property
    def current_call(self) -> Cancellable | None:
        """The scheduled call that runs, which may cancel itself; None for a record."""

    @property
    def metrics(self) -> ProcessorMetrics:
        """Where the processor counts and measures: in `app.metrics()` and at `/metrics`."""

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
        read when it is asked for, which takes a call each. Of a window store name
        `(key, first_ms, last_ms)`, for windows that start in between; of a session store
        `(key, earliest_end_ms)`.

        It is asked ahead, for a whole slice: where only `filter`, `filter_not`, `peek` and `merge`
        lie between the source and this processor; or `map`, `map_values`, `select_key`, and as the
        last of these `flat_map` or `flat_map_values`, where no stream branches off or is merged in,
        and no `peek` comes before them. Behind stores what comes is known only in its turn: there
        it is not asked. It must have no effect of its own.
        """
        del key, value
        return {}

    def close(self) -> None:
        """Let go of what is not a store."""


class ValueTransformer(Generic[K, V, V2]):
    """Makes a table's values of others, with stores to look into; as short-lived as a processor.

    Unlike `map_values` it is shown deletions too, and without a store also rows that are not there,
    where another step looks for one: a value that is None.
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
    timestamped: bool = False
