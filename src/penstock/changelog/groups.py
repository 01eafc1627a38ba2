"""Who is in a consumer group now, and what it has committed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as NativeError
from confluent_kafka.admin import AdminClient

from penstock.changelog.kafka_failures import COORDINATOR_ON_ITS_WAY, code_of, kafka_error

_ATTEMPT_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
_ASK_AGAIN = {
    *COORDINATOR_ON_ITS_WAY,
    # The very first group of a cluster waits for the topic of all groups to be made.
    NativeError._TIMED_OUT,  # noqa: SLF001 - librdkafka's own codes have such names.
}


@dataclass(frozen=True, kw_only=True)
class GroupClient:
    """A live member of a consumer group."""

    client_id: str
    host: str
    group_instance_id: str | None


def live_members(admin: AdminClient, group: str, *, timeout_seconds: float) -> list[GroupClient]:
    """The members that Kafka takes for alive; none of a group that never was. Raises `KafkaError`.

    One that died without a goodbye counts until its session timeout.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        future = admin.describe_consumer_groups([group], request_timeout=_ATTEMPT_SECONDS)[group]
        try:
            return [
                GroupClient(
                    client_id=each.client_id,
                    host=each.host,
                    group_instance_id=each.group_instance_id,
                )
                for each in future.result().members
            ]
        except KafkaException as error:
            code = code_of(error)
            if code == NativeError.GROUP_ID_NOT_FOUND:
                return []
            if code not in _ASK_AGAIN or time.monotonic() > deadline:
                doing = "say who is in a consumer group"
                raise kafka_error(error, doing=doing, where={"group": group}) from error
        time.sleep(_PAUSE_SECONDS)


def committed_offsets(
    consumer: Consumer, partitions: list[TopicPartition], *, timeout_seconds: float
) -> list[TopicPartition]:
    """What the consumer's group has committed there. Raises `KafkaException`.

    A group whose coordinator has just come, or goes, is asked again until the time is over.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return consumer.committed(partitions, timeout=timeout_seconds)
        except KafkaException as error:
            if code_of(error) not in COORDINATOR_ON_ITS_WAY or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
