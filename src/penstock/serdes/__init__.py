"""Types to bytes and back, as Kafka's own serdes write them.

`serde_of(str)`, `serde_of(int)`, `serde_of(MyDataclass)`: a type names its serde. A serde turns
single values and, where it matters for speed, whole Arrow columns.
"""

from penstock.serdes.change import Change, ChangeSerde
from penstock.serdes.choice import serde_of
from penstock.serdes.contract import Serde
from penstock.serdes.joined import JoinSideSerde, SideValue, TimedSide, TimedSideSerde
from penstock.serdes.json import JsonSerde
from penstock.serdes.scalars import (
    BoolSerde,
    BytesSerde,
    DoubleSerde,
    LongSerde,
    StringSerde,
)
from penstock.serdes.windowed import SessionWindowedSerde, Windowed, WindowedSerde

__all__ = [
    "BoolSerde",
    "BytesSerde",
    "Change",
    "ChangeSerde",
    "DoubleSerde",
    "JoinSideSerde",
    "JsonSerde",
    "LongSerde",
    "Serde",
    "SessionWindowedSerde",
    "SideValue",
    "StringSerde",
    "TimedSide",
    "TimedSideSerde",
    "Windowed",
    "WindowedSerde",
    "serde_of",
]
