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
    KStream,
    KTable,
    StreamsBuilder,
    Topology,
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
    "WindowedSerde",
    "serde",
]
__version__ = "0.1.0"
