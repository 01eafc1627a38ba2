"""Which topics a store or a repartition topic is made of, through repartition topics and all."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.topology.fingerprints import parents_of
from penstock.topology.graph import SubTopology, Topology
from penstock.topology.nodes import (
    AggregateNode,
    JoinWindowNode,
    MaterializableNode,
    Node,
    ProcessNode,
    RegisterNode,
    SinkNode,
    SourceNode,
    StreamJoinNode,
    StreamTableJoinNode,
    SuppressNode,
    TableTransformValuesNode,
)


class Origins:
    """The topics outside the application that its stores and repartition topics come from."""

    def __init__(self, topology: Topology) -> None:
        self._subs = topology.sub_topologies
        self._before = {sub.name: parents_of(sub) for sub in self._subs}
        """By sub-topology and step, the steps right before it."""

    def of_store(self, sub: SubTopology, store: str) -> tuple[str, ...]:
        """The topics whose records fill a store; what only looks into it does not count."""
        found: set[str] = set()
        for node in sub.nodes:
            if store in _fills(node):
                found |= self._of_step(sub, node, frozenset())
        return tuple(sorted(found))

    def of_repartition(self, topic: str) -> tuple[str, ...]:
        """The topics whose records are written to a repartition topic, of that bare name."""
        return tuple(sorted(self._of_topic(topic, frozenset())))

    def _of_topic(self, topic: str, seen: frozenset[str]) -> set[str]:
        if topic in seen:
            return set()
        found: set[str] = set()
        for sub, sink in self._sinks(topic):
            found |= self._of_step(sub, sink, seen | {topic})
        return found

    def _of_step(self, sub: SubTopology, step: Node, seen: frozenset[str]) -> set[str]:
        found: set[str] = set()
        waiting, known = [step], {step.name}
        while waiting:
            node = waiting.pop()
            if isinstance(node, SourceNode):
                for topic in node.topics:
                    found |= self._of_topic(topic, seen) if node.repartition else {topic}
            parents = [each for each in self._before[sub.name][node.name] if each not in known]
            known.update(parents)
            waiting += [sub.by_name[each] for each in parents]
        return found

    def _sinks(self, topic: str) -> Iterator[tuple[SubTopology, SinkNode]]:
        for sub in self._subs:
            for sink in sub.sinks:
                if sink.repartition and sink.topic == topic:
                    yield sub, sink


def _fills(node: Node) -> tuple[str | None, ...]:
    """The stores that a step may write to."""
    match node:
        case ProcessNode() | TableTransformValuesNode():
            return node.stores
        case StreamTableJoinNode():
            return (node.buffer,)
        case StreamJoinNode():
            return (node.unmatched,)
        case (
            AggregateNode()
            | JoinWindowNode()
            | MaterializableNode()
            | RegisterNode()
            | SuppressNode()
        ):
            return (node.store,)
    return ()
