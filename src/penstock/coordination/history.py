"""Whether a store may be filled from history, and where the stream goes on behind it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.changelog.commit_record import BootstrapRecord
from penstock.changelog.reading import LogRange
from penstock.coordination.ids import Position
from penstock.errors import BootstrapError, BootstrapUnfinishedError
from penstock.serdes import Serde
from penstock.topology import StoreSpec, SubTopology, Topology
from penstock.topology.graph import full_topic
from penstock.topology.placement import placement_of

Input = tuple[str, int]
Offsets = Mapping[Input, int]
_MADE_KEYS = {"combined-key", "windowed", "session-windowed", "timed-side"}
"""Keys that operators make of others; rows of history do not have them."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of the history hold what."""

    key: str = "key"
    value: str = "value"
    timestamp: str | None = None
    window_start: str | None = None
    window_end: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The columns that are there, by what they are."""
        roles = ("key", "value", "timestamp", "window_start", "window_end")
        return {role: name for role in roles if (name := getattr(self, role)) is not None}


@dataclass(frozen=True, kw_only=True)
class Found:
    """What there is of the tasks that a store belongs to, and of those that feed them."""

    store: str
    is_filled: bool
    """Whether the store's changelog has records."""
    is_unfinished: bool
    """Whether an earlier bootstrap of this store did not come to its end."""
    was_run: bool
    """Whether any of the tasks was committed by a run of the application."""
    others: tuple[str, ...]
    """Other stores of these tasks that have records."""
    standing: Position
    """Where the tasks stand now."""


def refuse_half_filled(last: BootstrapRecord | None, *, store: str = "") -> None:
    """Raise `BootstrapUnfinishedError` unless what was begun is finished, or is begun again.

    >>> refuse_half_filled(BootstrapRecord(store="counts", finished=False), store="counts")
    """
    if last is None or last.finished or last.store == store:
        return
    raise BootstrapUnfinishedError(
        f"The store {last.store!r} was to be filled from history, and that never came to its end: "
        "it is half filled",
        where={"store": last.store},
        hint=f"Run it again: penstock bootstrap app.py --store {last.store} ...",
    )


def fillable(topology: Topology, store: str) -> tuple[SubTopology, StoreSpec]:
    """The store of that name, with its sub-topology; `BootstrapError` if it cannot be filled."""
    for sub in topology.sub_topologies:
        for spec in sub.stores:
            if spec.name == store:
                _check_kind(spec)
                _check_placement(spec, sub, topology)
                if sub.recovers_from_input:
                    raise BootstrapError(
                        f"The store {store!r} cannot be filled from history: its task recovers "
                        "from its input, which does not hold that",
                        where={"store": store},
                        hint='Leave recover_from="input" out of all stores of the sub-topology',
                    )
                return sub, spec
    tables = {spec.name for sub in topology.global_tables for spec in sub.stores}
    if store in tables:
        raise BootstrapError(
            f"The store {store!r} is a global table, which is filled from its topic",
            where={"store": store},
            hint="Write the history to that topic",
        )
    known = sorted(spec.name for sub in topology.sub_topologies for spec in sub.stores)
    near = difflib.get_close_matches(store, known, n=1)
    there = ", ".join(known) or "none"
    raise BootstrapError(
        f"There is no store {store!r}",
        where={"store": store},
        hint=f"Did you mean {near[0]!r}?" if near else f"There are: {there}",
    )


def _check_kind(spec: StoreSpec) -> None:
    reason = ""
    if not spec.logging:
        reason = "it has no changelog, which is what a bootstrap fills"
    elif spec.kind not in ("key_value", "window", "session"):
        reason = f"it is a {spec.kind} store"
    elif spec.duplicates or spec.value_serde.name == "join-side":
        reason = "it holds what waits in a join of streams"
    elif spec.time_index == "value_tail":
        reason = "it is the buffer of a suppress step"
    elif spec.max_entries is not None:
        reason = "it forgets the keys that were not used for longest, and history does not tell"
    elif spec.kind == "key_value" and spec.key_serde.name in _MADE_KEYS:
        reason = f"its keys are made by the application (serde {spec.key_serde.name})"
    if reason:
        raise BootstrapError(
            f"The store {spec.name!r} cannot be filled from history: {reason}",
            where={"store": spec.name},
            hint="Fill the store that this one is made from, or let the application read its input",
        )


