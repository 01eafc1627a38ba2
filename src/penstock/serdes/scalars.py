"""Kafka's own serdes of single values, with whole columns of numbers and text done in C."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.serdes.contract import Serde

T = TypeVar("T")
# A call into Arrow costs as much as decoding so many texts here; slices of one record are common.
_FEW = 64


@dataclass(frozen=True)
class BytesSerde(Serde[bytes]):
    """Bytes as they are."""

    name: ClassVar[str] = "bytes"
    immutable: ClassVar[bool] = True
    canonical: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def serialize(self, value: bytes) -> bytes:
        return _expect(value, bytes)

    def deserialize(self, data: bytes) -> bytes:
        return data

    def deserialize_column(self, array: pa.BinaryArray) -> list[bytes | None]:
        values: list[bytes | None] = array.to_pylist()
        return values

    def serialize_column(self, values: Sequence[bytes | None]) -> pa.BinaryArray:
        # Arrow would take texts, too, and what can be changed in place.
        if set(map(type, values)) <= {bytes, type(None)}:
            return pa.array(values, type=pa.binary())
        return super().serialize_column(values)

    def check_column(self, array: pa.BinaryArray) -> None:
        del array  # any bytes are bytes


@dataclass(frozen=True)
class StringSerde(Serde[str]):
    """Text as UTF-8."""

    name: ClassVar[str] = "string"
    immutable: ClassVar[bool] = True
    canonical: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def serialize(self, value: str) -> bytes:
        try:
            return str.encode(value)
        except TypeError:
            raise TypeError(f"expected str, got {type(value).__name__}") from None

    def deserialize(self, data: bytes) -> str:
        return data.decode()

    def deserialize_column(self, array: pa.BinaryArray) -> list[str | None]:
        if len(array) <= _FEW:
            return super().deserialize_column(array)
        texts: list[str | None] = array.cast(pa.string()).to_pylist()
        return texts

    def serialize_column(self, values: Sequence[str | None]) -> pa.BinaryArray:
        column = None if len(values) <= _FEW else _texts(values)
        return super().serialize_column(values) if column is None else column.cast(pa.binary())

    def check_column(self, array: pa.BinaryArray) -> list[str | None] | None:
        if len(array) <= _FEW:
            return super().deserialize_column(array)
        array.cast(pa.string())
        return None


class NumberColumns:
    """Columns of big-endian numbers of one width, read and written as one block of memory."""

    width: ClassVar[int]
    big_endian: ClassVar[str]
    native: ClassVar[Any]

    def read(self, array: pa.BinaryArray) -> npt.NDArray[Any]:
        """The numbers of a column, 0 at nulls; raises `ValueError` for another length."""
        present = array.drop_null() if array.null_count else array
        if not _all_have_length(present, self.width):
            raise ValueError(f"a number must have {self.width} bytes")
        start = present.offset
        offsets = np.frombuffer(present.buffers()[1], dtype=np.int32)
        data = present.buffers()[2]
        if data is None or len(present) == 0:
            return np.zeros(len(array), dtype=self.native)
        numbers = np.frombuffer(
            data, dtype=self.big_endian, count=len(present), offset=int(offsets[start])
        ).astype(self.native)
        if not array.null_count:
            return numbers
        spread = np.zeros(len(array), dtype=self.native)
        spread[array.is_valid().to_numpy(zero_copy_only=False)] = numbers
        return spread

    def write(
        self, numbers: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None
    ) -> pa.BinaryArray:
        """The column of these numbers, null where not `valid`."""
        width = self.width
        data = pa.py_buffer(np.ascontiguousarray(numbers.astype(self.big_endian)))
        offsets = np.arange(0, width * len(numbers) + 1, width, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), data]
        if valid is not None and not valid.all():
            buffers[0] = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)


class _Whole(NumberColumns, Serde[int]):
    """Whole numbers, big-endian, signed: an `int`, or what says which it is, as numpy's do."""

    immutable: ClassVar[bool] = True
    canonical: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    letter: ClassVar[str]
    """What `struct` calls them."""

    def serialize(self, value: int) -> bytes:
        try:
            return operator.index(value).to_bytes(self.width, "big", signed=True)
        except TypeError:
            raise TypeError(f"expected int, got {type(value).__name__}") from None
        except OverflowError as error:
            raise ValueError(f"{value} does not fit into {8 * self.width} bits") from error

    def deserialize(self, data: bytes) -> int:
        if len(data) != self.width:
            raise ValueError(f"a {self.name} has {self.width} bytes, not {len(data)}")
        return int.from_bytes(data, "big", signed=True)

    def deserialize_column(self, array: pa.BinaryArray) -> list[int | None]:
        return _with_nulls(self.read(array).tolist(), array)

    def serialize_column(self, values: Sequence[int | None]) -> pa.BinaryArray:
        if len(values) <= _FEW:
            return super().serialize_column(values)
        # Not by Arrow, which cuts a fraction off and says nothing.
        try:
            return self.write(self._packed(values))
        except struct.error:
            valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        try:
            # There are nulls among them, or what is no such number.
            return self.write(self._packed([0 if each is None else each for each in values]), valid)
        except struct.error:
            return super().serialize_column(values)  # It says which one it is.

    def _packed(self, values: Sequence[Any]) -> npt.NDArray[Any]:
        data = struct.pack(f">{len(values)}{self.letter}", *values)
        return np.frombuffer(data, dtype=self.big_endian)

    def check_column(self, array: pa.BinaryArray) -> None:
        self.read(array)


