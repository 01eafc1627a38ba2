"""What belongs to an application that starts over: by its program, or by what it left in Kafka."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException

from penstock.changelog.clients import LogClients
from penstock.changelog.kafka_failures import kafka_error
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import ExistingTopic, TopicSpec, commits_name
from penstock.config import Config
from penstock.coordination.resets import internal_by_name, is_internal_name
from penstock.driver.last_run import read_last_run
from penstock.driver.reset import Extent, Reset
from penstock.driver.setup import check_broker, prepare
from penstock.errors import ConfigError
from penstock.topology import Topology
from penstock.topology.manifest import TopologyManifest
from penstock.topology.naming import changelog_topic, repartition_topic
from penstock.topology.patterns import matching, patterns_of, with_topics

_ASK_SECONDS = 30.0


def reset_of_program(application_id: str, topology: Topology, config: Config) -> Reset:
    """A reset after which the program's own topics are as it wants them."""
    check_broker(config)
    logs = LogClients(config, application_id)
    admin = TopicAdmin(config, admin=logs.admin)
    patterns = patterns_of(topology)
    if patterns:
        topology = with_topics(topology, matching(patterns, admin.names(), application_id))
    _refuse_databases(topology)
    fresh = dataclasses.replace(config, allow_topology_change=True)

    def make_anew() -> None:
        prepare(topology, application_id, fresh, logs, admin)

    last = read_last_run(application_id, logs, admin).topology
    names = _of_program(topology, application_id) | (set() if last is None else _of_run(last))
    extent = Extent(
        inputs=frozenset(
            topic
            for sub in topology.sub_topologies
            for source in sub.sources
            if not source.repartition
            for topic in source.topics
        ),
        internal=frozenset(admin.describe(names)),
        make_anew=make_anew,
    )
    return Reset(application_id, extent, config, logs, admin)


def reset_by_name(
    application_id: str,
    config: Config,
    *,
    input_topics: Collection[str] = (),
    internal_topics: Collection[str] = (),
) -> Reset:
    """A reset without the program: its own topics are made anew as they were.

    The last driver wrote down which they are. Without that (a Java application, or one whose
    commits topic is gone) they are told by their names, and inputs by the group's positions.
    Topics that are given here are taken as given. Raises `ConfigError` for an application of which
    nothing is known, and for topics that cannot be its own.
    """
    check_broker(config)
    logs = LogClients(config, application_id)
    admin = TopicAdmin(config, admin=logs.admin)
    last = read_last_run(application_id, logs, admin).topology
    notes: list[str] = []
    if internal_topics:
        names = _given(application_id, internal_topics)
    elif last is not None:
        names = _of_run(last)
    else:
        told = internal_by_name(application_id, admin.names(), others=_groups(logs))
        names = set(told.own)
        notes += [f"left alone, it may be of {other}: {name}" for name, other in told.doubtful]
    found = admin.describe(names)
    inputs = set(input_topics) or _inputs(last, logs, names)
    if not inputs:
        raise ConfigError(
            f"It is not known what the application {application_id!r} reads",
            hint="Its consumer group has no positions, and no record of a run was found. Check "
            "the id, or name the topics: --input-topics a,b",
        )
    if last is not None:
        notes += _unlogged(last)
    extent = Extent(
        inputs=frozenset(inputs),
        internal=frozenset(found),
        make_anew=lambda: _make_anew(admin, found, last),
        notes=tuple(notes),
    )
    return Reset(application_id, extent, config, logs, admin)


def _of_program(topology: Topology, application_id: str) -> set[str]:
    names = {commits_name(application_id)}
    names |= {
        changelog_topic(application_id, each.name) for each in topology.stores if each.logging
    }
    return names | {
        repartition_topic(application_id, sink.topic)
        for sub in topology.sub_topologies
        for sink in sub.sinks
        if sink.repartition
    }


def _of_run(last: TopologyManifest) -> set[str]:
    """The internal topics of the program that last ran.

    Not all that begin with the application's id: they may be another's, whose id is longer.
    """
    names = {commits_name(last.application_id), *last.repartitions, *_retired(last)}
    return names | {store.changelog for _, store in last.stores.values() if store.changelog}


def _retired(last: TopologyManifest) -> set[str]:
    return {changelog_topic(last.application_id, name) for name in last.retired}


def _given(application_id: str, names: Collection[str]) -> set[str]:
    strange = sorted(name for name in names if not is_internal_name(application_id, name))
    if strange:
        raise ConfigError(
            f"{strange[0]!r} is no internal topic of {application_id!r}",
            hint=f"Such names begin with {application_id}- and end with -changelog or "
            "-repartition. Other topics are never deleted; what is read goes to --input-topics",
        )
    return {*names, commits_name(application_id)}


def _inputs(last: TopologyManifest | None, logs: LogClients, internal: Collection[str]) -> set[str]:
    if last is not None:
        return set(last.sources)
    return _topics_of_group(logs) - set(internal)


def _unlogged(last: TopologyManifest) -> list[str]:
    return [
        f"the store {name} has no changelog: if it is in a database, its tables are not touched"
        for name, (_, store) in sorted(last.stores.items())
        if store.changelog is None
    ]


def _make_anew(
    admin: TopicAdmin, topics: Mapping[str, ExistingTopic], last: TopologyManifest | None
) -> None:
    """Create topics as they were; those that no store had any more are not needed."""
    retired = set() if last is None else _retired(last)
    admin.create(
        [
            TopicSpec(
                name,
                topic.partitions,
                {
                    setting: value
                    for setting, value in topic.config.items()
                    if topic.origins.get(setting) == "topic"
                },
                topic.replication_factor,
            )
            for name, topic in topics.items()
            if name not in retired
        ]
    )


def _groups(logs: LogClients) -> set[str]:
    """The ids of all consumer groups that there are."""
    try:
        found = logs.admin.list_consumer_groups(request_timeout=_ASK_SECONDS).result()
    except KafkaException as error:
        raise kafka_error(error, doing="list consumer groups") from error
    return {each.group_id for each in found.valid}


def _topics_of_group(logs: LogClients) -> set[str]:
    """The topics in which the application's group has positions.

    All topics are asked about by name: asked for whatever there is, the client crashes on a group
    that does not exist.
    """
    try:
        found = logs.admin.list_topics(timeout=_ASK_SECONDS).topics
    except KafkaException as error:
        raise kafka_error(error, doing="list topics") from error
    every = [
        (name, partition)
        for name, topic in found.items()
        if not name.startswith("__")
        for partition in topic.partitions
    ]
    return {topic for topic, _ in logs.committed(every)}


def _refuse_databases(topology: Topology) -> None:
    for store in topology.stores:
        if store.kept_in is not None:
            raise ConfigError(
                f"The store {store.name!r} is in a database, which a reset does not touch",
                hint="Drop its tables, delete the consumer group and the application's topics, "
                "and start; or use another application id",
            )
