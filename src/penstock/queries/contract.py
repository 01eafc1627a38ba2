"""What can be asked of an application's state, and what an answer says of itself.

The Python stores, the HTTP service and its client, the command line and the Spark data source all
ask through `Queries`. Keys and values are those of the user's serdes; times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol

import msgspec

StoreKind = Literal["key_value", "window", "session", "versioned"]
QuestionKind = Literal[
    "get", "range", "prefix", "all", "fetch", "fetch_range", "fetch_all", "as_of"
]
Role = Literal["active", "standby", "global"]

TIMEOUT = timedelta(seconds=5)
"""How long a question may take, unless it is said."""
LIMIT_MAX = 10_000
"""How many rows one answer has at most; more come by its `next_page`."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How old an answer may be; by default only the active copy answers.

    With `stale` a standby may answer too: one that lacks at most `max_lag` changelog records, and
    holds at least `position` (by partition, an offset of the store's changelog), where they are
    said. Whoever says one of these need not say `stale`.
    """

    stale: bool = False
    max_lag: int | None = None
    position: dict[int, int] = field(default_factory=dict)

    @property
    def lets_standbys(self) -> bool:
        """Whether others than the active copy may answer."""
        return self.stale or self.max_lag is not None or bool(self.position)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of one store.

    | kind | of | asks for |
    | --- | --- | --- |
    | get | key-value, versioned | the value of each of `keys` |
    | as_of | versioned | the value that each of `keys` had at `as_of` |
    | range | key-value | keys from `lower` up to and with `upper`, None being open |
    | prefix | key-value | keys whose bytes begin with those of `prefix` |
    | all | any | everything |
    | fetch | window, session | the windows of each of `keys` that begin from `start` to `end` |
    | fetch | versioned | the values of each of `keys` that were valid from `start` to `end` |
    | fetch_range | window, session | the same of all keys from `lower` to `upper` |
    | fetch_all | window | all windows that begin from `start` to `end` |

    Rows come in the order of their bytes within a partition, partition by partition; those of
    `fetch` key by key, as asked, within a partition. `reverse` turns each of these round.
    `partition` asks that one alone. `page` goes on where an answer's `next_page` says; the rest of
    the question is to be the same. `limit` is of rows that are looked for, not of `keys`: of those
    there are at most `LIMIT_MAX`.
    """

    kind: QuestionKind
    keys: tuple[Any, ...] = ()
    lower: Any = None
    upper: Any = None
    prefix: Any = None
    start: int | None = None
    end: int | None = None
    as_of: int | None = None
    reverse: bool = False
    partition: int | None = None
    limit: int = 1_000
    page: str | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """Who answered for a partition, and how fresh."""

    partition: int
    instance: str
    role: Role
    position: int | None
    """The offset of the last changelog record that the answer holds; None before the first, and
    of a store without a changelog."""
    age: timedelta
    """How long ago the copy was known to hold all that was committed; nothing for an active one."""


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A key with what a store holds for it; windows have their bounds, versions their validity."""

    key: Any
    value: Any
    timestamp: int | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Rows, who gave them, and how to go on if there are more.

    `get` and `as_of` have a row for every key that was asked for, in that order, with a value of
    None where there is nothing; if that would be too large, for the first of them, and a
    `next_page` for the others. A page may have no rows, and yet have a next one.
    """

    rows: list[Row]
    sources: list[Source]
    next_page: str | None = None


@dataclass(frozen=True, kw_only=True)
class StoreDescription:
    """A store that can be asked."""

    name: str
    kind: StoreKind
    partitions: int
    is_global: bool
    logged: bool
    key: str
    """The name of the key's serde, and of the value's."""
    value: str


@dataclass(frozen=True, kw_only=True)
class KeyMetadata:
    """Where a key of a store lives: the hosts that hold it, and its partition."""

    store: str
    partition: int
    active: str
    """The instance's name; empty while nobody has taken the task."""
    standbys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PartitionLag:
    """How far a copy of a store's partition is behind the end of its changelog."""

    store: str
    partition: int
    instance: str
    role: Role
    position: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)


@dataclass(frozen=True, kw_only=True)
class StoreSize:
    """About how large a store is, of one copy of each partition."""

    entries: int
    bytes: int
    """In RocksDB's files and write buffers; 0 where something else keeps it."""


class Queries(Protocol):
    """An application's state, to be asked; any thread may ask.

    Raises `QueryError` (a kind of `PenstockError`): no such store, a question that its kind does
    not answer, a page that is not one of ours, nobody who may answer within the deadline.
    """

    def stores(self) -> list[StoreDescription]:
        """All stores, by name."""
        ...

    def ask(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
        timeout: timedelta = TIMEOUT,
    ) -> Answer:
        """The answer of whoever holds the state."""
        ...

    def approximate_count(
        self,
        store: str,
        *,
        bound: Bound = Bound(),  # noqa: B008 - frozen
        timeout: timedelta = TIMEOUT,
    ) -> int:
        """About how many entries a store holds in all its partitions."""
        ...

    def key_metadata(self, store: str, key: Any) -> KeyMetadata:
        """Where a key lives."""
        ...

    def lags(self) -> list[PartitionLag]:
        """How far every copy of every store is behind."""
        ...


class SizedQueries(Queries, Protocol):
    """Those of an application itself, which knows more of its stores than who asks over HTTP."""

    def sized_stores(self) -> list[str]:
        """The names of all stores, those too that steps have for themselves."""
        ...

    def size(self, store: str, *, bound: Bound = Bound()) -> StoreSize:  # noqa: B008
        """About how large a store is in all its partitions."""
        ...
