"""The harness's own Kafka clients: one way to make each."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

# Errors only: retries while a coordinator loads are no news, and would tear the display apart.
LOG_ERRORS = {"log_level": 3}


def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, **LOG_ERRORS})


def producer(bootstrap_servers: str, **options: object) -> Producer:
    """A producer; options are librdkafka's, with underscores for dots."""
    return Producer({"bootstrap.servers": bootstrap_servers, **LOG_ERRORS, **dotted(options)})


def consumer(bootstrap_servers: str, *, group: str, **options: object) -> Consumer:
    """A consumer that commits nothing by itself; options are librdkafka's, underscores for dots."""
    fixed = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    return Consumer({**fixed, **LOG_ERRORS, **dotted(options)})


def dotted(options: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in options.items()}
