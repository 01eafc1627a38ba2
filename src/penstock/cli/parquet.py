"""A store's rows as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.cli.entries import Row, json_text
from penstock.errors import ConfigError
from penstock.serdes import Serde
from penstock.serdes.columns import PLAIN_TYPES
from penstock.topology import StoreSpec

_ROWS_AT_ONCE = 20_000
_TIME = pa.timestamp("ms", tz="UTC")


def write_parquet(
    path: Path, rows: Iterable[Row], *, spec: StoreSpec | None, windowed: bool
) -> int:
    """Write the rows and return how many there were; a file that is there is not touched."""
    if path.exists():
        raise ConfigError(f"{path} exists already", hint="Give another name, or remove it")
    schema = _schema(spec, windowed=windowed)
    remaining = iter(rows)
    draft = path.with_name(f".{path.name}.part")
    written = 0
    try:
        with pq.ParquetWriter(draft, schema) as writer:
            while page := list(islice(remaining, _ROWS_AT_ONCE)):
                writer.write_table(_table(page, schema))
                written += len(page)
        # Whoever sees the file sees all of it.
        draft.rename(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Name a file in a directory that exists, and that this user may write to",
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return written


def _schema(spec: StoreSpec | None, *, windowed: bool) -> pa.Schema:
    window = [("window_start", _TIME), ("window_end", _TIME)] if windowed else []
    return pa.schema(
        [
            ("partition", pa.int32()),
            ("key", _column(None if spec is None else spec.key_serde)),
            *window,
            ("value", _column(None if spec is None else spec.value_serde)),
            ("timestamp", _TIME),
        ]
    )


def _column(serde: Serde[Any] | None) -> pa.DataType:
    return pa.binary() if serde is None else PLAIN_TYPES.get(type(serde), pa.string())


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = [getattr(row, field.name) for row in rows]
        if field.name in ("key", "value") and field.type == pa.string():
            values = [
                each if each is None or isinstance(each, str) else json_text(each)
                for each in values
            ]
        columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)
