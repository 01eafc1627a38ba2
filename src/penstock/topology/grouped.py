"""Grouped streams and tables: records brought together by key, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import TopologyError
from penstock.serdes import (
    ChangeSerde,
    Serde,
    SessionWindowedSerde,
    Windowed,
    WindowedSerde,
    serde_of,
)
from penstock.topology.draft import SerdeOrMissing, needed
from penstock.topology.flow import Flow, chosen_serde, returned_type
from penstock.topology.nodes import (
    AggregateKind,
    AggregateNode,
    Emit,
    StoreSpec,
    TableAggregateNode,
    TimeIndex,
    WindowAggregateNode,
)
from penstock.topology.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

if TYPE_CHECKING:
    from penstock.topology.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """What an aggregating call asks for."""

    kind: AggregateKind
    prefix: str
    value: SerdeOrMissing
    store: str | None
    caching: bool
    logging: bool
    initializer: Callable[[], Any] | None = None
    aggregator: Callable[..., Any] | None = None
    subtractor: Callable[..., Any] | None = None
    merger: Callable[[Any, Any, Any], Any] | None = None
    retention: timedelta | None = None


class Grouping:
    """A stream or table on its way into aggregations; several may share a repartition topic."""

    def __init__(self, flow: Flow, name: str | None, *, table: bool = False) -> None:
        self.flow = flow
        self.name = name
        self._table = table
        self._shared_source: str | None = None

    def store_name(self, spec: Aggregation) -> str:
        """The store's name, given or made."""
        origin = self.name or self.flow.origin
        prefix = f"{spec.prefix}-STATE-STORE-"
        return self.flow.draft.store_name(spec.store, prefix, origin=origin, kind=spec.kind)

    def source(self, store: str, *, generated: bool) -> str:
        """The step that an aggregation goes behind: a repartition topic's source if need be."""
        flow, draft = self.flow, self.flow.draft
        if not flow.rekeyed:
            return flow.step
        if self._shared_source is not None:
            for part in self._parts:
                draft.number(f"KSTREAM-{part}-")
            return self._shared_source
        where = f"The repartition topic of store {store!r}"
        key, value = needed(flow.key, "key", where), needed(flow.value, "value", where)
        source = draft.add_repartition(
            flow.step,
            self.name or store,
            key,
            ChangeSerde(value) if self._table else value,
            generated=generated and self.name is None and draft.names == "kafka_streams",
            parts=self._parts,
        )
        if self.name is not None:
            self._shared_source = source
        return source

    @property
    def _parts(self) -> tuple[str, ...]:
        # A table's rows have keys; only streams drop records without one on the way.
        return ("SINK", "SOURCE") if self._table else ("SINK", "FILTER", "SOURCE")

    def aggregate(self, spec: Aggregation) -> Flow:
        """The table of an aggregation without windows."""
        flow, draft = self.flow, self.flow.draft
        store = self.store_name(spec)
        step = draft.number(f"{spec.prefix}-")
        where = f"The store {store!r}"
        key = needed(flow.key, "key", where)
        draft.add_store(
            StoreSpec(
                name=store,
                key_serde=key,
                value_serde=needed(spec.value, "value", where),
                logging=spec.logging,
                caching=spec.caching,
            )
        )
        source = self.source(store, generated=spec.store is None)
        node: AggregateNode
        if self._table:
            node = TableAggregateNode(
                name=step,
                kind=spec.kind,
                store=store,
                initializer=spec.initializer,
                aggregator=spec.aggregator,
                subtractor=spec.subtractor,
            )
        else:
            node = AggregateNode(
                name=step,
                kind=spec.kind,
                store=store,
                initializer=spec.initializer,
                aggregator=spec.aggregator,
            )
        draft.add(node, after=[source])
        return Flow(draft, step, key, spec.value, origin=store, reads=(store,))


