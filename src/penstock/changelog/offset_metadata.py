"""What Kafka Streams writes beside a group's offset: a partition's time, and what processors keep.

Base64 of: a byte 2, 8 bytes of time and, if processors keep anything, 4 bytes of their number and
for each 4 bytes of length, the name, 8 bytes of value. A byte 1 has the time alone.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_TIME = -1
_TIME_ONLY, _LATEST = 1, 2
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
        try:
            data = base64.b64decode(text or "", validate=True)
            if not data or data[0] not in (_TIME_ONLY, _LATEST):
                return cls()
            (time,) = _LONG.unpack_from(data, 1)
            return cls(time=time, kept=_kept(data[1 + _LONG.size :]) if data[0] == _LATEST else {})
        except (ValueError, struct.error):
            return cls()


def _kept(data: bytes) -> dict[str, int]:
    if not data:
        return {}
    (count,) = _INT.unpack_from(data)
    at = _INT.size
    found: dict[str, int] = {}
    for _ in range(count):
        (length,) = _INT.unpack_from(data, at)
        at += _INT.size
        name = data[at : at + length].decode()
        (found[name],) = _LONG.unpack_from(data, at + length)
        at += length + _LONG.size
    return found
