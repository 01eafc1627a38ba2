"""Columns of bytes put together and taken apart, without a step of Python per row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.processors.records import Int64s


def with_tail(column: pa.BinaryArray, tails: np.ndarray) -> pa.BinaryArray:
    """Each row's bytes with the row of `tails` (bytes, one width) behind them; no row is null."""
    offsets, data = _parts(column)
    count, width = tails.shape
    lengths = np.diff(offsets)
    begins = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(lengths + width, out=begins[1:])
    result = np.empty(int(begins[-1]), dtype=np.uint8)
    at = begins[1:, np.newaxis] - width + np.arange(width)
    result[at] = tails
    own = np.ones(len(result), dtype=np.bool_)
    own[at] = False
    result[own] = data
    return _binary(begins, result)


def without_tail(column: pa.BinaryArray, width: int) -> pa.BinaryArray:
    """Each row's bytes less the last `width` ones; no row is null or shorter."""
    offsets, data = _parts(column)
    ends = offsets[1:, np.newaxis] - width + np.arange(width)
    keep = np.ones(len(data), dtype=np.bool_)
    keep[ends] = False
    begins = offsets - width * np.arange(len(offsets), dtype=np.int64)
    return _binary(begins, data[keep])


def with_lengths(column: pa.BinaryArray) -> memoryview:
    """All rows' bytes in one piece, each behind its length in 4 bytes; no row is null."""
    offsets, data = _parts(column)
    lengths = np.diff(offsets)
    begins = offsets[:-1] + 4 * np.arange(len(lengths), dtype=np.int64)
    result = np.empty(len(data) + 4 * len(lengths), dtype=np.uint8)
    at = begins[:, np.newaxis] + np.arange(4)
    result[at] = lengths.astype(">i4").view(np.uint8).reshape(-1, 4)
    own = np.ones(len(result), dtype=np.bool_)
    own[at] = False
    result[own] = data
    return result.data


def joined_bytes(column: pa.BinaryArray) -> memoryview:
    """All rows' bytes in one piece; no row is null."""
    return np.ascontiguousarray(_parts(column)[1]).data


def tail_numbers(column: pa.BinaryArray) -> Int64s:
    """The number in each row's last 8 bytes; no row is null or shorter."""
    numbers: Int64s = last_bytes(column, 8).view(">i8").ravel().astype(np.int64)
    return numbers


def last_bytes(column: pa.BinaryArray, width: int) -> np.ndarray:
    """The last `width` bytes of each row; no row is null or shorter."""
    offsets, data = _parts(column)
    tails: np.ndarray = data[offsets[1:, np.newaxis] - width + np.arange(width)]
    return tails


def big_endian(numbers: Int64s) -> np.ndarray:
    """Each number's 8 bytes."""
    return numbers.astype(">i8").view(np.uint8).reshape(-1, 8)


def _parts(column: pa.BinaryArray) -> tuple[Int64s, np.ndarray]:
    """Where rows begin, from 0 on, and all their bytes."""
    assert not column.null_count
    raw = np.frombuffer(column.buffers()[1], dtype=np.int32)
    offsets = raw[column.offset : column.offset + len(column) + 1].astype(np.int64)
    held = column.buffers()[2]
    data = np.frombuffer(held if held is not None else b"", dtype=np.uint8)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _binary(begins: Int64s, data: np.ndarray) -> pa.BinaryArray:
    buffers = [
        None,
        pa.py_buffer(begins.astype(np.int32)),
        pa.py_buffer(np.ascontiguousarray(data)),
    ]
    return pa.Array.from_buffers(pa.binary(), len(begins) - 1, buffers)
