"""What averages are made of, in 16 bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np

from penstock.serdes.contract import Serde
from penstock.serdes.scalars import NumberColumns

_LAYOUT = struct.Struct(">dq")


class Mean(msgspec.Struct, frozen=True):
    """What an average is made of."""

    total: float
    count: int


@dataclass(frozen=True)
class MeanSerde(NumberColumns, Serde[Mean]):
    """A sum as Kafka's Double, then a number of values as its Long.

    >>> MeanSerde().serialize(Mean(1.5, 2)).hex()
    '3ff80000000000000000000000000002'
    """

    name: ClassVar[str] = "mean"
    immutable: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    fixed_length: ClassVar[int | None] = _LAYOUT.size
    width: ClassVar[int] = _LAYOUT.size
    big_endian: ClassVar[Any] = np.dtype([("total", ">f8"), ("count", ">i8")])
    native: ClassVar[Any] = np.dtype([("total", "f8"), ("count", "i8")])

    def serialize(self, value: Mean) -> bytes:
        return _LAYOUT.pack(value.total, value.count)

    def deserialize(self, data: bytes) -> Mean:
        if len(data) != self.width:
            raise ValueError(f"a mean has {self.width} bytes, not {len(data)}")
        return Mean(*_LAYOUT.unpack(data))
