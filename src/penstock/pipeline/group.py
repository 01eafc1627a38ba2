"""Leaving a consumer group for good, which only the Java client can do for a static member."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.config import Config
from penstock.pipeline.kafka_options import java_properties
from penstock.pipeline.session import Session, use_added_jars

_log = logging.getLogger("penstock.driver")

_LEAVE_SECONDS = 5


def leave_group(session: Session, config: Config, *, group: str, member: str) -> None:
    """Give a static member's place up at once, so that tools and Java may have the group.

    Closing its consumer does not: the place would be kept for the session timeout. A failure costs
    no more than that, and is logged.
    """
    use_added_jars(session.spark)
    jvm = session.spark.sparkContext._jvm  # noqa: SLF001 - Python has no call for it
    assert jvm is not None
    properties = jvm.java.util.Properties()
    properties.setProperty("bootstrap.servers", config.bootstrap_servers)
    for name, value in java_properties(config.kafka).items():
        properties.setProperty(name, value)
    admins = jvm.org.apache.kafka.clients.admin
    try:
        admin = admins.AdminClient.create(properties)
        try:
            members = jvm.java.util.Collections.singleton(admins.MemberToRemove(member))
            options = admins.RemoveMembersFromConsumerGroupOptions(members)
            asked = admin.removeMembersFromConsumerGroup(group, options).all()
            asked.get(_LEAVE_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
        finally:
            admin.close(jvm.java.time.Duration.ofSeconds(1))
    except Py4JError as error:
        _log.info("The group %s keeps the driver's place for a while: %s", group, error)
