"""The steps of a compiled topology: frozen facts, no behaviour. `processors` gives them meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.config import OffsetReset, TimestampRule
from penstock.serdes import BytesSerde, Serde
from penstock.topology.changelogs import RecoverFrom
from penstock.topology.external import PostgreSQL
from penstock.topology.processor import Processor, Shape, ValueTransformer
from penstock.topology.suppression import BufferLimits
from penstock.topology.windows import JoinWindows, Windows

AggregateKind = Literal["count", "reduce", "aggregate", "latest"]
Emit = Literal["update", "close"]
Side = Literal["left", "right"]
StoreKind = Literal["key_value", "window", "session", "versioned"]
TimeIndex = Literal["window_start", "session_end", "value_tail"]
"""Where an entry's time is: in the key of a window or a session, or in the value's last 8 bytes."""

SEGMENT_MS_MIN = 60_000


@dataclass(frozen=True, kw_only=True)
class Node:
    """One step; `children` get its results, in this order."""

    name: str
    children: tuple[str, ...] = ()
    sends_old: bool = False
    """Whether a table's step says of each change what the row was before."""

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of the stores that it uses."""
        return ()


@dataclass(frozen=True, kw_only=True)
class SourceNode(Node):
    """Reads topics; of a repartition topic the name lacks the application's prefix.

    With a `pattern` the topics are those that match it, once it is known which there are.
    """

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    repartition: bool = False
    timestamp: Callable[[Any, Any, int], int] | None = None
    """A record's time from its key, its value and the time that Kafka has for it."""
    time_rule: TimestampRule | None = None
    """Without such a function: what a record's time is. None drops records of a negative one."""
    auto_offset_reset: OffsetReset | None = None
    """Where the topics are read from that have no position; None is as the option says."""


@dataclass(frozen=True, kw_only=True)
class FilterNode(Node):
    """Keeps records whose `predicate(key, value)` is true, or false if `negate`."""

    predicate: Callable[[Any, Any], bool]
    negate: bool = False


@dataclass(frozen=True, kw_only=True)
class DropNullKeyNode(Node):
    """Drops records without a key, which no repartition topic could bring to the right task.

    With `keeps` it does not: a join behind it has a result for them, whichever task they are in.
    """

    keeps: bool = False


@dataclass(frozen=True, kw_only=True)
class PeekNode(Node):
    """Calls `action(key, value)` and passes the record on."""

    action: Callable[[Any, Any], object]


@dataclass(frozen=True, kw_only=True)
class ForeachNode(Node):
    """Calls `action(key, value)`; the record ends here."""

    action: Callable[[Any, Any], object]


@dataclass(frozen=True, kw_only=True)
class SplitNode(Node):
    """Passes a record to the first of its children, all branches, that wants it."""


@dataclass(frozen=True, kw_only=True)
class BranchNode(Node):
    """Wants records whose `predicate(key, value)` is true; without one, every record."""

    predicate: Callable[[Any, Any], bool] | None


@dataclass(frozen=True, kw_only=True)
class FlatMapNode(Node):
    """Replaces a record by the pairs of `mapper(key, value)`: none, one or many."""

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]


@dataclass(frozen=True, kw_only=True)
class FlatMapValuesNode(Node):
    """Replaces a value by those of `mapper(value)`, or `mapper(key, value)`: none, one or many."""

    mapper: Callable[..., Iterable[Any]]
    with_key: bool = False


@dataclass(frozen=True, kw_only=True)
class MapValuesNode(Node):
    """Replaces the value by `mapper(value)`, or with `with_key` by `mapper(key, value)`."""

    mapper: Callable[..., Any]
    with_key: bool = False


