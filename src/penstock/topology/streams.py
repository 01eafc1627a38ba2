"""`KStream`, `KGroupedStream`, `KTable`: Kafka Streams' operators in Python's spelling."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.errors import TopologyError
from penstock.serdes import Serde, serde_of
from penstock.topology.draft import Draft, Missing, SerdeOrMissing, needed
from penstock.topology.naming import check_name
from penstock.topology.nodes import (
    AggregateKind,
    AggregateNode,
    BranchNode,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    ForeachNode,
    MapNode,
    MapValuesNode,
    Node,
    PeekNode,
    SelectKeyNode,
    SinkNode,
    SplitNode,
    StoreSpec,
    TableFilterNode,
    TableMapValuesNode,
    ToStreamNode,
)

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


@dataclass(frozen=True)
class _Flow:
    """Where a stream or table stands: the step it comes from, and what is known of its types."""

    draft: Draft
    step: str
    key: SerdeOrMissing
    value: SerdeOrMissing
    origin: str
    rekeyed: bool = False

    def then(self, node: Node, **changes: Any) -> _Flow:
        step = self.draft.add(node, after=[self.step])
        return dataclasses.replace(self, step=step, **changes)


class KStream(Generic[K, V]):
    """A stream of independent records.

    >>> from penstock.topology import StreamsBuilder
    >>> builder = StreamsBuilder()
    >>> words = builder.stream("words", key=bytes, value=str)
    >>> words.filter(lambda key, word: word != "").group_by(
    ...     lambda key, word: word, key=str
    ... ).count("word-counts").to_stream().to("counts")
    >>> [sub.name for sub in builder.build().sub_topologies]
    ['from-words', 'word-counts']
    """

    def __init__(self, flow: _Flow) -> None:
        self._flow = flow

    def filter(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which `predicate(key, value)` is true."""
        step = self._name(name, "KSTREAM-FILTER-")
        return KStream(self._flow.then(FilterNode(name=step, predicate=predicate)))

    def filter_not(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which `predicate(key, value)` is false."""
        step = self._name(name, "KSTREAM-FILTER-")
        return KStream(self._flow.then(FilterNode(name=step, predicate=predicate, negate=True)))

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call `action(key, value)` for each record and pass it on unchanged."""
        step = self._name(name, "KSTREAM-PEEK-")
        return KStream(self._flow.then(PeekNode(name=step, action=action)))

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record; nothing goes on from here."""
        step = self._name(name, "KSTREAM-FOREACH-")
        self._flow.then(ForeachNode(name=step, action=action))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Divide the stream: each record goes to the first branch whose predicate wants it.

        >>> from penstock.topology import StreamsBuilder
        >>> stream = StreamsBuilder().stream("numbers", key=str, value=int)
        >>> branches = stream.split(name="size-").branch(
        ...     lambda key, number: number > 100, name="large"
        ... ).default_branch(name="small")
        >>> list(branches)
        ['size-large', 'size-small']
        """
        step = self._name(name, "KSTREAM-BRANCH-")
        return BranchedKStream(self._flow.then(SplitNode(name=step)))

    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2]],
        *,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace each record by one for each value of `mapper(value)`; keys stay."""
        step = self._name(name, "KSTREAM-FLATMAPVALUES-")
        kind = _item(_returned(mapper))
        serde = _chosen(value, kind, f"flat_map_values (step {step})", "value")
        return KStream(self._flow.then(FlatMapValuesNode(name=step, mapper=mapper), value=serde))

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[K2, V2]]],
        *,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace each record by one for each pair of `mapper(key, value)`.

        The next grouping goes through a repartition topic; `flat_map_values` does not need one.
        """
        step = self._name(name, "KSTREAM-FLATMAP-")
        key_kind, value_kind = _pair(_item(_returned(mapper)))
        return KStream(
            self._flow.then(
                FlatMapNode(name=step, mapper=mapper),
                key=_chosen(key, key_kind, f"flat_map (step {step})", "key"),
                value=_chosen(value, value_kind, f"flat_map (step {step})", "value"),
                rekeyed=True,
            )
        )

    def map_values(
        self,
        mapper: Callable[[V], V2],
        *,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace each value by `mapper(value)`; keys, and so partitions, stay."""
        step = self._name(name, "KSTREAM-MAPVALUES-")
        serde = _chosen(value, _returned(mapper), f"map_values (step {step})", "value")
        return KStream(self._flow.then(MapValuesNode(name=step, mapper=mapper), value=serde))

    def map(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]],
        *,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace key and value by the pair that `mapper(key, value)` returns.

        The next grouping goes through a repartition topic; `map_values` does not need one.
        """
        step = self._name(name, "KSTREAM-MAP-")
        key_kind, value_kind = _pair(_returned(mapper))
        return KStream(
            self._flow.then(
                MapNode(name=step, mapper=mapper),
                key=_chosen(key, key_kind, f"map (step {step})", "key"),
                value=_chosen(value, value_kind, f"map (step {step})", "value"),
                rekeyed=True,
            )
        )

    def select_key(
        self,
        selector: Callable[[K, V], K2],
        *,
        key: type[K2] | Serde[K2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V]:
        """Replace each key by `selector(key, value)`; the next grouping is a repartition."""
        return KStream(self._select_key(selector, key, name, "select_key"))

    def group_by_key(self, *, name: str | None = None) -> KGroupedStream[K, V]:
        """Group by the present key; `name` names the repartition topic, if one is needed."""
        return KGroupedStream(self._flow, _grouping(name))

    def group_by(
        self,
        selector: Callable[[K, V], K2],
        *,
        key: type[K2] | Serde[K2] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """Group by `selector(key, value)`, through a repartition topic."""
        return KGroupedStream(self._select_key(selector, key, name, "group_by"), _grouping(name))

    def to_table(
        self,
        store: str | None = None,
        *,
        caching: bool = True,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The latest value of each key, in a store; a record without a value deletes its key.

        >>> from penstock.topology import StreamsBuilder
        >>> moves = StreamsBuilder().stream("moves", key=str, value=str)
        >>> moves.to_table("places").to_stream().to("places")
        """
        flow, draft = self._flow, self._flow.draft
        step = self._name(name, "KSTREAM-TOTABLE-")
        held = draft.store_name(
            store, "KSTREAM-TOTABLE-STATE-STORE-", origin=flow.origin, kind="table"
        )
        where = f"The store {held!r}"
        key, value = needed(flow.key, "key", where), needed(flow.value, "value", where)
        source = flow.step
        if flow.rekeyed:
            # Kafka Streams calls the topic after the step, whatever the store is called.
            generated = name is None and draft.names == "kafka_streams"
            topic = step if generated or name is not None else held
            source = draft.add_repartition(flow.step, topic, key, value, generated=generated)
        store_spec = StoreSpec(
            name=held, key_serde=key, value_serde=value, logging=logging, caching=caching
        )
        return latest_values(draft, step, store_spec, after=source)

    def to(
        self,
        topic: str,
        *,
        key: type[K] | Serde[K] | None = None,
        value: type[V] | Serde[V] | None = None,
        name: str | None = None,
    ) -> None:
        """Write every record to a topic, which must exist."""
        check_name(topic, "topic")
        flow, step = self._flow, self._name(name, "KSTREAM-SINK-")
        key_serde = flow.key if key is None else serde_of(key)
        value_serde = flow.value if value is None else serde_of(value)
        where = f"Writing to topic {topic!r}"
        flow.then(
            SinkNode(
                name=step,
                topic=topic,
                key_serde=needed(key_serde, "key", where),
                value_serde=needed(value_serde, "value", where),
            )
        )

    def _select_key(
        self, selector: Callable[[K, V], K2], key: Any, name: str | None, operator: str
    ) -> _Flow:
        step = self._name(name, "KSTREAM-KEY-SELECT-")
        serde = _chosen(key, _returned(selector), f"{operator} (step {step})", "key")
        node = SelectKeyNode(name=step, selector=selector)
        return self._flow.then(node, key=serde, rekeyed=True)

    def _name(self, name: str | None, prefix: str) -> str:
        return self._flow.draft.step_name(name, prefix)


class BranchedKStream(Generic[K, V]):
    """A stream that is being divided; `default_branch` or `no_default_branch` ends it."""

    def __init__(self, flow: _Flow) -> None:
        self._flow = flow
        self._branches: dict[str, KStream[K, V]] = {}

    def branch(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None
    ) -> BranchedKStream[K, V]:
        """Add a branch for the records that no earlier one took and `predicate` wants.

        Its name is the split's with `name`, or the branch's number from 1, behind it.
        """
        self._add(predicate, name or str(len(self._branches) + 1))
        return self

    def default_branch(self, *, name: str | None = None) -> dict[str, KStream[K, V]]:
        """All branches by name, with one for the records that no predicate wants."""
        self._add(None, name or "0")
        return self._branches

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """All branches by name; records that no predicate wants go nowhere."""
        return self._branches

    def _add(self, predicate: Callable[[K, V], bool] | None, suffix: str) -> None:
        self._flow.draft.number("")  # Kafka Streams numbers a branch and does not show it.
        step = check_name(f"{self._flow.step}{suffix}", "branch")
        self._branches[step] = KStream(self._flow.then(BranchNode(name=step, predicate=predicate)))


class KGroupedStream(Generic[K, V]):
    """A stream whose records are brought together by key, ready to be aggregated."""

    def __init__(self, flow: _Flow, name: str | None) -> None:
        self._flow = flow
        self._name = name
        self._shared_source: str | None = None

    def count(
        self, name: str | None = None, *, caching: bool = True, logging: bool = True
    ) -> KTable[K, int]:
        """Count the records of each key in the store `name`.

        Records without a key or a value are not counted.
        """
        spec = _Aggregation("count", "KSTREAM-AGGREGATE", caching=caching, logging=logging)
        return KTable(self._aggregate(spec, name, serde_of(int)))

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        name: str | None = None,
        *,
        caching: bool = True,
        logging: bool = True,
    ) -> KTable[K, V]:
        """Combine each key's values by `reducer(aggregate, value)`; the first value starts."""
        spec = _Aggregation(
            "reduce", "KSTREAM-REDUCE", aggregator=reducer, caching=caching, logging=logging
        )
        return KTable(self._aggregate(spec, name, self._flow.value))

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
        kind = _returned(aggregator)
        if kind is None:
            kind = initializer if isinstance(initializer, type) else _returned(initializer)
        serde = _chosen(value, kind, "aggregate", "value")
        spec = _Aggregation(
            "aggregate", "KSTREAM-AGGREGATE", initializer, aggregator, caching, logging
        )
        return KTable(self._aggregate(spec, name, serde))

    def _aggregate(self, spec: _Aggregation, name: str | None, value: SerdeOrMissing) -> _Flow:
        flow, draft = self._flow, self._flow.draft
        store = draft.store_name(
            name, f"{spec.prefix}-STATE-STORE-", origin=self._name or flow.origin, kind=spec.kind
        )
        step = draft.number(f"{spec.prefix}-")
        where = f"The store {store!r}"
        key_serde = needed(flow.key, "key", where)
        draft.add_store(
            StoreSpec(
                name=store,
                key_serde=key_serde,
                value_serde=needed(value, "value", where),
                logging=spec.logging,
                caching=spec.caching,
            )
        )
        source = self._repartitioned(store, generated=name is None) if flow.rekeyed else flow.step
        node = AggregateNode(
            name=step,
            kind=spec.kind,
            store=store,
            initializer=spec.initializer,
            aggregator=spec.aggregator,
        )
        draft.add(node, after=[source])
        return _Flow(draft=draft, step=step, key=key_serde, value=value, origin=store)

    def _repartitioned(self, store: str, *, generated: bool) -> str:
        """The source behind the repartition topic; a named grouping shares one among its stores."""
        flow, draft = self._flow, self._flow.draft
        if self._shared_source is not None:
            for part in ("SINK", "FILTER", "SOURCE"):
                draft.number(f"KSTREAM-{part}-")
            return self._shared_source
        where = f"The repartition topic of store {store!r}"
        key, value = needed(flow.key, "key", where), needed(flow.value, "value", where)
        numbered = generated and self._name is None and draft.names == "kafka_streams"
        source = draft.add_repartition(
            flow.step, self._name or store, key, value, generated=numbered
        )
        if self._name is not None:
            self._shared_source = source
        return source


class KTable(Generic[K, V]):
    """The latest value of each key, kept in a store."""

    def __init__(self, flow: _Flow) -> None:
        self._flow = flow

    def filter(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KTable[K, V]:
        """The keys whose `predicate(key, value)` is true; one that no longer is gets deleted.

        >>> from penstock.topology import StreamsBuilder
        >>> counts = StreamsBuilder().stream("in", key=str, value=str).group_by_key().count("c")
        >>> counts.filter(lambda key, count: count > 2).to_stream().to("often")
        """
        step = self._flow.draft.step_name(name, "KTABLE-FILTER-")
        return KTable(self._flow.then(TableFilterNode(name=step, predicate=predicate)))

    def filter_not(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None
    ) -> KTable[K, V]:
        """The keys whose `predicate(key, value)` is false; one that no longer is gets deleted."""
        step = self._flow.draft.step_name(name, "KTABLE-FILTER-")
        return KTable(self._flow.then(TableFilterNode(name=step, predicate=predicate, negate=True)))

    def map_values(
        self,
        mapper: Callable[[V], V2],
        *,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Replace each value by `mapper(value)`; a deletion stays one, and is not shown to it."""
        step = self._flow.draft.step_name(name, "KTABLE-MAPVALUES-")
        serde = _chosen(value, _returned(mapper), f"map_values (step {step})", "value")
        return KTable(self._flow.then(TableMapValuesNode(name=step, mapper=mapper), value=serde))

    def to_stream(self, *, name: str | None = None) -> KStream[K, V]:
        """The table's changes as a stream; a deleted key is a record without a value."""
        step = self._flow.draft.step_name(name, "KTABLE-TOSTREAM-")
        return KStream(self._flow.then(ToStreamNode(name=step)))


def latest_values(draft: Draft, step: str, store: StoreSpec, *, after: str) -> KTable[Any, Any]:
    """The table of each key's latest value behind a step."""
    draft.add_store(store)
    draft.add(AggregateNode(name=step, kind="latest", store=store.name), after=[after])
    return KTable(_Flow(draft, step, store.key_serde, store.value_serde, origin=store.name))


@dataclass(frozen=True)
class _Aggregation:
    kind: AggregateKind
    prefix: str
    initializer: Callable[[], Any] | None = None
    aggregator: Callable[..., Any] | None = None
    caching: bool = True
    logging: bool = True


def _grouping(name: str | None) -> str | None:
    return None if name is None else check_name(name, "grouping")


def _chosen(given: Any, annotated: Any, step: str, option: str) -> SerdeOrMissing:
    if given is not None:
        return serde_of(given)
    if annotated is None or annotated is Any:
        return Missing(step, option)
    try:
        return serde_of(annotated)
    except TopologyError:
        # An annotation without a serde matters only if bytes are ever needed.
        return Missing(step, option)


def _pair(kind: Any) -> tuple[Any, Any]:
    """The types of a pair, as its annotation says; `None` where it says nothing."""
    kinds = typing.get_args(kind) if typing.get_origin(kind) is tuple else ()
    return kinds if len(kinds) == 2 else (None, None)


def _item(kind: Any) -> Any:
    """The type of what an annotated iterable holds; `None` where it says nothing."""
    origin, kinds = typing.get_origin(kind), typing.get_args(kind)
    is_iterable = isinstance(origin, type) and issubclass(origin, Iterable)
    return kinds[0] if is_iterable and kinds else None


def _returned(function: Callable[..., Any]) -> Any:
    """What a function's annotation says that it returns; `None` where it says nothing."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return None
    kind = hints.get("return")
    return None if kind is type(None) else kind
