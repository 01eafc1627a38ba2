"""Sources that read every topic whose name matches a pattern."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable

from penstock.errors import TopologyError
from penstock.topology.graph import SubTopology, Topology
from penstock.topology.nodes import Node, SourceNode

_INTERNAL = ("-changelog", "-repartition", "-commits")


def patterns_of(topology: Topology) -> tuple[re.Pattern[str], ...]:
    """The patterns of all sources that have one."""
    sources = (source for sub in topology.sub_topologies for source in sub.sources)
    return tuple(source.pattern for source in sources if source.pattern is not None)


def matching(
    patterns: Collection[re.Pattern[str]], names: Iterable[str], application_id: str
) -> frozenset[str]:
    """Those of the topics that match a pattern as a whole; Kafka's own and ours never do.

    >>> names = ["orders-eu", "old-orders-eu", "app-orders-changelog"]
    >>> matching([re.compile(".*orders-.*")], names, "app") == {"orders-eu", "old-orders-eu"}
    True
    """
    return frozenset(
        name
        for name in names
        if not name.startswith("__") and not _is_ours(name, application_id)
        if any(pattern.fullmatch(name) for pattern in patterns)
    )


def with_topics(topology: Topology, topics: Collection[str]) -> Topology:
    """The topology over these topics: each source that has a pattern reads those that match.

    Raises `TopologyError` for a topic that two patterns match.
    """
    for topic in sorted(topics):
        claims = [each.pattern for each in patterns_of(topology) if each.fullmatch(topic)]
        if len(claims) > 1:
            raise TopologyError(
                f"Topic {topic!r} matches two patterns, {claims[0]!r} and {claims[1]!r}",
                hint="Make the patterns such that each topic matches one",
            )
    subs = tuple(_resolved(sub, topics) for sub in topology.sub_topologies)
    return dataclasses.replace(topology, sub_topologies=subs)


def _is_ours(name: str, application_id: str) -> bool:
    return name.startswith(f"{application_id}-") and name.endswith(_INTERNAL)


def _resolved(sub: SubTopology, topics: Collection[str]) -> SubTopology:
    def over(node: Node) -> Node:
        if not isinstance(node, SourceNode) or node.pattern is None:
            return node
        found = tuple(sorted(topic for topic in topics if node.pattern.fullmatch(topic)))
        return dataclasses.replace(node, topics=found)

    nodes = tuple(over(node) for node in sub.nodes)
    sources = tuple(node for node in nodes if isinstance(node, SourceNode))
    return dataclasses.replace(sub, nodes=nodes, sources=sources)
