"""Kafka's own serdes: bytes, String, Long, Double, Boolean, with whole columns done in C."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.serdes.contract import Serde

T = TypeVar("T")


@dataclass(frozen=True)
class BytesSerde(Serde[bytes]):
    """Bytes as they are."""

    name: ClassVar[str] = "bytes"
    immutable: ClassVar[bool] = True

    def serialize(self, value: bytes) -> bytes:
        return _expect(value, bytes)

    def deserialize(self, data: bytes) -> bytes:
        return data

    def deserialize_column(self, array: pa.BinaryArray) -> list[bytes | None]:
        values: list[bytes | None] = array.to_pylist()
        return values

    def serialize_column(self, values: Sequence[bytes | None]) -> pa.BinaryArray:
        return pa.array(values, type=pa.binary())

    def check_column(self, array: pa.BinaryArray) -> None:
        del array  # any bytes are bytes


@dataclass(frozen=True)
class StringSerde(Serde[str]):
    """Text as UTF-8."""

    name: ClassVar[str] = "string"
    immutable: ClassVar[bool] = True

    def serialize(self, value: str) -> bytes:
        return _expect(value, str).encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()

    def deserialize_column(self, array: pa.BinaryArray) -> list[str | None]:
        texts: list[str | None] = array.cast(pa.string()).to_pylist()
        return texts

    def serialize_column(self, values: Sequence[str | None]) -> pa.BinaryArray:
        return pa.array(values, type=pa.string()).cast(pa.binary())

    def check_column(self, array: pa.BinaryArray) -> None:
        array.cast(pa.string())


class _EightBytes:
    """Columns of 8-byte big-endian numbers, read and written as one block of memory."""

    big_endian: ClassVar[str]
    native: ClassVar[Any]

    def read(self, array: pa.BinaryArray) -> npt.NDArray[Any]:
        """The numbers of a column, 0 at nulls; raises `ValueError` for another length than 8."""
        present = array.drop_null() if array.null_count else array
        if not _all_have_length(present, 8):
            raise ValueError("a number must have 8 bytes")
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
        data = pa.py_buffer(np.ascontiguousarray(numbers.astype(self.big_endian)))
        offsets = np.arange(0, 8 * len(numbers) + 1, 8, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), data]
        if valid is not None and not valid.all():
            buffers[0] = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)


@dataclass(frozen=True)
class LongSerde(Serde[int], _EightBytes):
    """A whole number as 8 bytes, big-endian, signed: Kafka's Long."""

    name: ClassVar[str] = "long"
    immutable: ClassVar[bool] = True
    fixed_length: ClassVar[int | None] = 8
    big_endian: ClassVar[str] = ">i8"
    native: ClassVar[Any] = np.int64

    def serialize(self, value: int) -> bytes:
        try:
            return _expect(value, int).to_bytes(8, "big", signed=True)
        except OverflowError as error:
            raise ValueError(f"{value} does not fit into 64 bits") from error

    def deserialize(self, data: bytes) -> int:
        if len(data) != 8:
            raise ValueError(f"a long has 8 bytes, not {len(data)}")
        return int.from_bytes(data, "big", signed=True)

    def deserialize_column(self, array: pa.BinaryArray) -> list[int | None]:
        return _with_nulls(self.read(array).tolist(), array)

    def serialize_column(self, values: Sequence[int | None]) -> pa.BinaryArray:
        column = pa.array(values, type=pa.int64())
        return self.write(*_numbers_and_validity(column))

    def check_column(self, array: pa.BinaryArray) -> None:
        self.read(array)


@dataclass(frozen=True)
class DoubleSerde(Serde[float], _EightBytes):
    """A floating-point number as 8 bytes, big-endian: Kafka's Double."""

    name: ClassVar[str] = "double"
    immutable: ClassVar[bool] = True
    fixed_length: ClassVar[int | None] = 8
    big_endian: ClassVar[str] = ">f8"
    native: ClassVar[Any] = np.float64

    def serialize(self, value: float) -> bytes:
        return struct.pack(">d", value)

    def deserialize(self, data: bytes) -> float:
        if len(data) != 8:
            raise ValueError(f"a double has 8 bytes, not {len(data)}")
        return float(struct.unpack(">d", data)[0])

    def deserialize_column(self, array: pa.BinaryArray) -> list[float | None]:
        return _with_nulls(self.read(array).tolist(), array)

    def serialize_column(self, values: Sequence[float | None]) -> pa.BinaryArray:
        column = pa.array(values, type=pa.float64(), from_pandas=False)
        return self.write(*_numbers_and_validity(column))

    def check_column(self, array: pa.BinaryArray) -> None:
        self.read(array)


@dataclass(frozen=True)
class BoolSerde(Serde[bool]):
    """Truth as one byte, 0 or 1: Kafka's Boolean."""

    name: ClassVar[str] = "boolean"
    immutable: ClassVar[bool] = True
    fixed_length: ClassVar[int | None] = 1

    def serialize(self, value: bool) -> bytes:
        return b"\x01" if _expect(value, bool) else b"\x00"

    def deserialize(self, data: bytes) -> bool:
        if data not in (b"\x00", b"\x01"):
            raise ValueError(f"a boolean is one byte, 0 or 1, not {data[:8]!r}")
        return data == b"\x01"


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
