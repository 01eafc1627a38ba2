"""What a user writes (`StreamsBuilder`, `KStream`), compiled to a frozen graph (`Topology`)."""

from penstock.topology.builder import StreamsBuilder
from penstock.topology.graph import SubTopology, Topology
from penstock.topology.nodes import (
    AggregateNode,
    BranchNode,
    DropNullKeyNode,
    FilterNode,
    FlatMapNode,
    FlatMapValuesNode,
    ForeachNode,
    MapNode,
    MapValuesNode,
    Node,
    PassNode,
    PeekNode,
    SelectKeyNode,
    SinkNode,
    SourceNode,
    StoreSpec,
    ToStreamNode,
)
from penstock.topology.streams import BranchedKStream, KGroupedStream, KStream, KTable

__all__ = [
    "AggregateNode",
    "BranchNode",
    "BranchedKStream",
    "DropNullKeyNode",
    "FilterNode",
    "FlatMapNode",
    "FlatMapValuesNode",
    "ForeachNode",
    "KGroupedStream",
    "KStream",
    "KTable",
    "MapNode",
    "MapValuesNode",
    "Node",
    "PassNode",
    "PeekNode",
    "SelectKeyNode",
    "SinkNode",
    "SourceNode",
    "StoreSpec",
    "StreamsBuilder",
    "SubTopology",
    "ToStreamNode",
    "Topology",
]
