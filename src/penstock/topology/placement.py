"""Which partition of a store a key is in, as those chose it who wrote the store's input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.serdes import Serde
from penstock.serdes.subscription import ResponseSerde
from penstock.serdes.windowed import SessionWindowedSerde, WindowedSerde, window_depth, window_tail
from penstock.topology.graph import SubTopology, Topology
from penstock.topology.nodes import ResolveNode, SinkNode, SourceNode, StoreSpec

Partitioner = Callable[[Any, Any, int], int | Collection[int] | None]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What chooses the partition of a store's keys."""

    partitioner: Partitioner | None = None
    """The user's function, if the application itself writes the input with one."""
    unplacing: int = 0
    """How many bytes at the end of a key do not: the times of windows that lie together."""


def placement_of(store: StoreSpec, sub: SubTopology, topology: Topology) -> Placement:
    """What chooses the partitions of a store's keys."""
    sources = _input_sources(store.name, sub)
    sinks = [
        sink
        for each in topology.sub_topologies
        for sink in each.sinks
        if any(_feeds(sink, source) for source in sources)
        # An answer in a foreign-key join goes to the left row that asked, wherever that is.
        and (sink.by_key_alone or not isinstance(sink.value_serde, ResponseSerde))
    ]
    said = [sink.partitioner for sink in sinks if sink.partitioner is not None]
    depths = [
        _placing_depth(source, sinks)
        for source in sources
        if not isinstance(source.value_serde, ResponseSerde)
    ]
    return Placement(
        partitioner=said[0] if said else None,
        unplacing=_times_outside(store.key_serde, max(depths, default=0)),
    )


@dataclass(frozen=True)
class Apart:
    """A join whose sides have equal windowed keys in different partitions."""

    step: str
    whole: SourceNode
    """The topic whose keys lie by more of their windows than those of the other."""
    inner: SourceNode


def joins_apart(topology: Topology) -> Iterator[Apart]:
    """The joins of which it is certain that equal keys would not meet.

    Of a topic that others write with windowed keys it is not known how they lie.
    """
    sinks = [sink for sub in topology.sub_topologies for sink in sub.sinks]
    for sub in topology.sub_topologies:
        sources = {source.name: source for source in sub.sources}
        for group, step in zip(sub.copartitioned, sub.joining, strict=True):
            known = [sources[name] for name in group if _is_known(sources[name], sinks)]
            known.sort(key=lambda source: _placing_depth(source, sinks))
            if known and _placing_depth(known[0], sinks) != _placing_depth(known[-1], sinks):
                yield Apart(step, whole=known[-1], inner=known[0])


def _is_known(source: SourceNode, sinks: list[SinkNode]) -> bool:
    own = [sink for sink in sinks if _feeds(sink, source)]
    if any(sink.partitioner is not None for sink in own):
        return False
    return bool(own) or window_depth(source.key_serde) == 0


def _feeds(sink: SinkNode, source: SourceNode) -> bool:
    return sink.topic in source.topics and sink.repartition == source.repartition


def _placing_depth(source: SourceNode, sinks: list[SinkNode]) -> int:
    """How many windows of a topic's keys choose the partition.

    `to` leaves the outermost out, here as in other applications. A repartition topic does not; nor
    does Kafka's partitioner, to which a user's own may leave it.
    """
    depth = window_depth(source.key_serde)
    own = [sink for sink in sinks if _feeds(sink, source)]
    if any(sink.whole_key or sink.partitioner is not None for sink in own):
        return depth
    return max(depth - 1, 0)


def _times_outside(serde: Serde[Any], depth: int) -> int:
    """How many bytes of a key are the times of all windows but the innermost `depth` ones."""
    outside = 0
    while isinstance(serde, WindowedSerde | SessionWindowedSerde) and window_depth(serde) > depth:
        outside += window_tail(serde)
        serde = serde.inner
    return outside


def _input_sources(store: str, sub: SubTopology) -> list[SourceNode]:
    """The sources whose records come to the step that fills a store."""
    waiting = [node.name for node in sub.nodes if store in node.stores][:1]
    wanted: set[str] = set()
    while waiting:
        step = waiting.pop()
        if step not in wanted:
            wanted.add(step)
            waiting += [node.name for node in sub.nodes if step in node.children]
            # Rows of a join by a foreign key are where those of its left table are.
            waiting += [
                node.table
                for node in sub.nodes
                if isinstance(node, ResolveNode) and node.name == step
            ]
    return [source for source in sub.sources if source.name in wanted]
