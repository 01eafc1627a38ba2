"""The steps without state: rows in, rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from penstock.errors import UserFunctionError
from penstock.processors.batch import Batch, Bools, Column
from penstock.processors.calls import call_each, coordinates
from penstock.processors.column_calls import mapped, truths
from penstock.processors.records import UNKEYED
from penstock.topology import (
    BranchNode,
    ColumnFunction,
    DropNullKeyNode,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    ForeachNode,
    MapNode,
    MapValuesNode,
    Node,
    PeekNode,
    SelectKeyNode,
    SourceNode,
    ToStreamNode,
)


def transform(node: Node, batch: Batch, dropped: Counter[str], *, rank: int) -> Batch:
    """The rows that a stateless step passes on; `rank` is its place among the steps."""
    match node:
        case SourceNode() | BranchNode():
            return batch
        case ToStreamNode():
            return batch.replace(old=None)
        case FilterNode():
            return _filter(node, batch)
        case DropNullKeyNode():
            return batch if node.keeps else _drop_null_keys(batch, dropped)
        case PeekNode() | ForeachNode():
            _call_pairs(node.name, node.action, batch)
            return batch
        case MapValuesNode():
            return _map_values(node, batch)
        case SelectKeyNode():
            return _select_key(node, batch)
        case MapNode():
            return _map(node, batch)
        case FlatMapValuesNode():
            many = _call_values(node, _listed(node.mapper), batch)
            rows, values = _flat(batch, many, rank)
            return rows.replace(values=Column(objects=values))
        case FlatMapNode():
            many = _call_pairs(node.name, _listed(node.mapper), batch)
            rows, pairs = _flat(batch, many, rank)
            return _with_pairs(node, rows, pairs)
    raise TypeError(f"{type(node).__name__} is not a stateless step")


def _filter(node: FilterNode, batch: Batch) -> Batch:
    mask = _wanted(node.name, node.predicate, batch)
    return batch.keep(~mask if node.negate else mask)


def _wanted(step: str, predicate: Callable[[Any, Any], bool], batch: Batch) -> Bools:
    if isinstance(predicate, ColumnFunction):
        return truths(step, batch, predicate)
    answers = _call_pairs(step, predicate, batch)
    try:
        return np.fromiter(map(bool, answers), np.bool_, len(answers))
    except Exception:
        # Some say neither yes nor no, as an array of numpy's does. Which one is found here.
        call_each(step, batch, bool, answers)
        raise


def _drop_null_keys(batch: Batch, dropped: Counter[str]) -> Batch:
    present = batch.keys.present()
    if present is None:
        return batch
    dropped[UNKEYED] += len(batch) - int(present.sum())
    return batch.keep(present)


def _map_values(node: MapValuesNode, batch: Batch) -> Batch:
    if isinstance(node.mapper, ColumnFunction):
        [values] = mapped(node.name, batch, node.mapper)
        return batch.replace(values=values)
    made = _call_values(node, node.mapper, batch)
    return batch.replace(values=Column(objects=made))


def _select_key(node: SelectKeyNode, batch: Batch) -> Batch:
    if isinstance(node.selector, ColumnFunction):
        [keys] = mapped(node.name, batch, node.selector)
        return batch.replace(keys=keys)
    return batch.replace(keys=Column(objects=_call_pairs(node.name, node.selector, batch)))


def _map(node: MapNode, batch: Batch) -> Batch:
    if isinstance(node.mapper, ColumnFunction):
        keys, values = mapped(node.name, batch, node.mapper)
        return batch.replace(keys=keys, values=values)
    return _with_pairs(node, batch, _call_pairs(node.name, node.mapper, batch))


def _with_pairs(node: MapNode | FlatMapNode, batch: Batch, pairs: list[Any]) -> Batch:
    """The rows with these pairs for keys and values. Raises `UserFunctionError`."""
    for row, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise UserFunctionError(
                f"The function of step {node.name} returned {type(pair).__name__}, not a pair",
                where=coordinates(node.name, batch, row),
                hint="Return (key, value), or several of them from flat_map; the functions of "
                "map_values and flat_map_values return values alone",
            )
    keys, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return batch.replace(keys=Column(objects=keys), values=Column(objects=values))


def split(branches: Iterable[BranchNode], batch: Batch) -> Iterator[tuple[BranchNode, Batch]]:
    """Each branch with its rows; its predicate sees those that no earlier one wanted."""
    for branch in branches:
        if branch.predicate is None:
            yield branch, batch
            return
        if not len(batch):
            return
        mask = _wanted(branch.name, branch.predicate, batch)
        yield branch, batch.keep(mask)
        batch = batch.keep(~mask)


def _listed(mapper: Callable[..., Iterable[Any]]) -> Callable[..., list[Any]]:
    """The mapper, run to its end at once: a generator that raises must do so for its own record."""
    return lambda *arguments: list(mapper(*arguments))


def _flat(batch: Batch, many: list[list[Any]], rank: int) -> tuple[Batch, list[Any]]:
    """A row for each result; `order` has the place of a result among its record's."""
    counts = np.fromiter(map(len, many), np.int64, len(many))
    rows = batch.take(np.repeat(np.arange(len(many), dtype=np.int64), counts))
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    places = np.arange(len(rows), dtype=np.int64) - starts
    ranks = np.full(len(rows), rank, dtype=np.int64)
    flat = [each for results in many for each in results]
    return rows.replace(order=(*rows.order, ranks, places)), flat


def _call_values(
    node: MapValuesNode | FlatMapValuesNode, function: Callable[..., Any], batch: Batch
) -> list[Any]:
    if node.with_key:
        return _call_pairs(node.name, function, batch)
    return call_each(node.name, batch, function, batch.values.objects())


def _call_pairs(step: str, function: Callable[[Any, Any], Any], batch: Batch) -> list[Any]:
    return call_each(step, batch, function, batch.keys.objects(), batch.values.objects())
