"""Numbers for keys: each distinct key of a slice gets a slot, and its state is read once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.processors.records import Int64s


class Slots:
    """Maps keys to slots 0, 1, 2, ... in order of appearance."""

    def __init__(self) -> None:
        self._chunks: list[pa.BinaryArray] = []
        self._slots: dict[bytes | None, int] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def assign(self, keys: pa.BinaryArray) -> tuple[Int64s, pa.BinaryArray]:
        """Each row's slot, and the keys that were not known before, in the order of their slots."""
        encoded = keys.dictionary_encode()
        local = encoded.indices.to_numpy().astype(np.int64, copy=False)
        distinct = encoded.dictionary
        if not self._count:
            # Most slices are one batch: then no dictionary of Python bytes is ever needed.
            self._append(distinct)
            return local, distinct
        known = self._known()
        names = distinct.to_pylist()
        found = np.fromiter((known.get(name, -1) for name in names), np.int64, len(names))
        fresh = np.flatnonzero(found < 0)
        found[fresh] = np.arange(self._count, self._count + len(fresh))
        known.update((names[i], slot) for i, slot in enumerate_from(fresh, self._count))
        new = distinct.take(pa.array(fresh))
        self._append(new)
        return found[local], new

    def keys(self, slots: Int64s) -> pa.BinaryArray:
        """The keys of these slots."""
        if len(self._chunks) > 1:
            self._chunks = [pa.concat_arrays(self._chunks)]
        return self._chunks[0].take(pa.array(slots))

    def _append(self, keys: pa.BinaryArray) -> None:
        self._chunks.append(keys)
        self._count += len(keys)

    def _known(self) -> dict[bytes | None, int]:
        if self._slots is None:
            names = [name for chunk in self._chunks for name in chunk.to_pylist()]
            self._slots = dict(zip(names, range(self._count), strict=True))
        return self._slots


def enumerate_from(positions: Int64s, first: int) -> list[tuple[int, int]]:
    """Pairs of each position with consecutive numbers."""
    return list(zip(positions.tolist(), range(first, first + len(positions)), strict=True))
