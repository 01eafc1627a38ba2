"""What aggregating calls have in common: the store, the repartition topic, the windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import TopologyError
from penstock.serdes import ChangeSerde, ListSerde, Serde, SessionWindowedSerde, WindowedSerde
from penstock.topology.changelogs import Logging, RecoverFrom, changelog_config, is_logged
from penstock.topology.draft import Draft, SerdeOrMissing, needed
from penstock.topology.external import PostgreSQL, check_kept
from penstock.topology.flow import Flow, chosen_serde, returned_type
from penstock.topology.holding import (
    Store,
    TableOptions,
    history_of,
    kept_in,
    name_of,
    plain_name,
    says_how,
)
from penstock.topology.nodes import (
    AggregateKind,
    AggregateNode,
    Emit,
    StoreSpec,
    TableAggregateNode,
    TimeIndex,
)
from penstock.topology.spans import check_span
from penstock.topology.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

if TYPE_CHECKING:
    from penstock.topology.tables import KTable


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """What an aggregating call asks for."""

    kind: AggregateKind
    prefix: str
    value: SerdeOrMissing
    store: Store | None
    caching: bool
    logging: Logging
    recover_from: RecoverFrom = "changelog"
    persistent: bool | None = None
    initializer: Callable[[], Any] | None = None
    aggregator: Callable[..., Any] | None = None
    subtractor: Callable[..., Any] | None = None
    merger: Callable[[Any, Any, Any], Any] | None = None
    retention: timedelta | None = None
    max_entries: int | None = None
    supplier: str | None = None
    kept_in: PostgreSQL | None = None

    @property
    def says_how(self) -> bool:
        """Whether it says how its store is kept, as a `Materialized` in Java would."""
        kept = TableOptions(caching=self.caching, logging=self.logging, persistent=self.persistent)
        return says_how(kept) or self.retention is not None


class Grouping:
    """A stream or table on its way into aggregations; several may share a repartition topic."""

    def __init__(self, flow: Flow, name: str | None, *, table: bool = False) -> None:
        self.flow = flow
        self.name = name
        self._table = table
        self._shared_source: str | None = None

    def store_name(self, spec: Aggregation, windows: Windows | None = None) -> str:
        """The store's name, given or made."""
        origin = self.name or self.flow.origin
        # A table's stores are all called after aggregations, in Kafka Streams too.
        prefix = f"{'KTABLE-AGGREGATE' if self._table else spec.prefix}-STATE-STORE-"
        name = name_of(spec.store)
        if name is None and spec.says_how and self._skips_number(spec, windows):
            self.flow.draft.skip_number()
        return self.flow.draft.store_name(name, prefix, origin=origin, kind=spec.kind)

    def _skips_number(self, spec: Aggregation, windows: Windows | None) -> bool:
        """Whether Kafka Streams numbers such a store twice: most counts of streams do so."""
        return spec.kind == "count" and not (self._table or isinstance(windows, SlidingWindows))

    def source(self, store: str) -> str:
        """The step that an aggregation goes behind: a repartition topic's source if need be."""
        flow, draft = self.flow, self.flow.draft
        if not flow.rekeyed:
            return flow.step
        if self._shared_source is not None:
            draft.repartition_steps("", "", table=self._table)
            return self._shared_source
        where = f"The repartition topic of store {store!r}"
        key, value = needed(flow.key, "key", where), needed(flow.value, "value", where)
        source = draft.add_repartition(
            flow.step,
            self.name or store,
            key,
            ChangeSerde(value) if self._table else value,
            table=self._table,
        )
        if self.name is not None:
            self._shared_source = source
        return source

    def aggregate(self, spec: Aggregation) -> Flow:
        """The table of an aggregation without windows."""
        flow, draft = self.flow, self.flow.draft
        store = self.store_name(spec)
        step = "" if self._table else draft.number(f"{spec.prefix}-")
        where = f"The store {store!r}"
        key = needed(flow.key, "key", where)
        held = kept_in(
            spec.store,
            StoreSpec(
                name=store,
                key_serde=key,
                value_serde=needed(spec.value, "value", where),
                logging=is_logged(spec.logging) and spec.kept_in is None,
                changelog_config=changelog_config(spec.logging, store),
                recover_from=spec.recover_from,
                caching=spec.caching and spec.max_entries is None,
                persistent=draft.keeps(spec.persistent, spec.supplier or spec.kept_in),
                max_entries=spec.max_entries,
                supplier=spec.supplier or "",
                kept_in=spec.kept_in,
            ),
        )
        check_kept(held, logging=spec.logging)
        draft.add_store(held, behind=flow.step)
        source = self.source(store)
        node: AggregateNode
        if self._table:
            step = draft.number(f"{spec.prefix}-")
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
        history = history_of(held)
        return Flow(draft, step, key, spec.value, origin=store, reads=(store,), history_ms=history)


