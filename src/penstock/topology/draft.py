"""A topology while it is written: steps in the order of the calls, then cut into sub-topologies."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.config import DslStore
from penstock.errors import SerdeMissingError, TopologyError
from penstock.serdes import Serde, serde_of
from penstock.topology.callables import check_functions, check_store_functions
from penstock.topology.closing import closing_grace_ms
from penstock.topology.cycles import check_cycles
from penstock.topology.graph import SubTopology, Topology
from penstock.topology.materialization import settled, with_null_keys
from penstock.topology.naming import changelog_base, check_name, pattern_name, repartition_base
from penstock.topology.nodes import (
    DropNullKeyNode,
    Node,
    SinkNode,
    SourceNode,
    StoreSpec,
)
from penstock.topology.partitions import check_said_partitions
from penstock.topology.recovery import check_recovery

Names = Literal["stable", "kafka_streams"]


@dataclass(frozen=True)
class Missing:
    """A serde that nobody named: which step made the type unknown, and which option names it."""

    step: str
    option: str
    annotated: Any = None
    """What the function says that it returns, where no serde is known for that."""


SerdeOrMissing = Serde[Any] | Missing


def needed(serde: SerdeOrMissing, what: str, for_step: str) -> Serde[Any]:
    """The serde, or `SerdeMissingError` saying which step must name it."""
    if isinstance(serde, Serde):
        return serde
    if serde.annotated is not None:
        raise SerdeMissingError(
            f"{for_step} needs to write its {what}, and there is no serde for {serde.annotated!r}, "
            f"which {serde.step} says that it returns",
            hint=f"Say there {serde.option}=ps.serde(to_bytes, from_bytes), or return another "
            "type: str, int, bytes, a dataclass ...",
        )
    raise SerdeMissingError(
        f"{for_step} needs to know the type of its {what}, which {serde.step} changed",
        hint=f"Say it there: {serde.option}=str (or int, bytes, a dataclass, a Serde ...), "
        "or annotate what the function returns",
    )


def said_serde(given: Any, part: str, where: str) -> Serde[Any]:
    """The serde of a type that the user says; `TopologyError` with the place if it has none."""
    try:
        return serde_of(given)
    except TopologyError as error:
        raise TopologyError(
            f"{error.message}, which is the {part} of {where}", hint=error.hint
        ) from None


@dataclass(frozen=True)
class RepartitionSteps:
    """The names of the steps before and behind a repartition topic."""

    sink: str
    filter: str
    source: str


# What Kafka Streams takes for a generated name.
_NUMBERED = re.compile(r"KSTREAM.*-[0-9]{10}")


def _free(base: str, taken: Container[str]) -> str:
    name, tries = base, 1
    while name in taken:
        tries += 1
        name = f"{base}-{tries}"
    return name


class Draft:
    """Collects steps; `compile` freezes them."""

    def __init__(self, names: Names = "stable", dsl_store: DslStore = "rocksdb") -> None:
        self.names = names
        self._dsl_store = dsl_store
        self._counter = 0
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, list[str]] = {}
        self._stores: dict[str, StoreSpec] = {}
        self._joined: list[tuple[str, str, str]] = []
        self._shared: dict[str, RepartitionSteps] = {}
        self._bases: set[str] = set()
        self._streams: list[SourceNode] = []

    def number(self, prefix: str) -> str:
        """The next of Kafka Streams' generated names."""
        name = f"{prefix}{self._counter:010d}"
        self._counter += 1
        return name

    def skip_number(self) -> None:
        """Use up a number that only Kafka Streams' own names are to lack."""
        if self.names == "kafka_streams":
            self._counter += 1

    def step_name(self, name: str | None, prefix: str) -> str:
        """The user's name or a generated one; either way a number is used up, as in Java."""
        generated = self.number(prefix)
        return generated if name is None else check_name(name, "step", step=generated)

    def keeps(self, persistent: bool | None, brought: object = None) -> bool:
        """Whether a table's or a join's store is on disk: as said, else as `dsl_store` says.

        That is about stores of ours: one that the user brought is taken to keep what it holds.
        """
        if persistent is not None:
            return persistent
        return bool(brought) or self._dsl_store == "rocksdb"

    def check_store(self, name: str, *, step: str) -> str:
        """The name, if there is a store of that name for a step."""
        if name not in self._stores:
            known = ", ".join(self._stores) or "none"
            raise TopologyError(
                f"There is no store {name!r}",
                where={"step": step},
                hint=f"Add it first with add_state_store(...); there are: {known}",
            )
        return name

    def global_store(self, name: str, *, step: str) -> StoreSpec | None:
        """The global table's store of that name, which is nobody's own; None if it is no such."""
        spec = self._stores[self.check_store(name, step=step)]
        return spec if spec.is_global else None

    def store_name(self, name: str | None, prefix: str, *, origin: str, kind: str) -> str:
        """The user's name; else one made of what it counts, or Kafka Streams' number."""
        if name is not None:
            return check_name(name, "store", step=f"{kind} of {origin}")
        generated = self.number(prefix)
        if self.names == "kafka_streams":
            return generated
        return check_name(_free(f"{origin}-{kind}", self._stores), "store")

    def unique(self, base: str) -> str:
        """The base of a join's or a repartition's generated names: as it is, or with a number."""
        name = _free(base, self._bases)
        self._bases.add(name)
        return name

    def add(self, node: Node, *, after: Iterable[str] = ()) -> str:
        """Append a step behind others."""
        check_name(node.name, "step")
        check_functions(node)
        if node.name in self._nodes:
            raise TopologyError(
                f"Two steps are called {node.name!r}", hint="Give one of them another name="
            )
        self._nodes[node.name] = node
        self._children[node.name] = []
        # As in Kafka Streams a step that is named twice, as by `s.merge(s)`, is one parent.
        for parent in dict.fromkeys(after):
            self._children[parent].append(node.name)
        return node.name

    def add_source(self, node: SourceNode) -> str:
        """Append a source, unless one of its topics is read already."""
        for other in self._nodes.values():
            twice = _read_by_both(other, node) if isinstance(other, SourceNode) else None
            if twice is not None:
                raise TopologyError(
                    f"Topic {twice!r} is read twice",
                    hint="Keep the stream in a variable and use it for both",
                )
        return self.add(node)

    def add_stream(self, node: SourceNode) -> str:
        """Append a stream's source; a second one of the same topics is the first one."""
        for other in self._streams:
            if (set(other.topics), other.pattern) == (set(node.topics), node.pattern):
                if _reading(other) != _reading(node):
                    raise TopologyError(
                        f"Topic {_source_name(node)!r} is read twice, with different serdes, "
                        "times or offset resets",
                        hint="Read it the same way both times, or keep the stream in a variable",
                    )
                return other.name
        self._streams.append(node)
        return self.add_source(node)

    def add_store(self, spec: StoreSpec, *, behind: str | None = None) -> StoreSpec:
        """Add a store, behind a step; two of one name would overwrite each other's changelog.

        Returns it with serdes that know their topic.
        """
        if spec.name in self._stores:
            users = [name for name, node in self._nodes.items() if spec.name in node.stores]
            first = f"one of step {users[0]}" if users else "one that was added"
            second = "one that is added" if behind is None else f"one behind step {behind}"
            raise TopologyError(
                f"Two stores are called {spec.name!r}: {first}, and {second}",
                hint=f"Give one of them another name, {spec.name}-2 for example",
            )
        check_name(spec.name, "store", **({} if behind is None else {"behind step": behind}))
        if spec.max_entries is not None and spec.max_entries < 1:
            raise TopologyError(
                f"The store {spec.name!r} is to keep {spec.max_entries} entries",
                hint="Let max_entries be 1 or more, or leave it out for a store without a limit",
            )
        check_store_functions(spec)
        topic = spec.topic if spec.is_global else changelog_base(spec.name)
        added = self._stores[spec.name] = dataclasses.replace(
            spec,
            key_serde=spec.key_serde.for_topic(topic, "key"),
            value_serde=spec.value_serde.for_topic(topic, "value"),
        )
        return added

    def add_repartition(
        self,
        parent: str,
        name: str,
        key: Serde[Any],
        value: Serde[Any],
        *,
        table: bool = False,
        shared: bool = False,
        partitions: int | None = None,
        partitioner: Callable[..., Any] | None = None,
    ) -> str:
        """Send records through an internal topic, so that equal keys meet in one task.

        With `shared` a second one of the same name is the first one.
        """
        base = repartition_base(check_name(name, "repartition", **{"behind step": parent}))
        if partitions is not None and partitions < 1:
            raise TopologyError(
                f"The topic {base!r} behind step {parent} is to have {partitions} partitions",
                hint="Let partitions be 1 or more, or leave it out: then there are as many as the "
                "input has",
            )
        key, value = key.for_topic(base, "key"), value.for_topic(base, "value")
        steps = self.repartition_steps(base, name, table=table)
        if shared and name in self._shared:
            return self._shared[name].source
        if not table:
            parent = self.add(DropNullKeyNode(name=steps.filter), after=[parent])
        sink = SinkNode(
            name=steps.sink,
            topic=base,
            key_serde=key,
            value_serde=value,
            repartition=True,
            partitions=partitions,
            partitioner=partitioner,
            whole_key=True,
        )
        self.add(sink, after=[parent])
        source = SourceNode(
            name=steps.source,
            topics=(base,),
            key_serde=key,
            value_serde=value,
            repartition=True,
        )
        if shared:
            self._shared[name] = steps
        return self.add_source(source)

    def repartition_steps(self, base: str, name: str, *, table: bool = False) -> RepartitionSteps:
        """The names of a repartition's steps; their numbers are used up even where names are used.

        As in Kafka Streams a table's steps have numbers, and a stream's if its topic has one.
        """
        sink = self.number("KSTREAM-SINK-")
        passing = "" if table else self.number("KSTREAM-FILTER-")
        source = self.number("KSTREAM-SOURCE-")
        if table or _NUMBERED.fullmatch(name):
            return RepartitionSteps(sink, passing, source)
        return RepartitionSteps(f"{base}-sink", f"{base}-filter", f"{base}-source")

    def closing_grace_ms(self, step: str) -> int | None:
        """How long after their end the windows of a step's keys change; None if it has none."""
        return closing_grace_ms(step, self._nodes, self._children)

    def join_partitions(self, left: str, right: str, *, step: str) -> None:
        """Note that records of two steps meet by key in a third, so that partitions must agree."""
        self._joined.append((left, right, step))

    def compile(self) -> Topology:
        """Cut into sub-topologies, numbered by their first source, and freeze."""
        if not self._nodes:
            raise TopologyError("There is nothing to run", hint="Begin with stream(topic, ...)")
        nodes = settled(
            {
                name: dataclasses.replace(node, children=tuple(self._children[name]))
                for name, node in self._nodes.items()
            }
        )
        nodes = with_null_keys(nodes)
        check_cycles(nodes)
        root = self._connected(nodes)
        groups: dict[str, list[Node]] = {}
        for node in nodes.values():
            groups.setdefault(root[node.name], []).append(node)
        subs = [self._sub_topology(i, nodes) for i, nodes in enumerate(groups.values())]
        for sub in subs:
            check_recovery(sub)
        check_said_partitions(subs)
        return Topology(
            sub_topologies=tuple(sub for sub in subs if not sub.is_global),
            global_tables=tuple(sub for sub in subs if sub.is_global),
        )

    @staticmethod
    def _connected(nodes: Mapping[str, Node]) -> dict[str, str]:
        """Each step's representative: steps joined by an edge or a store have the same."""
        root = {name: name for name in nodes}

        def find(name: str) -> str:
            while root[name] != name:
                name = root[name]
            return name

        users: dict[str, str] = {}
        for name, node in nodes.items():
            for child in node.children:
                root[find(child)] = find(name)
            for store in node.stores:
                root[find(name)] = find(users.setdefault(store, name))
        return {name: find(name) for name in root}

    def _sub_topology(self, number: int, nodes: list[Node]) -> SubTopology:
        sources = tuple(node for node in nodes if isinstance(node, SourceNode))
        names = dict.fromkeys(store for node in nodes for store in node.stores)
        held = [self._stores[name] for name in names]
        stores = (*held, *(spec.recency for spec in held if spec.recency is not None))
        name = stores[0].name if stores else f"from-{_source_name(sources[0])}"
        members = {node.name for node in nodes}
        joined = [each for each in self._joined if each[0] in members]
        return SubTopology(
            number=number,
            name=name,
            sources=sources,
            nodes=tuple(nodes),
            stores=stores,
            copartitioned=tuple(
                tuple(dict.fromkeys(self._sources_of(left) + self._sources_of(right)))
                for left, right, _ in joined
            ),
            joining=tuple(step for _, _, step in joined),
        )

    def _sources_of(self, step: str) -> list[str]:
        """The sources that a step's records come from."""
        if isinstance(self._nodes[step], SourceNode):
            return [step]
        parents = [name for name, children in self._children.items() if step in children]
        return [source for parent in parents for source in self._sources_of(parent)]


def _source_name(source: SourceNode) -> str:
    return source.topics[0] if source.pattern is None else pattern_name(source.pattern)


def _read_by_both(one: SourceNode, other: SourceNode) -> str | None:
    """A topic that both sources are sure to read; None where that is not known yet."""
    shared = sorted(set(one.topics) & set(other.topics))
    for patterned, plain in ((one, other), (other, one)):
        if patterned.pattern is not None and not plain.repartition:
            shared += [topic for topic in plain.topics if patterned.pattern.fullmatch(topic)]
    if one.pattern is not None and one.pattern == other.pattern:
        shared.append(one.pattern.pattern)
    return shared[0] if shared else None


def _reading(source: SourceNode) -> tuple[object, ...]:
    return (
        source.key_serde,
        source.value_serde,
        source.timestamp,
        source.time_rule,
        source.auto_offset_reset,
    )


def check_one_application(left: Draft, right: Draft) -> None:
    """Raise `TopologyError` unless two sides that are to meet are written in one topology."""
    if left is not right:
        raise TopologyError(
            "The two sides belong to different applications",
            hint="Make both from one Application or StreamsBuilder",
        )
