"""Bytes to Arrow without detours."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pyarrow as pa


def int_array(values: list[int]) -> pa.Array:
    """These numbers as a column of 32 bits.

    >>> int_array([1, 2]).to_pylist()
    [1, 2]
    """
    buffer = pa.py_buffer(np.array(values, np.int32))
    return pa.Int32Array.from_buffers(pa.int32(), len(values), [None, buffer])


def binary_array(values: list[bytes | None]) -> pa.Array:
    """These values as a column.

    `pa.array` would do, but its first call imports pandas, which delays an instance's first answer
    by a second.

    >>> binary_array([b"a", None, b"bc"]).to_pylist()
    [b'a', None, b'bc']
    """
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    data = [value or b"" for value in values]
    offsets = np.fromiter(accumulate(map(len, data), initial=0), np.int64, len(data) + 1)
    column = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(data),
        [
            pa.py_buffer(np.packbits(present, bitorder="little")),
            pa.py_buffer(offsets),
            pa.py_buffer(b"".join(data)),
        ],
    )
    return column.cast(pa.binary())
