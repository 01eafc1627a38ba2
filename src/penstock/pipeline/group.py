"""Leaving a consumer group for good, and in order: both take the Java client."""

from __future__ import annotations

import logging
from typing import Any

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

    What lies beside the group's offsets is mended then: the Python client ends it with a byte 0,
    for which Kafka Streams would not read it (and would warn, and go on).
    """
    use_added_jars(session.spark)
    jvm = session.spark.sparkContext._jvm  # noqa: SLF001 - Python has no call for it
    assert jvm is not None
    properties = jvm.java.util.Properties()
    for name, value in java_properties(config.kafka).items():
        properties.setProperty(name, value)
    properties.setProperty("bootstrap.servers", config.bootstrap_servers)
    admins = jvm.org.apache.kafka.clients.admin
    try:
        admin = admins.AdminClient.create(properties)
        try:
            members = jvm.java.util.Collections.singleton(admins.MemberToRemove(member))
            options = admins.RemoveMembersFromConsumerGroupOptions(members)
            asked = admin.removeMembersFromConsumerGroup(group, options).all()
            asked.get(_LEAVE_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
            _mend_metadata(jvm, admin, group)
        finally:
            admin.close(jvm.java.time.Duration.ofSeconds(1))
    except Py4JError as error:
        _log.info("The group %s keeps the driver's place for a while: %s", group, error)


def _mend_metadata(jvm: Any, admin: Any, group: str) -> None:
    """Write metadata again without the byte 0 at their end.

    The broker refuses it once the group has a new member: the offsets are that one's then.
    """
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    asked = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()
    mended = jvm.java.util.HashMap()
    for entry in asked.get(_LEAVE_SECONDS, seconds).entrySet():
        found = entry.getValue()
        metadata = found.metadata()
        if metadata.endswith("\0"):
            whole = metadata.removesuffix("\0")
            again = jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(
                found.offset(), found.leaderEpoch(), whole
            )
            mended.put(entry.getKey(), again)
    if not mended.isEmpty():
        admin.alterConsumerGroupOffsets(group, mended).all().get(_LEAVE_SECONDS, seconds)
