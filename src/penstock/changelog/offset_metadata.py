"""What Kafka Streams writes beside a group's offset: a partition's time, and what processors keep.

Base64 of: a byte 2, 8 bytes of time and, if processors keep anything, 4 bytes of their number and
for each 4 bytes of length, the name, 8 bytes of value. A byte 1 has the time alone.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition

UNKNOWN_TIME = -1
_TIME_ONLY, _LATEST = 1, 2
_BASE64 = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


@dataclass(frozen=True, kw_only=True)
class OffsetMetadata:
    """The latest timestamp read of a partition, and numbers that processors keep by name."""

    time: int = UNKNOWN_TIME
    kept: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> str:
        """As Kafka Streams writes it; nothing if there is nothing to say.

        >>> OffsetMetadata(time=258).encode()
        'AgAAAAAAAAEC'
        """
        if self.time == UNKNOWN_TIME and not self.kept:
            return ""
        data = bytes((_LATEST,)) + _LONG.pack(self.time)
        if self.kept:
            data += _INT.pack(len(self.kept))
        for name, value in self.kept.items():
            data += _INT.pack(len(name.encode())) + name.encode() + _LONG.pack(value)
        return base64.b64encode(data).decode()

    @classmethod
    def decode(cls, text: str | None) -> OffsetMetadata:
        """What these characters say; other programs' metadata say nothing.

        >>> OffsetMetadata.decode("AgAAAAAAAAEC").time, OffsetMetadata.decode("by a reset tool")
        (258, OffsetMetadata(time=-1, kept={}))
        """
        return cls.decode_overrun((text or "").encode())

    @classmethod
    def decode_overrun(cls, text: bytes) -> OffsetMetadata:
        """The same, of characters behind which there may be others that do not belong to them.

        librdkafka copies what lies beside an offset without a zero at its end, and its Python
        client reads on to the next zero in memory.

        >>> OffsetMetadata.decode_overrun(b"AgAAAAAAAAEC\\xd1\\x07A").time
        258
        """
        found = _BASE64.match(text)
        whole = found.group() if found else b""
        data = base64.b64decode(whole[: len(whole) // 4 * 4])
        if len(data) < 1 + _LONG.size or data[0] not in (_TIME_ONLY, _LATEST):
            return cls()
        (time,) = _LONG.unpack_from(data, 1)
        return cls(time=time, kept=_kept(data[1 + _LONG.size :]) if data[0] == _LATEST else {})


def offset_metadata(answer: TopicPartition) -> OffsetMetadata:
    """What lies beside an offset that a client was told."""
    try:
        return OffsetMetadata.decode_overrun((answer.metadata or "").encode())
    except UnicodeDecodeError as error:
        # What does not belong to it is no text either.
        return OffsetMetadata.decode_overrun(error.object)


def _kept(data: bytes) -> dict[str, int]:
    """The numbers by name; none if these bytes cannot be all that they say."""
    found: dict[str, int] = {}
    try:
        (count,) = _INT.unpack_from(data)
        at = _INT.size
        for _ in range(count):
            (length,) = _INT.unpack_from(data, at)
            at += _INT.size
            name = data[at : at + max(length, 0)].decode()
            (found[name],) = _LONG.unpack_from(data, at + length)
            at += length + _LONG.size
    except (UnicodeDecodeError, struct.error):
        return {}
    return found
