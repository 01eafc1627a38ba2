"""From what confluent-kafka reports to the error that says what to do; decided by error codes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import confluent_kafka

from penstock.errors import BrokerUnreachableError, ConfigError, KafkaError, TopicMissingError

_Code = confluent_kafka.KafkaError
_UNREACHABLE = (
    _Code._TRANSPORT,  # noqa: SLF001 - librdkafka's own codes have no other name
    _Code._ALL_BROKERS_DOWN,  # noqa: SLF001
    _Code._TIMED_OUT,  # noqa: SLF001
    _Code._RESOLVE,  # noqa: SLF001
)
NO_SUCH_TOPIC = (
    _Code.UNKNOWN_TOPIC_OR_PART,
    _Code._UNKNOWN_TOPIC,  # noqa: SLF001
    _Code._UNKNOWN_PARTITION,  # noqa: SLF001
)
LEADER_ON_ITS_WAY = (
    _Code.NOT_LEADER_FOR_PARTITION,
    _Code.LEADER_NOT_AVAILABLE,
    _Code.UNKNOWN_TOPIC_OR_PART,
    _Code.OFFSET_NOT_AVAILABLE,
    # The client heard of the leader before the broker did, or the other way round.
    _Code.UNKNOWN_LEADER_EPOCH,
    _Code.FENCED_LEADER_EPOCH,
)
"""What a new topic's partition, or one whose leader left, answers for a moment."""
COORDINATOR_ON_ITS_WAY = (
    _Code.NOT_COORDINATOR,
    _Code.COORDINATOR_NOT_AVAILABLE,
    _Code.COORDINATOR_LOAD_IN_PROGRESS,
)
"""What a group's coordinator answers for a moment, on a broker that has just started."""
_FORBIDDEN = (
    _Code.TOPIC_AUTHORIZATION_FAILED,
    _Code.GROUP_AUTHORIZATION_FAILED,
    _Code.CLUSTER_AUTHORIZATION_FAILED,
    _Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def code_of(error: confluent_kafka.KafkaException | confluent_kafka.KafkaError) -> int:
    """The error's code, whichever of the client's two error classes carries it."""
    return _inner(error).code()


def is_forbidden(error: confluent_kafka.KafkaException | confluent_kafka.KafkaError) -> bool:
    """Whether the client has no right to what it asked for."""
    return code_of(error) in _FORBIDDEN


def unreachable(bootstrap_servers: str = "") -> BrokerUnreachableError:
    """The error of a broker that does not answer."""
    return BrokerUnreachableError(
        f"Nothing answers at {bootstrap_servers}" if bootstrap_servers else "Kafka does not answer",
        hint="Set bootstrap_servers (PENSTOCK_BOOTSTRAP_SERVERS); `penstock dev start` starts a "
        "Kafka, or says where the one is that it started. Brokers with TLS or passwords need "
        "security.protocol in option kafka",
    )


@contextlib.contextmanager
def refusals_named() -> Iterator[None]:
    """Make a client, or raise `ConfigError` with the property that it does not take.

    librdkafka has one set of properties for all clients, and checks all of it when one is made.
    """
    try:
        yield
    except confluent_kafka.KafkaException as error:
        if code_of(error) != _Code._INVALID_ARG:  # noqa: SLF001
            raise
        raise ConfigError(
            f"The Kafka client refuses option kafka: {_inner(error).str().strip()}",
            hint="Correct it there or in PENSTOCK_KAFKA, in librdkafka's words: "
            "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md",
        ) from error


def kafka_error(
    error: confluent_kafka.KafkaException | confluent_kafka.KafkaError,
    *,
    doing: str,
    bootstrap_servers: str = "",
    where: Mapping[str, object] | None = None,
) -> KafkaError:
    """The typed error of a failed call; `doing` completes "Kafka refused to ..."."""
    inner = _inner(error)
    code = inner.code()
    if code in _UNREACHABLE:
        return unreachable(bootstrap_servers)
    if code in NO_SUCH_TOPIC:
        return TopicMissingError(
            "The topic does not exist", where=where, hint="Create it, or correct its name"
        )
    hint = "Grant this client the right to it" if is_forbidden(inner) else ""
    return KafkaError(f"Kafka refused to {doing}: {inner.str()}", where=where, hint=hint)


def transactions_refused(
    error: confluent_kafka.KafkaException | confluent_kafka.KafkaError, *, topic: str
) -> KafkaError:
    """The typed error of a producer that is not let into transactions; it writes to `topic`."""
    where = {"topic": topic}
    if code_of(error) == _Code._TIMED_OUT:  # noqa: SLF001
        # Brokers answer all else while the topic of transactions cannot be made.
        return KafkaError(
            "Kafka's brokers gave no coordinator of transactions in time",
            where=where,
            hint="Set their transaction.state.log.replication.factor to no more than there are "
            "brokers; else see their logs",
        )
    return kafka_error(error, doing="begin transactions", where=where)


def _inner(
    error: confluent_kafka.KafkaException | confluent_kafka.KafkaError,
) -> confluent_kafka.KafkaError:
    if isinstance(error, confluent_kafka.KafkaException):
        inner: confluent_kafka.KafkaError = error.args[0]
        return inner
    return error
