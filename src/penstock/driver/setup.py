"""Before the first batch: topics are there and what they were, and every task has its names."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import msgspec

from penstock.changelog.access import check_access, check_plain
from penstock.changelog.clients import LogClients
from penstock.changelog.kafka_failures import unreachable
from penstock.changelog.partition_counts import AskedCounts
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topic_plan import (
    Asked,
    TopicPlan,
    before_start,
    copies_note,
    remembered,
    sizes_note,
)
from penstock.changelog.topics import ExistingTopic, TopicSpec, commits_name, policies
from penstock.config import Config
from penstock.coordination.assignment import TaskFacts
from penstock.coordination.ids import Epoch, TaskId
from penstock.coordination.layout import Layout, TaskLayout, commits_partitions, lay_out
from penstock.driver.internal_topics import (
    internal_topics,
    refuse_deleted,
    refuse_empty_start,
)
from penstock.driver.last_run import LastRun, read_last_run, refuse_change
from penstock.driver.seen_settings import SeenSettings
from penstock.errors import PartitionCountError, TopicMissingError
from penstock.instance.protocol import (
    DatabaseOrder,
    FollowOrder,
    GlobalOrder,
    InputOrder,
    StoreOrder,
    TakeOrder,
)
from penstock.processors import closed_keys, shape_class
from penstock.topology import StoreSpec, Topology, naming
from penstock.topology.manifest import TopologyManifest, manifest_of
from penstock.topology.patterns import matching, patterns_of, with_topics
from penstock.topology.recovery import check_compacted
from penstock.topology.succession import keep_names, succeed

_CONNECT_SECONDS = 5.0
_KAFKA_PORT = 9092


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
    settings: SeenSettings
    """How the changelogs have been set since the start."""
    global_tables: tuple[GlobalOrder, ...] = ()
    notice: str = ""
    """What an operator should know of the internal topics."""
    patterns: tuple[re.Pattern[str], ...] = ()
    matched: frozenset[str] = frozenset()
    """The topics that match a pattern."""

    @property
    def tasks(self) -> dict[TaskId, TaskLayout]:
        """The tasks by id."""
        return {task.task: task for task in self.layout.tasks}

    @property
    def inputs(self) -> list[tuple[str, int]]:
        """All input partitions."""
        return sorted({each for task in self.layout.tasks for each in task.inputs})

    @cached_property
    def partition_counts(self) -> Mapping[str, int]:
        """How many partitions each topic has; workers ask for those that a function names."""
        known = {name: topic.partitions for name, topic in self.topics.items()}
        subs = (task.sub_topology for task in self.layout.tasks)
        names_topics = any(sink.topic_of is not None for sub in subs for sink in sub.sinks)
        return AskedCounts(known, self.config) if names_topics else known

    def take_order(
        self,
        task: TaskId,
        *,
        epoch: Epoch,
        first_taking: bool,
        commits_partition: int,
        peers: list[str],
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
            peers=peers,
            recover_outputs=self.config.recover_outputs,
            repartitions=[
                topic
                for topic in layout.sub_topology.output_topics(self.application_id)
                if topic in self.layout.repartitions
            ],
        )

    def follow_order(
        self, task: TaskId, *, commits_partition: int, peers: list[str]
    ) -> FollowOrder:
        """What an instance is told when it is to follow a task."""
        layout = self.tasks[task]
        return FollowOrder(
            task=str(task),
            name=layout.name,
            stores=[self._store(store) for store in layout.sub_topology.stores],
            commits_partition=commits_partition,
            peers=peers,
        )

    def changelogs(self) -> dict[TaskId, list[tuple[str, int]]]:
        """The changelog partitions of each task that has any."""
        found = {
            layout.task: [
                (naming.changelog_topic(self.application_id, spec.name), layout.task.partition)
                for spec in layout.sub_topology.stores
                if spec.logging and spec.kept_in is None
            ]
            for layout in self.layout.tasks
        }
        return {task: logs for task, logs in found.items() if logs}

    def task_facts(self) -> list[TaskFacts]:
        """The tasks, as far as their places depend on what they are."""
        followed = self.changelogs()
        return [
            TaskFacts(
                task=layout.task,
                # A database has the state of those stores, wherever the task is.
                stateful=any(spec.kept_in is None for spec in layout.sub_topology.stores),
                standbys=layout.task in followed,
            )
            for layout in self.layout.tasks
        ]

    def _input(self, topic: str, partition: int) -> InputOrder:
        known = self.topics[topic]
        return InputOrder(
            topic=topic,
            partition=partition,
            topic_id=known.id,
            partitions=known.partitions,
            reset=self.layout.reset(topic, self.config.auto_offset_reset),
        )

    def _store(self, spec: StoreSpec) -> StoreOrder:
        changelog = naming.changelog_topic(self.application_id, spec.name) if spec.logging else ""
        settings = self.topics[changelog].config if changelog else {}
        counted_in = self.topics.get(changelog or commits_name(self.application_id))
        return StoreOrder(
            name=spec.name,
            changelog=changelog,
            changelog_id="" if counted_in is None else counted_in.id,
            kind=spec.kind,
            persistent=spec.persistent,
            retention_ms=spec.retention_ms or 0,
            segment_ms=0 if spec.kind == "key_value" else spec.segment_ms,
            time_index=spec.time_index,
            recovers=spec.recover_from == "input" or changelog in self.layout.recovered_changelogs,
            supplier=spec.supplier,
            database=_database(spec),
            expires="delete" in policies(settings.get("cleanup.policy", "")),
            kept_ms=self.settings.kept_ms(changelog),
            tombstones_ms=self.settings.tombstones_ms(changelog),
            allow_truncated=self.config.allow_truncated_changelog,
        )


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The program over the topics that users made, and the topics that it wants for itself."""

    external: Mapping[str, ExistingTopic]
    layout: Layout
    last_run: LastRun
    manifest: TopologyManifest
    internal: tuple[TopicSpec, ...]
    global_tables: tuple[GlobalOrder, ...]
    patterns: tuple[re.Pattern[str], ...]
    matched: frozenset[str]

    @property
    def asked(self) -> Mapping[str, Asked]:
        """What programs that ran asked of each internal topic."""
        last = self.last_run.topology
        return {} if last is None else last.topic_settings


