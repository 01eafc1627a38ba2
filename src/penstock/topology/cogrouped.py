"""Several grouped streams that are folded into one aggregate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import TopologyError
from penstock.serdes import Serde, Windowed
from penstock.topology.aggregation import (
    Aggregation,
    Grouping,
    aggregate_serde,
    check_merger,
    table_of,
    window_store,
    windowed_serde,
)
from penstock.topology.callables import check_awaits_nothing
from penstock.topology.changelogs import Logging, RecoverFrom, changelog_config, is_logged
from penstock.topology.draft import check_one_application, needed
from penstock.topology.flow import Flow
from penstock.topology.holding import Store, history_of, kept_in
from penstock.topology.nodes import (
    AggregateNode,
    StoreSpec,
    TableMergeNode,
    WindowAggregateNode,
)
from penstock.topology.windows import Windows, check_windows

if TYPE_CHECKING:
    from penstock.topology.grouped import KGroupedStream
    from penstock.topology.tables import KTable

K = TypeVar("K")
V2 = TypeVar("V2")
T = TypeVar("T")

Parts = tuple[tuple[Grouping, Callable[..., Any]], ...]


def part_of(
    grouping: Grouping, aggregator: Callable[..., Any]
) -> tuple[Grouping, Callable[..., Any]]:
    """A grouped stream with its aggregator. Raises `TopologyError` for one that nobody awaits."""
    check_awaits_nothing(
        aggregator, f"The aggregator of cogroup, behind step {grouping.flow.step},"
    )
    return grouping, aggregator


@dataclass(frozen=True)
class CogroupedKStream(Generic[K, V2]):
    """Grouped streams, each with its aggregator."""

    parts: Parts

    def cogroup(
        self, grouped: KGroupedStream[K, T], aggregator: Callable[[K, T, V2], V2 | None]
    ) -> CogroupedKStream[K, V2]:
        """Add another grouped stream, with an aggregator of its own.

        One that is added again keeps its place, and has the later aggregator.
        """
        # grouped.py imports this module for its cogroup.
        from penstock.topology.grouped import KGroupedStream

        if not isinstance(grouped, KGroupedStream):
            raise TopologyError(
                f"The cogroup of step {self.parts[0][0].flow.step} is given "
                f"{type(grouped).__name__}, and needs a grouped stream",
                hint="Group the other stream first: cogroup(other.group_by_key(), aggregator)",
            )
        check_one_application(self.parts[0][0].flow.draft, grouped.grouping.flow.draft)
        added = dict([*self.parts, part_of(grouped.grouping, aggregator)])
        return CogroupedKStream(tuple(added.items()))

    def windowed_by(self, windows: Windows) -> WindowedCogroupedKStream[K, V2]:
        """Divide the records into windows."""
        check_windows(windows, self.parts[0][0].flow.step)
        return WindowedCogroupedKStream(self.parts, windows)

    def aggregate(
        self,
        initializer: Callable[[], V2],
        name: Store | None = None,
        *,
        value: type[V2] | Serde[V2] | None = None,
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
    ) -> KTable[K, V2]:
        """Fold the records of all streams by key into the store `name`."""
        spec = _specification(
            self.parts, initializer, name, value, caching, logging, supplier=supplier
        )
        draft = self.parts[0][0].flow.draft

        def store(held: str, key: Serde[Any]) -> StoreSpec:
            serde = needed(spec.value, "value", f"The store {held!r}")
            plain = StoreSpec(
                name=held,
                key_serde=key,
                value_serde=serde,
                caching=caching,
                logging=is_logged(logging),
                changelog_config=changelog_config(logging, held),
                recover_from=recover_from,
                persistent=draft.keeps(persistent, supplier),
                supplier=supplier or "",
            )
            return kept_in(name, plain)

        def node(step: str, held: str, aggregator: Callable[..., Any]) -> AggregateNode:
            return AggregateNode(
                name=step,
                kind="aggregate",
                store=held,
                initializer=initializer,
                aggregator=aggregator,
            )

        return table_of(_aggregate(self.parts, spec, store, node))


@dataclass(frozen=True)
class WindowedCogroupedKStream(Generic[K, V2]):
    """Grouped streams, each with its aggregator, divided into windows."""

    parts: Parts
    windows: Windows

    def aggregate(
        self,
        initializer: Callable[[], V2],
        name: str | None = None,
        *,
        merger: Callable[[K, V2, V2], V2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        retention: timedelta | None = None,
        caching: bool = True,
        logging: Logging = True,
        recover_from: RecoverFrom = "changelog",
        persistent: bool | None = None,
        supplier: str | None = None,
    ) -> KTable[Windowed[K], V2]:
        """Fold the records of all streams by key and window into the store `name`."""
        check_merger(self.windows, merger, behind=self.parts[0][0].flow.step)
        spec = _specification(
            self.parts,
            initializer,
            name,
            value,
            caching,
            logging,
            retention=retention,
            supplier=supplier,
        )
        spec = replace(spec, recover_from=recover_from, persistent=persistent)
        windows, flow = self.windows, self.parts[0][0].flow
        draft, behind = flow.draft, flow.step

        def node(step: str, held: str, aggregator: Callable[..., Any]) -> AggregateNode:
            return WindowAggregateNode(
                name=step,
                kind="aggregate",
                store=held,
                initializer=initializer,
                aggregator=aggregator,
                merger=merger,
                windows=windows,
            )

        return table_of(
            _aggregate(
                self.parts,
                spec,
                lambda held, key: window_store(
                    draft, held, windows, spec, key, emit="update", step=f"aggregate of {behind}"
                ),
                node,
                windows=windows,
            )
        )


def _specification(
    parts: Parts,
    initializer: Callable[[], Any],
    store: Store | None,
    value: Any,
    caching: bool,
    logging: Logging,
    *,
    retention: timedelta | None = None,
    supplier: str | None = None,
) -> Aggregation:
    return Aggregation(
        kind="aggregate",
        prefix="COGROUPKSTREAM-AGGREGATE",
        value=aggregate_serde(value, initializer, parts[0][1], behind=parts[0][0].flow.step),
        store=store,
        caching=caching,
        logging=logging,
        initializer=initializer,
        retention=retention,
        supplier=supplier,
    )


def _aggregate(
    parts: Parts,
    spec: Aggregation,
    store_of: Callable[[str, Serde[Any]], StoreSpec],
    node_of: Callable[[str, str, Callable[..., Any]], AggregateNode],
    *,
    windows: Windows | None = None,
) -> Flow:
    """One aggregating step per stream, all on one store, and one that brings them together."""
    first = parts[0][0]
    draft = first.flow.draft
    store = first.store_name(spec)
    key = needed(first.flow.key, "key", f"The store {store!r}")
    held = store_of(store, key)
    draft.add_store(held, behind=first.flow.step)
    steps = []
    for source, (_, aggregator) in zip(_sources(parts, store), parts, strict=True):
        step = draft.number(f"{spec.prefix}-")
        draft.add(node_of(step, store, aggregator), after=[source])
        steps.append(step)
    merge = draft.number("COGROUPKSTREAM-MERGE-")
    for other in steps[1:]:
        draft.join_partitions(steps[0], other, step=merge)
    draft.add(TableMergeNode(name=merge, left=steps[0], right=steps[-1]), after=steps)
    full_key = key if windows is None else windowed_serde(windows, key)
    return Flow(
        draft,
        merge,
        full_key,
        spec.value,
        origin=store,
        reads=(store,),
        history_ms=history_of(held),
    )


def _sources(parts: Parts, store: str) -> list[str]:
    """What each stream's records come from; of several repartition topics the first has the name.

    Kafka Streams refuses a second one that has no name of its own.
    """
    sources, unnamed = [], 0
    for grouping, _ in parts:
        sources.append(grouping.source(f"{store}-{unnamed}" if unnamed else store))
        unnamed += grouping.flow.rekeyed and grouping.name is None
    return sources