class KGroupedStream(Generic[K, V]):
    """A stream whose records are brought together by key, ready to be aggregated."""

    def __init__(self, flow: Flow, name: str | None) -> None:
        self._grouping = Grouping(flow, name)

    def count(
        self, name: str | None = None, *, caching: bool = True, logging: bool = True
    ) -> KTable[K, int]:
        """Count the records of each key in the store `name`.

        Records without a key or a value are not counted.
        """
        return _table(
            self._grouping.aggregate(
                Aggregation(
                    kind="count",
                    prefix="KSTREAM-AGGREGATE",
                    value=serde_of(int),
                    store=name,
                    caching=caching,
                    logging=logging,
                )
            )
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        name: str | None = None,
        *,
        caching: bool = True,
        logging: bool = True,
    ) -> KTable[K, V]:
        """Combine each key's values by `reducer(aggregate, value)`; the first value starts."""
        return _table(
            self._grouping.aggregate(
                Aggregation(
                    kind="reduce",
                    prefix="KSTREAM-REDUCE",
                    value=self._grouping.flow.value,
                    store=name,
                    caching=caching,
                    logging=logging,
                    aggregator=reducer,
                )
            )
        )

    def aggregate(
        self,
        initializer: Callable[[], V2],
        aggregator: Callable[[K, V, V2], V2 | None],
        name: str | None = None,
        *,
        value: type[V2] | Serde[V2] | None = None,
        caching: bool = True,
        logging: bool = True,
    ) -> KTable[K, V2]:
        """Fold each key's values by `aggregator(key, value, aggregate)`, from `initializer()`.

        An aggregator that returns `None` deletes the key.
        """
        return _table(
            self._grouping.aggregate(
                Aggregation(
                    kind="aggregate",
                    prefix="KSTREAM-AGGREGATE",
                    value=_aggregate_serde(value, initializer, aggregator),
                    store=name,
                    caching=caching,
                    logging=logging,
                    initializer=initializer,
                    aggregator=aggregator,
                )
            )
        )

    def windowed_by(self, windows: Windows) -> WindowedKStream[K, V]:
        """Divide each key's records into windows: `tumbling`, `hopping`, `sliding` or `session`.

        >>> from datetime import timedelta
        >>> from penstock.topology import StreamsBuilder, tumbling
        >>> beats = StreamsBuilder().stream("beats", key=str, value=bytes)
        >>> minutes = tumbling(timedelta(minutes=1), grace=timedelta(seconds=5))
        >>> beats.group_by_key().windowed_by(minutes).count("rates").to_stream().to("rates")
        """
        return WindowedKStream(self._grouping, windows)


