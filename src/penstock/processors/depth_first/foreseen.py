"""What comes to a step that names the keys it will read, where functions of one record are before.

They are asked ahead, for the whole slice, and their answers are kept until each record's turn: no
function is called twice for a record. One that raises is asked again in its turn, where its
exception has its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from penstock.processors.batch import Batch
from penstock.processors.depth_first.building import Builder
from penstock.processors.depth_first.process import Process
from penstock.processors.depth_first.record import Answers, Shared
from penstock.topology import (
    ColumnFunction,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    GlobalJoinNode,
    MapNode,
    MapValuesNode,
    Node,
    PeekNode,
    ProcessNode,
    SelectKeyNode,
    SourceNode,
    SubTopology,
)

Input = tuple[str, int]
Row = tuple[int, Any, Any]
"""An offset, a key and a value."""
_Function = FilterNode | FlatMapNode | FlatMapValuesNode | MapNode | MapValuesNode | SelectKeyNode
_FLAT = FlatMapNode | FlatMapValuesNode


class Noted:
    """A step's function, with what it answered ahead to some records."""

    def __init__(self, shared: Shared, function: Callable[..., Any]) -> None:
        self._shared = shared
        self._function = function
        self._answers: dict[tuple[str, int, int], Any] = {}

    def note(self, source: Input, offset: int, answer: Any) -> None:
        """Keep an answer until its record comes."""
        self._answers[*source, offset] = answer

    def __call__(self, *given: Any) -> Any:
        """The answer to the present record."""
        context = self._shared.context
        place = (context.topic, context.partition, context.offset)
        try:
            return self._answers.pop(place)
        except KeyError:
            return self._function(*given)


def foreseen(
    builder: Builder, sub_topology: SubTopology, source: SourceNode, name: Input, batch: Batch
) -> tuple[Node, list[tuple[Any, Any]]] | None:
    """The step that names its keys behind functions of a source's records, and what comes to it.

    None if there is none. A way that parts or meets another one is not followed: what others do
    with a record there would come after what functions answer ahead.
    """
    way = _way(builder, sub_topology, source)
    if way is None or not len(batch):
        return None
    *before, last = way
    rows: list[Row] = list(
        zip(batch.offsets.tolist(), batch.keys.objects(), batch.values.objects(), strict=True)
    )
    while before and not isinstance(before[-1], _MAKES):
        # What a filter drops is read for nothing; what it keeps is not asked twice.
        before.pop()
    ahead = builder.shared.ahead.get(name, {})
    for node in before:
        rows = _behind(builder, node, name, rows, ahead)
    return last, [(key, value) for _, key, value in rows]


_MAKES = FlatMapNode | FlatMapValuesNode | MapNode | MapValuesNode | SelectKeyNode


def _way(builder: Builder, sub_topology: SubTopology, source: SourceNode) -> list[Node] | None:
    """The steps from a source to one that names its keys, if functions that can be asked ahead are
    among them."""
    parents = Counter(child for node in sub_topology.nodes for child in node.children)
    way: list[Node] = []
    node: Node = source
    while len(node.children) == 1:
        node = sub_topology.by_name[node.children[0]]
        if parents[node.name] != 1:
            return None
        way.append(node)
        if isinstance(node, ProcessNode | GlobalJoinNode):
            return way if _names_keys(builder, node) and _can_be_asked(way[:-1]) else None
        if not isinstance(node, _Function | PeekNode):
            return None
    return None


def _names_keys(builder: Builder, node: Node) -> bool:
    if isinstance(node, GlobalJoinNode):
        return True
    step = builder.steps[node.name]
    return isinstance(step, Process) and step.names_keys


def _can_be_asked(nodes: list[Node]) -> bool:
    """Whether a function makes new records, at most the last such one several of one, and no action
    that is not asked ahead comes before it."""
    makers = [number for number, node in enumerate(nodes) if isinstance(node, _MAKES)]
    if not makers:
        return False
    before = nodes[: makers[-1]]
    return not any(isinstance(node, PeekNode | _FLAT) for node in before)


def _behind(
    builder: Builder, node: Node, name: Input, rows: Iterable[Row], ahead: Answers
) -> list[Row]:
    """What comes out of a step; its function's answers are noted."""
    assert isinstance(node, _Function)
    part, ask = _ASKED[type(node)]
    function: Any = getattr(node, part)
    known = ahead.get((node.name, id(function)), {})
    noted: Noted | None = None
    if not isinstance(function, ColumnFunction):
        step: Any = builder.steps[node.name]
        noted = Noted(builder.shared, getattr(step, f"_{part}"))
        setattr(step, f"_{part}", noted)
    found: list[Row] = []
    for offset, key, value in rows:
        try:
            if noted is None:
                answer, made = known[offset], _made(node, key, value, known[offset])
            else:
                answer = ask(node, function, key, value)
                made = _made(node, key, value, answer)
                noted.note(name, offset, [answer] if isinstance(node, MapNode) else answer)
        except Exception:  # noqa: BLE001, S112 - It is asked again in its turn.
            continue
        found += [(offset, *pair) for pair in made]
    return found


def _of_pair(_node: Any, function: Any, key: Any, value: Any) -> Any:
    return function(key, value)


def _of_value(node: Any, function: Any, key: Any, value: Any) -> Any:
    return function(key, value) if node.with_key else function(value)


_ASKED: dict[type[Node], tuple[str, Callable[[Any, Any, Any, Any], Any]]] = {
    FilterNode: ("predicate", _of_pair),
    SelectKeyNode: ("selector", _of_pair),
    MapNode: ("mapper", _of_pair),
    MapValuesNode: ("mapper", _of_value),
    FlatMapNode: ("mapper", lambda *given: list(_of_pair(*given))),
    FlatMapValuesNode: ("mapper", lambda *given: list(_of_value(*given))),
}
"""Which function a step has, and how it is asked."""


def _made(node: Node, key: Any, value: Any, answer: Any) -> list[tuple[Any, Any]]:
    """The pairs that a step makes of one, when its function answers so."""
    match node:
        case FilterNode():
            return [(key, value)] if bool(answer) != node.negate else []
        case SelectKeyNode():
            return [(answer, value)]
        case MapNode():
            new_key, new_value = answer
            return [(new_key, new_value)]
        case MapValuesNode():
            return [(key, answer)]
        case FlatMapValuesNode():
            return [(key, each) for each in answer]
    return [(new_key, new_value) for new_key, new_value in answer]
