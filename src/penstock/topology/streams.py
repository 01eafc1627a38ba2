"""`KStream`: Kafka Streams' operators in Python's spelling."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from penstock.errors import TopologyError
from penstock.serdes import Serde, Windowed
from penstock.topology.binding import bound_mapper, bound_pairs, bound_predicate
from penstock.topology.draft import Draft, needed
from penstock.topology.flow import Flow, chosen_serde, item_type, pair_types, returned_type
from penstock.topology.functions import BatchFunction, Columnar, Expression
from penstock.topology.grouped import KGroupedStream
from penstock.topology.holding import Store, TableOptions, check_options, name_of, table_store
from penstock.topology.joins import merge_streams, not_to_be_met
from penstock.topology.naming import check_name
from penstock.topology.nodes import (
    BranchNode,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    ForeachNode,
    MapNode,
    MapValuesNode,
    PeekNode,
    ProcessNode,
    SelectKeyNode,
    SplitNode,
    StoreSpec,
)
from penstock.topology.processor import Processor
from penstock.topology.sinks import through_repartition, write_to
from penstock.topology.stream_joins import JoinableStream
from penstock.topology.tables import KTable, latest_values

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class KStream(JoinableStream[K, V]):
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

    def filter(
        self, predicate: Callable[[K, V], bool] | Columnar, *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which `predicate(key, value)` is true."""
        return KStream(self._filter(predicate, name, negate=False))

    def filter_not(
        self, predicate: Callable[[K, V], bool] | Columnar, *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which `predicate(key, value)` is false."""
        return KStream(self._filter(predicate, name, negate=True))

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call `action(key, value)` for each record and pass it on unchanged."""
        step = self._name(name, "KSTREAM-PEEK-")
        return KStream(self.flow.then(PeekNode(name=step, action=action)))

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record; nothing goes on from here."""
        step = self._name(name, "KSTREAM-FOREACH-")
        self.flow.then(ForeachNode(name=step, action=action))

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
        return BranchedKStream(self.flow.then(SplitNode(name=step)))

    @overload
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2]],
        *,
        with_key: Literal[False] = False,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[V2]],
        *,
        with_key: Literal[True],
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    def flat_map_values(
        self,
        mapper: Callable[..., Iterable[V2]],
        *,
        with_key: bool = False,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace each record by one for each value of `mapper(value)`; keys stay.

        With `with_key=True` it is `mapper(key, value)`.
        """
        step = self._name(name, "KSTREAM-FLATMAPVALUES-")
        kind = item_type(returned_type(mapper))
        serde = chosen_serde(value, kind, f"flat_map_values (step {step})", "value")
        node = FlatMapValuesNode(name=step, mapper=mapper, with_key=with_key)
        return KStream(self.flow.then(node, value=serde))

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
        key_kind, value_kind = pair_types(item_type(returned_type(mapper)))
        return KStream(
            self.flow.then(
                FlatMapNode(name=step, mapper=mapper),
                key=chosen_serde(key, key_kind, f"flat_map (step {step})", "key"),
                value=chosen_serde(value, value_kind, f"flat_map (step {step})", "value"),
                rekeyed=True,
            )
        )

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2] | Columnar,
        *,
        with_key: Literal[False] = False,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V2] | BatchFunction,
        *,
        with_key: Literal[True],
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    def map_values(
        self,
        mapper: Callable[..., V2] | Columnar,
        *,
        with_key: bool = False,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace each value by `mapper(value)`; keys, and so partitions, stay.

        With `with_key=True` it is `mapper(key, value)`.

        >>> from penstock.topology import StreamsBuilder
        >>> rooms = StreamsBuilder().stream("rooms", key=str, value=int)
        >>> rooms.map_values(lambda room, degrees: f"{room}: {degrees}", with_key=True, value=str)
        ... # doctest: +ELLIPSIS
        <...KStream object at ...>
        """
        step = self._name(name, "KSTREAM-MAPVALUES-")
        bound, serde = bound_mapper(
            self.flow,
            step,
            mapper,
            value,
            operator="map_values",
            result="value",
            with_key=with_key,
        )
        node = MapValuesNode(name=step, mapper=bound, with_key=with_key)
        return KStream(self.flow.then(node, value=serde))

    def map(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]] | BatchFunction | tuple[Expression, Expression],
        *,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace key and value by the pair that `mapper(key, value)` returns.

        The next grouping goes through a repartition topic; `map_values` does not need one.
        """
        step = self._name(name, "KSTREAM-MAP-")
        bound, keys, values = bound_pairs(self.flow, step, mapper, (key, value), operator="map")
        node = MapNode(name=step, mapper=bound)
        return KStream(self.flow.then(node, key=keys, value=values, rekeyed=True))

    def select_key(
        self,
        selector: Callable[[K, V], K2] | Columnar,
        *,
        key: type[K2] | Serde[K2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V]:
        """Replace each key by `selector(key, value)`; the next grouping is a repartition."""
        return KStream(self._select_key(selector, key, name, "select_key"))

    def group_by_key(self, *, name: str | None = None) -> KGroupedStream[K, V]:
        """Group by the present key; `name` names the repartition topic, if one is needed."""
        return KGroupedStream(self.flow, _grouping(name, self.flow.step))

    def group_by(
        self,
        selector: Callable[[K, V], K2] | Columnar,
        *,
        key: type[K2] | Serde[K2] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """Group by `selector(key, value)`, through a repartition topic."""
        flow = self._select_key(selector, key, name, "group_by")
        return KGroupedStream(flow, _grouping(name, self.flow.step))

    def to_table(
        self,
        store: Store | None = None,
        *,
        name: str | None = None,
        **options: Unpack[TableOptions],
    ) -> KTable[K, V]:
        """The latest value of each key, in a store; a record without a value deletes its key.

        `options` say how the store is kept, as in `KGroupedStream.count`: `caching`, `logging`,
        `recover_from`, `persistent` and `supplier`.

        >>> from penstock.topology import StreamsBuilder
        >>> moves = StreamsBuilder().stream("moves", key=str, value=str)
        >>> moves.to_table("places").to_stream().to("places")
        """
        flow, draft = self.flow, self.flow.draft
        check_options(options, f"The to_table behind step {flow.step}")
        step = self._name(name, "KSTREAM-TOTABLE-")
        held = draft.store_name(
            name_of(store), "KSTREAM-TOTABLE-STATE-STORE-", origin=flow.origin, kind="table"
        )
        where = f"The store {held!r}"
        key, value = needed(flow.key, "key", where), needed(flow.value, "value", where)
        source = flow.step
        if flow.rekeyed:
            # Kafka Streams calls the topic after the step, whatever the store is called.
            topic = step if name is not None or draft.names == "kafka_streams" else held
            source = draft.add_repartition(flow.step, topic, key, value)
        store_spec = table_store(draft, store, held, key=key, value=value, options=options)
        return latest_values(draft, step, store_spec, after=source, named=store is not None)

    def to(
        self,
        topic: str | Callable[[K, V], str],
        *,
        key: type[K] | Serde[K] | None = None,
        value: type[V] | Serde[V] | None = None,
        partitioner: Callable[[K, V, int], int | Collection[int] | None] | None = None,
        name: str | None = None,
    ) -> None:
        """Write every record to a topic, or to the one that `topic(key, value)` names.

        Topics must exist. `partitioner(key, value, partitions)` chooses a record's partition, or
        several of them; if it returns None, or is not given, equal keys go to equal partitions, as
        any Kafka client sends them. A record for which it chooses none, an empty set, is dropped.
        """
        write_to(
            self.flow,
            self._name(name, "KSTREAM-SINK-"),
            topic,
            key=key,
            value=value,
            partitioner=partitioner,
        )

    def print(self, label: str | None = None, *, name: str | None = None) -> None:
        """Print each record to standard output, of whichever process it is in, as Java does."""
        step = self._name(name, "KSTREAM-PRINTER-")
        self.flow.then(ForeachNode(name=step, action=Printer(label or self.flow.step)))

    def merge(
        self,
        other: KStream[K, V],
        *,
        key: type[K] | Serde[K] | None = None,
        value: type[V] | Serde[V] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """The records of both streams, with no order promised between them.

        If their types differ, say which the merged stream has before it is written somewhere.
        """
        if not isinstance(other, KStream):
            raise not_to_be_met("The merge", self.flow.step, other, "a stream")
        return KStream(merge_streams(self.flow, other.flow, name=name, key=key, value=value))

    def repartition(
        self,
        *,
        key: type[K] | Serde[K] | None = None,
        value: type[V] | Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Callable[[K, V, int], int | Collection[int] | None] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Send every record with a key through an internal topic, so that equal keys meet.

        `partitioner` is as in `to`: with one, keys meet where it sends them.
        """
        flow = through_repartition(
            self.flow,
            key=key,
            value=value,
            partitions=partitions,
            partitioner=partitioner,
            name=name,
        )
        return KStream(flow)

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *,
        stores: Sequence[str] = (),
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Run a processor, made by `supplier()`; what it forwards goes on, with any key.

        `stores` names those that it uses, added with `add_state_store`.
        """
        step = self._processor_name(name, "KSTREAM-PROCESSOR-")
        flow = self._process(step, supplier, stores, fixed_key=False)
        return KStream(
            dataclasses.replace(
                flow,
                key=chosen_serde(key, None, f"process (step {step})", "key"),
                value=chosen_serde(value, None, f"process (step {step})", "value"),
                rekeyed=True,
            )
        )

    def process_values(
        self,
        supplier: Callable[[], Processor[K, V, K, V2]],
        *,
        stores: Sequence[str] = (),
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """As `process`, for a processor that leaves keys alone: no repartition follows."""
        step = self._processor_name(name, "KSTREAM-PROCESSVALUES-")
        flow = self._process(step, supplier, stores, fixed_key=True)
        serde = chosen_serde(value, None, f"process_values (step {step})", "value")
        return KStream(dataclasses.replace(flow, value=serde))

    def _process(
        self, step: str, supplier: Callable[[], Any], stores: Sequence[str], *, fixed_key: bool
    ) -> Flow:
        draft = self.flow.draft
        shared = {store: draft.global_store(store, step=step) for store in stores}
        return self.flow.then(
            ProcessNode(
                name=step,
                reads=tuple(store for store, spec in shared.items() if spec is None),
                supplier=supplier,
                fixed_key=fixed_key,
                global_stores=tuple(spec for spec in shared.values() if spec is not None),
            )
        )

    def _select_key(
        self,
        selector: Callable[[K, V], K2] | Columnar,
        key: Any,
        name: str | None,
        operator: str,
    ) -> Flow:
        step = self._name(name, "KSTREAM-KEY-SELECT-")
        bound, serde = bound_mapper(self.flow, step, selector, key, operator=operator, result="key")
        node = SelectKeyNode(name=step, selector=bound)
        return self.flow.then(node, key=serde, rekeyed=True)

    def _filter(
        self, predicate: Callable[[K, V], bool] | Columnar, name: str | None, *, negate: bool
    ) -> Flow:
        step = self._name(name, "KSTREAM-FILTER-")
        bound = bound_predicate(self.flow, step, predicate)
        return self.flow.then(FilterNode(name=step, predicate=bound, negate=negate))

    def _processor_name(self, name: str | None, prefix: str) -> str:
        # Unlike other steps, a processor with a name uses up no number in Kafka Streams.
        if name is None:
            return self.flow.draft.number(prefix)
        return check_name(name, "step", **{"behind step": self.flow.step})

    def _name(self, name: str | None, prefix: str) -> str:
        return self.flow.draft.step_name(name, prefix)


@dataclass(frozen=True)
class GlobalKTable(Generic[K, V]):
    """A table that every instance holds whole; streams can be joined with it by any key."""

    draft: Draft
    store: StoreSpec


class BranchedKStream(Generic[K, V]):
    """A stream that is being divided; `default_branch` or `no_default_branch` ends it."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._branches: dict[str, KStream[K, V]] = {}

    def branch(
        self, predicate: Callable[[K, V], bool] | Columnar, *, name: str | None = None
    ) -> BranchedKStream[K, V]:
        """Add a branch for the records that no earlier one took and `predicate` wants.

        Its name is the split's with `name`, or the branch's number from 1, behind it.
        """
        if predicate is None:
            raise TopologyError(
                f"The predicate of branch {len(self._branches) + 1} of step {self.flow.step} is "
                "None, which cannot be called",
                hint="Write a function: lambda key, value: result. default_branch() takes the rest",
            )
        self._add(predicate, name, str(len(self._branches) + 1))
        return self

    def default_branch(self, *, name: str | None = None) -> dict[str, KStream[K, V]]:
        """All branches by name, with one for the records that no predicate wants."""
        self._add(None, name, "0")
        return self._branches

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """All branches by name; records that no predicate wants go nowhere."""
        return self._branches

    def _add(
        self, predicate: Callable[[K, V], bool] | Columnar | None, name: str | None, number: str
    ) -> None:
        self.flow.draft.number("")  # Kafka Streams numbers a branch and does not show it.
        if name:
            check_name(name, "branch", step=self.flow.step)
        step = check_name(f"{self.flow.step}{name or number}", "branch", step=self.flow.step)
        bound = None if predicate is None else bound_predicate(self.flow, step, predicate)
        self._branches[step] = KStream(self.flow.then(BranchNode(name=step, predicate=bound)))


@dataclass(frozen=True)
class Printer:
    """Prints records as Kafka Streams' `print` does.

    >>> Printer("words")("a", 1)
    [words]: a, 1
    """

    label: str

    def __call__(self, key: object, value: object) -> None:
        """Print a record."""
        sys.stdout.write(f"[{self.label}]: {_shown(key)}, {_shown(value)}\n")


def _shown(thing: object) -> str:
    """A key or value as Java shows it; numbers and types of the user's as Python does.

    >>> _shown(Windowed("a", 0, 10)), _shown(None), _shown(True)
    ('[a@0/10]', 'null', 'true')
    """
    if isinstance(thing, Windowed):
        return f"[{_shown(thing.key)}@{thing.start}/{thing.end}]"
    if thing is None:
        return "null"
    return str(thing).lower() if isinstance(thing, bool) else str(thing)


def _grouping(name: str | None, behind: str) -> str | None:
    return None if name is None else check_name(name, "grouping", **{"behind step": behind})