def _check_placement(spec: StoreSpec, sub: SubTopology, topology: Topology) -> None:
    if placement_of(spec, sub, topology).partitioner is not None:
        raise BootstrapError(
            f"The store {spec.name!r} cannot be filled from history: a partitioner of the "
            "program's chooses where its input goes, perhaps by what history does not tell",
            where={"store": spec.name},
            hint="Fill the store that this one is made from, or let the application read its input",
        )


def check_windows(spec: StoreSpec, columns: Columns, *, is_topic: bool = False) -> None:
    """Make sure that windows have a column for their start, sessions for their end too.

    Unless they come from a topic: in the changelog of such a store their keys have both.
    """
    wanted = {"key_value": (), "window": ("window_start",)}.get(
        spec.kind, ("window_start", "window_end")
    )
    given = {role for role in columns.named if role.startswith("window_")}
    for role in () if is_topic and not given else wanted:
        if role not in given:
            option = "--" + role.replace("_", "-")
            raise BootstrapError(
                f"The store {spec.name!r} holds {spec.kind}s, and no column says their {role[7:]}",
                where={"store": spec.name},
                hint=f"Name the column: {option} COLUMN, with milliseconds or a timestamp",
            )
    if given - set(wanted):
        raise BootstrapError(
            f"The store {spec.name!r} is a {spec.kind} store; it takes no "
            f"{', '.join(sorted(given - set(wanted)))}",
            where={"store": spec.name},
            hint="Leave that column out",
        )


_TYPES: dict[str, tuple[str, ...]] = {
    "long": ("tinyint", "smallint", "int", "bigint"),
    "integer": ("tinyint", "smallint", "int"),
    "short": ("tinyint", "smallint"),
    "double": ("float", "double"),
    "float": ("float", "double"),
    "string": ("string",),
    "boolean": ("boolean",),
    "uuid": ("string",),
    "datetime": ("timestamp",),
    "bytes": (),
    "json": ("struct", "map", "array"),
}
"""Spark's types by the names of the serdes that take them; binary is always taken as it is."""
_TIMES = ("timestamp", "bigint")


def check_columns(spec: StoreSpec, columns: Columns, types: Mapping[str, str]) -> None:
    """Make sure that the columns are there, and of types that the store's serdes know.

    `types` are Spark's, by column. Raises `BootstrapError`.
    """
    for role, name in columns.named.items():
        if name not in types:
            near = difflib.get_close_matches(name, sorted(types), n=1)
            there = ", ".join(sorted(types))
            raise BootstrapError(
                f"The history has no column {name!r} for the {role.replace('_', ' ')}",
                where={"store": spec.name},
                hint=f"Did you mean {near[0]!r}? There are: {there}"
                if near
                else f"There are: {there}",
            )
        accepted = _accepted(spec, role)
        kind = types[name].partition("<")[0].partition("(")[0]
        if accepted is not None and kind not in accepted:
            raise BootstrapError(
                f"The column {name!r} is of type {types[name]}, and the {role.replace('_', ' ')} "
                f"of store {spec.name!r} wants {' or '.join(accepted)}",
                where={"store": spec.name},
                hint="Cast it, or give the serialised bytes as a binary column",
            )


def _accepted(spec: StoreSpec, role: str) -> tuple[str, ...] | None:
    """The types that a column may have; None if its serde is not one of ours."""
    if role not in ("key", "value"):
        return _TIMES
    serde: Serde[Any] = spec.key_serde if role == "key" else spec.value_serde
    known = _TYPES.get(serde.name)
    return None if known is None else (*known, "binary")


