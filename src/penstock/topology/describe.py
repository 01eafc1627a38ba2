"""The text of Kafka Streams' `Topology.describe()`, to the letter, so that it can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.topology.java_order import TreeSet, copied_hash_order, grown_hash_order
from penstock.topology.nodes import MergeNode, Node, SinkNode, SourceNode, StreamTableJoinNode


@dataclass(eq=False)
class _Entry:
    node: Node
    size: int = 1
    predecessors: TreeSet[_Entry] = field(default_factory=lambda: TreeSet(_rank))
    successors: TreeSet[_Entry] = field(default_factory=lambda: TreeSet(_rank))


def _rank(entry: _Entry) -> tuple[int, str]:
    return (-entry.size, entry.node.name)


def describe(sub_topologies: Iterable[tuple[int, Sequence[Node], bool]]) -> str:
    """The description of sub-topologies, given as (number, nodes, whether it is global)."""
    return "Topologies:\n " + "".join(_sub_topology(*each) for each in sub_topologies)


def _sub_topology(number: int, nodes: Sequence[Node], is_global: bool) -> str:
    if is_global:
        entries = _connect(nodes)
        lines = "".join(f"    {_text(entry)}\n" for entry in entries)
        return f"  Sub-topology: {number} for global store (will not generate tasks)\n{lines}"
    lines = "".join(f"    {_text(entry)}\n" for entry in sorted(_connect(nodes), key=_rank))
    return f"  Sub-topology: {number}\n{lines}\n"


def _connect(nodes: Sequence[Node]) -> list[_Entry]:
    """Link every node to its neighbours in the order in which Java's hash map yields them.

    Neighbours are sorted by the size of their sub-trees *as known when they are linked*, so the
    printed order depends on that order.
    """
    entries = {node.name: _Entry(node) for node in nodes}
    parents = _parents(nodes)
    for name in grown_hash_order(entries):
        entry = entries[name]
        for parent in (entries[each] for each in parents[name]):
            entry.predecessors.add(parent)
            parent.successors.add(entry)
            _grow(parent, entry.size)
    return list(entries.values())


def _parents(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Of each step those that feed it, in the order in which they were named."""
    parents: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for child in node.children:
            parents[child].append(node.name)
    for node in nodes:
        if isinstance(node, MergeNode):
            parents[node.name].sort(key=node.merged.index)
    return parents


def _grow(entry: _Entry, amount: int) -> None:
    entry.size += amount
    for predecessor in entry.predecessors:
        _grow(predecessor, amount)


def _text(entry: _Entry) -> str:
    node = entry.node
    after = f"\n      --> {_names(entry.successors)}"
    before = f"\n      <-- {_names(entry.predecessors)}"
    if isinstance(node, SourceNode):
        if node.pattern is not None:
            return f"Source: {node.name} (topics: {node.pattern.pattern}){after}"
        topics = ", ".join(copied_hash_order(node.topics))
        return f"Source: {node.name} (topics: [{topics}]){after}"
    if isinstance(node, SinkNode):
        if node.topic_of is not None:
            name = getattr(node.topic_of, "__qualname__", type(node.topic_of).__qualname__)
            return f"Sink: {node.name} (extractor class: {name}){before}"
        return f"Sink: {node.name} (topic: {node.topic}){before}"
    stores = ", ".join(copied_hash_order(_stores(node)))
    return f"Processor: {node.name} (stores: [{stores}]){after}{before}"


def _stores(node: Node) -> tuple[str, ...]:
    """The stores that a step uses, in the order in which Java connects them: its own first."""
    if isinstance(node, StreamTableJoinNode) and node.buffer is not None:
        return (node.buffer, *node.reads)
    return node.stores


def _names(entries: Iterable[_Entry]) -> str:
    return ", ".join(entry.node.name for entry in entries) or "none"
