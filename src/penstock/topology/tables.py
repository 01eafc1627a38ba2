"""`KTable`: the latest value of each key, and what can be made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from penstock.errors import TopologyError
from penstock.serdes import Serde, SessionWindowedSerde, WindowedSerde, serde_of
from penstock.topology.binding import bound_mapper, bound_pairs, bound_predicate
from penstock.topology.draft import Draft, needed
from penstock.topology.flow import Flow, chosen_serde
from penstock.topology.functions import BatchFunction, Columnar, Expression
from penstock.topology.grouped import KGroupedTable
from penstock.topology.holding import (
    KeptOptions,
    Store,
    TableOptions,
    check_options,
    history_of,
    name_of,
    says_how,
    table_store,
)
from penstock.topology.naming import changelog_base, check_name
from penstock.topology.nodes import (
    AggregateNode,
    LatestNode,
    Node,
    StoreSpec,
    SuppressNode,
    TableFilterNode,
    TableMapValuesNode,
    TableSelectNode,
    TableTransformValuesNode,
    ToStreamNode,
)
from penstock.topology.processor import ValueTransformer
from penstock.topology.suppression import Suppression
from penstock.topology.table_joins import JoinableTable

if TYPE_CHECKING:
    from penstock.topology.streams import KStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class KTable(JoinableTable[K, V]):
    """The latest value of each key, kept in a store."""

    def filter(
        self,
        predicate: Callable[[K, V], bool] | Columnar,
        store: Store | None = None,
        *,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V]:
        """The keys whose `predicate(key, value)` is true; one that no longer is gets deleted.

        With `store` they are kept there; `options` say how, as in `KStream.to_table`.

        >>> from penstock.topology import StreamsBuilder
        >>> counts = StreamsBuilder().stream("in", key=str, value=str).group_by_key().count("c")
        >>> counts.filter(lambda key, count: count > 2).to_stream().to("often")
        """
        return self._filter(predicate, store, name, options, negate=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], bool] | Columnar,
        store: Store | None = None,
        *,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V]:
        """The keys whose `predicate(key, value)` is false; one that no longer is gets deleted."""
        return self._filter(predicate, store, name, options, negate=True)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2] | Columnar,
        store: Store | None = None,
        *,
        with_key: Literal[False] = False,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V2]: ...

    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V2] | BatchFunction,
        store: Store | None = None,
        *,
        with_key: Literal[True],
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V2]: ...

    def map_values(
        self,
        mapper: Callable[..., V2] | Columnar,
        store: Store | None = None,
        *,
        with_key: bool = False,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V2]:
        """Replace each value by `mapper(value)`; a deletion stays one, and is not shown to it.

        With `with_key=True` it is `mapper(key, value)`.
        """
        check_options(options, f"The map_values behind step {self.flow.step}")
        self._skip_store_number(store, options)
        step = self.flow.draft.step_name(name, "KTABLE-MAPVALUES-")
        bound, serde = bound_mapper(
            self.flow,
            step,
            mapper,
            value,
            operator="map_values",
            result="value",
            on_table=True,
            with_key=with_key,
        )
        node = TableMapValuesNode(
            name=step,
            parent=self.flow.step,
            mapper=bound,
            with_key=with_key,
            store=name_of(store),
        )
        return KTable(self._materialized(self.flow.then(node, value=serde), store, options))

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        store: Store | None = None,
        *,
        stores: Sequence[str] = (),
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
        **options: Unpack[KeptOptions],
    ) -> KTable[K, V2]:
        """Replace each value by what a transformer says, which may look into `stores`."""
        kept = TableOptions(supplier=None, **options)
        check_options(kept, f"The transform_values behind step {self.flow.step}")
        step = self.flow.draft.step_name(name, "KTABLE-TRANSFORMVALUES-")
        connected = tuple(self.flow.draft.check_store(each, step=step) for each in stores)
        serde = chosen_serde(value, None, f"transform_values (step {step})", "value")
        node = TableTransformValuesNode(
            name=step,
            parent=self.flow.step,
            supplier=supplier,
            connected=connected,
            store=name_of(store),
        )
        reads = (*self.flow.reads, *connected)
        flow = self.flow.then(node, value=serde, reads=reads)
        return KTable(self._materialized(flow, store, kept))

    def group_by(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]] | BatchFunction | tuple[Expression, Expression],
        *,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Group the rows by a new key: `mapper(key, value)` gives the row's new key and value.

        A row that changes leaves its old group and enters its new one.
        """
        step = self.flow.draft.step_name(name, "KTABLE-SELECT-")
        bound, keys, values = bound_pairs(
            self.flow, step, mapper, (key, value), operator="group_by", on_table=True
        )
        versioned = self.flow.history_ms is not None
        node = TableSelectNode(name=step, mapper=bound, versioned=versioned)
        flow = self.flow.then(node, key=keys, value=values, rekeyed=True, history_ms=None)
        return KGroupedTable(flow, name)

    def suppress(self, suppression: Suppression, *, name: str | None = None) -> KTable[K, V]:
        """Hold updates back: `until_window_closes()`, or `until_time_limit(...)`.

        >>> from datetime import timedelta
        >>> from penstock.topology import StreamsBuilder, tumbling, until_window_closes
        >>> beats = StreamsBuilder().stream("beats", key=str, value=bytes)
        >>> minutes = tumbling(timedelta(minutes=1), grace=timedelta(seconds=5))
        >>> rates = beats.group_by_key().windowed_by(minutes).count("rates")
        >>> rates.suppress(until_window_closes()).to_stream().to("rates")

        Raises `TopologyError` if a table without windows is to wait for their close, and for a
        versioned table.
        """
        flow, draft = self.flow, self.flow.draft
        if not isinstance(suppression, Suppression):
            raise TopologyError(
                f"The suppress behind step {flow.step} is given {type(suppression).__name__}",
                hint="Write suppress(until_window_closes()), or "
                "suppress(until_time_limit(timedelta(...), unbounded()))",
            )
        if flow.history_ms is not None:
            raise TopologyError(
                f"The table of step {flow.step} keeps versions, and cannot be suppressed",
                hint="Keep it in a plain store first: map_values(..., store=...)",
            )
        final = suppression.limit_ms is None
        wait_ms = _closing_ms(flow) if suppression.limit_ms is None else suppression.limit_ms
        if name is None:
            step = draft.number("KTABLE-SUPPRESS-")
            store = draft.store_name(
                None, "KTABLE-SUPPRESS-STATE-STORE-", origin=flow.origin, kind="suppress"
            )
        else:
            step = check_name(name, "step", **{"behind step": flow.step})
            store = f"{name}-store"
        where = f"The buffer {store!r}"
        key, value = needed(flow.key, "key", where), needed(flow.value, "value", where)
        changelog = changelog_base(store)
        key, value = key.for_topic(changelog, "key"), value.for_topic(changelog, "value")
        draft.add_store(
            StoreSpec(
                name=store,
                key_serde=key,
                value_serde=serde_of(bytes),
                holds=(value,),
                caching=False,
                time_index="value_tail",
            )
        )
        node = SuppressNode(
            name=step,
            parent=flow.step,
            store=store,
            duration_ms=wait_ms,
            final=final,
            buffer=suppression.buffer,
            key_serde=key,
            value_serde=value,
        )
        return KTable(flow.then(node, reads=(store, *flow.reads)))

    def to_stream(self, *, name: str | None = None) -> KStream[K, V]:
        """The table's changes as a stream; a deleted key is a record without a value."""
        # streams.py imports this module for its to_table.
        from penstock.topology.streams import KStream

        step = self.flow.draft.step_name(name, "KTABLE-TOSTREAM-")
        node = ToStreamNode(name=step)
        return KStream(self.flow.then(node, reads=(), history_ms=None))

    def _filter(
        self,
        predicate: Callable[[K, V], bool] | Columnar,
        store: Store | None,
        name: str | None,
        options: TableOptions,
        *,
        negate: bool,
    ) -> KTable[K, V]:
        check_options(options, f"The filter behind step {self.flow.step}")
        self._skip_store_number(store, options)
        step = self.flow.draft.step_name(name, "KTABLE-FILTER-")
        bound = bound_predicate(self.flow, step, predicate, on_table=True)
        node = TableFilterNode(
            name=step,
            parent=self.flow.step,
            predicate=bound,
            negate=negate,
            store=name_of(store),
            versioned=self.flow.history_ms is not None,
        )
        return KTable(self._materialized(self.flow.then(node), store, options))

    def _skip_store_number(self, store: Store | None, options: TableOptions) -> None:
        # Kafka Streams numbers a store of which only is said how it keeps, and does not make it.
        if store is None and says_how(options):
            self.flow.draft.skip_number()

    def _materialized(self, flow: Flow, store: Store | None, options: TableOptions) -> Flow:
        name = name_of(store)
        if name is None:
            return flow
        where = f"The store {check_name(name, 'store', step=flow.step)!r}"
        key, value = needed(flow.key, "key", where), needed(flow.value, "value", where)
        spec = table_store(flow.draft, store, name, key=key, value=value, options=options)
        flow.draft.add_store(spec, behind=flow.step)
        history = history_of(spec)
        return dataclasses.replace(flow, origin=name, reads=(name,), history_ms=history)


def _closing_ms(flow: Flow) -> int:
    """How long after their end a table's windows can change; `TopologyError` if it has none."""
    windowed = isinstance(flow.key, WindowedSerde | SessionWindowedSerde)
    grace = flow.draft.closing_grace_ms(flow.step) if windowed else None
    if grace is None:
        raise TopologyError(
            f"The table of step {flow.step} has no windows that could close",
            hint="Use until_time_limit(...), or group with windowed_by(...)",
        )
    return grace


def latest_values(
    draft: Draft, step: str, store: StoreSpec, *, after: str, named: bool
) -> KTable[Any, Any]:
    """The table of each key's latest value behind a step; a store with a name is always kept."""
    draft.add_store(store, behind=after)
    node: Node = LatestNode(name=step, store=store.name)
    if named:
        node = AggregateNode(name=step, kind="latest", store=store.name)
    draft.add(node, after=[after])
    return KTable(
        Flow(
            draft,
            step,
            store.key_serde,
            store.value_serde,
            origin=store.name,
            reads=(store.name,),
            history_ms=history_of(store),
        )
    )
