"""The text of Kafka Streams' `Topology.describe()`, to the letter, so that it can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.topology.nodes import Node, SinkNode, SourceNode


@dataclass(eq=False)
class _Entry:
    node: Node
    size: int = 1
    predecessors: list[_Entry] = field(default_factory=list)
    successors: list[_Entry] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, str]:
        return (-self.size, self.node.name)


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
    parents: dict[str, list[str]] = {name: [] for name in entries}
    for node in nodes:
        for child in node.children:
            parents[child].append(node.name)
    for name in _java_hash_order(list(entries)):
        entry = entries[name]
        for parent in (entries[each] for each in parents[name]):
            _insert(entry.predecessors, parent)
            _insert(parent.successors, entry)
            _grow(parent, entry.size)
    return list(entries.values())


def _grow(entry: _Entry, amount: int) -> None:
    entry.size += amount
    for predecessor in entry.predecessors:
        _grow(predecessor, amount)


def _rank(entry: _Entry) -> tuple[int, str]:
    return entry.rank


def _insert(entries: list[_Entry], new: _Entry) -> None:
    position = next((i for i, old in enumerate(entries) if new.rank < old.rank), len(entries))
    entries.insert(position, new)


def _java_hash_order(names: list[str]) -> list[str]:
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _java_spread_hash(name) & (buckets - 1))


def _java_spread_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _text(entry: _Entry) -> str:
    node = entry.node
    after = f"\n      --> {_names(entry.successors)}"
    before = f"\n      <-- {_names(entry.predecessors)}"
    if isinstance(node, SourceNode):
        if node.pattern is not None:
            return f"Source: {node.name} (topics: {node.pattern.pattern}){after}"
        return f"Source: {node.name} (topics: [{', '.join(sorted(node.topics))}]){after}"
    if isinstance(node, SinkNode):
        if node.topic_of is not None:
            name = getattr(node.topic_of, "__qualname__", type(node.topic_of).__qualname__)
            return f"Sink: {node.name} (extractor class: {name}){before}"
        return f"Sink: {node.name} (topic: {node.topic}){before}"
    stores = ", ".join(_java_hash_order(list(node.stores)))
    return f"Processor: {node.name} (stores: [{stores}]){after}{before}"


def _names(entries: list[_Entry]) -> str:
    return ", ".join(entry.node.name for entry in entries) or "none"
