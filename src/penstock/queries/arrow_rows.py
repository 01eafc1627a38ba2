"""Rows as an Arrow IPC stream: the bytes that the serdes write, for those who read in bulk.

Columns `key` and `value` (binary), `timestamp`, `start` and `end` (int64, milliseconds; null where
a row has none). The schema's metadata has one entry, `penstock`: JSON with `store`, the names of
the serdes, `sources` and `next_page`, as in an answer that is JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import QueryError
from penstock.queries.contract import Answer, Row
from penstock.serdes import Serde
from penstock.serdes.decoders import decoder

ARROW_STREAM = "application/vnd.apache.arrow.stream"
METADATA_KEY = b"penstock"

_NUMBERS = ("timestamp", "start", "end")
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
    ]
)


def encode_rows(
    answer: Answer, *, key_serde: Serde[Any], value_serde: Serde[Any], facts: dict[str, Any]
) -> bytes:
    """The stream of an answer's rows; `facts` go into its metadata."""
    columns = [
        key_serde.serialize_column([row.key for row in answer.rows]),
        value_serde.serialize_column([row.value for row in answer.rows]),
        *(_numbers(answer.rows, name) for name in _NUMBERS),
    ]
    schema = SCHEMA.with_metadata({METADATA_KEY: msgspec.json.encode(facts)})
    batch = pa.record_batch(columns, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_rows(data: bytes) -> tuple[pa.Table, dict[str, Any]]:
    """The table of a stream, and what its metadata say. Raises `QueryError`."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        facts = decoder(dict).decode((table.schema.metadata or {})[METADATA_KEY])
    except (pa.ArrowInvalid, KeyError, msgspec.DecodeError, OSError) as error:
        raise QueryError(f"The answer is no Arrow stream of ours: {error}") from error
    return table, facts


def _numbers(rows: list[Row], name: str) -> pa.Array:
    return pa.array([getattr(row, name) for row in rows], type=pa.int64())
