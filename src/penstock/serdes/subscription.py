"""What the two sides of a foreign-key join tell each other, in Kafka Streams' bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from penstock.serdes.contract import RecordPart, Serde

_LENGTH = struct.Struct(">i")
_NO_HASH = 0x80
_VERSION = 0x7F
_HASH_BYTES = 16
SUBSCRIPTION_VERSION = 1
RESPONSE_VERSION = 0


class Instruction(IntEnum):
    """What the right side is to do with a left row's reference."""

    DELETE = 0
    DELETE_AND_TELL = 1
    TELL_ALWAYS = 2
    TELL_IF_FOUND = 3


class Subscription(NamedTuple):
    """A left row's reference: the hash of the row's value, what to do, whose it is."""

    value_hash: bytes | None
    instruction: Instruction
    key: Any
    partition: int


class Response(NamedTuple):
    """A right row for a left one, which is still of that hash or has moved on."""

    value_hash: bytes | None
    value: Any
    partition: int


@dataclass(frozen=True)
class SubscriptionSerde(Serde[Subscription]):
    """Version and flag, instruction, hash if any, the left key, the left partition."""

    inner: Serde[Any]
    name: ClassVar[str] = "subscription"

    def serialize(self, value: Subscription) -> bytes:
        flag = _NO_HASH if value.value_hash is None else 0
        head = bytes((SUBSCRIPTION_VERSION | flag, value.instruction))
        key = self.inner.serialize(value.key)
        return head + (value.value_hash or b"") + key + _LENGTH.pack(value.partition)

    def deserialize(self, data: bytes) -> Subscription:
        if len(data) < 2 or data[0] & _VERSION > SUBSCRIPTION_VERSION:
            raise ValueError("a subscription has version 0 or 1")
        start = 2 if data[0] & _NO_HASH else 2 + _HASH_BYTES
        has_partition = data[0] & _VERSION >= 1
        end = len(data) - _LENGTH.size if has_partition else len(data)
        partition = _LENGTH.unpack_from(data, end)[0] if has_partition else -1
        return Subscription(
            data[2:start] or None,
            Instruction(data[1]),
            self.inner.deserialize(data[start:end]),
            partition,
        )


@dataclass(frozen=True)
class ResponseSerde(Serde[Response]):
    """Version and flag, hash if any, the right value if any; the partition only steers it."""

    inner: Serde[Any]
    name: ClassVar[str] = "subscription-response"

    def for_topic(self, topic: str, part: RecordPart) -> ResponseSerde:
        return replace(self, inner=self.inner.for_topic(topic, part))

    def serialize(self, value: Response) -> bytes:
        flag = _NO_HASH if value.value_hash is None else 0
        right = b"" if value.value is None else self.inner.serialize(value.value)
        return bytes((RESPONSE_VERSION | flag,)) + (value.value_hash or b"") + right

    def deserialize(self, data: bytes) -> Response:
        if not data or data[0] & _VERSION > RESPONSE_VERSION:
            raise ValueError("a subscription's response has version 0")
        start = 1 if data[0] & _NO_HASH else 1 + _HASH_BYTES
        # As in Kafka Streams, no bytes at all are no value.
        right = self.inner.deserialize(data[start:]) if len(data) > start else None
        return Response(data[1:start] or None, right, -1)


@dataclass(frozen=True)
class CombinedKeySerde(Serde[tuple[Any, Any]]):
    """The length of the foreign key, the foreign key, the left key."""

    foreign: Serde[Any]
    left: Serde[Any]
    name: ClassVar[str] = "combined-key"

    def serialize(self, value: tuple[Any, Any]) -> bytes:
        return foreign_prefix(self.foreign.serialize(value[0])) + self.left.serialize(value[1])

    def deserialize(self, data: bytes) -> tuple[Any, Any]:
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        foreign = self.foreign.deserialize(data[_LENGTH.size : end])
        return foreign, self.left.deserialize(data[end:])


def foreign_prefix(foreign: bytes) -> bytes:
    """What all combined keys of one foreign key begin with."""
    return _LENGTH.pack(len(foreign)) + foreign