@dataclass(frozen=True, kw_only=True)
class MapNode(Node):
    """Replaces key and value by the pair `mapper(key, value)`."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class SelectKeyNode(Node):
    """Replaces the key by `selector(key, value)`."""

    selector: Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class AggregateNode(Node):
    """Keeps one value per key in `store`.

    `count` and `latest` (a table's newest value, or none) have neither function, `reduce` has
    `aggregator(aggregate, value)`, `aggregate` has `initializer()` and
    `aggregator(key, value, aggregate)`.
    """

    kind: AggregateKind
    store: str
    initializer: Callable[[], Any] | None = None
    aggregator: Callable[..., Any] | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)


@dataclass(frozen=True, kw_only=True)
class WindowAggregateNode(AggregateNode):
    """Keeps one value per key and window in `store`.

    `merger(key, left, right)` makes one of two sessions. With `emit` "close" a result leaves once,
    when its window can no longer change.
    """

    windows: Windows
    merger: Callable[[Any, Any, Any], Any] | None = None
    emit: Emit = "update"


@dataclass(frozen=True, kw_only=True)
class MergeNode(Node):
    """Passes the records of several streams on as they come."""

    merged: tuple[str, ...]
    """The steps that they come from, in the order in which they were named."""


@dataclass(frozen=True, kw_only=True)
class MaterializableNode(Node):
    """A table's step that may keep its results in a store."""

    store: str | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        return () if self.store is None else (self.store,)


@dataclass(frozen=True, kw_only=True)
class LatestNode(MaterializableNode):
    """A table of latest values that keeps none of them: nobody needs to look one up."""


@dataclass(frozen=True, kw_only=True)
class TableFilterNode(MaterializableNode):
    """Passes a change on, as a deletion where `predicate(key, value)` is false (`negate`: true)."""

    parent: str = ""
    predicate: Callable[[Any, Any], bool]
    negate: bool = False
    versioned: bool = False
    """Whether the table keeps versions: then it is told also of rows that were never wanted."""


@dataclass(frozen=True, kw_only=True)
class TableMapValuesNode(MaterializableNode):
    """Replaces a table's value by `mapper(value)`; a deletion stays one.

    With `with_key` it is `mapper(key, value)`.
    """

    parent: str = ""
    mapper: Callable[..., Any]
    with_key: bool = False


@dataclass(frozen=True, kw_only=True)
class TableTransformValuesNode(MaterializableNode):
    """Replaces a table's value by what a transformer, made by `supplier()`, says; of deletions too.

    `connected` names the stores that it looks into.
    """

    parent: str
    supplier: Callable[[], ValueTransformer[Any, Any, Any]]
    connected: tuple[str, ...]

    @property
    def stores(self) -> tuple[str, ...]:
        return (*super().stores, *self.connected)


@dataclass(frozen=True, kw_only=True)
class TableSelectNode(Node):
    """Turns a table's rows into rows `mapper(key, value)` of another key, old rows included."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]
    versioned: bool = False
    """Whether the table keeps versions: then rows that came too late to be the latest end here."""


@dataclass(frozen=True, kw_only=True)
class TableAggregateNode(AggregateNode):
    """Keeps one value per group of a table's rows; `subtractor` takes out what a row was before."""

    subtractor: Callable[..., Any] | None = None


@dataclass(frozen=True, kw_only=True)
class SuppressNode(Node):
    """Holds a table's changes back in the buffer `store`.

    `duration_ms` is the time limit or, with `final`, the grace of the windows.
    """

    parent: str
    store: str
    duration_ms: int
    final: bool
    buffer: BufferLimits
    key_serde: Serde[Any]
    value_serde: Serde[Any]

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)


@dataclass(frozen=True, kw_only=True)
class Joining:
    """The function of a join: `joiner(left, right)`, or with `with_key` `joiner(key, left, right)`.

    The key is that of the left side.
    """

    joiner: Callable[..., Any]
    with_key: bool = False


@dataclass(frozen=True, kw_only=True)
class ReadingNode(Node):
    """A step that looks into stores of other steps."""

    reads: tuple[str, ...]

    @property
    def stores(self) -> tuple[str, ...]:
        return self.reads


