"""What a topology settles as a whole: tables' stores, old values, records without a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from penstock.topology.nodes import (
    AggregateNode,
    DropNullKeyNode,
    GlobalJoinNode,
    LatestNode,
    Node,
    SinkNode,
    SourceNode,
    StreamJoinNode,
    StreamTableJoinNode,
)
from penstock.topology.old_values import OldValues

Nodes = Mapping[str, Node]


def settled(nodes: Nodes) -> dict[str, Node]:
    """The steps, with a store for each table that needs one and none for those that do not.

    As in Kafka Streams a table that nobody named gets its store only if a step looks into it, or
    must know what its rows were before; and a step says what they were only if it was asked to.
    """
    known = OldValues(nodes)
    return {name: _settle(node, known.held, known.senders) for name, node in nodes.items()}


def with_null_keys(nodes: Nodes) -> dict[str, Node]:
    """The steps; of those that drop records without a key, some before an outer join keep them.

    Such a join has a result for a record without a key, so Kafka Streams lets it through every
    repartition topic on the way.
    """
    readers: dict[str, list[str]] = {}
    for node in nodes.values():
        for topic in node.topics if isinstance(node, SourceNode) and node.repartition else ():
            readers.setdefault(topic, []).append(node.name)
    return {
        name: dataclasses.replace(node, keeps=True)
        if isinstance(node, DropNullKeyNode) and _reaches_outer_join(node, nodes, readers)
        else node
        for name, node in nodes.items()
    }


def _reaches_outer_join(node: Node, nodes: Nodes, readers: Mapping[str, list[str]]) -> bool:
    waiting, seen = [node], {node.name}
    while waiting:
        each = waiting.pop()
        if _joins_null_keys(each):
            return True
        following = list(each.children)
        if isinstance(each, SinkNode) and each.repartition:
            following += readers.get(each.topic, ())
        waiting += [nodes[name] for name in following if name not in seen]
        seen.update(following)
    return False


def _joins_null_keys(node: Node) -> bool:
    if isinstance(node, StreamJoinNode):
        # On both sides: what the inner one drops still moves the time of the join.
        return node.unmatched is not None
    return isinstance(node, StreamTableJoinNode | GlobalJoinNode) and node.left


def _settle(node: Node, held: set[str], senders: set[str]) -> Node:
    sends_old = node.name in senders
    if not isinstance(node, LatestNode):
        return dataclasses.replace(node, sends_old=True) if sends_old else node
    if node.name not in held:
        return dataclasses.replace(node, store=None)
    assert node.store is not None
    return AggregateNode(
        name=node.name,
        children=node.children,
        sends_old=sends_old,
        kind="latest",
        store=node.store,
    )
