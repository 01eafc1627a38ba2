"""Types to bytes and back, as Kafka's own serdes write them.

`serde_of(str)`, `serde_of(int)`, `serde_of(MyDataclass)`: a type names its serde. A serde turns
single values and, where it matters for speed, whole Arrow columns.
"""

from penstock.serdes.choice import serde_of
from penstock.serdes.contract import Serde
from penstock.serdes.json import JsonSerde
from penstock.serdes.scalars import (
    BoolSerde,
    BytesSerde,
    DoubleSerde,
    LongSerde,
    StringSerde,
)

__all__ = [
    "BoolSerde",
    "BytesSerde",
    "DoubleSerde",
    "JsonSerde",
    "LongSerde",
    "Serde",
    "StringSerde",
    "serde_of",
]