def windowed_serde(windows: Windows, inner: Serde[Any]) -> Serde[Any]:
    """The serde of windowed keys."""
    size = window_size(windows)
    return SessionWindowedSerde(inner) if size is None else WindowedSerde(inner, size)


def window_size(windows: Windows) -> int | None:
    """How long a window is; sessions have no size."""
    if isinstance(windows, TimeWindows):
        return windows.size_ms
    return windows.difference_ms if isinstance(windows, SlidingWindows) else None


def _time_index(windows: Windows) -> TimeIndex:
    return "session_end" if isinstance(windows, SessionWindows) else "window_start"


_LEAST_RETENTION: dict[type, str] = {
    TimeWindows: "the windows' size and grace",
    # A window that begins after a record, where another is out of order, lasts as long again.
    SlidingWindows: "twice the windows' difference, and the grace",
    SessionWindows: "the sessions' gap and grace",
}


def _retention(store: str, windows: Windows, retention: timedelta | None, step: str) -> int:
    least = windows.retention_ms
    if retention is None:
        return least
    check_span(retention, f"The retention of store {store!r} (step {step})")
    chosen = int(retention / timedelta(milliseconds=1))
    if chosen < least:
        raise TopologyError(
            f"The store {store!r} keeps windows for {retention}, and they can change for "
            f"{timedelta(milliseconds=least)}",
            where={"step": step},
            hint=f"Let retention be at least {_LEAST_RETENTION[type(windows)]}: "
            f"retention=timedelta(milliseconds={least})",
        )
    return chosen


def aggregate_serde(
    value: Any, initializer: Callable[[], Any], aggregator: Callable[..., Any], *, behind: str
) -> SerdeOrMissing:
    """The serde of an aggregate: as given, or as either function's annotation says."""
    kind = returned_type(aggregator)
    if kind is None or kind is Any:
        kind = initializer if isinstance(initializer, type) else returned_type(initializer)
    return chosen_serde(value, kind, f"aggregate (behind step {behind})", "value")


def lists_of(flow: Flow) -> Serde[Any]:
    """The serde of lists of a stream's values: each comes back as it was."""
    return ListSerde(needed(flow.value, "value", "collect"))


def table_of(flow: Flow) -> KTable[Any, Any]:
    """The table that comes from a step."""
    # tables.py imports this module for its group_by.
    from penstock.topology.tables import KTable

    return KTable(flow)


def window_store(
    draft: Draft,
    store: str,
    windows: Windows,
    spec: Aggregation,
    key: Serde[Any],
    *,
    emit: Emit,
    step: str,
) -> StoreSpec:
    """The store of an aggregation by window, in a step."""
    sessions = isinstance(windows, SessionWindows)
    plain_name(spec.store, f"The windows of step {step}")
    return StoreSpec(
        name=store,
        key_serde=key,
        value_serde=needed(spec.value, "value", f"The store {store!r}"),
        kind="session" if sessions else "window",
        logging=is_logged(spec.logging),
        changelog_config=changelog_config(spec.logging, store),
        recover_from=spec.recover_from,
        # As in Kafka Streams, results at the close of sessions do not come from the cache.
        caching=spec.caching and not (sessions and emit == "close"),
        persistent=draft.keeps(spec.persistent, spec.supplier),
        retention_ms=_retention(store, windows, spec.retention, step),
        time_index=_time_index(windows) if emit == "close" else None,
        window_ms=window_size(windows),
        supplier=spec.supplier or "",
    )


def check_merger(windows: Windows, merger: Callable[..., Any] | None, *, behind: str) -> None:
    """Raise `TopologyError` unless sessions, and only they, come with a merger."""
    if (merger is not None) == isinstance(windows, SessionWindows):
        return
    missing = "Add merger=..., which makes one aggregate of two"
    raise TopologyError(
        "Sessions are aggregated with a merger, other windows without one",
        where={"behind step": behind},
        hint=missing if merger is None else "Leave merger= out",
    )
