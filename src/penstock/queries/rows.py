"""Rows from what a store holds, by the user's serdes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import DeserializationError
from penstock.instance.query_messages import Found
from penstock.queries.contract import Row
from penstock.serdes import Serde
from penstock.serdes.windowed import split_session_key, split_window_key, window_end
from penstock.stores.contract import TIMESTAMP_BYTES, split_stored_value, timestamp_of
from penstock.topology import StoreSpec

_FEW = 24
"""So many are read faster one by one than as a column."""


def looked_up_row(spec: StoreSpec, key: Any, found: Found) -> Row:
    """The row of a key that was asked for by name; its value is None where there is nothing."""
    _, _, stored, until = found
    if stored is None:
        return Row(key=key, value=None)
    timestamp, value = split_stored_value(stored)
    start = timestamp if spec.kind == "versioned" else None
    return Row(
        key=key,
        value=_read(spec.value_serde, value, spec),
        timestamp=timestamp,
        start=start,
        end=until,
    )


def looked_up_rows(spec: StoreSpec, keys: Sequence[Any], found: Sequence[Found]) -> list[Row]:
    """The rows of many keys, each with what was found for it."""
    stored = [each[2] for each in found]
    if spec.kind != "versioned" and len(found) > _FEW:
        # Whole columns of numbers and text are read in C.
        bare = [None if each is None else each[TIMESTAMP_BYTES:] for each in stored]
        with contextlib.suppress(Exception):  # One by one it is told what cannot be read.
            values = spec.value_serde.deserialize_column(pa.array(bare, pa.binary()))
            times = [None if each is None else timestamp_of(each) for each in stored]
            return [
                Row(key=key, value=value, timestamp=time)
                for key, value, time in zip(keys, values, times, strict=True)
            ]
    return [looked_up_row(spec, key, each) for key, each in zip(keys, found, strict=True)]


def found_row(spec: StoreSpec, found: Found) -> Row:
    """The row of an entry that was come upon."""
    _, key, stored, _ = found
    assert stored is not None
    start: int | None = None
    end: int | None = None
    if spec.kind == "window":
        key, start, _ = split_window_key(key)
        size = None if spec.duplicates else spec.window_ms
        end = None if size is None else window_end(start, size)
    elif spec.kind == "session":
        key, start, end = split_session_key(key)
    timestamp, value = split_stored_value(stored)
    return Row(
        key=_read(spec.key_serde, key, spec),
        value=_read(spec.value_serde, value, spec),
        timestamp=timestamp,
        start=timestamp if spec.kind == "versioned" else start,
        end=end,
    )


def _read(serde: Serde[Any], data: bytes, spec: StoreSpec) -> Any:
    try:
        return serde.deserialize(data)
    except Exception as error:  # a serde may be the user's own
        raise DeserializationError(
            f"{len(data)} bytes cannot be decoded by the serde {serde.name!r}: "
            f"{type(error).__name__}",
            where={"store": spec.name},
            hint="The state was written with another serde, or by another program",
        ) from error