def feeding(topology: Topology, sub: SubTopology, application_id: str) -> list[SubTopology]:
    """A sub-topology, and all that feed it through repartition topics."""
    result = [sub]
    for each in result:
        inputs = set(each.input_topics(application_id))
        for writer in topology.sub_topologies:
            written = {
                full_topic(sink, sink.topic, application_id)
                for sink in writer.sinks
                if sink.repartition
            }
            if writer not in result and inputs & written:
                result.append(writer)
    return result


def check_free(found: Found, *, replace: bool) -> None:
    """Raise `BootstrapError` if filling the store would mix history with what is there."""
    if replace or found.is_unfinished:
        return
    reason = ""
    if found.is_filled:
        reason = "its changelog has records"
    elif found.was_run:
        reason = "the application has run, and counted from its input"
    if reason:
        raise BootstrapError(
            f"The store {found.store!r} is not new: {reason}",
            where={"store": found.store},
            hint="To replace all that it holds: --replace (replace=True)",
        )


def check_others(found: Found, wanted: Position) -> None:
    """Raise `BootstrapError` if other stores of these tasks would no longer fit their position."""
    if found.others and _flat(found.standing) != _flat(wanted):
        names = ", ".join(found.others)
        raise BootstrapError(
            f"The same tasks keep {names}, made from the input up to {_text(found.standing)}: with "
            f"the offsets {_text(wanted)} they would miss records, or count some twice",
            where={"store": found.store},
            hint="Leave the offsets out to go on where the tasks stand, or fill all stores of a "
            "new application id with the same offsets",
        )


def check_offsets(
    given: Offsets, inputs: Collection[Input], logs: Mapping[Input, LogRange]
) -> dict[str, dict[int, int]]:
    """The position that these offsets make, if they are of all inputs and inside the logs."""
    for topic, partition in given:
        if (topic, partition) not in inputs:
            there = ", ".join(sorted({name for name, _ in inputs}))
            raise BootstrapError(
                f"Partition {partition} of {topic!r} is no input of the store's tasks",
                where={"topic": topic, "partition": partition},
                hint=f"They read {there}",
            )
    position: dict[str, dict[int, int]] = {}
    for topic, partition in sorted(inputs):
        where = {"topic": topic, "partition": partition}
        offset = given.get((topic, partition))
        if offset is None:
            raise BootstrapError(
                "No offset is given for an input of the store's tasks",
                where=where,
                hint=f"Add {topic}:{partition}=OFFSET",
            )
        log = logs[topic, partition]
        if not log.start <= offset <= log.end:
            raise BootstrapError(
                f"The offset {offset} is outside of the log, which holds {log.start} to {log.end}",
                where=where,
                hint=f"Choose one from {log.start} to {log.end}",
            )
        position.setdefault(topic, {})[partition] = offset
    return position


def parse_offsets(text: str) -> Offsets:
    """The offsets of `topic:partition=offset,...`.

    >>> parse_offsets("pulses:0=17,pulses:1=20")
    {('pulses', 0): 17, ('pulses', 1): 20}
    """
    result: dict[Input, int] = {}
    for part in text.split(","):
        where, _, offset = part.strip().partition("=")
        topic, _, partition = where.rpartition(":")
        if not (topic and partition.isdigit() and offset.isdigit()):
            raise BootstrapError(
                f"{part.strip()!r} is no offset",
                hint="Write topic:partition=offset,... or earliest, latest, or a time such as "
                "2026-01-31T00:00:00Z",
            )
        result[topic, int(partition)] = int(offset)
    return result


def _flat(position: Position) -> dict[Input, int]:
    return {
        (t, p): offset for t, partitions in position.items() for p, offset in partitions.items()
    }


def _text(position: Position) -> str:
    return ", ".join(f"{t}:{p}={offset}" for (t, p), offset in sorted(_flat(position).items()))


def joined(positions: Iterable[Position]) -> dict[str, dict[int, int]]:
    """The positions of several tasks as one.

    >>> joined([{"a": {0: 1}}, {"a": {1: 2}}])
    {'a': {0: 1, 1: 2}}
    """
    result: dict[str, dict[int, int]] = {}
    for position in positions:
        for topic, partitions in position.items():
            result.setdefault(topic, {}).update(partitions)
    return result
