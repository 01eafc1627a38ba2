"""What a topology settles as a whole: tables' stores, old values, records without a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from penstock.topology.nodes import (
    AggregateNode,
    DropNullKeyNode,
    GlobalJoinNode,
    LatestNode,
    MaterializableNode,
    Node,
    ReadingNode,
    SinkNode,
    SourceNode,
    StreamJoinNode,
    StreamTableJoinNode,
    SubscribeNode,
    SuppressNode,
    TableFilterNode,
    TableJoinNode,
    TableMapValuesNode,
    TableMergeNode,
    TableSelectNode,
    TableTransformValuesNode,
)

Nodes = Mapping[str, Node]
_ALWAYS = TableSelectNode | SubscribeNode | SuppressNode
_ROW_BY_ROW = TableFilterNode | TableMapValuesNode | TableTransformValuesNode


def settled(nodes: Nodes) -> dict[str, Node]:
    """The steps, with a store for each table that needs one and none for those that do not.

    As in Kafka Streams a table that nobody named gets its store only if a step looks into it, or
    must know what its rows were before.
    """
    read = {
        store for node in nodes.values() if isinstance(node, ReadingNode) for store in node.reads
    }
    return {name: _settle(node, nodes, read) for name, node in nodes.items()}


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
        return node.outer
    return isinstance(node, StreamTableJoinNode | GlobalJoinNode) and node.left


def _settle(node: Node, nodes: Nodes, read: set[str]) -> Node:
    if not isinstance(node, LatestNode):
        return node
    assert node.store is not None
    if node.store in read or _is_forced(node, nodes):
        return AggregateNode(
            name=node.name, children=node.children, kind="latest", store=node.store
        )
    return dataclasses.replace(node, store=None)


def _is_forced(node: Node, nodes: Nodes) -> bool:
    """Whether a step behind this one cannot do without old values."""
    for child in _children(node, nodes):
        if isinstance(child, _ALWAYS):
            return True
        if isinstance(child, TableJoinNode) and (child.here_outer or wants_old(child, nodes)):
            return True
        passes = isinstance(child, _ROW_BY_ROW) and child.store is None
        if passes and _is_forced(child, nodes):
            return True
    return False


def wants_old(node: Node, nodes: Nodes) -> bool:
    """Whether a step behind this one would use what each row was before."""
    return any(_uses_old(child, nodes) for child in _children(node, nodes))


def _uses_old(node: Node, nodes: Nodes) -> bool:
    if isinstance(node, _ALWAYS | TableFilterNode):
        return True
    if isinstance(node, TableJoinNode) and node.here_outer:
        # Else the deletion of a row that the other table lacks would not be told.
        return True
    passes = TableMapValuesNode | TableTransformValuesNode | TableJoinNode | TableMergeNode
    return isinstance(node, passes) and wants_old(node, nodes)


def sends_old(node: Node, nodes: Nodes) -> bool:
    """Whether a step says what each row was before: somebody wants it, and it can be known."""
    return wants_old(node, nodes) and can_send_old(node, nodes)


def can_send_old(node: Node, nodes: Nodes) -> bool:
    """Whether a step can know what a row was before."""
    if isinstance(node, MaterializableNode) and node.store is not None:
        return True
    if isinstance(node, LatestNode):
        return False
    if isinstance(node, _ROW_BY_ROW):
        return can_send_old(nodes[node.parent], nodes)
    return True


def _children(node: Node, nodes: Nodes) -> list[Node]:
    return [nodes[child] for child in node.children]