def look(
    topology: Topology, application_id: str, config: Config, logs: LogClients, admin: TopicAdmin
) -> Outlook:
    """Check what the last run left and the topics that users made; change nothing.

    Raises `TopologyError`, `TopologyChangedError`, `TopicMissingError`, `TopicMismatchError`,
    `PartitionCountError`, `BrokerUnreachableError`.
    """
    for store in topology.stores:
        if store.shape is not None:
            shape_class(store.name, store.shape)
    check_broker(config)
    patterns = patterns_of(topology)
    matched = matching(patterns, admin.names(), application_id) if patterns else frozenset()
    _check_matched(patterns, matched)
    topology = with_topics(topology, matched)
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
    tables = _global_tables(topology, config)
    named = {table.topic for table in tables}
    if config.errors_dead_letter_queue_topic_name:
        named.add(config.errors_dead_letter_queue_topic_name)
    external = admin.require((touched - internal) | named)
    _check_kept(topology, application_id, external)
    partitions = {name: topic.partitions for name, topic in external.items()}
    layout = lay_out(topology, application_id, partitions)
    manifest = manifest_of(topology, application_id, layout.widths)
    refuse_change(last_run.topology, manifest, config)
    tasks = commits_partitions(last_run.tasks, [task.name for task in layout.tasks])
    return Outlook(
        external=external,
        layout=layout,
        last_run=last_run,
        manifest=manifest,
        internal=tuple(internal_topics(topology, application_id, config, layout, tasks)),
        global_tables=tables,
        patterns=patterns,
        matched=matched,
    )


def plan_internal(
    outlook: Outlook, config: Config, logs: LogClients, admin: TopicAdmin
) -> TopicPlan:
    """What has to happen to the internal topics. Raises if one that held something is gone."""
    plan = admin.plan(outlook.internal, asked=outlook.asked)
    recovered = outlook.layout.recovered_changelogs
    refuse_deleted(
        [spec for spec in plan.create if spec.name not in recovered], outlook.last_run.topology
    )
    first_run = outlook.last_run.topology is None
    if plan.create and first_run and not config.allow_topology_change:
        inputs = {each for task in outlook.layout.tasks for each in task.inputs}
        internal = {spec.name for spec in outlook.internal}
        read = sorted(each for each in inputs if each[0] not in internal)
        refuse_empty_start(plan.create, logs.committed(read))
    return plan


def _database(spec: StoreSpec) -> DatabaseOrder | None:
    kept_in = spec.kept_in
    if kept_in is None:
        return None
    return DatabaseOrder(
        dsn_variable=kept_in.dsn_variable,
        table=list(kept_in.names(spec.name)),
        outbox=kept_in.outbox,
    )


