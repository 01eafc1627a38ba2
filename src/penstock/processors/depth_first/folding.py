"""Which functions an aggregation is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.processors.depth_first.record import Shared
from penstock.processors.depth_first.tables import Aggregate, Latest, StoredStep, TableAggregate
from penstock.processors.depth_first.windows import Fold
from penstock.serdes import BytesSerde, ListSerde, Serde
from penstock.topology import (
    AggregateNode,
    Node,
    StoreSpec,
    SubTopology,
    TableAggregateNode,
    WindowAggregateNode,
)
from penstock.topology.builtins import collected, merge_lists


def aggregate(shared: Shared, node: AggregateNode, sub_topology: SubTopology) -> StoredStep:
    """The step that folds a stream's values, or keeps the latest."""
    if node.kind == "latest":
        return Latest(node.name, shared)
    fold = fold_of(node, sub_topology)
    return Aggregate(node.name, shared, fold.initializer, fold.aggregator)


def table_aggregate(shared: Shared, node: TableAggregateNode) -> StoredStep:
    """The step that folds a table's rows."""
    name = node.name
    if node.kind == "count":
        return TableAggregate(name, shared, int, _add_one, _take_one)
    assert node.aggregator is not None
    assert node.subtractor is not None
    if node.kind == "reduce":
        fold, subtract = _reducing(node.aggregator), node.subtractor
        return TableAggregate(
            name,
            shared,
            fold.initializer,
            fold.aggregator,
            lambda _, old, rows: subtract(rows, old),
        )
    assert node.initializer is not None
    return TableAggregate(name, shared, node.initializer, node.aggregator, node.subtractor)


def worked_as(node: Node, store: StoreSpec) -> Serde[Any]:
    """What an aggregation's own functions are given: values, or of `collect` the bytes of lists.

    To take each list apart for every value that is added would cost all values before it.
    """
    return store.value_serde if _lists(node, store) is None else BytesSerde()


def fold_of(node: AggregateNode, sub_topology: SubTopology) -> Fold:
    """An aggregation's three functions, as Kafka Streams makes them of a count or a reducer."""
    if node.kind == "count":
        return Fold(int, _add_one, lambda _, left, right: left + right)
    assert node.aggregator is not None
    if node.kind == "reduce":
        return _reducing(node.aggregator)
    assert node.initializer is not None
    lists = _lists(node, sub_topology.store(node.store))
    if lists is not None:
        return _collecting(lists)
    merger = node.merger if isinstance(node, WindowAggregateNode) else None
    return Fold(node.initializer, node.aggregator, merger)


def _reducing(reducer: Callable[..., Any]) -> Fold:
    def reduce(_: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    return Fold(lambda: None, reduce, lambda key, left, right: reduce(key, right, left))


def _lists(node: Node, store: StoreSpec) -> ListSerde[Any] | None:
    collects = isinstance(node, AggregateNode) and node.aggregator is collected
    serde = store.value_serde
    # A versioned store keeps no bytes of its own for steps to work on.
    plain = collects and store.kind != "versioned"
    return serde if plain and isinstance(serde, ListSerde) else None


def _collecting(lists: ListSerde[Any]) -> Fold:
    """`collect`, on the bytes of lists."""
    empty, read = lists.serialize([]), lists.deserialize

    def merge(key: Any, left: bytes, right: bytes) -> bytes:
        # Mostly a record goes to one session, which is all that there is.
        if left == empty:
            return right
        return lists.serialize(merge_lists(key, read(left), read(right)))

    return Fold(lambda: empty, lambda _, value, held: lists.added(held, value), merge)


def _add_one(_key: Any, _value: Any, count: int) -> int:
    return count + 1


def _take_one(_key: Any, _value: Any, count: int) -> int:
    return count - 1
