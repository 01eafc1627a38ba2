"""The topics that an application makes for itself, and whether one of them is gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from penstock.changelog.topics import (
    TopicSpec,
    changelog_topic,
    commits_topic,
    repartition_topic,
)
from penstock.config import Config
from penstock.coordination.layout import Layout
from penstock.errors import ChangelogError, KafkaError, TopicMismatchError
from penstock.topology import Topology, naming
from penstock.topology.manifest import TopologyManifest

_WINDOWED = ("window", "session")
_AFRESH = (
    "State and positions no longer belong together. Start afresh: delete the application's "
    "internal topics, consumer group and state directory, or use another id"
)


def internal_topics(
    topology: Topology,
    application_id: str,
    config: Config,
    layout: Layout,
    tasks: Mapping[str, int],
) -> list[TopicSpec]:
    """The internal topics as the program wants them; `tasks` have their commits partitions.

    What is set is, weakest first, the library's, `config.topic`, and the store's own.
    """
    factor = config.replication_factor
    wanted = [
        commits_topic(
            application_id,
            partitions=1 + max(tasks.values()),
            replication_factor=factor,
            config=config.topic,
        )
    ]
    more_ms = config.windowstore_changelog_additional_retention // timedelta(milliseconds=1)
    for store in topology.stores:
        count = layout.changelogs.get(naming.changelog_topic(application_id, store.name))
        if count is not None:
            wanted.append(
                changelog_topic(
                    application_id,
                    store.name,
                    partitions=count,
                    replication_factor=factor,
                    retention_ms=store.retention_ms if store.kind in _WINDOWED else None,
                    history_ms=store.retention_ms if store.kind == "versioned" else None,
                    additional_retention_ms=more_ms,
                    config={**config.topic, **store.changelog_config},
                )
            )
    prefix = len(application_id) + 1
    for name, count in layout.repartitions.items():
        wanted.append(
            repartition_topic(
                application_id,
                name[prefix:],
                partitions=count,
                replication_factor=factor,
                config=config.topic,
            )
        )
    return wanted


def refuse_deleted(missing: Iterable[TopicSpec], last: TopologyManifest | None) -> None:
    """Raise if a topic that the last run wrote to is gone: made anew, it would be empty."""
    if last is None:
        return
    changelogs = {store.changelog for _, store in last.stores.values()}
    for spec in missing:
        if spec.name in changelogs or spec.name in last.repartitions:
            raise deleted(spec.name, changelog=spec.name in changelogs)


def refuse_empty_start(missing: Iterable[TopicSpec], group: Mapping[tuple[str, int], int]) -> None:
    """Raise if the group has positions in the input, and the changelogs that go with them are gone.

    That is for an application of which no record is left: a Java one, or one whose commits topic
    was deleted too.
    """
    changelogs = [spec for spec in missing if spec.kind == "changelog"]
    moved = sorted(each for each, offset in group.items() if offset > 0)
    if changelogs and moved:
        topic, partition = moved[0]
        raise ChangelogError(
            f"The consumer group is at offset {group[moved[0]]} of {topic}-{partition}, and the "
            "changelog with the state up to there does not exist",
            where={"topic": changelogs[0].name},
            hint="Restore the topic, or delete the consumer group to read the input again. If "
            "there never was such state: allow_topology_change=True, once",
        )


def deleted(topic: str, *, changelog: bool) -> KafkaError:
    """The error of an internal topic that was there and is not."""
    kind, what = (
        (ChangelogError, "The changelog was deleted, and with it what the stores hold")
        if changelog
        else (TopicMismatchError, "The internal topic was deleted, with the records on their way")
    )
    return kind(what, where={"topic": topic}, hint=_AFRESH)
