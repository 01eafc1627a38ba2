"""Types to bytes and back, as Kafka's own serdes write them.

`serde_of(str)`, `serde_of(int)`, `serde_of(MyDataclass)`: a type names its serde. A serde turns
single values and, where it matters for speed, whole Arrow columns.
"""

from penstock.serdes.change import Change, ChangeSerde
from penstock.serdes.choice import serde_of
from penstock.serdes.contract import RecordPart, Serde
from penstock.serdes.datetimes import DateTimeSerde
from penstock.serdes.functions import serde
from penstock.serdes.joined import JoinSideSerde, SideValue, TimedSide, TimedSideSerde
from penstock.serdes.json import JsonSerde
from penstock.serdes.lists import ListSerde
from penstock.serdes.means import Mean, MeanSerde
from penstock.serdes.registry import (
    AvroSerde,
    JsonSchemaSerde,
    ProtobufSerde,
    SchemaRegistry,
)
from penstock.serdes.scalars import (
    BoolSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UuidSerde,
)
from penstock.serdes.windowed import SessionWindowedSerde, Windowed, WindowedSerde

__all__ = [
    "AvroSerde",
    "BoolSerde",
    "BytesSerde",
    "Change",
    "ChangeSerde",
    "DateTimeSerde",
    "DoubleSerde",
    "FloatSerde",
    "IntegerSerde",
    "JoinSideSerde",
    "JsonSchemaSerde",
    "JsonSerde",
    "ListSerde",
    "LongSerde",
    "Mean",
    "MeanSerde",
    "ProtobufSerde",
    "RecordPart",
    "SchemaRegistry",
    "Serde",
    "SessionWindowedSerde",
    "ShortSerde",
    "SideValue",
    "StringSerde",
    "TimedSide",
    "TimedSideSerde",
    "UuidSerde",
    "Windowed",
    "WindowedSerde",
    "serde",
    "serde_of",
]
