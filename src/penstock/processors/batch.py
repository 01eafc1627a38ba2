"""Rows on their way through the steps, a column at a time."""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.processors.records import Int64s
from penstock.serdes import Serde

Bools = npt.NDArray[np.bool_]


class Column:
    """Keys or values: bytes, Python values, or both, each made when first asked for."""

    __slots__ = ("_binary", "_objects", "_serde", "_shown")

    def __init__(
        self,
        *,
        binary: pa.BinaryArray | None = None,
        serde: Serde[Any] | None = None,
        objects: list[Any] | None = None,
    ) -> None:
        self._binary = binary
        self._serde = serde
        self._objects = objects
        # Values that a user's function has seen may have been changed in place.
        self._shown = False

    def objects(self) -> list[Any]:
        """The Python values, `None` for nulls, to be shown to a user's function."""
        self._shown = True
        return self._values()

    def binary(self, serde: Serde[Any]) -> pa.BinaryArray:
        """The bytes by this serde; bytes that came by the same serde are passed on untouched."""
        if self._binary is not None and self._serde == serde:
            if serde.immutable or not self._shown:
                return self._binary
            return serde.serialize_column(self._values())
        column = serde.serialize_column(self._values())
        if self._binary is None:
            self._binary, self._serde = column, serde
        return column

    def present(self) -> Bools | None:
        """Which rows are not null; `None` if all are."""
        if self._binary is not None:
            if not self._binary.null_count:
                return None
            valid: Bools = self._binary.is_valid().to_numpy(zero_copy_only=False)
            return valid
        objects = self._values()
        # Not `None in objects`: that would call a value's own `__eq__`.
        if not any(map(operator.is_, objects, repeat(None))):
            return None
        return np.fromiter(map(operator.is_not, objects, repeat(None)), np.bool_, len(objects))

    def take(self, rows: Int64s) -> Column:
        """The column of these rows."""
        binary = None if self._binary is None else self._binary.take(pa.array(rows))
        objects = self._objects
        if objects is not None:
            objects = [objects[row] for row in rows.tolist()]
        taken = Column(binary=binary, serde=self._serde, objects=objects)
        taken._shown = self._shown
        return taken

    def _values(self) -> list[Any]:
        if self._objects is None:
            assert self._serde is not None
            self._objects = self._serde.deserialize_column(self._binary)
        return self._objects


@dataclass(frozen=True)
class Batch:
    """Rows in processing order.

    `offsets` are those of the records that caused the rows. `order` sorts rows of different
    branches as depth-first processing would meet them: one array, or more where one record caused
    several rows.
    """

    topic: str
    partition: int
    offsets: Int64s
    timestamps: Int64s
    keys: Column
    values: Column
    headers: pa.ListArray | None
    order: tuple[Int64s, ...]
    old: Column | None = None
    """In a table's changes, where a step needs it: the value before."""

    def __len__(self) -> int:
        return len(self.offsets)

    def replace(self, **changes: Any) -> Batch:
        """The same rows with other columns."""
        return dataclasses.replace(self, **changes)

    def take(self, rows: Int64s) -> Batch:
        """These rows."""
        return dataclasses.replace(
            self,
            offsets=self.offsets[rows],
            timestamps=self.timestamps[rows],
            keys=self.keys.take(rows),
            values=self.values.take(rows),
            headers=None if self.headers is None else self.headers.take(pa.array(rows)),
            order=tuple(each[rows] for each in self.order),
            old=None if self.old is None else self.old.take(rows),
        )

    def keep(self, mask: Bools) -> Batch:
        """The rows where the mask is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))
