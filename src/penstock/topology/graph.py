"""The compiled, frozen topology that driver, workers and instances share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from penstock.config import TimestampRule
from penstock.errors import TopologyError
from penstock.topology import diagram
from penstock.topology.callables import check_functions
from penstock.topology.describe import describe
from penstock.topology.naming import repartition_topic
from penstock.topology.nodes import (
    Node,
    ProcessNode,
    SinkNode,
    SourceNode,
    StoreSpec,
    TableTransformValuesNode,
)


@dataclass(frozen=True)
class SubTopology:
    """Steps that run together in one task, from sources to sinks.

    `number` is Kafka Streams' and may change with the program; `name` is for everything durable.
    `nodes` holds every step, sources included, each after those that feed it.
    """

    number: int
    name: str
    sources: tuple[SourceNode, ...]
    nodes: tuple[Node, ...]
    stores: tuple[StoreSpec, ...]
    copartitioned: tuple[tuple[str, ...], ...] = ()
    """Sources whose topics must have equally many partitions, because their records are joined."""
    joining: tuple[str, ...] = ()
    """Of each of these groups, the step in which the records meet."""

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """The steps by their names."""
        return {node.name: node for node in self.nodes}

    @property
    def is_global(self) -> bool:
        """Whether it only fills a global table: every instance runs it, and no task."""
        return any(store.is_global for store in self.stores)

    @property
    def has_processors(self) -> bool:
        """Whether it runs processors or transformers of the user's, which may have timers."""
        return any(isinstance(node, ProcessNode | TableTransformValuesNode) for node in self.nodes)

    @property
    def is_filled_by_code(self) -> bool:
        """Whether a global table holds something else than the bytes and times of its topic."""
        times = any(source.timestamp or source.time_rule for source in self.sources)
        return self.has_processors or times

    @property
    def recovers_from_input(self) -> bool:
        """Whether its tasks read their input again when they have lost a store."""
        return any(store.recover_from == "input" for store in self.stores)

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        """The steps that write topics."""
        return tuple(node for node in self.nodes if isinstance(node, SinkNode))

    def store(self, name: str) -> StoreSpec:
        """The store of that name."""
        for spec in self.stores:
            if spec.name == name:
                return spec
        raise TopologyError(f"Sub-topology {self.name} has no store {name!r}")

    def input_topics(self, application_id: str) -> tuple[str, ...]:
        """The full names of all topics that it reads."""
        return tuple(
            full_topic(source, topic, application_id)
            for source in self.sources
            for topic in source.topics
        )

    def output_topics(self, application_id: str) -> tuple[str, ...]:
        """The full names of all topics that it writes, each once."""
        fixed = (sink for sink in self.sinks if sink.topic_of is None)
        names = (full_topic(sink, sink.topic, application_id) for sink in fixed)
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Topology:
    """A whole program, ready to run. Holds the user's functions, so it travels by cloudpickle."""

    sub_topologies: tuple[SubTopology, ...] = field(default=())
    global_tables: tuple[SubTopology, ...] = field(default=())

    def describe(self) -> str:
        """Kafka Streams' own text for this topology."""
        subs = sorted(self.sub_topologies + self.global_tables, key=lambda sub: sub.number)
        return describe([(sub.number, sub.nodes, sub.is_global) for sub in subs])

    def mermaid(self) -> str:
        """The topology as a Mermaid flowchart, for Markdown pages."""
        return diagram.mermaid(self._parts())

    def svg(self) -> str:
        """The topology as an SVG, for light and dark pages."""
        return diagram.svg(self._parts())

    def _parts(self) -> list[diagram.Part]:
        subs = sorted(self.sub_topologies + self.global_tables, key=lambda sub: sub.number)
        return [
            diagram.part_of(
                f"{'Global table' if sub.is_global else f'Sub-topology {sub.number}'}: {sub.name}",
                sub.nodes,
            )
            for sub in subs
        ]

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """Every store."""
        subs = self.sub_topologies + self.global_tables
        return tuple(store for sub in subs for store in sub.stores)

    def with_times(self, default: TimestampRule | Callable[[Any, Any, int], int]) -> Topology:
        """The topology whose sources take a record's time so, if they do not say how.

        Repartition topics and global tables keep the time that a record has.
        """
        return replace(
            self, sub_topologies=tuple(_with_times(sub, default) for sub in self.sub_topologies)
        )

    def sub_topology(self, name: str) -> SubTopology:
        """The sub-topology of that durable name."""
        for sub in self.sub_topologies:
            if sub.name == name:
                return sub
        known = ", ".join(sub.name for sub in self.sub_topologies)
        raise TopologyError(f"There is no sub-topology {name!r}", hint=f"There are: {known}")


def _with_times(
    sub: SubTopology, default: TimestampRule | Callable[[Any, Any, int], int]
) -> SubTopology:
    def timed(node: Node) -> Node:
        if not isinstance(node, SourceNode) or node.repartition:
            return node
        if node.timestamp is not None or node.time_rule is not None:
            return node
        if callable(default):
            node = replace(node, timestamp=default)
            check_functions(node)
            return node
        return replace(node, time_rule=default)

    nodes = tuple(timed(node) for node in sub.nodes)
    sources = tuple(node for node in nodes if isinstance(node, SourceNode))
    return replace(sub, nodes=nodes, sources=sources)


def full_topic(node: SourceNode | SinkNode, topic: str, application_id: str) -> str:
    """A topic's name in Kafka: internal topics bear the application's id."""
    return repartition_topic(application_id, topic) if node.repartition else topic
