"""The headers of changelog records: in Kafka Streams only the buffers of `suppress` have one."""

from __future__ import annotations

import pyarrow as pa

from penstock.processors.records import HEADERS_TYPE
from penstock.topology import SubTopology, SuppressNode

_BUFFER = [{"key": "v", "value": b"\x03"}]
"""The version of a buffer's values; Java takes a record without it for one of the first version."""


def changelog_headers(sub_topology: SubTopology, changes: pa.RecordBatch) -> pa.ListArray:
    """The headers of a slice's changes, row by row."""
    buffers = {node.store for node in sub_topology.nodes if isinstance(node, SuppressNode)}
    if not buffers:
        return pa.nulls(changes.num_rows, HEADERS_TYPE)
    stores = changes.column("store").to_pylist()
    kept = changes.column("value").is_valid().to_pylist()
    rows = [
        _BUFFER if there and store in buffers else None
        for store, there in zip(stores, kept, strict=True)
    ]
    return pa.array(rows, HEADERS_TYPE)
