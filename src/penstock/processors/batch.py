"""Rows on their way through the steps, a column at a time."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.processors.records import Int64s
from penstock.serdes import DoubleSerde, LongSerde, Serde
from penstock.serdes.columns import bytes_of_column, column_form, column_of_bytes

Bools = npt.NDArray[np.bool_]


class UnreadableError(ValueError):
    """Bytes that a step made and that its serde cannot read; `unreadable` says where."""


class Column:
    """Keys or values: bytes, Python values, an Arrow array of values, or several of these; each is
    made when first asked for."""

    __slots__ = ("_arrow", "_binary", "_foreign", "_objects", "_serde", "_shown")

    def __init__(
        self,
        *,
        binary: pa.BinaryArray | None = None,
        serde: Serde[Any] | None = None,
        objects: list[Any] | None = None,
        arrow: pa.Array | None = None,
        foreign: bool = False,
    ) -> None:
        self._binary = binary
        self._serde = serde
        self._objects = objects
        self._arrow = arrow
        # Values that a user's function has seen may have been changed in place.
        self._shown = False
        # Whether others, who wrote these bytes, may have written equal values otherwise.
        self._foreign = foreign

    def objects(self) -> list[Any]:
        """The Python values, `None` for nulls, to be shown to a user's function."""
        self._shown = True
        return self._values()

    def check(self) -> None:
        """Raise `ValueError` unless every row of the column is a value."""
        self._values()

    def arrow(self, serde: Serde[Any]) -> pa.Array | list[Any]:
        """The values of this serde as an Arrow array; as a list where Arrow has nothing for them.

        Raises `TypeError`, `ValueError` or `OverflowError` for values that are not of the serde.
        """
        form = column_form(serde)
        if form is None:
            return list(self.objects())
        untouched = serde.immutable or not self._shown
        if untouched and self._arrow is not None and self._arrow.type == form.type:
            return self._arrow
        made = None
        if untouched and self._binary is not None and self._serde == serde:
            made = column_of_bytes(serde, self._binary)
        if made is None:
            made = form.column(self._values())
        self._arrow = made
        return made

    def binary(self, serde: Serde[Any]) -> pa.BinaryArray:
        """The bytes by this serde; those that came by the same serde are passed on untouched, but
        for foreign ones."""
        same, untouched = self._serde == serde, serde.immutable or not self._shown
        if same and untouched and self._binary is not None and not self._foreign:
            return self._binary
        made = None
        if same and untouched and self._arrow is not None:
            made = bytes_of_column(serde, self._arrow)
        if made is None:
            made = serde.serialize_column(self._values())
        if self._binary is None or (same and self._foreign):
            self._binary, self._serde, self._foreign = made, serde, False
        return made

    def as_came(self) -> pa.BinaryArray | None:
        """The bytes that the column was made of."""
        return self._binary

    def numbers(self, serde: LongSerde | DoubleSerde) -> npt.NDArray[Any] | None:
        """The values, if each is what this serde reads: an `int` for it or a `float`, no null."""
        if self._binary is not None and isinstance(self._serde, LongSerde | DoubleSerde):
            same = self._serde == serde and not self._binary.null_count
            return serde.read(self._binary) if same else None
        values, kind = self._values(), int if isinstance(serde, LongSerde) else float
        if set(map(type, values)) != {kind}:
            return None
        try:
            return np.array(values, dtype=serde.native)
        except OverflowError:
            return None

    def present(self) -> Bools | None:
        """Which rows are not null; `None` if all are."""
        column = self._binary if self._binary is not None else self._arrow
        if column is not None:
            if not column.null_count:
                return None
            valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
            return valid
        objects = self._values()
        # Not `None in objects`: that would call a value's own `__eq__`.
        if not any(map(operator.is_, objects, repeat(None))):
            return None
        return np.fromiter(map(operator.is_not, objects, repeat(None)), np.bool_, len(objects))

    def take(self, rows: Int64s) -> Column:
        """The column of these rows."""
        indices = pa.array(rows)
        objects = self._objects
        if objects is not None:
            objects = [objects[row] for row in rows.tolist()]
        taken = Column(
            binary=None if self._binary is None else self._binary.take(indices),
            serde=self._serde,
            objects=objects,
            arrow=None if self._arrow is None else self._arrow.take(indices),
            foreign=self._foreign,
        )
        taken._shown = self._shown
        return taken

    def _values(self) -> list[Any]:
        if self._objects is None:
            assert self._serde is not None
            # Of bytes made from an array, as of those from Kafka, the array is the shorter way.
            arrow = self._arrow
            form = None if arrow is None else column_form(self._serde)
            if arrow is not None and form is not None and arrow.type == form.type:
                self._objects = form.values(arrow)
            else:
                self._objects = self._read(self._serde)
        return self._objects

    def _read(self, serde: Serde[Any]) -> list[Any]:
        try:
            return serde.deserialize_column(self._binary)
        except ValueError as error:
            raise UnreadableError(f"as {serde.name}: {error}") from error


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
    computed: Mapping[tuple[str, int], pa.Array] = field(default_factory=dict)
    """By step and number of the result: what Spark computed of the rows already."""
    second_topic: str = ""
    second: Bools | None = None
    """Behind a join of streams: which rows' records are of the second topic."""

    def __len__(self) -> int:
        return len(self.offsets)

    def topic_of(self, row: int) -> str:
        """The topic of the record that caused a row."""
        is_second = self.second is not None and self.second[row]
        return self.second_topic if is_second else self.topic

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
            computed={name: each.take(pa.array(rows)) for name, each in self.computed.items()},
            second=None if self.second is None else self.second[rows],
        )

    def keep(self, mask: Bools) -> Batch:
        """The rows where the mask is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))
