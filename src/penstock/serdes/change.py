"""A table's change on its way through a repartition topic, in Kafka Streams' bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from penstock.serdes.contract import RecordPart, Serde

_OLD, _NEW, _BOTH = 0, 1, 2


class Change(NamedTuple):
    """A row's new value and the one before; None where there is none.

    In a table that keeps versions a row may come too late to be the `latest` of its key.
    """

    new: Any
    old: Any
    latest: bool = True


@dataclass(frozen=True)
class ChangeSerde(Serde[Change]):
    """The old value, the new one, or both, with a byte that says which.

    >>> from penstock.serdes import StringSerde
    >>> ChangeSerde(StringSerde()).serialize(Change(new="b", old="a"))
    b'\\x02ba\\x02'
    """

    inner: Serde[Any]
    name: ClassVar[str] = "change"

    def for_topic(self, topic: str, part: RecordPart) -> ChangeSerde:
        return replace(self, inner=self.inner.for_topic(topic, part))

    def serialize(self, value: Change) -> bytes:
        new = None if value.new is None else self.inner.serialize(value.new)
        old = None if value.old is None else self.inner.serialize(value.old)
        if new is None and old is None:
            raise ValueError("a change without any value cannot be written")
        if old is None:
            return new + bytes((_NEW,))  # type: ignore[operator]
        if new is None:
            return old + bytes((_OLD,))
        return _varint(len(new)) + new + old + bytes((_BOTH,))

    def deserialize(self, data: bytes) -> Change:
        if not data or data[-1] not in (_OLD, _NEW, _BOTH):
            raise ValueError("a change ends with the byte 0, 1 or 2")
        kind, rest = data[-1], data[:-1]
        if kind == _OLD:
            return Change(new=None, old=self.inner.deserialize(rest))
        if kind == _NEW:
            return Change(new=self.inner.deserialize(rest), old=None)
        length, start = _read_varint(rest)
        new, old = rest[start : start + length], rest[start + length :]
        return Change(new=self.inner.deserialize(new), old=self.inner.deserialize(old))


def _varint(number: int) -> bytes:
    # As Kafka writes numbers that may be negative: the sign is the lowest bit.
    number <<= 1
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_varint(data: bytes) -> tuple[int, int]:
    """The number, and where it ends."""
    number = 0
    for position, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << (7 * position)
        if not byte & 0x80:
            return number >> 1, position + 1
    raise ValueError("a length does not end")
