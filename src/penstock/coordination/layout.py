"""From a topology and the topics' sizes to tasks and internal topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.config import OffsetReset
from penstock.coordination.ids import TaskId, durable_name
from penstock.errors import PartitionCountError, TopologyError
from penstock.topology import AggregateNode, LatestNode, Node, SubTopology, Topology
from penstock.topology.graph import full_topic
from penstock.topology.naming import changelog_topic
from penstock.topology.placement import Apart, joins_apart


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
    recovered_changelogs: frozenset[str] = frozenset()
    """Changelogs whose stores can be had from the input too, by their full names."""

    def reset(self, topic: str, otherwise: OffsetReset) -> OffsetReset:
        """Where an input without a position is read from: as its source says, else `otherwise`."""
        # A repartition topic holds what we put there: skipping any of it would lose records.
        if topic in self.repartitions:
            return "earliest"
        return self._said_resets.get(topic, otherwise)

    @cached_property
    def _said_resets(self) -> dict[str, OffsetReset]:
        return {
            topic: source.auto_offset_reset
            for task in self.tasks
            for source in task.sub_topology.sources
            if source.auto_offset_reset is not None
            for topic in source.topics
        }

    @property
    def widths(self) -> dict[str, int]:
        """How many tasks each sub-topology has, by its durable name."""
        return dict(Counter(task.sub_topology.name for task in self.tasks))


def lay_out(topology: Topology, application_id: str, partitions: Mapping[str, int]) -> Layout:
    """The tasks and internal topics, given the source topics' numbers of partitions.

    A repartition topic has as many partitions as the user said; else as many as the topics that it
    is joined with; else as many as the largest input of what writes it, so that re-keying does not
    change how wide the application runs. Raises `PartitionCountError` where topics that are joined
    differ, and `TopologyError` where they have equal keys in different partitions.
    """
    sizes = _sizes(topology, application_id, partitions)
    changelogs = {
        changelog_topic(application_id, store.name): _width(sub, application_id, sizes)
        for sub in topology.sub_topologies
        for store in sub.stores
        if store.logging
    }
    tasks = tuple(
        task for sub in topology.sub_topologies for task in _tasks(sub, application_id, sizes)
    )
    repartitions = {topic: sizes[topic] for topic in _writers(topology, application_id)}
    recovered = frozenset(
        changelog_topic(application_id, store.name)
        for sub in topology.sub_topologies
        for store in sub.stores
        if sub.recovers_from_input and store.logging
    )
    return Layout(
        tasks=tasks,
        changelogs=changelogs,
        repartitions=repartitions,
        recovered_changelogs=recovered,
    )


def copartitioned(sub: SubTopology, application_id: str) -> list[tuple[str, ...]]:
    """Groups of topics, by full name, that must have equally many partitions; `joining` has the
    step of each."""
    topics = {
        source.name: [full_topic(source, topic, application_id) for topic in source.topics]
        for source in sub.sources
    }
    return [tuple(t for name in group for t in topics[name]) for group in sub.copartitioned]


def check_copartitioned(
    groups: Iterable[Collection[str]],
    sizes: Mapping[str, int],
    tables: Collection[str] = (),
    steps: Sequence[str] = (),
) -> None:
    """Make sure that the topics of each group have equally many partitions; some are `tables`.

    `steps` are those in which the records of each group meet, to be named.

    >>> check_copartitioned([("a", "b")], {"a": 2, "b": 2})
    """
    for number, group in enumerate(groups):
        step = {"step": steps[number]} if steps else {}
        first, *others = group
        for other in others:
            pair = (other, first)
            if sizes[first] != sizes[other]:
                raise PartitionCountError(
                    f"{first!r} has {sizes[first]} partitions and {other!r} has {sizes[other]}: "
                    "records of one key would be in different tasks, and never meet",
                    where={**step, "topic": other},
                    hint=f"Give both topics equally many partitions, or {_way_out(pair, tables)}",
                )


def _way_out(topics: tuple[str, str], tables: Collection[str]) -> str:
    """What makes one of two topics as wide as the other: a table cannot be sent on as it is."""
    for topic in topics:
        if topic not in tables:
            return f"call repartition() on the stream of {topic!r} before it is joined"
    return (
        f"read {topics[0]!r} as a stream, and join stream(...).repartition().to_table(...) instead "
        "of its table"
    )


def _tables(topology: Topology, application_id: str) -> set[str]:
    """The topics that are read as tables."""
    return {
        full_topic(source, topic, application_id)
        for sub in topology.sub_topologies
        for source in sub.sources
        if not source.repartition
        if any(_keeps_latest(sub.by_name[child]) for child in source.children)
        for topic in source.topics
    }


def _keeps_latest(node: Node) -> bool:
    return isinstance(node, LatestNode) or (
        isinstance(node, AggregateNode) and node.kind == "latest"
    )


def _sizes(
    topology: Topology, application_id: str, partitions: Mapping[str, int]
) -> dict[str, int]:
    """The partitions of all topics, internal ones among them.

    What a topic feeds may be as wide as the topic, and may feed it in turn (a join by foreign keys
    does). So widths start at nothing and grow until they agree.
    """
    groups = [g for sub in topology.sub_topologies for g in copartitioned(sub, application_id)]
    writers = _writers(topology, application_id)
    said = {
        full_topic(sink, sink.topic, application_id): sink.partitions
        for sub in topology.sub_topologies
        for sink in sub.sinks
        if sink.repartition and sink.partitions is not None
    }
    ours = set(writers) - set(said)
    sizes = {**partitions, **said, **dict.fromkeys(ours, 0)}
    while True:
        widths = {
            topic: max(_width(sub, application_id, sizes) for sub in writers[topic])
            for topic in ours
        }
        widths |= _widths_of_groups(groups, {**sizes, **widths}, ours)
        if all(sizes[topic] == width for topic, width in widths.items()):
            break
        sizes |= widths
    assert all(sizes.values()), "a repartition topic that nothing feeds cannot be built"
    steps = [step for sub in topology.sub_topologies for step in sub.joining]
    check_copartitioned(groups, sizes, _tables(topology, application_id), steps)
    _check_windows_meet(topology, application_id, sizes)
    return sizes


def _check_windows_meet(topology: Topology, application_id: str, sizes: Mapping[str, int]) -> None:
    for join in joins_apart(topology):
        whole, inner = (
            full_topic(source, source.topics[0], application_id)
            for source in (join.whole, join.inner)
        )
        if sizes[whole] > 1:
            raise TopologyError(
                f"Windowed keys lie in {whole!r} by key and window, and those of "
                f"{inner!r} by the key alone: equal keys would be in different tasks, and never "
                "meet",
                where={"step": join.step, "topic": whole},
                hint=_way_together(join),
            )


def _way_together(join: Apart) -> str:
    """What brings windowed keys to where their equals are: questions for foreign keys stay."""
    if join.inner.repartition:
        return "Join windows that went through no repartition topic, or say other_partitioner="
    return (
        "Send both sides through repartition() before they are joined, a table as "
        "to_stream().repartition().to_table(...)"
    )


def _writers(topology: Topology, application_id: str) -> dict[str, list[SubTopology]]:
    """Who writes each repartition topic."""
    writers: dict[str, list[SubTopology]] = {}
    for sub in topology.sub_topologies:
        for topic in {full_topic(s, s.topic, application_id) for s in sub.sinks if s.repartition}:
            writers.setdefault(topic, []).append(sub)
    return writers


def _widths_of_groups(
    groups: Iterable[Collection[str]], sizes: Mapping[str, int], ours: Collection[str]
) -> dict[str, int]:
    """How wide topics of `ours` are to be: as others of their group, else as the widest of them."""
    widths: dict[str, int] = {}
    for group in groups:
        given = [sizes[topic] for topic in group if topic not in ours]
        width = given[0] if given else max(sizes[topic] for topic in group)
        widths |= {topic: width for topic in group if topic in ours}
    return widths


def _width(sub: SubTopology, application_id: str, sizes: Mapping[str, int]) -> int:
    return max(sizes[topic] for topic in sub.input_topics(application_id))


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
