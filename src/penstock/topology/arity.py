"""How many values a step gives to the functions that a user wrote for it."""

from __future__ import annotations

import inspect
import reprlib
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


_OF_EXPRESSIONS = (
    FilterNode,
    BranchNode,
    MapValuesNode,
    SelectKeyNode,
    TableFilterNode,
    TableMapValuesNode,
)
"""Where a SQL expression may stand in place of a function."""


def check_arity(node: Node) -> None:
    """Raise `TopologyError` for a function that cannot be called with what its step gives it."""
    for told in _functions(node):
        _check_callable(node, *told)
        what, function, given = _of_columns(told)
        values = ", ".join(given)
        if function is not None and not _takes(function, len(given)):
            count = "1 value" if len(given) == 1 else f"{len(given)} values"
            raise TopologyError(
                f"The {what} of step {node.name} is called with {count} ({values}), and takes "
                f"{_shown(function)}",
                hint=f"Write it as {what}({values})",
            )


def _check_callable(node: Node, what: str, function: Any, given: tuple[str, ...]) -> None:
    """Raise `TopologyError` for what stands where a function is to be."""
    if callable(function) or isinstance(function, ColumnFunction):
        return
    if function is not None or _is_needed(node, what):
        raise _cannot_be_called(node, what, function, ", ".join(given))


def _is_needed(node: Node, what: str) -> bool:
    """Whether a step cannot do without a function: not those of which there may be none."""
    if what in ("topic", "partitioner", "timestamp", "merger") or isinstance(node, BranchNode):
        return False
    if not isinstance(node, AggregateNode) or node.kind == "aggregate":
        return True
    return node.kind == "reduce" and what != "initializer"


def _cannot_be_called(node: Node, what: str, given: Any, values: str) -> TopologyError:
    """The error for what stands where a function is to be."""
    shown = reprlib.repr(given)
    hint = f"Write a function: lambda {values}: result"
    if not values:
        hint = "Write a function that makes a new one" + (
            "" if given is None else f": lambda: {shown}"
        )
    if isinstance(given, str) and isinstance(node, _OF_EXPRESSIONS):
        hint = f"Write ps.expr({given!r}) if it is an expression, else a function of {values}"
    return TopologyError(
        f"The {what} of step {node.name} is {shown}, which cannot be called", hint=hint
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
    # What a decorator makes takes what it takes, whatever the function inside does. But for caches.
    follow = hasattr(function, "cache_info")
    try:
        inspect.signature(function, follow_wrapped=follow).bind(*range(count))
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
