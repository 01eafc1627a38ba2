"""What a step does, in a few characters, to be found again in a program that was changed.

Steps that nobody named have numbers where one topic leads to several of a kind: `pulses-count` and
`pulses-count-2`. Another one before them moves the numbers. A fingerprint tells that the step of
one number has become that of another; a function that was changed tells nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

from penstock.topology.builtins import Builtin
from penstock.topology.column_functions import Called, ColumnFunction
from penstock.topology.graph import SubTopology, Topology
from penstock.topology.nodes import Node, SinkNode, SourceNode

_PLAIN = (bool, int, float, str, bytes, type(None))
_LENGTH = 16
_DEPTH = 4


class Fingerprints:
    """Those of a topology's steps: of each with all that leads to it."""

    def __init__(self, topology: Topology) -> None:
        self._subs = topology.sub_topologies
        self._known: dict[str, dict[str, str]] = {}
        """By sub-topology and step."""

    def of_store(self, sub: SubTopology, store: str) -> str:
        """That of the first step that uses a store: steps come after those that feed them."""
        users = (node.name for node in sub.nodes if store in node.stores)
        return self._of(sub).get(next(users, ""), "")

    def of_repartition(self, topic: str) -> str:
        """That of the steps that write to a repartition topic, of that bare name."""
        sinks = [(sub, sink) for sub in self._subs for sink in sub.sinks if _writes(sink, topic)]
        return _digest(*(self._of(sub).get(sink.name, "") for sub, sink in sinks))

    def _of(self, sub: SubTopology) -> Mapping[str, str]:
        if sub.name not in self._known:
            # Whoever comes back here, round a circle of topics, finds what there is so far.
            known = self._known[sub.name] = {}
            parents = parents_of(sub)
            for node in sub.nodes:
                before = (known[each] for each in parents[node.name])
                known[node.name] = _digest(*self._own(node), *before)
        return self._known[sub.name]

    def _own(self, node: Node) -> Iterator[str]:
        yield type(node).__name__
        if isinstance(node, SourceNode):
            # The name of a repartition topic may have a number, too.
            yield from map(self.of_repartition, node.topics) if node.repartition else node.topics
        yield from _functions(node)


def _writes(sink: SinkNode, topic: str) -> bool:
    return sink.repartition and sink.topic == topic


def parents_of(sub: SubTopology) -> Mapping[str, list[str]]:
    """The steps right before each step."""
    found: dict[str, list[str]] = {node.name: [] for node in sub.nodes}
    for node in sub.nodes:
        for child in node.children:
            found[child].append(node.name)
    return found


def _functions(node: Node) -> Iterator[str]:
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if callable(value):
            yield f"{field.name}={_function(value, _DEPTH)}"


def _function(function: Any, depth: int) -> str:
    """What a function does; `depth` is how far the functions are followed that it holds."""
    match function:
        case FunctionType():
            held = (_value(each, depth) for each in _held(function))
            defaults = _value(function.__defaults__, depth)
            return _digest(_code(function.__code__, depth), defaults, *held)
        case MethodType():
            return _function(function.__func__, depth)
        case functools.partial():
            values = (_value(each, depth) for each in function.args)
            return _digest(_function(function.func, depth), *values)
        case ColumnFunction(evaluator=Called(function=called)):
            return _function(called, depth)
        case ColumnFunction():
            return _digest(repr(function.evaluator))
        case Builtin():
            return repr(function)
    # A class or what is written in C has a name. What an object holds may be large.
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def _held(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        # One that is not filled yet has no value.
        with contextlib.suppress(ValueError):
            yield cell.cell_contents


def _code(code: CodeType, depth: int) -> str:
    parts = (
        _code(each, depth) if isinstance(each, CodeType) else _value(each, depth)
        for each in code.co_consts
    )
    return _digest(code.co_code.hex(), *code.co_names, *parts)


def _value(value: Any, depth: int) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if depth == 0:
        return ""
    if isinstance(value, tuple):
        return f"({','.join(_value(each, depth - 1) for each in value)})"
    # A function may hold itself.
    return _function(value, depth - 1) if callable(value) else type(value).__qualname__


def _digest(*parts: str) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(f"{len(part)}:{part}".encode())
    return whole.hexdigest()[:_LENGTH]
