"""Kafka's and Kafka Streams' own names of settings: whose they are, and what became of them.

Everything here is a table and a decision over it; `penstock.config` asks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import ConfigError

_ASSIGNMENT = "the coordinator assigns tasks to instances, and the driver alone is in the group"
_BYTES = "bytes and values are turned into each other by serdes"
_POSITIONS = "positions are committed with the results that they belong to"
_NO_LOSS = "a record that is lost without an error would be lost to the state"

_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
)
_SYSTEMS_OWN = "probe"
"""In the place of a file: the authorities that the system trusts."""

_NOT_YOURS = {
    "isolation.level": ("records of aborted transactions would be counted", ""),
    "group.id": ("the consumer group is the application", "Name it: Application(<group id>)"),
    "group.instance.id": ("there is an option", "Set group_instance_id"),
    "group.protocol": (_ASSIGNMENT, ""),
    "group.remote.assignor": (_ASSIGNMENT, ""),
    "partition.assignment.strategy": (_ASSIGNMENT, ""),
    "enable.auto.commit": (_POSITIONS, "Set commit_interval for how often"),
    "auto.commit.enable": (_POSITIONS, "Set commit_interval for how often"),
    "auto.commit.interval.ms": (_POSITIONS, "Set commit_interval for how often"),
    "enable.auto.offset.store": (_POSITIONS, ""),
    "auto.offset.reset": ("there is an option", "Set auto_offset_reset"),
    "enable.partition.eof": ("restoring counts on it", ""),
    "enable.idempotence": (_NO_LOSS, "Set processing_guarantee"),
    "enable.gapless.guarantee": (_NO_LOSS, ""),
    "acks": (_NO_LOSS, "Set min.insync.replicas of the topics for how many must have it"),
    "request.required.acks": (
        _NO_LOSS,
        "Set min.insync.replicas of the topics for how many must have it",
    ),
    "delivery.report.only.error": (_NO_LOSS, ""),
    "transactional.id": ("it fences the owners of tasks", "Set processing_guarantee"),
    "transaction.timeout.ms": ("there is an option", "Set transaction_timeout"),
    "session.timeout.ms": ("there is an option", "Set session_timeout"),
    "heartbeat.interval.ms": ("there is an option", "Set heartbeat_interval"),
    "bootstrap.servers": ("there is an option", "Set bootstrap_servers"),
    "metadata.broker.list": ("there is an option", "Set bootstrap_servers"),
    "partitioner": ("keys go where Kafka Streams would send them", "Give `to` a partitioner"),
    "partitioner.class": ("keys go where Kafka Streams would send them", "Give `to` a partitioner"),
    "key.serializer": (_BYTES, "Give the step a serde or type: key="),
    "value.serializer": (_BYTES, "Give the step a serde or type: value="),
    "key.deserializer": (_BYTES, "Give the source a serde or type: key="),
    "value.deserializer": (_BYTES, "Give the source a serde or type: value="),
    "interceptor.classes": ("Spark's reader takes none", ""),
    "enable.ssl.certificate.verification": (
        "Spark's Java client always verifies",
        "Set ssl.ca.location to the certificate that signed the brokers'",
    ),
    "plugin.library.paths": ("clients run no code but Kafka's", ""),
    "allow.auto.create.topics": ("a topic with a wrong name would come to be", ""),
}
"""Client properties on which what Penstock promises rests: why, and what to do instead."""

_JAVA_WORDS = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.password": "ssl.ca.location, a PEM file, which has none",
    "ssl.truststore.type": "ssl.ca.location, a PEM file",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.type": "ssl.keystore.location for PKCS#12, else ssl.certificate.location and "
    "ssl.key.location for PEM files",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.login.callback.handler.class": "sasl.oauthbearer.method and its properties",
    "sasl.client.callback.handler.class": "sasl.oauthbearer.method and its properties",
}
"""Properties of the Java client alone, and librdkafka's in their place; we translate back."""

_RENAMED = {
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}
"""Names of Java's that have another one now or here; where both are set, the new one counts."""

_THREADS = "Spark's cores work: master says how many"
_TYPES = "each source and sink says its types"
_FETCHES = "a slice bounds what is read: slice_records_max, slice_bytes_max"
_METRICS = "metrics are for Prometheus"
_NOT_NEEDED = "there is no counterpart, and none is needed"
_IDLE = "a task with several inputs waits for the one that has more in Kafka, and for no other"

