"""Who is in a consumer group now, and what it has committed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as NativeError
from confluent_kafka.admin import AdminClient

from penstock.changelog.kafka_failures import COORDINATOR_ON_ITS_WAY, code_of, kafka_error
from penstock.config import Config

_ATTEMPT_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
_ASK_AGAIN = {
    *COORDINATOR_ON_ITS_WAY,
    # The very first group of a cluster waits for the topic of all groups to be made.
    NativeError._TIMED_OUT,  # noqa: SLF001 - librdkafka's own codes have such names.
}

_SESSION_SECONDS = (6, 30 * 60)
"""What brokers grant a member, unless their `group.min.session.timeout.ms` and
`group.max.session.timeout.ms` say otherwise."""
_POLL_SECONDS = 5 * 60
"""The client's own limit between two polls, which must not be below the session timeout."""


@dataclass(frozen=True, kw_only=True)
class GroupClient:
    """A live member of a consumer group."""

    client_id: str
    host: str
    group_instance_id: str | None


def membership(config: Config) -> dict[str, int]:
    """The times of a member of a group, as properties: near to those of the instances, of which
    Kafka does not know.

    >>> membership(Config())
    {'session_timeout_ms': 45000, 'heartbeat_interval_ms': 3000, 'max_poll_interval_ms': 300000}
    """
    least, most = _SESSION_SECONDS
    session = min(max(config.session_timeout.total_seconds(), least), most)
    heartbeat = min(config.heartbeat_interval.total_seconds(), session / 3)
    return {
        "session_timeout_ms": int(session * 1000),
        "heartbeat_interval_ms": int(heartbeat * 1000),
        "max_poll_interval_ms": int(max(session, _POLL_SECONDS) * 1000),
    }


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
