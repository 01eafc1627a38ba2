"""What a user writes (`StreamsBuilder`, `KStream`), compiled to a frozen graph (`Topology`)."""

from penstock.topology.builder import StreamsBuilder
from penstock.topology.graph import SubTopology, Topology
from penstock.topology.nodes import (
    AggregateNode,
    DropNullKeyNode,
    FilterNode,
    MapNode,
    MapValuesNode,
    Node,
    PeekNode,
    SelectKeyNode,
    SinkNode,
    SourceNode,
    StoreSpec,
    ToStreamNode,
)
from penstock.topology.streams import KGroupedStream, KStream, KTable

__all__ = [
    "AggregateNode",
    "DropNullKeyNode",
    "FilterNode",
    "KGroupedStream",
    "KStream",
    "KTable",
    "MapNode",
    "MapValuesNode",
    "Node",
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
