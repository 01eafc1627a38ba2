"""Lists in the bytes of Kafka's ListSerde.

    flag 0    items of one length: number of nulls, their positions, number of items, the items
    flag 1    any items: number of items, and for each its length (-1 for a null) and its bytes

All numbers have 4 bytes, big-endian. The flag is the first byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from penstock.serdes.contract import RecordPart, Serde
from penstock.serdes.scalars import (
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    UuidSerde,
)

T = TypeVar("T")

_FIXED = b"\x00"
_VARIABLE = b"\x01"
_NULL_LENGTH = -1
_NUMBER = struct.Struct(">i")
_FIXED_IN_JAVA = (DoubleSerde, FloatSerde, IntegerSerde, LongSerde, ShortSerde, UuidSerde)


@dataclass(frozen=True)
class OpenList:
    """A list's bytes: what stands before the number of items, that number, and the items."""

    head: bytes
    count: int
    body: bytes


@dataclass(frozen=True)
class ListSerde(Serde[Sequence[T | None]]):
    """A list in the bytes of Kafka's `ListSerde`; `list[int]` as a type stands for JSON instead.

    >>> from penstock.serdes import StringSerde
    >>> ListSerde(StringSerde()).serialize(["a", None]).hex()
    '01000000020000000161ffffffff'

    Java 4.1.1 cannot read a list whose last item is empty text or empty bytes, not even its own.
    """

    inner: Serde[T]
    name: ClassVar[str] = "list"

    def serialize(self, value: Sequence[T | None]) -> bytes:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise TypeError(f"expected list, got {type(value).__name__}")
        encode = self.inner.serialize
        items = [None if item is None else encode(item) for item in value]
        return _variable(items) if _length_in_java(self.inner) is None else _fixed(items)

    def deserialize(self, data: bytes) -> list[T | None]:
        try:
            items = self._items(data)
        except struct.error as error:
            raise ValueError("the list ends before its last item") from error
        decode = self.inner.deserialize
        return [None if item is None else decode(item) for item in items]

    def for_topic(self, topic: str, part: RecordPart) -> ListSerde[T]:
        return replace(self, inner=self.inner.for_topic(topic, part))

    @property
    def tells_lengths(self) -> bool:
        """Whether each item has its length in front."""
        return _length_in_java(self.inner) is None

    def opened(self, data: bytes | None) -> OpenList:
        """A list to which items can be added without taking it apart; None stands for an empty one.

        Raises `ValueError` for bytes that are no list.
        """
        flag = _VARIABLE if self.tells_lengths else _FIXED
        if data is None or data[:1] != flag:
            data = self.serialize([] if data is None else self.deserialize(data))
        at = 1
        if flag == _FIXED:
            at = 5 + 4 * _number(data, 1)
        count, body = _number(data, at), len(data) - at - 4
        length = _length_in_java(self.inner)
        least = 0 if length is None else length * (count - (at - 5) // 4)
        if at < 1 or count < 0 or (body < 4 * count if length is None else body != least):
            raise ValueError(f"a list of {len(data)} bytes cannot have {count} items")
        return OpenList(data[:at], count, data[at + 4 :])

    def added(self, data: bytes, item: T | None) -> bytes:
        """The bytes of a list with one more item; None adds nothing."""
        if item is None:
            return data
        held = self.opened(data)
        encoded = self.inner.serialize(item)
        length = _NUMBER.pack(len(encoded)) if self.tells_lengths else b""
        return b"".join((held.head, _NUMBER.pack(held.count + 1), held.body, length, encoded))

    def _items(self, data: bytes) -> list[bytes | None]:
        flag = data[:1]
        if flag == _VARIABLE:
            return _read_variable(data)
        if flag != _FIXED:
            raise ValueError(f"a list begins with 0 or 1, not {flag!r}")
        length = _length_in_java(self.inner)
        if length is None:
            raise ValueError(f"a list of items of one length cannot hold {self.inner.name}")
        return _read_fixed(data, length)


def _length_in_java(inner: Serde[Any]) -> int | None:
    """The length of every item, if Java's ListSerde knows it; of a boolean's it does not."""
    return inner.fixed_length if isinstance(inner, _FIXED_IN_JAVA) else None


def _fixed(items: list[bytes | None]) -> bytes:
    nulls = [position for position, item in enumerate(items) if item is None]
    numbers = [len(nulls), *nulls, len(items)]
    return b"".join(
        [_FIXED, *map(_NUMBER.pack, numbers), *(item for item in items if item is not None)]
    )


def _variable(items: list[bytes | None]) -> bytes:
    parts = [_VARIABLE, _NUMBER.pack(len(items))]
    for item in items:
        if item is None:
            parts.append(_NUMBER.pack(_NULL_LENGTH))
        else:
            parts += (_NUMBER.pack(len(item)), item)
    return b"".join(parts)


def _read_fixed(data: bytes, length: int) -> list[bytes | None]:
    (null_count,) = _NUMBER.unpack_from(data, 1)
    if null_count < 0:
        raise ValueError(f"a list cannot have {null_count} nulls")
    nulls = {position for (position,) in _NUMBER.iter_unpack(_slice(data, 5, 4 * null_count))}
    start = 5 + 4 * null_count
    (count,) = _NUMBER.unpack_from(data, start)
    start += 4
    if not all(0 <= position < count for position in nulls):
        raise ValueError(f"a null of the list is outside its {count} items")
    if len(data) != start + length * (count - len(nulls)):
        raise ValueError(f"a list of {count} items, {len(nulls)} null, has other bytes than these")
    starts = iter(range(start, len(data), length))
    return [
        None if position in nulls else data[(at := next(starts)) : at + length]
        for position in range(count)
    ]


def _read_variable(data: bytes) -> list[bytes | None]:
    (count,) = _NUMBER.unpack_from(data, 1)
    if not 0 <= count <= len(data):
        raise ValueError(f"a list of {len(data)} bytes cannot have {count} items")
    items: list[bytes | None] = []
    at = 5
    for _ in range(count):
        (length,) = _NUMBER.unpack_from(data, at)
        at += 4
        if length == _NULL_LENGTH:
            items.append(None)
            continue
        items.append(_slice(data, at, length))
        at += length
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the list's last item")
    return items


def _number(data: bytes, at: int) -> int:
    try:
        number: int = _NUMBER.unpack_from(data, at)[0]
    except struct.error as error:
        raise ValueError("the list ends before its items") from error
    return number


def _slice(data: bytes, start: int, length: int) -> bytes:
    if length < 0 or start + length > len(data):
        raise ValueError(f"{length} bytes of the list are not there")
    return data[start : start + length]
