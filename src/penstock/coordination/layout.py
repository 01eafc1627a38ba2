"""From a topology and the topics' sizes to tasks and internal topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.coordination.ids import TaskId, durable_name
from penstock.errors import PartitionCountError
from penstock.topology import SubTopology, Topology
from penstock.topology.graph import full_topic
from penstock.topology.naming import changelog_topic


@dataclass(frozen=True, kw_only=True)
class TaskLayout:
    """One task: its names and what it reads."""

    task: TaskId
    name: str
    sub_topology: SubTopology
    inputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """An application laid out over the topics that there are."""

    tasks: tuple[TaskLayout, ...]
    changelogs: Mapping[str, int]
    """Partitions of each changelog, by its full name."""
    repartitions: Mapping[str, int]
    """Partitions of each repartition topic, by its full name."""


def lay_out(
    topology: Topology,
    application_id: str,
    partitions: Mapping[str, int],
    *,
    copartitioned: Iterable[Collection[str]] = (),
) -> Layout:
    """The tasks and internal topics, given the source topics' numbers of partitions.

    A repartition topic has as many partitions as the largest input of what writes it, so that
    re-keying does not change how wide the application runs; in a group of topics that must be
    copartitioned it has as many as the others. Raises `PartitionCountError` where users' topics of
    a group differ.
    """
    groups = [tuple(group) for group in copartitioned]
    forced: dict[str, int] = {}
    while True:
        sizes, repartitions = _sizes(topology, application_id, partitions, forced)
        wanted = _widths_of_groups(groups, sizes, repartitions)
        if wanted == forced:
            break
        forced = wanted
    check_copartitioned(groups, sizes)
    changelogs = {
        changelog_topic(application_id, store.name): _width(sub, application_id, sizes)
        for sub in topology.sub_topologies
        for store in sub.stores
        if store.logging
    }
    tasks = tuple(
        task for sub in topology.sub_topologies for task in _tasks(sub, application_id, sizes)
    )
    return Layout(tasks=tasks, changelogs=changelogs, repartitions=repartitions)


def check_copartitioned(groups: Iterable[Collection[str]], sizes: Mapping[str, int]) -> None:
    """Make sure that the topics of each group have equally many partitions.

    >>> check_copartitioned([("a", "b")], {"a": 2, "b": 2})
    """
    for group in groups:
        first, *others = group
        for other in others:
            if sizes[first] != sizes[other]:
                raise PartitionCountError(
                    f"{first!r} has {sizes[first]} partitions and {other!r} has {sizes[other]}: "
                    "records of one key would be in different tasks, and never meet",
                    where={"topic": other},
                    hint=f"Give both topics equally many partitions, or call repartition() on the "
                    f"stream of {other!r} before it is joined",
                )


def _sizes(
    topology: Topology,
    application_id: str,
    partitions: Mapping[str, int],
    forced: Mapping[str, int],
) -> tuple[dict[str, int], dict[str, int]]:
    """The partitions of all topics, and those of the repartition topics alone."""
    sizes = dict(partitions)
    repartitions: dict[str, int] = {}
    waiting = list(topology.sub_topologies)
    while waiting:
        known = [sub for sub in waiting if set(sub.input_topics(application_id)) <= set(sizes)]
        assert known, "a repartition topic that nothing writes cannot be built"
        for sub in known:
            waiting.remove(sub)
            width = _width(sub, application_id, sizes)
            for topic in set(sub.output_topics(application_id)) & _internal(sub, application_id):
                repartitions[topic] = sizes[topic] = forced.get(topic, width)
    return sizes, repartitions


def _widths_of_groups(
    groups: Iterable[Collection[str]], sizes: Mapping[str, int], repartitions: Collection[str]
) -> dict[str, int]:
    """How wide the repartition topics of each group are to be: as users' topics, else the widest.

    A wider topic makes what it feeds wider, so this is asked again until nothing changes.
    """
    widths: dict[str, int] = {}
    for group in groups:
        given = [sizes[topic] for topic in group if topic not in repartitions]
        width = given[0] if given else max(sizes[topic] for topic in group)
        widths |= {topic: width for topic in group if topic in repartitions}
    return widths


def _width(sub: SubTopology, application_id: str, sizes: Mapping[str, int]) -> int:
    return max(sizes[topic] for topic in sub.input_topics(application_id))


def _internal(sub: SubTopology, application_id: str) -> set[str]:
    return {full_topic(s, s.topic, application_id) for s in sub.sinks if s.repartition}


def _tasks(sub: SubTopology, application_id: str, sizes: Mapping[str, int]) -> list[TaskLayout]:
    topics = dict.fromkeys(sub.input_topics(application_id))
    return [
        TaskLayout(
            task=TaskId(sub.number, partition),
            name=durable_name(sub.name, partition),
            sub_topology=sub,
            inputs=tuple((topic, partition) for topic in topics if partition < sizes[topic]),
        )
        for partition in range(_width(sub, application_id, sizes))
    ]


def commits_partitions(tasks: Mapping[str, int], names: list[str]) -> dict[str, int]:
    """A partition of the commits topic for every task: the one it has, or the next free one.

    >>> commits_partitions({"counts-0": 1}, ["counts-0", "counts-1"])
    {'counts-0': 1, 'counts-1': 2}
    """
    result = dict(tasks)
    for name in names:
        if name not in result:
            result[name] = max(result.values(), default=0) + 1
    return result
