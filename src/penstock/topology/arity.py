"""How many values a step gives to the functions that a user wrote for it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from penstock.errors import TopologyError
from penstock.topology.column_functions import Called, ColumnFunction
from penstock.topology.nodes import (
    AggregateNode,
    BranchNode,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    ForeachNode,
    GlobalJoinNode,
    Joining,
    MapNode,
    MapValuesNode,
    Node,
    PeekNode,
    SelectKeyNode,
    SinkNode,
    SourceNode,
    SubscribeNode,
    TableAggregateNode,
    TableFilterNode,
    TableMapValuesNode,
    TableSelectNode,
    WindowAggregateNode,
)

Told = tuple[str, Any, tuple[str, ...]]
"""What a function is for, the function, and the names of what it is given."""

_PAIR = ("key", "value")
_OF_PAIRS: dict[type[Node], str] = {
    FilterNode: "predicate",
    BranchNode: "predicate",
    PeekNode: "action",
    ForeachNode: "action",
    FlatMapNode: "mapper",
    MapNode: "mapper",
    SelectKeyNode: "selector",
    TableFilterNode: "predicate",
    TableSelectNode: "mapper",
    GlobalJoinNode: "selector",
}


def check_arity(node: Node) -> None:
    """Raise `TopologyError` for a function that cannot be called with what its step gives it."""
    for what, function, given in map(_of_columns, _functions(node)):
        if function is not None and not _takes(function, len(given)):
            values = ", ".join(given)
            count = "1 value" if len(given) == 1 else f"{len(given)} values"
            raise TopologyError(
                f"The {what} of step {node.name} is called with {count} ({values}), and takes "
                f"{_shown(function)}",
                hint=f"Write it as {what}({values})",
            )


def _functions(node: Node) -> Iterator[Told]:
    name = _OF_PAIRS.get(type(node))
    if name is not None:
        yield name, getattr(node, name), _PAIR
    match node:
        case MapValuesNode() | FlatMapValuesNode() | TableMapValuesNode():
            yield "mapper", node.mapper, _PAIR if node.with_key else ("value",)
        case SubscribeNode():
            yield "foreign_key", node.extractor, _PAIR if node.with_key else ("value",)
        case SinkNode():
            yield "topic", node.topic_of, _PAIR
            yield "partitioner", node.partitioner, (*_PAIR, "partitions")
        case SourceNode():
            yield "timestamp", node.timestamp, (*_PAIR, "timestamp")
        case AggregateNode():
            yield from _aggregation(node)
    if isinstance(node, Joining):
        sides = ("left", "right")
        yield "joiner", node.joiner, ("key", *sides) if node.with_key else sides


def _aggregation(node: AggregateNode) -> Iterator[Told]:
    reduces = node.kind == "reduce"
    given = ("aggregate", "value") if reduces else (*_PAIR, "aggregate")
    name = "reducer" if reduces else "aggregator"
    yield "initializer", node.initializer, ()
    yield name, node.aggregator, given
    if isinstance(node, TableAggregateNode):
        yield "subtractor", node.subtractor, given
    if isinstance(node, WindowAggregateNode):
        yield "merger", node.merger, ("key", "left", "right")


def _of_columns(told: Told) -> Told:
    """The same, of a function of columns that one itself: it is given a column for each value."""
    what, function, given = told
    if isinstance(function, ColumnFunction):
        called = function.evaluator
        # An expression is read where it is written.
        return (
            (what, called.function, called.takes)
            if isinstance(called, Called)
            else (what, None, ())
        )
    return what, function, given


def _takes(function: Any, count: int) -> bool:
    """Whether a function takes so many values; yes where nobody can tell."""
    if isinstance(function, FunctionType):
        code = function.__code__
        needs_names = code.co_kwonlyargcount > len(function.__kwdefaults__ or ())
        least = code.co_argcount - len(function.__defaults__ or ())
        more = bool(code.co_flags & inspect.CO_VARARGS)
        return not needs_names and least <= count and (more or count <= code.co_argcount)
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return not callable(function)
    except ValueError:
        return True  # Some of what is written in C does not tell.
    return True


def _shown(function: Any) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "others"
