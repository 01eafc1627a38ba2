"""The internal topics of an application: their names, their settings, and how they come to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import KafkaError, PartitionCountError, TopicMissingError
from penstock.topology import naming

COMMITS_SEGMENT_MS = 600_000
"""Short segments, since a task's start reads its partition from the first one still there."""

LONG_MAX = 2**63 - 1
_LAG = "min.compaction.lag.ms"
_CHANGELOG = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
ADDITIONAL_RETENTION_MS = 86_400_000
"""Kafka Streams' `windowstore.changelog.additional.retention.ms`."""
_REPARTITION = {
    "cleanup.policy": "delete",
    "segment.bytes": "52428800",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
}
_COMMITS = {
    "cleanup.policy": "compact",
    "segment.ms": str(COMMITS_SEGMENT_MS),
    "message.timestamp.type": "CreateTime",
}


@dataclass(frozen=True)
class TopicSpec:
    """An internal topic as it should be."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replication_factor: int = -1
    may_grow: bool = False


@dataclass(frozen=True)
class ExistingTopic:
    """A topic as it is."""

    name: str
    id: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicPlan:
    """What has to happen before the application can run; with `problems`, nothing may."""

    create: tuple[TopicSpec, ...] = ()
    grow: tuple[TopicSpec, ...] = ()
    problems: tuple[KafkaError, ...] = ()


def commits_name(application_id: str) -> str:
    """The name of the topic that holds the tasks' commit records.

    >>> commits_name("clinic")
    'clinic-commits'
    """
    return naming.check_name(f"{application_id}-commits", "commits topic")


def changelog_topic(
    application_id: str,
    store: str,
    *,
    partitions: int,
    replication_factor: int = -1,
    retention_ms: int | None = None,
    history_ms: int | None = None,
    config: Mapping[str, str] | None = None,
) -> TopicSpec:
    """A store's changelog: one partition per task, the last value of each key kept.

    With `retention_ms`, which windows and sessions have, what is older goes a day later. With
    `history_ms`, which versions have, all values of a key stay for that and a day. Settings in
    `config` replace the usual ones, except how long windows are kept, as in Kafka Streams.
    """
    name = naming.changelog_topic(application_id, store)
    settings = dict(_CHANGELOG)
    if history_ms is not None:
        settings[_LAG] = str(min(history_ms + ADDITIONAL_RETENTION_MS, LONG_MAX))
    if retention_ms is not None:
        settings["cleanup.policy"] = "compact,delete"
    settings |= config or {}
    if retention_ms is not None:
        kept_ms = min(retention_ms + ADDITIONAL_RETENTION_MS, LONG_MAX)
        settings["retention.ms"] = str(kept_ms)
    return TopicSpec(name, partitions, settings, replication_factor)


def repartition_topic(
    application_id: str, name: str, *, partitions: int, replication_factor: int = -1
) -> TopicSpec:
    """A repartition topic: nothing expires; what was processed is purged by us."""
    full_name = naming.repartition_topic(application_id, name)
    return TopicSpec(full_name, partitions, _REPARTITION, replication_factor)


def commits_topic(
    application_id: str, *, partitions: int, replication_factor: int = -1
) -> TopicSpec:
    """The commits topic: partition 0 for the driver, and one for each task that ever was."""
    name = commits_name(application_id)
    return TopicSpec(name, partitions, _COMMITS, replication_factor, may_grow=True)


def plan_topics(wanted: Iterable[TopicSpec], existing: Mapping[str, ExistingTopic]) -> TopicPlan:
    """What to create, what to grow, and what is wrong with the topics that are there."""
    create: list[TopicSpec] = []
    grow: list[TopicSpec] = []
    problems: list[KafkaError] = []
    for spec in wanted:
        found = existing.get(spec.name)
        if found is None:
            create.append(spec)
            continue
        problem = (
            _policy_problem(spec, found)
            or _partitions_problem(spec, found)
            or _retention_problem(spec, found)
            or _lag_problem(spec, found)
        )
        if problem is not None:
            problems.append(problem)
        elif found.partitions < spec.partitions:
            grow.append(spec)
    return TopicPlan(tuple(create), tuple(grow), tuple(problems))


def topic_missing(name: str, known: Iterable[str]) -> TopicMissingError:
    """The error of a topic that does not exist, with the name that was probably meant.

    >>> print(topic_missing("pulse-event", ["pulse-events", "other"]))
    The topic 'pulse-event' does not exist. Did you mean 'pulse-events'? Else create it
    """
    near = difflib.get_close_matches(name, sorted(known), n=1)
    hint = f"Did you mean {near[0]!r}? Else create it" if near else "Create it"
    return TopicMissingError(f"The topic {name!r} does not exist", hint=hint)


def _partitions_problem(spec: TopicSpec, found: ExistingTopic) -> KafkaError | None:
    if found.partitions == spec.partitions or spec.may_grow:
        return None
    return PartitionCountError(
        f"The internal topic {spec.name!r} has {found.partitions} partitions, not "
        f"{spec.partitions}",
        where={"topic": spec.name},
        hint="Input topics must keep their number of partitions; to start afresh, delete the "
        "application's internal topics and state",
    )


def _policy_problem(spec: TopicSpec, found: ExistingTopic) -> KafkaError | None:
    wanted = spec.config["cleanup.policy"]
    policy = found.config.get("cleanup.policy", wanted)
    if _policies(policy) == _policies(wanted):
        return None
    return KafkaError(
        f"The internal topic {spec.name!r} has cleanup.policy={policy}, not {wanted}: "
        "it would lose state or records",
        where={"topic": spec.name},
        hint=f"Set it: kafka-configs --alter --topic {spec.name} "
        f"--add-config cleanup.policy={wanted}",
    )


def _retention_problem(spec: TopicSpec, found: ExistingTopic) -> KafkaError | None:
    """A changelog that forgets sooner than its store would restore less than there was."""
    wanted = int(spec.config.get("retention.ms", -1))
    kept = int(found.config.get("retention.ms", -1))
    if kept == -1 or kept >= wanted:
        return None
    return KafkaError(
        f"The internal topic {spec.name!r} has retention.ms={kept}, less than {wanted}: "
        "it would lose state or records",
        where={"topic": spec.name},
        hint=f"Set it: kafka-configs --alter --topic {spec.name} "
        f"--add-config retention.ms={wanted}",
    )


def _lag_problem(spec: TopicSpec, found: ExistingTopic) -> KafkaError | None:
    """A changelog that is compacted too soon would restore a store without its history."""
    wanted, kept = int(spec.config.get(_LAG, 0)), int(found.config.get(_LAG, LONG_MAX))
    if kept >= wanted:
        return None
    return KafkaError(
        f"The internal topic {spec.name!r} has {_LAG}={kept}, less than {wanted}: "
        "it would lose the history of its store",
        where={"topic": spec.name},
        hint=f"Set it: kafka-configs --alter --topic {spec.name} --add-config {_LAG}={wanted}",
    )


def _policies(text: str) -> set[str]:
    return {part.strip() for part in text.split(",") if part.strip()}
