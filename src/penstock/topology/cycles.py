"""Programs whose records would come back to where they were: a cycle through topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from penstock.errors import TopologyError
from penstock.topology.nodes import (
    Node,
    SinkNode,
    SourceNode,
)

Nodes = Mapping[str, Node]
_Topic = tuple[str, bool]
"""A topic's name, and whether it is a repartition topic, whose name lacks the application's."""


def check_cycles(nodes: Nodes) -> None:
    """Raise `TopologyError` if what a step writes comes back to it as a record.

    Rows of a table that later records are joined with are none: they make nothing by themselves.
    A topic that is named by a function, or found by a pattern, is not known here.
    """
    readers: dict[_Topic, list[str]] = {}
    for node in nodes.values():
        for topic in _topics(node) if isinstance(node, SourceNode) else ():
            readers.setdefault(topic, []).append(node.name)
    feeds: dict[str, list[str]] = {name: [] for name in nodes}
    for node in nodes.values():
        for target in _fed_by(node, readers):
            feeds[target].append(node.name)
    try:
        TopologicalSorter(feeds).prepare()
    except CycleError as error:
        # The first and the last step of what it found are the same.
        raise _refusal([nodes[name] for name in error.args[1][1:]], nodes) from None


def _topics(node: SourceNode | SinkNode) -> Iterator[_Topic]:
    if isinstance(node, SourceNode):
        yield from ((topic, node.repartition) for topic in node.topics)
    elif node.topic_of is None:
        yield node.topic, node.repartition


def _fed_by(node: Node, readers: Mapping[_Topic, list[str]]) -> Iterator[str]:
    """The steps that a step's results reach next, by an edge or by a topic."""
    yield from node.children
    if isinstance(node, SinkNode):
        for topic in _topics(node):
            yield from readers.get(topic, ())


def _refusal(cycle: list[Node], nodes: Nodes) -> TopologyError:
    """The error for these steps, told from the source that the program names first."""
    order = list(nodes)
    sources = [node for node in cycle if isinstance(node, SourceNode)]
    first = cycle.index(min(sources, key=lambda source: order.index(source.name)))
    round_trip = cycle[first:] + cycle[:first]
    told = [text for i, node in enumerate(round_trip) if (text := _told(node, round_trip[i - 1]))]
    steps = ", ".join(node.name for node in round_trip)
    return TopologyError(
        f"The topology has a cycle: {', '.join(told)}",
        where={"steps": steps},
        hint="Write to a topic that none of these steps reads; what later records need to know "
        "belongs in a store (aggregate(...), or process(...) with a store)",
    )


def _told(node: Node, before: Node) -> str:
    if isinstance(node, SinkNode):
        return f"step {node.name} writes topic {node.topic!r}"
    if isinstance(node, SourceNode):
        # Of several topics it is the one that the step before writes.
        topic = before.topic if isinstance(before, SinkNode) else node.topics[0]
        return f"step {node.name} reads topic {topic!r}"
    return ""