_IGNORED = {
    "num.stream.threads": _THREADS,
    "poll.ms": _NOT_NEEDED,
    "buffered.records.per.partition": _FETCHES,
    "input.buffer.max.bytes": _FETCHES,
    "max.poll.records": _FETCHES,
    "max.poll.interval.ms": "a batch may take as long as it takes; instances beat meanwhile",
    "rack.aware.assignment.strategy": _NOT_NEEDED,
    "rack.aware.assignment.traffic_cost": _NOT_NEEDED,
    "rack.aware.assignment.non_overlap_cost": _NOT_NEEDED,
    "group.protocol": _ASSIGNMENT,
    "default.key.serde": _TYPES,
    "default.value.serde": _TYPES,
    "default.list.key.serde.inner": _TYPES,
    "default.list.key.serde.type": _TYPES,
    "default.list.value.serde.inner": _TYPES,
    "default.list.value.serde.type": _TYPES,
    "window.size.ms": _TYPES,
    "windowed.inner.class.serde": _TYPES,
    "windowed.inner.serializer.class": _TYPES,
    "windowed.inner.deserializer.class": _TYPES,
    "key.serializer": _TYPES,
    "value.serializer": _TYPES,
    "key.deserializer": _TYPES,
    "value.deserializer": _TYPES,
    "ensure.explicit.internal.resource.naming": "every stateful step has a name",
    "upgrade.from": _NOT_NEEDED,
    "task.timeout.ms": _NOT_NEEDED,
    "retries": "deliveries are tried until their time is up",
    "buffer.memory": _NOT_NEEDED,
    "max.block.ms": _NOT_NEEDED,
    "default.api.timeout.ms": _NOT_NEEDED,
    "application.server": "instances tell the driver where they are",
    "built.in.metrics.version": _METRICS,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "enable.metrics.push": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "log.summary.interval.ms": _NOT_NEEDED,
    "metadata.recovery.strategy": _NOT_NEEDED,
    "metadata.recovery.rebootstrap.trigger.ms": _NOT_NEEDED,
}
"""Names of Kafka Streams and of Java's clients without which the results are the same, and why."""

_REFUSED = {
    "max.task.idle.ms": (("0",), _IDLE, "Leave it out"),
    "topology.optimization": (
        ("none", ""),
        "other topics would hold the state than those of the program as it is written",
        "Leave it out; a Java application that was optimised cannot be taken over",
    ),
    "isolation.level": (
        ("read_committed",),
        "records of aborted transactions would be counted",
        "Leave it out",
    ),
    "enable.idempotence": (("true",), _NO_LOSS, "Leave it out"),
    "acks": (("all", "-1"), _NO_LOSS, "Leave it out"),
    "enable.auto.commit": (("false",), _POSITIONS, "Leave it out"),
    "allow.auto.create.topics": (
        ("false",),
        "a topic with a wrong name would come to be",
        "Create the topics",
    ),
    "processor.wrapper.class": ((), "Java's code does not run here", "Wrap the processors"),
    "default.client.supplier": ((), "Java's code does not run here", "Leave it out"),
}
"""Names that would change results: values that mean what is done anyway, why, and what to do."""

_CLIENTS = ("main.consumer.", "consumer.", "producer.", "admin.")
_OTHER_CLIENTS = ("restore.consumer.", "global.consumer.")


_HANDLERS = {
    "LogAndFailExceptionHandler": "fail",
    "LogAndContinueExceptionHandler": "continue",
    "LogAndFailProcessingExceptionHandler": "fail",
    "LogAndContinueProcessingExceptionHandler": "continue",
    "DefaultProductionExceptionHandler": "fail",
}
_EXTRACTORS = {
    "FailOnInvalidTimestamp": "fail",
    "LogAndSkipOnInvalidTimestamp": "skip",
    "UsePartitionTimeOnInvalidTimestamp": "partition_time",
    "WallclockTimestampExtractor": "wall_clock",
}
_DSL_STORES = {
    "RocksDBDslStoreSuppliers": "rocksdb",
    "InMemoryDslStoreSuppliers": "memory",
    "rocksDB": "rocksdb",
    "in_memory": "memory",
}


