"""Before the first batch: topics are there and what they were, and every task has its names."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from penstock.changelog.clients import LogClients
from penstock.changelog.kafka_failures import unreachable
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import (
    ExistingTopic,
    changelog_topic,
    commits_topic,
    repartition_topic,
)
from penstock.config import Config
from penstock.coordination.ids import Epoch, TaskId
from penstock.coordination.layout import Layout, TaskLayout, commits_partitions, lay_out
from penstock.driver.last_run import LastRun, read_last_run, refuse_change
from penstock.errors import PartitionCountError
from penstock.instance.protocol import GlobalOrder, InputOrder, StoreOrder, TakeOrder
from penstock.processors import closed_keys
from penstock.topology import StoreSpec, Topology, naming
from penstock.topology.manifest import TopologyManifest, manifest_of
from penstock.topology.succession import keep_names, succeed

_CONNECT_SECONDS = 5.0
_KAFKA_PORT = 9092
_WINDOWED = ("window", "session")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An application over the topics that there are."""

    application_id: str
    config: Config
    layout: Layout
    topics: Mapping[str, ExistingTopic]
    """Every topic that the application touches, by full name."""
    last_run: LastRun
    manifest: TopologyManifest
    """What the next run compares itself with."""
    global_tables: tuple[GlobalOrder, ...] = ()

    @property
    def tasks(self) -> dict[TaskId, TaskLayout]:
        """The tasks by id."""
        return {task.task: task for task in self.layout.tasks}

    @property
    def inputs(self) -> list[tuple[str, int]]:
        """All input partitions."""
        return sorted({each for task in self.layout.tasks for each in task.inputs})

    @property
    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic has."""
        return {name: topic.partitions for name, topic in self.topics.items()}

    def take_order(
        self, task: TaskId, *, epoch: Epoch, first_taking: bool, commits_partition: int
    ) -> TakeOrder:
        """What an instance is told when it is to take a task."""
        layout = self.tasks[task]
        return TakeOrder(
            task=str(task),
            name=layout.name,
            epoch=epoch,
            first_taking=first_taking,
            inputs=[self._input(topic, partition) for topic, partition in layout.inputs],
            stores=[self._store(store) for store in layout.sub_topology.stores],
            commits_partition=commits_partition,
            closes=closed_keys(layout.sub_topology),
        )

    def _input(self, topic: str, partition: int) -> InputOrder:
        known = self.topics[topic]
        # A repartition topic holds what we put there: skipping any of it would lose records.
        internal = topic in self.layout.repartitions
        return InputOrder(
            topic=topic,
            partition=partition,
            topic_id=known.id,
            partitions=known.partitions,
            reset="earliest" if internal else self.config.auto_offset_reset,
        )

    def _store(self, spec: StoreSpec) -> StoreOrder:
        changelog = naming.changelog_topic(self.application_id, spec.name) if spec.logging else ""
        return StoreOrder(
            name=spec.name,
            changelog=changelog,
            changelog_id=self.topics[changelog].id if changelog else "",
            kind=spec.kind,
            persistent=spec.persistent,
            retention_ms=spec.retention_ms or 0,
            segment_ms=0 if spec.kind == "key_value" else spec.segment_ms,
            time_index=spec.time_index,
        )


def prepare(
    topology: Topology, application_id: str, config: Config, logs: LogClients, admin: TopicAdmin
) -> Prepared:
    """Check what the last run left and the topics that users made, and make our own.

    Raises `TopologyChangedError`, `TopicMissingError`, `PartitionCountError`,
    `BrokerUnreachableError`.
    """
    check_broker(config)
    last_run = read_last_run(application_id, logs, admin)
    if last_run.topology is not None:
        topology = keep_names(topology, last_run.topology)
    internal = {
        naming.repartition_topic(application_id, sink.topic)
        for sub in topology.sub_topologies
        for sink in sub.sinks
        if sink.repartition
    }
    touched = {
        topic
        for sub in topology.sub_topologies
        for topic in sub.input_topics(application_id) + sub.output_topics(application_id)
    }
    tables = _global_tables(topology)
    external = admin.require((touched - internal) | {table.topic for table in tables})
    partitions = {name: topic.partitions for name, topic in external.items()}
    layout = lay_out(topology, application_id, partitions)
    manifest = manifest_of(topology, application_id, layout.widths)
    refuse_change(last_run.topology, manifest, config)
    tasks = commits_partitions(last_run.tasks, [task.name for task in layout.tasks])
    factor = config.replication_factor
    wanted = [
        commits_topic(application_id, partitions=1 + max(tasks.values()), replication_factor=factor)
    ]
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
                    config=store.changelog_config,
                )
            )
    prefix = len(application_id) + 1
    for name, count in layout.repartitions.items():
        wanted.append(
            repartition_topic(
                application_id, name[prefix:], partitions=count, replication_factor=factor
            )
        )
    try:
        own = admin.ensure(wanted)
    except PartitionCountError as error:
        raise _with_its_source(error, layout, application_id, partitions) from error
    return Prepared(
        application_id=application_id,
        config=config,
        layout=layout,
        topics={**external, **own},
        last_run=last_run,
        manifest=succeed(last_run.topology, manifest),
        global_tables=tables,
    )


def _global_tables(topology: Topology) -> tuple[GlobalOrder, ...]:
    """What every instance holds whole: no task reads it, so it is in no layout."""
    return tuple(
        GlobalOrder(store=store.name, topic=topic, persistent=store.persistent)
        for sub in topology.global_tables
        for store in sub.stores
        for source in sub.sources
        for topic in source.topics
    )


def check_broker(config: Config) -> None:
    """Make sure that something listens: a client would ask on for its whole time-out first."""
    servers = str(config.client_properties()["bootstrap.servers"])
    for each in servers.split(","):
        host, colon, port = each.strip().rpartition("://")[2].rpartition(":")
        where = (host.strip("[]"), int(port)) if colon and port.isdigit() else (port, _KAFKA_PORT)
        try:
            with closing(socket.create_connection(where, timeout=_CONNECT_SECONDS)):
                return
        except OSError:
            continue
    raise unreachable(servers)


def _with_its_source(
    error: PartitionCountError,
    layout: Layout,
    application_id: str,
    partitions: Mapping[str, int],
) -> PartitionCountError:
    """The error in terms of the topic that the user made, and not of ours that was made from it."""
    internal = str(error.where["topic"])
    for task in layout.tasks:
        sub = task.sub_topology
        written = sub.output_topics(application_id)
        stores = [naming.changelog_topic(application_id, store.name) for store in sub.stores]
        sources = {topic: partitions.get(topic, 0) for topic in sub.input_topics(application_id)}
        source = max(sources, key=lambda topic: sources[topic])
        if internal in (*written, *stores) and sources[source]:
            return PartitionCountError(
                f"The topic has {sources[source]} partitions, and the state was made with another "
                f"number: {error.message}",
                where={"topic": source},
                hint="Keys now go to other partitions, so the state no longer fits. Use a new "
                "application id, or give the topic its old number of partitions",
            )
    return error
