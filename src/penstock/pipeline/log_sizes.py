"""How much room topics take on the brokers' disks: only the Java client can ask for that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.config import Config
from penstock.pipeline.java_admin import java_admin
from penstock.pipeline.session import Session

_log = logging.getLogger("penstock.driver")

_ASK_SECONDS = 10


def log_sizes(session: Session, config: Config, topics: Mapping[str, int]) -> dict[str, int]:
    """The bytes of topics, given with their numbers of partitions; of replicas the largest counts.

    A topic is left out of whose partitions one is told by no broker: the brokers may refuse to
    tell (it takes the right to describe the cluster) or not answer, which is logged.
    """
    try:
        with java_admin(session, config) as (jvm, admin):
            directories = _directories(jvm, admin)
            partition = jvm.org.apache.kafka.common.TopicPartition
            sizes = {
                topic: [_largest(directories, partition(topic, p)) for p in range(count)]
                for topic, count in topics.items()
            }
    except Py4JError as error:
        _log.info("The sizes of topics are not known: %s", error)
        return {}
    return {
        topic: sum(each for each in found if each is not None)
        for topic, found in sizes.items()
        if None not in found
    }


def _directories(jvm: Any, admin: Any) -> list[Any]:
    """What each log directory of each broker holds, by partition."""
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    brokers = jvm.java.util.ArrayList()
    # Not every collection of Java's is one for Python; lists are.
    for node in jvm.java.util.ArrayList(admin.describeCluster().nodes().get(_ASK_SECONDS, seconds)):
        brokers.add(node.id())
    answer = admin.describeLogDirs(brokers).allDescriptions().get(_ASK_SECONDS, seconds)
    return [directory.replicaInfos() for found in answer.values() for directory in found.values()]


def _largest(directories: list[Any], partition: Any) -> int | None:
    """The size of a partition's largest replica: others may lag behind it."""
    found = [replica for each in directories if (replica := each.get(partition)) is not None]
    return max((int(replica.size()) for replica in found), default=None)