@dataclass(frozen=True, kw_only=True)
class StreamTableJoinNode(Joining, ReadingNode):
    """Joins a record with the row that the table `table` has now for its key.

    Of a `versioned` table, whose store is the first that it reads, it is the row of the record's
    own time; with `grace_ms` the record waits for it in the store `buffer` until the stream's time
    is so much later.
    """

    table: str
    left: bool
    versioned: bool = False
    buffer: str | None = None
    grace_ms: int = 0
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    """Of the records that wait."""

    @property
    def stores(self) -> tuple[str, ...]:
        return self.reads if self.buffer is None else (*self.reads, self.buffer)


@dataclass(frozen=True, kw_only=True)
class TableJoinNode(Joining, ReadingNode):
    """One side of a join of tables: what changes here meets the row of `other`.

    `side` says which argument of `joiner` comes from here; `here` and `there` whether a missing row
    of this side, or of the other, is joined as None.
    """

    parent: str
    other: str
    side: Side
    here_outer: bool
    there_outer: bool
    versioned: bool = False
    """Whether this side keeps versions: then rows that are not the latest end here."""


@dataclass(frozen=True, kw_only=True)
class TableMergeNode(MaterializableNode):
    """Brings the two sides of a join of tables together."""

    left: str
    right: str


@dataclass(frozen=True, kw_only=True)
class JoinWindowNode(Node):
    """Keeps one side of a join of streams in a window store, after it has been joined."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)


@dataclass(frozen=True, kw_only=True)
class StreamJoinNode(Joining, ReadingNode):
    """One side of a join of streams: a record meets those of `other_store` in its window.

    `outer` says whether a record of this side that meets nothing is joined with None;
    `unmatched` is the store in which such records wait, if either side has them.
    """

    side: Side
    windows: JoinWindows
    own_store: str
    other_store: str
    outer: bool
    unmatched: str | None


@dataclass(frozen=True, kw_only=True)
class GlobalJoinNode(Joining, Node):
    """Joins a record with the row that a global table has for `selector(key, value)`."""

    table: StoreSpec
    selector: Callable[[Any, Any], Any]
    left: bool


@dataclass(frozen=True, kw_only=True)
class ProcessNode(ReadingNode):
    """Runs a processor of the user's, made by `supplier()`; with `fixed_key` keys stay."""

    supplier: Callable[[], Processor[Any, Any, Any, Any]]
    fixed_key: bool
    global_stores: tuple[StoreSpec, ...] = ()
    """Global tables that it may look into."""


@dataclass(frozen=True, kw_only=True)
class SubscribeNode(Node):
    """Tells the right side of a foreign-key join which row a left one refers to."""

    extractor: Callable[..., Any]
    """Makes the right row's key of the left value, or with `with_key` of the left key and value."""
    with_key: bool = False
    left: bool
    foreign_serde: Serde[Any]
    """Of the right table's keys: whether a row refers to another one now, their bytes say."""
    value_serde: Serde[Any]
    versioned: bool = False
    """Whether the left table keeps versions: then rows that are not the latest end here."""


