"""Which sub-topologies can make their stores anew by reading their input again."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from penstock.errors import TopicMismatchError, TopologyError
from penstock.topology.changelogs import RecoverFrom
from penstock.topology.graph import SubTopology, full_topic
from penstock.topology.nodes import (
    AggregateNode,
    LatestNode,
    Node,
    ProcessNode,
    ReadingNode,
    SourceNode,
    StreamTableJoinNode,
    TableFilterNode,
    TableJoinNode,
    TableMapValuesNode,
    TableMergeNode,
)

_OF_LATEST = (LatestNode, TableFilterNode, TableMapValuesNode, TableJoinNode, TableMergeNode)
"""Steps of tables whose result follows from the latest rows alone, whatever those were before."""


def check_recovery(sub: SubTopology) -> None:
    """Raise `TopologyError` if a store is to recover from an input that is emptied behind it."""
    for store in sub.stores:
        if store.recover_from not in typing.get_args(RecoverFrom):
            raise TopologyError(
                f"The store {store.name!r} cannot recover from {store.recover_from!r}",
                hint='Write recover_from="changelog" or recover_from="input"',
            )
    wanting = [store.name for store in sub.stores if store.recover_from == "input"]
    internal = [source for source in sub.sources if source.repartition]
    if wanting and internal:
        raise TopologyError(
            f"The store {wanting[0]!r} is to recover from its input, and step {internal[0].name} "
            f"reads the repartition topic {internal[0].topics[0]!r}, which is emptied behind it",
            hint="Let the store have its changelog, or write the re-keyed stream to a topic of "
            "your own and read that",
        )


def check_compacted(sub: SubTopology, application_id: str, compacted: Mapping[str, str]) -> None:
    """Raise `TopicMismatchError` if a store is to recover from topics that no longer tell all.

    `compacted` are the topics of which Kafka keeps each key's latest record, with their policies.
    That is enough for their tables; whatever folds records comes to another state.
    """
    if not sub.recovers_from_input:
        return
    for source in sub.sources:
        for topic in source.topics:
            policy = compacted.get(full_topic(source, topic, application_id))
            folded = _folded(sub, source) if policy is not None else []
            if folded:
                raise TopicMismatchError(
                    f"The store {folded[0]!r} is to recover from its input, and Kafka compacts "
                    f"that (cleanup.policy={policy}): read again, it has only the latest record "
                    "of a key, and the store would come to another state",
                    where={"topic": topic, "store": folded[0]},
                    hint='Leave recover_from="input" out of all stores of this sub-topology: they '
                    "have changelogs then; or set cleanup.policy=delete, if nothing was compacted "
                    "yet. The table of a compacted topic can recover from it",
                )


def _folded(sub: SubTopology, source: SourceNode) -> list[str]:
    """The stores that depend on more than the latest record of each key of a source."""
    reached = {source.name}
    feeding: list[Node] = [source]
    while feeding:
        node = feeding.pop()
        readers = [each.name for each in sub.nodes if set(each.stores) & set(_written(node))]
        new = {*node.children, *readers} & (sub.by_name.keys() - reached)
        reached |= new
        feeding += [sub.by_name[name] for name in new]
    found = [node for node in sub.nodes if node.name in reached]
    versioned = {store.name for store in sub.stores if store.kind == "versioned"}
    plain = {
        store
        for node in found
        if isinstance(node, _OF_LATEST) or _is_table_of(node, source)
        for store in _written(node)
    } - versioned
    own = {store.name for store in sub.stores}
    stores = dict.fromkeys(store for node in found for store in _written(node))
    return [store for store in stores if store in own - plain]


def _is_table_of(node: Node, source: SourceNode) -> bool:
    is_latest = isinstance(node, AggregateNode) and node.kind == "latest"
    return is_latest and node.name in source.children


def _written(node: Node) -> tuple[str, ...]:
    """The stores that a step may change; of a processor nobody knows which it only reads."""
    if isinstance(node, StreamTableJoinNode):
        return () if node.buffer is None else (node.buffer,)
    if isinstance(node, ReadingNode) and not isinstance(node, ProcessNode):
        return ()
    return node.stores
