"""JSON by msgspec: typed, so that a record of another shape is refused and not half understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec

from penstock.serdes.contract import Serde
from penstock.serdes.decoders import decoder

T = TypeVar("T")


@dataclass(frozen=True)
class JsonSerde(Serde[T]):
    """A dataclass, msgspec Struct, dict or list as JSON.

    >>> JsonSerde(dict[str, int]).serialize({"bpm": 72})
    b'{"bpm":72}'
    """

    type: Any
    name: ClassVar[str] = "json"

    def serialize(self, value: T) -> bytes:
        return _ENCODE(value)

    def deserialize(self, data: bytes) -> T:
        value: T = decoder(self.type).decode(data)
        return value


_ENCODE = msgspec.json.Encoder().encode
