"""From a topology and the topics' sizes to tasks and internal topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.coordination.ids import TaskId, durable_name
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

    @property
    def widths(self) -> dict[str, int]:
        """How many tasks each sub-topology has, by its durable name."""
        return dict(Counter(task.sub_topology.name for task in self.tasks))


def lay_out(topology: Topology, application_id: str, partitions: Mapping[str, int]) -> Layout:
    """The tasks and internal topics, given the source topics' numbers of partitions.

    A repartition topic has as many partitions as the largest input of what writes it, so that
    re-keying does not change how wide the application runs.
    """
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
                repartitions[topic] = sizes[topic] = width
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


def _width(sub: SubTopology, application_id: str, sizes: Mapping[str, int]) -> int:
    return max(sizes[topic] for topic in sub.input_topics(application_id))


def _internal(sub: SubTopology, application_id: str) -> set[str]:
    return {full_topic(s, s.topic, application_id) for s in sub.sinks if s.repartition}


def _tasks(sub: SubTopology, application_id: str, sizes: Mapping[str, int]) -> list[TaskLayout]:
    topics = sub.input_topics(application_id)
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