def word_for(option: str, value: str) -> str:
    """An option's value in our words, where Java names a class.

    >>> word_for("default_timestamp_extractor", "org.apache.kafka.X.WallclockTimestampExtractor")
    'wall_clock'
    """
    name = re.split(r"[.$]", value)[-1]
    if option.endswith("_exception_handler"):
        return _HANDLERS.get(name, value)
    if option == "dsl_store":
        return _DSL_STORES.get(name, value)
    return _EXTRACTORS.get(name, value) if option == "default_timestamp_extractor" else value


def check_client_properties(properties: Mapping[str, str]) -> None:
    """Refuse Kafka client properties that are not the user's to set. Raises `ConfigError`.

    >>> check_client_properties({"linger.ms": "5"})
    """
    for name in properties:
        if name in _NOT_YOURS:
            why, instead = _NOT_YOURS[name]
            raise ConfigError(
                f"Option kafka sets {name}, which cannot be set there: {why}",
                hint=instead or "Leave it out",
            )
        if name in _JAVA_WORDS:
            raise ConfigError(
                f"Option kafka sets {name}, which the Java client alone knows",
                hint=f"Use {_JAVA_WORDS[name]}; Spark's Java client gets it translated",
            )


def with_files(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The same properties, whose files are there. Raises `ConfigError` for one that is not.

    Of these the clients say no more than that a library of theirs has failed.
    """
    for name in _FILES:
        place = properties.get(name, "")
        if not place or place == _SYSTEMS_OWN or os.access(place, os.R_OK):
            continue
        why = "this user may not read it" if Path(place).exists() else "there is no such file"
        raise ConfigError(
            f"Option kafka names {place!r} as {name}, and {why}",
            hint="Name a PEM file by its whole path; every host that talks to Kafka needs it there",
        )
    return properties


@dataclass(frozen=True)
class SortedProperties:
    """What properties of a Java application mean here."""

    options: dict[str, str] = field(default_factory=dict)
    """By the option's name."""
    groups: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings of an option that holds many: `kafka`, `spark`, `topic`."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Names that have no effect here, each with the reason."""


def sort_properties(
    properties: Mapping[str, str], options: Mapping[str, str], groups: Mapping[str, str]
) -> SortedProperties:
    """Find the option for each property; names that nobody knows go to the Kafka clients.

    `options` are options by Kafka's names, `groups` those that hold many, by prefix.
    Raises `ConfigError` for what would work otherwise than there.
    """
    result = SortedProperties(groups={option: {} for option in groups.values()})
    for name, value in _plain(properties).items():
        if name == "application.id":
            continue
        prefix = next((each for each in groups if name.startswith(each)), None)
        if name in options:
            result.options[options[name]] = value
        elif prefix is not None:
            option, rest = groups[prefix], name.removeprefix(prefix)
            if rest == "*":
                raise ConfigError(f"{name} names no setting", hint=f"Write {prefix}<setting>")
            # Spark's own names have the prefix.
            result.groups[option][name if option == "spark" else rest] = value
        elif name in _REFUSED:
            _refuse_unless_same(name, value)
        elif name in _IGNORED:
            result.ignored[name] = _IGNORED[name]
        else:
            result.groups["kafka"][name] = value
    return result


def _plain(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties without prefixes of clients, under their present names."""
    found: dict[str, tuple[str, str]] = {}
    for given, value in properties.items():
        if given.startswith(_OTHER_CLIENTS):
            raise ConfigError(
                f"{given} is for one kind of client, and all clients have the same properties here",
                hint="Leave it out, or write it without the prefix",
            )
        prefix = next((each for each in _CLIENTS if given.startswith(each)), "")
        name = given.removeprefix(prefix)
        other = found.setdefault(name, (given, value))
        if other[1] != value:
            raise ConfigError(
                f"{other[0]} and {given} differ, and all clients have the same properties here",
                hint=f"Write one {name}",
            )
    plain = {name: value for name, (_, value) in found.items()}
    for old, new in _RENAMED.items():
        if old in plain:
            value = plain.pop(old)
            plain.setdefault(new, value)
    return plain


def _refuse_unless_same(name: str, value: str) -> None:
    same, why, hint = _REFUSED[name]
    if value not in same:
        raise ConfigError(f"{name} cannot be {value!r} here: {why}", hint=hint)
