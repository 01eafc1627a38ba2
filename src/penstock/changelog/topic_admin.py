"""Looking at topics and changing them: the thin shell around `topic_plan`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from penstock.changelog.clients import ASK_TIMEOUT
from penstock.changelog.kafka_failures import NO_SUCH_TOPIC, code_of, kafka_error, refusals_named
from penstock.changelog.reading import ATTEMPT_SECONDS
from penstock.changelog.topic_plan import (
    Asked,
    ConfigChange,
    TopicPlan,
    before_start,
    plan_topics,
    still_to_do,
)
from penstock.changelog.topics import ExistingTopic, Origin, TopicSpec, topic_missing
from penstock.config import Config
from penstock.errors import KafkaError

_Key = TypeVar("_Key")
_Answers = Mapping[_Key, Future[Any]]
VISIBLE_TIMEOUT = timedelta(seconds=30)
_VISIBLE_PAUSE_SECONDS = 0.05
_HEARD_TIMEOUT = timedelta(seconds=5)
"""Within which every broker hears of a new topic."""
_ALREADY_THERE = confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
_ORIGINS: dict[object, Origin] = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "broker",
    ConfigSource.STATIC_BROKER_CONFIG.value: "broker",
}


class TopicAdmin:
    """Describes, creates, grows, alters and purges topics. Raises `KafkaError` and its kinds."""

    def __init__(
        self,
        config: Config,
        *,
        admin: AdminClient | None = None,
        ask_timeout: timedelta = ASK_TIMEOUT,
    ) -> None:
        self._ask_seconds = ask_timeout.total_seconds()
        self._bootstrap_servers = config.bootstrap_servers
        with refusals_named():
            self._admin = admin or AdminClient(config.client_properties())

    def names(self) -> set[str]:
        """Every topic that this client may see."""
        return set(self._cluster().topics)

    def _cluster(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=self._ask_seconds)
        except confluent_kafka.KafkaException as error:
            raise self._error(error, "list topics", {}) from error

    def describe(self, names: Iterable[str]) -> dict[str, ExistingTopic]:
        """Those of the topics that exist, with partitions, id and settings."""
        described = self._described(names)
        configs = self._configs(described) if described else {}
        return {
            name: _existing(name, topic, configs[name])
            for name, topic in described.items()
            if name in configs
        }

    def partition_count(self, name: str) -> int | None:
        """How many partitions a topic has; None if it does not exist."""
        found = self._described([name]).get(name)
        return None if found is None else len(found.partitions)

    def _described(self, names: Iterable[str]) -> dict[str, Any]:
        wanted = sorted(set(names))
        if not wanted:
            return {}
        asked = self._ask(
            lambda seconds: self._admin.describe_topics(
                TopicCollection(wanted), request_timeout=seconds
            )
        )
        described: dict[str, Any] = {}
        for name, future in asked.items():
            try:
                described[name] = future.result()
            except confluent_kafka.KafkaException as error:
                if code_of(error) not in NO_SUCH_TOPIC:
                    raise self._error(error, "describe a topic", {"topic": name}) from error
        return described

    def require(
        self, names: Iterable[str], *, timeout: timedelta = VISIBLE_TIMEOUT
    ) -> dict[str, ExistingTopic]:
        """Describe topics that must exist; `TopicMissingError` names the nearest one.

        A broker may not have heard yet of a topic that another one has: where there are several,
        they are asked again for a while.
        """
        wanted = sorted(set(names))
        began = time.monotonic()
        while True:
            found = self.describe(wanted)
            missing = [name for name in wanted if name not in found]
            if not missing:
                return found
            cluster = self._cluster()
            unknown = [name for name in missing if name not in cluster.topics]
            patience = timeout
            if unknown:
                patience = min(_HEARD_TIMEOUT, timeout) if len(cluster.brokers) > 1 else timedelta()
            if time.monotonic() - began >= patience.total_seconds():
                raise topic_missing((unknown or missing)[0], cluster.topics)
            time.sleep(_VISIBLE_PAUSE_SECONDS)

    def plan(
        self, wanted: Sequence[TopicSpec], *, asked: Mapping[str, Asked] | None = None
    ) -> TopicPlan:
        """What has to happen for the internal topics to be as they should.

        `asked` is what programs that ran asked of them, as for `plan_topics`.
        """
        existing = self.describe(spec.name for spec in wanted)
        default = self._default_replication(wanted, existing)
        return plan_topics(wanted, existing, default_replication=default, asked=asked)

    def carry_out(self, plan: TopicPlan, *, alter: bool = True) -> None:
        """Create and grow what the plan says, and alter settings too if asked."""
        self.create(plan.create)
        self.grow(plan.grow)
        if alter:
            self.alter(plan.alter)

    def ensure(
        self, wanted: Sequence[TopicSpec], *, manage: bool = False
    ) -> dict[str, ExistingTopic]:
        """Make the internal topics be as they should: the plan, then its steps.

        Raises the plan's first problem, before anything is changed. Settings of topics that exist
        are changed only with `manage`.
        """
        plan = self.plan(wanted)
        before_start(plan, manage=manage)
        self.carry_out(plan, alter=manage)
        return self.describe(spec.name for spec in wanted)

    def create(self, specs: Sequence[TopicSpec], *, timeout: timedelta = VISIBLE_TIMEOUT) -> None:
        """Create topics and wait until they can be seen; one that appeared meanwhile is fine."""
        if not specs:
            return
        new = [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                config=dict(spec.config),
            )
            for spec in specs
        ]
        futures = self._admin.create_topics(new, request_timeout=self._ask_seconds)
        for name, future in futures.items():
            try:
                future.result()
            except confluent_kafka.KafkaException as error:
                if code_of(error) != _ALREADY_THERE:
                    raise self._error(error, "create a topic", {"topic": name}) from error
        self._wait_visible(specs, timeout)

    def grow(self, specs: Sequence[TopicSpec], *, timeout: timedelta = VISIBLE_TIMEOUT) -> None:
        """Add partitions up to each spec's number and wait until they can be seen."""
        if not specs:
            return
        new = [NewPartitions(spec.name, spec.partitions) for spec in specs]
        futures = self._admin.create_partitions(new, request_timeout=self._ask_seconds)
        self._all(futures, "add partitions")
        self._wait_visible(specs, timeout)

    def alter(
        self, changes: Sequence[ConfigChange], *, timeout: timedelta = VISIBLE_TIMEOUT
    ) -> None:
        """Set settings of topics, or take them off, and wait until that can be seen; others stay
        as they are."""
        entries: dict[str, list[ConfigEntry]] = {}
        for change in changes:
            does = AlterConfigOpType.DELETE if change.new is None else AlterConfigOpType.SET
            entry = ConfigEntry(change.name, change.new, incremental_operation=does)
            entries.setdefault(change.topic, []).append(entry)
        if not entries:
            return
        resources = [
            ConfigResource(ResourceType.TOPIC, topic, incremental_configs=each)
            for topic, each in entries.items()
        ]
        asked = self._admin.incremental_alter_configs(resources, request_timeout=self._ask_seconds)
        self._all(
            {resource.name: future for resource, future in asked.items()},
            "change a topic's settings",
        )
        deadline = time.monotonic() + timeout.total_seconds()
        while pending := still_to_do(changes, self.describe(entries)):
            if time.monotonic() > deadline:
                raise KafkaError(
                    "A setting was changed, but the brokers do not show it",
                    where={"topic": pending[0].topic, "setting": pending[0].name},
                    hint="Check the brokers' health, then try again",
                )
            time.sleep(_VISIBLE_PAUSE_SECONDS)

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
        """Delete each partition's records below the given offset."""
        if not before:
            return
        asked = [TopicPartition(topic, part, offset) for (topic, part), offset in before.items()]
        self._all(
            self._admin.delete_records(asked, request_timeout=self._ask_seconds), "purge a topic"
        )

    def _configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        configs: dict[str, dict[str, ConfigEntry]] = {}
        asked = self._ask(
            lambda seconds: self._admin.describe_configs(resources, request_timeout=seconds)
        )
        for resource, future in asked.items():
            try:
                configs[resource.name] = future.result()
            except confluent_kafka.KafkaException as error:
                # Deleted between the two questions: it does not exist.
                if code_of(error) in NO_SUCH_TOPIC:
                    continue
                where = {"topic": resource.name}
                raise self._error(error, "describe a topic's settings", where) from error
        return configs

    def _default_replication(
        self, wanted: Sequence[TopicSpec], existing: Mapping[str, ExistingTopic]
    ) -> int:
        """How many replicas the brokers give a topic that does not say; -1 if nobody asks."""
        if not any(
            spec.name not in existing
            and spec.replication_factor < 0
            and "min.insync.replicas" in spec.config
            for spec in wanted
        ):
            return -1
        try:
            broker = next(iter(self._admin.list_topics(timeout=self._ask_seconds).brokers))
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            asked = self._admin.describe_configs([resource], request_timeout=self._ask_seconds)
            return int(asked[resource].result()["default.replication.factor"].value)
        except confluent_kafka.KafkaException as error:
            raise self._error(error, "describe a broker's settings", {}) from error

    def _wait_visible(self, specs: Sequence[TopicSpec], timeout: timedelta) -> None:
        deadline = time.monotonic() + timeout.total_seconds()
        pending = list(specs)
        while True:
            seen = self.describe(spec.name for spec in pending)
            pending = [
                spec
                for spec in pending
                if spec.name not in seen or seen[spec.name].partitions < spec.partitions
            ]
            if not pending:
                return
            if time.monotonic() > deadline:
                raise KafkaError(
                    "A topic was created, but the brokers do not show it",
                    where={"topic": pending[0].name},
                    hint="Check the brokers' health, then start again",
                )
            time.sleep(_VISIBLE_PAUSE_SECONDS)

    def _ask(self, ask: Callable[[float], _Answers[_Key]]) -> _Answers[_Key]:
        """The answers, or failures, of a question that changes nothing.

        The client sends it to the broker that it knows as the controller. If that one is gone it
        waits for it, for minutes, until it happens to look at the cluster again.
        """
        first = min(ATTEMPT_SECONDS, self._ask_seconds)
        asked = ask(first)
        if not any(_is_late(future) for future in asked.values()):
            return asked
        with contextlib.suppress(confluent_kafka.KafkaException):
            self._admin.list_topics(timeout=first)
        return ask(self._ask_seconds)

    def _all(self, futures: Mapping[Any, Future[Any]], doing: str) -> None:
        for key, future in futures.items():
            try:
                future.result()
            except confluent_kafka.KafkaException as error:
                topic = key.topic if isinstance(key, TopicPartition) else key
                raise self._error(error, doing, {"topic": topic}) from error

    def _error(
        self,
        error: confluent_kafka.KafkaException,
        doing: str,
        where: Mapping[str, object],
    ) -> KafkaError:
        return kafka_error(
            error, doing=doing, bootstrap_servers=self._bootstrap_servers, where=where
        )


def _is_late(future: Future[Any]) -> bool:
    error = future.exception()
    return (
        isinstance(error, confluent_kafka.KafkaException)
        and code_of(error) == confluent_kafka.KafkaError._TIMED_OUT  # noqa: SLF001
    )


def _existing(name: str, topic: Any, entries: Mapping[str, ConfigEntry]) -> ExistingTopic:
    return ExistingTopic(
        name,
        _text(topic.topic_id),
        len(topic.partitions),
        {key: entry.value for key, entry in entries.items() if entry.value is not None},
        origins={
            key: _ORIGINS[source]
            for key, entry in entries.items()
            # The client gives a number where it promises its own class.
            if (source := getattr(entry.source, "value", entry.source)) in _ORIGINS
        },
        replication_factor=min(len(each.replicas) for each in topic.partitions),
    )


def _text(topic_id: Uuid) -> str:
    # As Kafka's tools print it; the client uses the alphabet that has slashes.
    return str(topic_id).replace("+", "-").replace("/", "_")
