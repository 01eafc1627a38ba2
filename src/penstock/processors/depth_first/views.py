"""Which steps of a sub-topology must say what a row was before."""

from __future__ import annotations

from penstock.topology import (
    Node,
    SubscribeNode,
    SubTopology,
    SuppressNode,
    TableFilterNode,
    TableJoinNode,
    TableMapValuesNode,
    TableMergeNode,
    TableSelectNode,
)


def sends_old_values(node: Node, sub_topology: SubTopology) -> bool:
    """Whether a step behind this one wants to know what each row was before."""
    children = (sub_topology.by_name[child] for child in node.children)
    return any(_wants_old_values(child, sub_topology) for child in children)


def _wants_old_values(node: Node, sub_topology: SubTopology) -> bool:
    if isinstance(node, TableFilterNode | TableSelectNode | SubscribeNode):
        return True
    if isinstance(node, TableJoinNode) and node.here_outer:
        # Else the deletion of a row that the other table lacks would not be told.
        return True
    passes = TableMapValuesNode | SuppressNode | TableJoinNode | TableMergeNode
    return isinstance(node, passes) and sends_old_values(node, sub_topology)
