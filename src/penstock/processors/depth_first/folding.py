"""Which functions an aggregation is made of."""

from __future__ import annotations

from typing import Any

from penstock.processors.depth_first.record import Shared
from penstock.processors.depth_first.tables import Aggregate, Latest, StoredStep, TableAggregate
from penstock.processors.depth_first.windows import Fold
from penstock.topology import AggregateNode, TableAggregateNode, WindowAggregateNode


def aggregate(shared: Shared, node: AggregateNode) -> StoredStep:
    """The step that folds a stream's values, or keeps the latest."""
    if node.kind == "latest":
        return Latest(node.name, shared)
    fold = fold_of(node)
    return Aggregate(node.name, shared, fold.initializer, fold.aggregator)


def table_aggregate(shared: Shared, node: TableAggregateNode) -> StoredStep:
    """The step that folds a table's rows."""
    name = node.name
    if node.kind == "count":
        return TableAggregate(name, shared, int, _add_one, _take_one)
    assert node.aggregator is not None
    assert node.subtractor is not None
    if node.kind == "reduce":
        fold, subtract = fold_of(node), node.subtractor
        return TableAggregate(
            name,
            shared,
            fold.initializer,
            fold.aggregator,
            lambda _, old, rows: subtract(rows, old),
        )
    assert node.initializer is not None
    return TableAggregate(name, shared, node.initializer, node.aggregator, node.subtractor)


def fold_of(node: AggregateNode) -> Fold:
    """An aggregation's three functions, as Kafka Streams makes them of a count or a reducer."""
    if node.kind == "count":
        return Fold(int, _add_one, lambda _, left, right: left + right)
    assert node.aggregator is not None
    if node.kind == "reduce":
        reducer = node.aggregator

        def reduce(_: Any, value: Any, aggregate: Any) -> Any:
            return value if aggregate is None else reducer(aggregate, value)

        return Fold(lambda: None, reduce, lambda key, left, right: reduce(key, right, left))
    assert node.initializer is not None
    merger = node.merger if isinstance(node, WindowAggregateNode) else None
    return Fold(node.initializer, node.aggregator, merger)


def _add_one(_key: Any, _value: Any, count: int) -> int:
    return count + 1


def _take_one(_key: Any, _value: Any, count: int) -> int:
    return count - 1
