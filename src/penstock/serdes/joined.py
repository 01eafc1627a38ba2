"""Records of a join of streams that wait for a partner, in Kafka Streams' bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from penstock.serdes.contract import RecordPart, Serde

_TIME_SIDE = struct.Struct(">qb")
_COUNT = struct.Struct(">i")
_VARIABLE_SIZE = 1


class TimedSide(NamedTuple):
    """A key at a time, of the left stream or the right one."""

    timestamp: int
    left: bool
    key: Any


class SideValue(NamedTuple):
    """A value of the left stream or of the right one."""

    left: bool
    value: Any


@dataclass(frozen=True)
class TimedSideSerde(Serde[TimedSide]):
    """8 bytes of time, 1 for left or 0 for right, the key: so entries sort by time."""

    inner: Serde[Any]
    name: ClassVar[str] = "timed-side"

    def for_topic(self, topic: str, part: RecordPart) -> TimedSideSerde:
        return replace(self, inner=self.inner.for_topic(topic, part))

    def serialize(self, value: TimedSide) -> bytes:
        return timed_side_key(value.timestamp, value.left, self.inner.serialize(value.key))

    def deserialize(self, data: bytes) -> TimedSide:
        timestamp, left = _TIME_SIDE.unpack_from(data)
        return TimedSide(timestamp, left == 1, self.inner.deserialize(data[_TIME_SIDE.size :]))


@dataclass(frozen=True)
class JoinSideSerde(Serde[list[SideValue]]):
    """All values that wait under one key and time.

    `for_topic` tells neither side: two schemas would be one subject's. Give it serdes that know.
    """

    left: Serde[Any]
    right: Serde[Any]
    name: ClassVar[str] = "join-side"

    def serialize(self, value: list[SideValue]) -> bytes:
        parts = [bytes((_VARIABLE_SIZE,)), _COUNT.pack(len(value))]
        for left, each in value:
            data = (self.left if left else self.right).serialize(each)
            parts += [_COUNT.pack(len(data) + 1), bytes((1 if left else 0,)), data]
        return b"".join(parts)

    def deserialize(self, data: bytes) -> list[SideValue]:
        if len(data) < 1 + _COUNT.size or data[0] != _VARIABLE_SIZE:
            raise ValueError("a list of waiting values begins with the byte 1 and its length")
        (count,) = _COUNT.unpack_from(data, 1)
        at = 1 + _COUNT.size
        values = []
        for _ in range(count):
            (length,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
            left = data[at] == 1
            serde = self.left if left else self.right
            values.append(SideValue(left, serde.deserialize(data[at + 1 : at + length])))
            at += length
        return values


def side_count(data: bytes) -> int:
    """How many values wait under one key and time; 0 of bytes that are no list of them."""
    if len(data) < 1 + _COUNT.size:
        return 0
    count: int = _COUNT.unpack_from(data, 1)[0]
    return count


def timed_side_key(timestamp: int, left: bool, key: bytes) -> bytes:
    """The key under which a record waits."""
    return _TIME_SIDE.pack(timestamp, left) + key


def timed_side_time(data: bytes) -> int:
    """The time of a waiting record's key."""
    timestamp: int = _TIME_SIDE.unpack_from(data)[0]
    return timestamp


def timed_side_is_left(data: bytes) -> bool:
    """Whether a waiting record's key says that it is of the left side."""
    return bool(_TIME_SIDE.unpack_from(data)[1])


def timed_side_rest(data: bytes) -> bytes:
    """The bytes of the record's own key."""
    return data[_TIME_SIDE.size :]
