"""How long after their end the windows behind a step may change, found by walking up to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.topology.nodes import Node, SinkNode, SourceNode, WindowAggregateNode
from penstock.topology.windows import SessionWindows, Windows


def closing_grace_ms(
    step: str, nodes: Mapping[str, Node], children: Mapping[str, Iterable[str]]
) -> int | None:
    """The longest grace of the windows that a step's records come from, as Kafka Streams finds it.

    Every way up, through joins, merges and repartition topics, must end at windows; if one ends at
    an input there is no such time, and this is None.
    """
    parents = _parents(nodes, children)
    known: dict[str, int | None] = {}

    def grace(name: str) -> int | None:
        if name not in known:
            node = nodes[name]
            known[name] = (
                _own_grace_ms(node.windows)
                if isinstance(node, WindowAggregateNode)
                else _longest([grace(parent) for parent in parents[name]])
            )
        return known[name]

    return grace(step)


def _longest(graces: list[int | None]) -> int | None:
    found = [grace for grace in graces if grace is not None]
    return max(found) if found and len(found) == len(graces) else None


def _own_grace_ms(windows: Windows) -> int:
    # A session may grow as long as the gap behind its end lasts.
    gap = windows.gap_ms if isinstance(windows, SessionWindows) else 0
    return windows.grace_ms + gap


def _parents(
    nodes: Mapping[str, Node], children: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """The steps before each; before a repartition topic's source those that write it."""
    parents: dict[str, list[str]] = {name: [] for name in nodes}
    for name, following in children.items():
        for child in following:
            parents[child].append(name)
    writers: dict[str, list[str]] = {}
    for node in nodes.values():
        if isinstance(node, SinkNode) and node.repartition:
            writers.setdefault(node.topic, []).append(node.name)
    for node in nodes.values():
        if isinstance(node, SourceNode) and node.repartition:
            parents[node.name] += [name for topic in node.topics for name in writers[topic]]
    return parents
