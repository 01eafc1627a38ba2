"""Kafka Streams' stateful processing for Python, run by Spark.

General layout: each folder is a noun of the design, and later ones import earlier ones only:
errors, config, observability, serdes, topology, processors, stores, changelog, coordination,
instance, local, queries, pipeline, console, driver, application, testing, cli. A test checks it.
"""

from penstock.application import Application
from penstock.config import Config
from penstock.errors import PenstockError
from penstock.serdes import (
    AvroSerde,
    FloatSerde,
    IntegerSerde,
    JsonSchemaSerde,
    JsonSerde,
    ListSerde,
    ProtobufSerde,
    SchemaRegistry,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    Windowed,
    WindowedSerde,
    serde,
)
from penstock.topology import (
    BranchedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    StreamsBuilder,
    Topology,
    WindowedKStream,
    hopping,
    join_window,
    max_bytes,
    max_records,
    session,
    sliding,
    tumbling,
    unbounded,
    unlimited,
    until_time_limit,
    until_window_closes,
)

__all__ = [
    "Application",
    "AvroSerde",
    "BranchedKStream",
    "Config",
    "FloatSerde",
    "IntegerSerde",
    "JsonSchemaSerde",
    "JsonSerde",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "ListSerde",
    "PenstockError",
    "ProtobufSerde",
    "SchemaRegistry",
    "Serde",
    "SessionWindowedSerde",
    "ShortSerde",
    "StreamsBuilder",
    "Topology",
    "Windowed",
    "WindowedKStream",
    "WindowedSerde",
    "hopping",
    "join_window",
    "max_bytes",
    "max_records",
    "serde",
    "session",
    "sliding",
    "tumbling",
    "unbounded",
    "unlimited",
    "until_time_limit",
    "until_window_closes",
]
__version__ = "0.1.0"
