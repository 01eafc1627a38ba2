"""Which columns a sub-topology looks at, so that others need not leave the JVM."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.processors.leading import Leading, leading_expressions
from penstock.serdes import BytesSerde
from penstock.topology import (
    AggregateNode,
    DropNullKeyNode,
    Node,
    SourceNode,
    SubTopology,
    ToStreamNode,
)


@dataclass(frozen=True)
class ColumnNeeds:
    """`value` false: only whether the value is null matters. `headers` false: never looked at.

    `expressions` are those that Spark can compute of the columns of `source`.
    """

    value: bool
    headers: bool
    source: SourceNode | None = None
    expressions: tuple[Leading, ...] = ()


def needed_columns(sub_topology: SubTopology) -> ColumnNeeds:
    """The columns that the steps of a sub-topology use."""
    expressions = leading_expressions(sub_topology)
    return ColumnNeeds(
        value=any(_needs_value(source, sub_topology) for source in sub_topology.sources),
        headers=bool(sub_topology.sinks),
        source=sub_topology.sources[0] if expressions else None,
        expressions=expressions,
    )


def _needs_value(node: Node, sub_topology: SubTopology) -> bool:
    if isinstance(node, AggregateNode) and node.kind == "count":
        return False
    if isinstance(node, SourceNode) and not isinstance(node.value_serde, BytesSerde):
        # Bytes that cannot be decoded must be noticed, whoever looks at the value.
        return True
    if not isinstance(node, SourceNode | DropNullKeyNode | ToStreamNode):
        return True
    by_name = sub_topology.by_name
    return any(_needs_value(by_name[child], sub_topology) for child in node.children)
