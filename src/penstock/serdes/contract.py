"""What every serde can do, and the loops that make a column of single values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, Literal, TypeVar

import pyarrow as pa

T = TypeVar("T")
RecordPart = Literal["key", "value"]


class Serde(ABC, Generic[T]):
    """Turns a `T` into bytes and back; `None` never reaches it, since Kafka has a null of its own.

    Subclass it as a frozen dataclass, so that it can be compared and sent to workers:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Celsius(Serde[float]):
    ...     name = "celsius"
    ...     def serialize(self, value: float) -> bytes:
    ...         return f"{value:.1f}C".encode()
    ...     def deserialize(self, data: bytes) -> float:
    ...         return float(data.removesuffix(b"C"))
    >>> Celsius().deserialize(b"21.5C")
    21.5

    Bytes that cannot be decoded raise `ValueError`.
    """

    name: ClassVar[str] = "custom"
    # Whether values can be shared between steps without a copy: a mutable value that a function
    # changes in place would otherwise change what was already written.
    immutable: ClassVar[bool] = False
    # Whether what is read is the very value that was written, and no rounded one: only then may a
    # step that will read a value again keep it instead.
    exact: ClassVar[bool] = False
    # Whether no two spellings in bytes are read as one value. Stores find keys by their bytes: as
    # in Kafka Streams, keys that others may have spelt differently are written anew before that.
    canonical: ClassVar[bool] = False
    # The length of every serialised value, where it is always the same.
    fixed_length: ClassVar[int | None] = None

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """The value's bytes."""

    @abstractmethod
    def deserialize(self, data: bytes) -> T:
        """The value of these bytes; raises `ValueError` where they are not one."""

    def for_topic(self, topic: str, part: RecordPart) -> Serde[T]:
        """The serde for the keys or the values of one topic; most are the same for all of them.

        To be called where the topic is known, with the name that Kafka has for it.
        """
        del topic, part
        return self

    def deserialize_column(self, array: pa.BinaryArray) -> list[T | None]:
        """The values of a column; a null stays `None`."""
        decode = self.deserialize
        return [None if data is None else decode(data) for data in array.to_pylist()]

    def serialize_column(self, values: Sequence[T | None]) -> pa.BinaryArray:
        """The column of these values; `None` becomes a null."""
        encode = self.serialize
        return pa.array(
            [None if value is None else encode(value) for value in values], type=pa.binary()
        )

    def check_column(self, array: pa.BinaryArray) -> list[T | None] | None:
        """Raise `ValueError` unless all bytes can be decoded.

        Returns the values if finding out took decoding them, so that it is not done twice.
        """
        return self.deserialize_column(array)