def prepare(
    topology: Topology, application_id: str, config: Config, logs: LogClients, admin: TopicAdmin
) -> Prepared:
    """Check what there is, as `look` does, and make our own topics.

    Raises also `ChangelogError` and `TopicMismatchError` if one that held something is gone.
    """
    outlook = look(topology, application_id, config, logs, admin)
    plan = plan_internal(outlook, config, logs, admin)
    try:
        notice = before_start(plan, manage=config.manage_topics)
    except PartitionCountError as error:
        raise _with_its_source(error, outlook, application_id) from error
    admin.carry_out(plan, alter=config.manage_topics)
    own = admin.require(spec.name for spec in outlook.internal)
    notes = (copies_note(outlook.internal, own), sizes_note(outlook.internal, own))
    last_run, asked = outlook.last_run, outlook.asked
    known = {
        spec.name: remembered(spec, own[spec.name], asked.get(spec.name, {}))
        for spec in outlook.internal
    }
    return Prepared(
        application_id=application_id,
        config=config,
        layout=outlook.layout,
        topics={**outlook.external, **own},
        last_run=last_run,
        manifest=msgspec.structs.replace(
            succeed(last_run.topology, outlook.manifest), topic_settings=known
        ),
        settings=SeenSettings(outlook.internal, own),
        global_tables=outlook.global_tables,
        patterns=outlook.patterns,
        matched=outlook.matched,
        notice=". ".join(filter(None, (notice, *notes))),
    )


def _check_kept(
    topology: Topology, application_id: str, topics: Mapping[str, ExistingTopic]
) -> None:
    said = {name: topic.config.get("cleanup.policy", "") for name, topic in topics.items()}
    compacted = {name: policy for name, policy in said.items() if "compact" in policies(policy)}
    for sub in topology.sub_topologies:
        check_compacted(sub, application_id, compacted)


def _check_matched(patterns: Iterable[re.Pattern[str]], matched: Iterable[str]) -> None:
    for pattern in patterns:
        if not any(pattern.fullmatch(topic) for topic in matched):
            raise TopicMissingError(
                f"No topic matches the pattern {pattern.pattern!r}",
                hint="Create one; topics that match later are found while the application runs",
            )


def _global_tables(topology: Topology, config: Config) -> tuple[GlobalOrder, ...]:
    """What every instance holds whole: no task reads it, so it is in no layout."""
    handler = config.processing_exception_handler
    return tuple(
        GlobalOrder(
            store=store.name,
            topic=topic,
            persistent=store.persistent,
            is_processed=sub.is_filled_by_code,
            skips_undecodable=config.deserialization_exception_handler != "fail",
            on_processing_error=handler if isinstance(handler, str) else None,
            dead_letter_topic=config.errors_dead_letter_queue_topic_name,
        )
        for sub in topology.global_tables
        for store in sub.stores
        for source in sub.sources
        for topic in source.topics
    )


def check_broker(config: Config) -> None:
    """Make sure that something listens: a client would ask on for its whole time-out first.

    Where option kafka says how to be let in, make sure of that too. Raises `KafkaError`s.
    """
    servers = str(config.client_properties()["bootstrap.servers"])
    for each in servers.split(","):
        host, colon, port = each.strip().rpartition("://")[2].rpartition(":")
        where = (host.strip("[]"), int(port)) if colon and port.isdigit() else (port, _KAFKA_PORT)
        try:
            with closing(socket.create_connection(where, timeout=_CONNECT_SECONDS)) as connection:
                check_plain(config, connection)
                break
        except (OSError, OverflowError, UnicodeError):
            # The last two are of a port, and of a name, that there cannot be.
            continue
    else:
        raise unreachable(servers)
    check_access(config, address=where)


def _with_its_source(
    error: PartitionCountError, outlook: Outlook, application_id: str
) -> PartitionCountError:
    """The error in terms of the topic that the user made, and not of ours that was made from it.

    Unless the input has as many partitions as it had when we last ran: then ours was changed.
    """
    internal = str(error.where["topic"])
    last = outlook.last_run.topology
    widths = {} if last is None else {sub.name: sub.partitions for sub in last.sub_topologies}
    for task in outlook.layout.tasks:
        sub = task.sub_topology
        written = sub.output_topics(application_id)
        stores = [naming.changelog_topic(application_id, store.name) for store in sub.stores]
        topics = sub.input_topics(application_id)
        sources = {
            topic: outlook.external[topic].partitions if topic in outlook.external else 0
            for topic in topics
        }
        source = max(sources, key=lambda topic: sources[topic])
        if internal in stores and widths.get(sub.name) == outlook.layout.widths.get(sub.name):
            return error
        if internal in (*written, *stores) and sources[source]:
            return PartitionCountError(
                f"The topic has {sources[source]} partitions, and the state was made with another "
                f"number: {error.message}",
                where={"topic": source},
                hint="Keys now go to other partitions, so the state no longer fits. Use a new "
                "application id, or give the topic its old number of partitions",
            )
    return error