@dataclass(frozen=True, kw_only=True)
class RegisterNode(Node):
    """Keeps in `store` which left rows refer to which right one."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)


@dataclass(frozen=True, kw_only=True)
class AnswerSubscriptionNode(ReadingNode):
    """Answers a left row with the row that the right table `table` has now."""

    table: str


@dataclass(frozen=True, kw_only=True)
class AnswerRowNode(RegisterNode):
    """Tells every left row that refers to a right one of its change."""

    versioned: bool = False
    """Whether the right table keeps versions: then rows that are not the latest end here."""


@dataclass(frozen=True, kw_only=True)
class ResolveNode(Joining, ReadingNode):
    """Joins an answer with the row of the left table `table`, if it is still the one that asked."""

    table: str
    left: bool
    value_serde: Serde[Any]


@dataclass(frozen=True, kw_only=True)
class ToStreamNode(Node):
    """A table's changes become a stream's records."""


@dataclass(frozen=True, kw_only=True)
class SinkNode(Node):
    """Writes to a topic; of a repartition topic the name lacks the application's prefix.

    With `topic_of(key, value)` each record's topic is what that says.
    """

    topic: str
    topic_of: Callable[[Any, Any], str] | None = None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    repartition: bool = False
    partitions: int | None = None
    """How many a repartition topic is to have, if the user said so."""
    partitioner: Callable[[Any, Any, int], int | Collection[int] | None] | None = None
    """Chooses a record's partition, or several, from key, value and the number of partitions.

    None leaves it to the key.
    """
    whole_key: bool = False
    """Whether a window chooses the partition together with the key that is in it.

    So it is in repartition topics, as in Kafka Streams: elsewhere a key's windows lie together.
    """
    by_key_alone: bool = False
    """Whether the partitioner is shown no value, and may name but one partition."""


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """A named store, one partition of which belongs to each task of its sub-topology.

    In a `window` store a key is followed by 8 bytes of window start and 4 of sequence number, in a
    `session` store by 8 bytes of end and 8 of start, as in changelogs. A `versioned` store keeps
    what each key was for `retention_ms`, and refuses what is older. Windows of a size end
    `window_ms` after their start; with `duplicates` a key may have several entries of one start.
    `time_index` names where the time of an entry lies, if entries are to be found by time alone.
    `changelog_config` are settings of the changelog topic, used when it is made.
    """

    name: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    kind: StoreKind = "key_value"
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    recover_from: RecoverFrom = "changelog"
    """What a store that is lost is made from again; by "input" all stores of its task are."""
    caching: bool = True
    persistent: bool = True
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    window_ms: int | None = None
    duplicates: bool = False
    max_entries: int | None = None
    """Of a store that forgets the keys which were not used for longest: how many it keeps."""
    is_global: bool = False
    """Whether every instance holds all of it, filled from its topic."""
    topic: str = ""
    """Of a global table: the topic that fills it."""
    time_index: TimeIndex | None = None
    supplier: str = ""
    """What opens a store that the user brought, as `module:name`; empty for one of ours."""
    shape: Shape | None = None
    """What a processor is given instead of the plain store."""
    kept_in: PostgreSQL | None = None
    """The database that keeps it, instead of an instance's disk and a changelog."""
    timestamped: bool = False
    """Whether processors see each value with its time."""
    holds: tuple[Serde[Any], ...] = ()
    """Of a buffer, whose bytes its step puts together: the serdes of what is in them."""

    @property
    def recency(self) -> StoreSpec | None:
        """Beside a store of limited size, one that knows when each key was last used.

        It has no changelog: as in Kafka Streams a restored store has forgotten that.
        """
        if self.max_entries is None:
            return None
        return StoreSpec(
            name=f"{self.name}-recency",
            key_serde=BytesSerde(),
            value_serde=BytesSerde(),
            logging=False,
            caching=False,
            persistent=False,
        )

    @property
    def alive_ms(self) -> int:
        """How much older than the latest entry one may be to be found.

        As in Kafka Streams a store that emits windows at their close finds them a millisecond
        longer: with the shortest retention they would expire in the moment in which they close. So
        does one of versions.
        """
        assert self.retention_ms is not None
        keeps_longer = self.kind == "versioned" or (
            self.kind == "window" and self.time_index is not None
        )
        return self.retention_ms if keeps_longer else self.retention_ms - 1

    @property
    def segment_ms(self) -> int:
        """How much time one segment of a store of windows, sessions or versions spans."""
        if self.segment_interval_ms is not None:
            return self.segment_interval_ms
        assert self.retention_ms is not None
        return max(self.retention_ms // 2, SEGMENT_MS_MIN)
