"""Leaving a consumer group for good, and in order: both take the Java client."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.config import Config
from penstock.pipeline.java_admin import java_admin
from penstock.pipeline.session import Session

_log = logging.getLogger("penstock.driver")

_LEAVE_SECONDS = 5


def leave_group(session: Session, config: Config, *, group: str, member: str) -> None:
    """Give a static member's place up at once, so that tools and Java may have the group.

    Closing its consumer does not: the place would be kept for the session timeout. A failure costs
    no more than that, and is logged.

    What lies beside the group's offsets is mended then: the Python client ends it with a byte 0,
    for which Kafka Streams would not read it (and would warn, and go on).
    """
    try:
        with java_admin(session, config) as (jvm, admin):
            admins = jvm.org.apache.kafka.clients.admin
            members = jvm.java.util.Collections.singleton(admins.MemberToRemove(member))
            options = admins.RemoveMembersFromConsumerGroupOptions(members)
            asked = admin.removeMembersFromConsumerGroup(group, options).all()
            asked.get(_LEAVE_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
            _mend_metadata(jvm, admin, group)
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