class WindowedKStream(Generic[K, V]):
    """A grouped stream that is divided into windows."""

    def __init__(self, grouping: Grouping, windows: Windows, emit: Emit = "update") -> None:
        self._grouping = grouping
        self._windows = windows
        self._emit: Emit = emit

    def emit_on_window_close(self) -> WindowedKStream[K, V]:
        """Emit one result per window, when it can no longer change, instead of every update."""
        return WindowedKStream(self._grouping, self._windows, "close")

    def count(
        self,
        name: str | None = None,
        *,
        retention: timedelta | None = None,
        caching: bool = True,
        logging: bool = True,
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and window in the store `name`."""
        return self._aggregate(
            Aggregation(
                kind="count",
                prefix="KSTREAM-AGGREGATE",
                value=serde_of(int),
                store=name,
                caching=caching,
                logging=logging,
                retention=retention,
            )
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        name: str | None = None,
        *,
        retention: timedelta | None = None,
        caching: bool = True,
        logging: bool = True,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window by `reducer(aggregate, value)`."""
        return self._aggregate(
            Aggregation(
                kind="reduce",
                prefix="KSTREAM-REDUCE",
                value=self._grouping.flow.value,
                store=name,
                caching=caching,
                logging=logging,
                retention=retention,
                aggregator=reducer,
            )
        )

    def aggregate(
        self,
        initializer: Callable[[], V2],
        aggregator: Callable[[K, V, V2], V2 | None],
        name: str | None = None,
        *,
        merger: Callable[[K, V2, V2], V2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        retention: timedelta | None = None,
        caching: bool = True,
        logging: bool = True,
    ) -> KTable[Windowed[K], V2]:
        """Fold the values of each key and window by `aggregator(key, value, aggregate)`.

        Sessions also need `merger(key, left, right)`, for a record that makes two of them one.
        """
        if (merger is not None) != isinstance(self._windows, SessionWindows):
            raise TopologyError(
                "Sessions are aggregated with a merger, other windows without one",
                hint="Add merger=..., which makes one aggregate of two"
                if merger is None
                else "Leave merger= out",
            )
        return self._aggregate(
            Aggregation(
                kind="aggregate",
                prefix="KSTREAM-AGGREGATE",
                value=_aggregate_serde(value, initializer, aggregator),
                store=name,
                caching=caching,
                logging=logging,
                retention=retention,
                initializer=initializer,
                aggregator=aggregator,
                merger=merger,
            )
        )

    def _aggregate(self, spec: Aggregation) -> KTable[Any, Any]:
        grouping, windows, emit = self._grouping, self._windows, self._emit
        flow, draft = grouping.flow, grouping.flow.draft
        store = grouping.store_name(spec)
        step = draft.number(f"{spec.prefix}-")
        where = f"The store {store!r}"
        inner = needed(flow.key, "key", where)
        draft.add_store(
            StoreSpec(
                name=store,
                key_serde=inner,
                value_serde=needed(spec.value, "value", where),
                kind="session" if isinstance(windows, SessionWindows) else "window",
                logging=spec.logging,
                # As in Kafka Streams, results at the close of sessions do not come from the cache.
                caching=spec.caching
                and not (emit == "close" and isinstance(windows, SessionWindows)),
                retention_ms=_retention(store, windows, spec.retention),
                time_index=_time_index(windows) if emit == "close" else None,
                window_ms=window_size(windows),
            )
        )
        source = grouping.source(store, generated=spec.store is None)
        node = WindowAggregateNode(
            name=step,
            kind=spec.kind,
            store=store,
            initializer=spec.initializer,
            aggregator=spec.aggregator,
            merger=spec.merger,
            windows=windows,
            emit=emit,
        )
        draft.add(node, after=[source])
        key = windowed_serde(windows, inner)
        return _table(
            Flow(draft, step, key, spec.value, origin=store, reads=(store,), windows=windows)
        )


class KGroupedTable(Generic[K, V]):
    """A table whose rows are brought together by a new key, ready to be aggregated."""

    def __init__(self, flow: Flow, name: str | None) -> None:
        self._grouping = Grouping(flow, name, table=True)

    def count(
        self, name: str | None = None, *, caching: bool = True, logging: bool = True
    ) -> KTable[K, int]:
        """Count the rows of each group, in the store `name`."""
        return self._aggregate(
            Aggregation(
                kind="count",
                prefix="KTABLE-AGGREGATE",
                value=serde_of(int),
                store=name,
                caching=caching,
                logging=logging,
            )
        )

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        name: str | None = None,
        *,
        caching: bool = True,
        logging: bool = True,
    ) -> KTable[K, V]:
        """Combine the rows of each group: `adder(aggregate, new)`, `subtractor(aggregate, old)`."""
        return self._aggregate(
            Aggregation(
                kind="reduce",
                prefix="KTABLE-REDUCE",
                value=self._grouping.flow.value,
                store=name,
                caching=caching,
                logging=logging,
                aggregator=adder,
                subtractor=subtractor,
            )
        )

    def aggregate(
        self,
        initializer: Callable[[], V2],
        adder: Callable[[K, V, V2], V2 | None],
        subtractor: Callable[[K, V, V2], V2 | None],
        name: str | None = None,
        *,
        value: type[V2] | Serde[V2] | None = None,
        caching: bool = True,
        logging: bool = True,
    ) -> KTable[K, V2]:
        """Fold the rows of each group; `subtractor(key, old, aggregate)` takes out an old row."""
        return self._aggregate(
            Aggregation(
                kind="aggregate",
                prefix="KTABLE-AGGREGATE",
                value=_aggregate_serde(value, initializer, adder),
                store=name,
                caching=caching,
                logging=logging,
                initializer=initializer,
                aggregator=adder,
                subtractor=subtractor,
            )
        )

    def _aggregate(self, spec: Aggregation) -> KTable[Any, Any]:
        return _table(self._grouping.aggregate(spec))


def windowed_serde(windows: Windows, inner: Serde[Any]) -> Serde[Any]:
    """The serde of windowed keys."""
    size = window_size(windows)
    return SessionWindowedSerde(inner) if size is None else WindowedSerde(inner, size)


def window_size(windows: Windows) -> int | None:
    """How long a window is; sessions have no size."""
    if isinstance(windows, TimeWindows):
        return windows.size_ms
    return windows.difference_ms if isinstance(windows, SlidingWindows) else None


def _may_cache(windows: Windows, emit: Emit) -> bool:
    """Whether a store has a cache: as in Kafka Streams, not where sessions emit at their close."""
    return emit == "update" or not isinstance(windows, SessionWindows)


def _time_index(windows: Windows) -> TimeIndex:
    return "session_end" if isinstance(windows, SessionWindows) else "window_start"


def _retention(store: str, windows: Windows, retention: timedelta | None) -> int:
    least = windows.retention_ms
    if retention is None:
        return least
    chosen = int(retention / timedelta(milliseconds=1))
    if chosen < least:
        raise TopologyError(
            f"The store {store!r} keeps windows for {retention}, and they can change for "
            f"{timedelta(milliseconds=least)}",
            hint="Let retention be at least the windows' size and grace",
        )
    return chosen


def _aggregate_serde(
    value: Any, initializer: Callable[[], Any], aggregator: Callable[..., Any]
) -> SerdeOrMissing:
    kind = returned_type(aggregator)
    if kind is None:
        kind = initializer if isinstance(initializer, type) else returned_type(initializer)
    return chosen_serde(value, kind, "aggregate", "value")


def _table(flow: Flow) -> KTable[Any, Any]:
    # tables.py imports this module for its group_by.
    from penstock.topology.tables import KTable

    return KTable(flow)