@dataclass(frozen=True)
class LongSerde(_Whole):
    """A whole number as 8 bytes, big-endian, signed: Kafka's Long."""

    name: ClassVar[str] = "long"
    fixed_length: ClassVar[int | None] = 8
    width: ClassVar[int] = 8
    big_endian: ClassVar[str] = ">i8"
    letter: ClassVar[str] = "q"
    native: ClassVar[Any] = np.int64


@dataclass(frozen=True)
class IntegerSerde(_Whole):
    """A whole number as 4 bytes, big-endian, signed: Kafka's Integer."""

    name: ClassVar[str] = "integer"
    fixed_length: ClassVar[int | None] = 4
    width: ClassVar[int] = 4
    big_endian: ClassVar[str] = ">i4"
    letter: ClassVar[str] = "i"
    native: ClassVar[Any] = np.int32


@dataclass(frozen=True)
class ShortSerde(_Whole):
    """A whole number as 2 bytes, big-endian, signed: Kafka's Short."""

    name: ClassVar[str] = "short"
    fixed_length: ClassVar[int | None] = 2
    width: ClassVar[int] = 2
    big_endian: ClassVar[str] = ">i2"
    letter: ClassVar[str] = "h"
    native: ClassVar[Any] = np.int16


class _Floating(NumberColumns, Serde[float]):
    """Floating-point numbers, big-endian."""

    immutable: ClassVar[bool] = True
    canonical: ClassVar[bool] = True
    layout: ClassVar[str]

    def serialize(self, value: float) -> bytes:
        try:
            return struct.pack(self.layout, value)
        except OverflowError as error:
            raise ValueError(f"{value} does not fit into {8 * self.width} bits") from error
        except struct.error as error:
            raise TypeError(f"expected float, got {type(value).__name__}") from error

    def deserialize(self, data: bytes) -> float:
        if len(data) != self.width:
            raise ValueError(f"a {self.name} has {self.width} bytes, not {len(data)}")
        return float(struct.unpack(self.layout, data)[0])

    def deserialize_column(self, array: pa.BinaryArray) -> list[float | None]:
        return _with_nulls(self.read(array).tolist(), array)

    def serialize_column(self, values: Sequence[float | None]) -> pa.BinaryArray:
        try:
            column = pa.array(values, type=pa.float64(), from_pandas=False)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return super().serialize_column(values)  # Some numbers Python alone can read.
        numbers, valid = _numbers_and_validity(column)
        return self.write(self.narrowed(numbers), valid)

    def narrowed(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The numbers in this serde's width."""
        return numbers

    def check_column(self, array: pa.BinaryArray) -> None:
        self.read(array)


@dataclass(frozen=True)
class DoubleSerde(_Floating):
    """A floating-point number as 8 bytes, big-endian: Kafka's Double."""

    name: ClassVar[str] = "double"
    fixed_length: ClassVar[int | None] = 8
    width: ClassVar[int] = 8
    big_endian: ClassVar[str] = ">f8"
    native: ClassVar[Any] = np.float64
    layout: ClassVar[str] = ">d"


@dataclass(frozen=True)
class FloatSerde(_Floating):
    """A floating-point number as 4 bytes, big-endian: Kafka's Float.

    Python's floats have 8 bytes: what is read back is the nearest number that 4 bytes can hold.

    >>> FloatSerde().deserialize(FloatSerde().serialize(0.1))
    0.10000000149011612
    """

    name: ClassVar[str] = "float"
    fixed_length: ClassVar[int | None] = 4
    width: ClassVar[int] = 4
    big_endian: ClassVar[str] = ">f4"
    native: ClassVar[Any] = np.float32
    layout: ClassVar[str] = ">f"

    def narrowed(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with np.errstate(over="ignore"):
            narrow = numbers.astype(np.float32)
        if bool((np.isinf(narrow) & np.isfinite(numbers)).any()):
            raise ValueError("a number does not fit into 32 bits")
        return narrow


@dataclass(frozen=True)
class BoolSerde(Serde[bool]):
    """Truth as one byte, 0 or 1: Kafka's Boolean."""

    name: ClassVar[str] = "boolean"
    immutable: ClassVar[bool] = True
    canonical: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    fixed_length: ClassVar[int | None] = 1

    def serialize(self, value: bool) -> bytes:
        return b"\x01" if _expect(value, bool) else b"\x00"

    def deserialize(self, data: bytes) -> bool:
        if data not in (b"\x00", b"\x01"):
            raise ValueError(f"a boolean is one byte, 0 or 1, not {data[:8]!r}")
        return data == b"\x01"


_UUID_TEXT = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True)
class UuidSerde(Serde[UUID]):
    """A UUID as its text, 36 characters in lower case: Kafka's UUID. It is read in upper case, too.

    >>> UuidSerde().serialize(UUID(int=1))
    b'00000000-0000-0000-0000-000000000001'
    """

    name: ClassVar[str] = "uuid"
    immutable: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    fixed_length: ClassVar[int | None] = 36

    def serialize(self, value: UUID) -> bytes:
        return str(_expect(value, UUID)).encode()

    def deserialize(self, data: bytes) -> UUID:
        # Python's constructor takes many spellings, among them some that Java writes nowhere.
        if _UUID_TEXT.fullmatch(data) is None:
            raise ValueError(f"a UUID is 36 characters of text, not {data[:40]!r}")
        return UUID(data.decode())


def _texts(values: Sequence[Any]) -> pa.Array | None:
    """The column, if all values are texts. (Arrow that is told so takes bytes for them.)"""
    try:
        column = pa.array(values, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    return column if column.type == pa.string() else None


def _expect(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _all_have_length(array: pa.BinaryArray, length: int) -> bool:
    if len(array) == 0:
        return True
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    lengths = np.diff(offsets[array.offset : array.offset + len(array) + 1])
    return bool((lengths == length).all())


def _with_nulls(values: list[Any], array: pa.BinaryArray) -> list[Any]:
    if array.null_count:
        for index in np.flatnonzero(~array.is_valid().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values


def _numbers_and_validity(
    column: pa.Array,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    if not column.null_count:
        return column.to_numpy(), None
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(), valid
