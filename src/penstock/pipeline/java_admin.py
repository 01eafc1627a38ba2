"""Java's admin client, for what the Python one has no call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from penstock.config import Config
from penstock.pipeline.kafka_options import java_properties
from penstock.pipeline.session import Session, use_added_jars


@contextlib.contextmanager
def java_admin(session: Session, config: Config) -> Iterator[tuple[Any, Any]]:
    """The JVM of Spark's driver and an admin client in it, for as long as the block.

    What goes wrong in there comes as py4j's `Py4JError`.
    """
    use_added_jars(session.spark)
    jvm = session.spark.sparkContext._jvm  # noqa: SLF001 - no public way
    assert jvm is not None
    properties = jvm.java.util.Properties()
    for name, value in java_properties(config.kafka).items():
        properties.setProperty(name, value)
    properties.setProperty("bootstrap.servers", config.bootstrap_servers)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        yield jvm, admin
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))
