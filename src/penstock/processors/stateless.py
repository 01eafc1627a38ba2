"""The steps without state: rows in, rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import UserFunctionError
from penstock.processors.batch import Batch, Column
from penstock.processors.calls import call_each, coordinates
from penstock.topology import (
    DropNullKeyNode,
    FilterNode,
    MapNode,
    MapValuesNode,
    Node,
    PeekNode,
    SelectKeyNode,
    SourceNode,
    ToStreamNode,
)


def transform(node: Node, batch: Batch, dropped: Counter[str]) -> Batch:
    """The rows that a stateless step passes on."""
    match node:
        case SourceNode() | ToStreamNode():
            return batch
        case FilterNode():
            return _filter(node, batch)
        case DropNullKeyNode():
            return _drop_null_keys(batch, dropped)
        case PeekNode():
            _call_pairs(node.name, node.action, batch)
            return batch
        case MapValuesNode():
            values = call_each(node.name, batch, node.mapper, batch.values.objects())
            return batch.replace(values=Column(objects=values))
        case SelectKeyNode():
            return batch.replace(keys=Column(objects=_call_pairs(node.name, node.selector, batch)))
        case MapNode():
            return _map(node, batch)
    raise TypeError(f"{type(node).__name__} is not a stateless step")


def _filter(node: FilterNode, batch: Batch) -> Batch:
    answers = _call_pairs(node.name, node.predicate, batch)
    mask = np.fromiter(map(bool, answers), np.bool_, len(answers))
    return batch.keep(~mask if node.negate else mask)


def _drop_null_keys(batch: Batch, dropped: Counter[str]) -> Batch:
    present = batch.keys.present()
    if present is None:
        return batch
    dropped["null_key"] += len(batch) - int(present.sum())
    return batch.keep(present)


def _map(node: MapNode, batch: Batch) -> Batch:
    pairs = _call_pairs(node.name, node.mapper, batch)
    for row, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise UserFunctionError(
                f"The function of step {node.name} returned {type(pair).__name__}, not a pair",
                where=coordinates(node.name, batch, row),
                hint="Return (key, value) from map; map_values returns the value alone",
            )
    keys, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return batch.replace(keys=Column(objects=keys), values=Column(objects=values))


def _call_pairs(step: str, function: Callable[[Any, Any], Any], batch: Batch) -> list[Any]:
    return call_each(step, batch, function, batch.keys.objects(), batch.values.objects())
