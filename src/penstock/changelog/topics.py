"""The internal topics of an application: their names and their settings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import TopicMissingError
from penstock.topology import naming

COMMITS_SEGMENT_MS = 600_000
"""Short segments, since a task's start reads its partition from the first one still there."""

TOMBSTONES_MS = 86_400_000
"""Kafka's default of `delete.retention.ms`."""
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


Kind = Literal["changelog", "repartition", "commits"]
Origin = Literal["topic", "broker", "default"]
"""Who says so: the topic's own settings, the brokers' configuration, or Kafka's defaults."""


@dataclass(frozen=True)
class TopicSpec:
    """An internal topic as it should be."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replication_factor: int = -1
    may_grow: bool = False
    kind: Kind = "changelog"


@dataclass(frozen=True)
class ExistingTopic:
    """A topic as it is."""

    name: str
    id: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    """Every setting that holds, wherever it comes from."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Where each comes from; what is not here is Kafka's default."""
    replication_factor: int = -1


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
    additional_retention_ms: int = ADDITIONAL_RETENTION_MS,
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
        kept_ms = min(retention_ms + additional_retention_ms, LONG_MAX)
        settings["retention.ms"] = str(kept_ms)
    return TopicSpec(name, partitions, settings, replication_factor)


def repartition_topic(
    application_id: str,
    name: str,
    *,
    partitions: int,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
) -> TopicSpec:
    """A repartition topic: nothing expires; what was processed is purged by us."""
    full_name = naming.repartition_topic(application_id, name)
    settings = {**_REPARTITION, **(config or {})}
    return TopicSpec(full_name, partitions, settings, replication_factor, kind="repartition")


def commits_topic(
    application_id: str,
    *,
    partitions: int,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
) -> TopicSpec:
    """The commits topic: partition 0 for the driver, and one for each task that ever was.

    How it is compacted is ours to say; `config` adds to that.
    """
    return TopicSpec(
        commits_name(application_id),
        partitions,
        {**(config or {}), **_COMMITS},
        replication_factor,
        may_grow=True,
        kind="commits",
    )


def policies(text: str) -> set[str]:
    """The parts of a `cleanup.policy`.

    >>> sorted(policies("delete, compact"))
    ['compact', 'delete']
    """
    return {part.strip() for part in text.split(",") if part.strip()}


def topic_missing(name: str, known: Iterable[str]) -> TopicMissingError:
    """The error of a topic that does not exist, with the name that was probably meant.

    >>> topic_missing("pulse-event", ["pulse-events", "other"]).hint
    "Did you mean 'pulse-events'? Else create it: `penstock topics create` does"
    """
    near = difflib.get_close_matches(name, sorted(known), n=1)
    begin = f"Did you mean {near[0]!r}? Else create" if near else "Create"
    hint = f"{begin} it: `penstock topics create` does"
    return TopicMissingError(f"The topic {name!r} does not exist", hint=hint)
