"""Joins of streams and tables, as steps and stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from penstock.errors import TopologyError
from penstock.serdes import BytesSerde, JoinSideSerde, Serde, TimedSideSerde
from penstock.serdes.choice import plain_type
from penstock.topology.draft import Draft, Missing, SerdeOrMissing, check_one_application, needed
from penstock.topology.flow import Flow, chosen_serde, returned_type
from penstock.topology.holding import (
    Store,
    TableOptions,
    history_of,
    name_of,
    says_how,
    table_store,
)
from penstock.topology.naming import changelog_base, check_name
from penstock.topology.nodes import (
    GlobalJoinNode,
    JoinWindowNode,
    MergeNode,
    Side,
    StoreSpec,
    StreamJoinNode,
    StreamTableJoinNode,
    TableJoinNode,
    TableMergeNode,
)
from penstock.topology.spans import check_span
from penstock.topology.windows import JoinWindows

Joiner = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class JoinKind:
    """Which sides are joined with None where the other has nothing."""

    left: bool = False
    right: bool = False


INNER, LEFT, OUTER = JoinKind(), JoinKind(left=True), JoinKind(left=True, right=True)


@dataclass(frozen=True)
class JoinOptions:
    """What a stream's join was asked for."""

    windows: JoinWindows | None
    key_selector: Callable[[Any, Any], Any] | None
    value: Any
    name: str | None
    grace: timedelta | None = None
    persistent: bool | None = None
    with_key: bool = False
    """Whether the joiner is given the record's key, before the values."""


@dataclass(frozen=True)
class Partner:
    """What a stream is joined with: a stream or a table, or a global table."""

    draft: Draft
    flow: Flow | None = None
    is_table: bool = False
    table: StoreSpec | None = None


def not_to_be_met(what: str, step: str, other: object, wanted: str) -> TopologyError:
    """The error for a partner of a kind that a step does not know."""
    made = {"KStream": "a stream", "KTable": "a table", "GlobalKTable": "a global table"}
    given = type(other).__name__
    turned = {
        ("KStream", "a table"): "Make a table of it: to_table(), or group_by_key().reduce(...)",
        ("KTable", "a stream"): "Make a stream of it: to_stream()",
        ("GlobalKTable", "a table"): "Read its topic with table(...), or join a stream with it",
    }
    return TopologyError(
        f"{what} of step {step} is given {made.get(given, given)}, and needs {wanted}",
        hint=turned.get((given, wanted), f"Give it {wanted} of this topology"),
    )


def join(
    stream: Flow, other: Partner, joiner: Joiner, kind: JoinKind, options: JoinOptions
) -> Flow:
    """The stream of a join with whatever the partner is."""
    check_one_application(stream.draft, other.draft)
    if options.name is not None:
        check_name(options.name, "join", step=stream.step)
    _check_options(other, options, stream.step)
    where = f"join (of step {stream.step})"
    value = chosen_serde(options.value, returned_type(joiner), where, "value")
    if other.table is not None:
        assert options.key_selector is not None
        node = GlobalJoinNode(
            # Kafka Streams calls inner joins so too.
            name=stream.draft.step_name(options.name, "KSTREAM-LEFTJOIN-"),
            table=other.table,
            selector=options.key_selector,
            joiner=joiner,
            with_key=options.with_key,
            left=kind.left,
        )
        return stream.then(node, value=value)
    assert other.flow is not None
    if other.is_table:
        return join_table(
            stream,
            other.flow,
            joiner=joiner,
            with_key=options.with_key,
            left=kind.left,
            value=value,
            name=options.name,
            grace=options.grace,
        )
    assert options.windows is not None
    return join_streams(
        stream,
        other.flow,
        joiner=joiner,
        with_key=options.with_key,
        windows=options.windows,
        kind=kind,
        value=value,
        name=options.name,
        persistent=options.persistent,
    )


def _check_options(other: Partner, options: JoinOptions, step: str) -> None:
    is_table = other.is_table or other.table is not None
    if is_table and options.windows is not None:
        raise TopologyError(
            "A join with a table has no window: a record meets the row of that moment",
            where={"step": step},
            hint="Leave the window out, or join with the table's to_stream()",
        )
    if not is_table and not isinstance(options.windows, JoinWindows):
        raise TopologyError(
            "A join of streams needs a window of time",
            where={"step": step, "given": type(options.windows).__name__},
            hint="Add join_window(timedelta(...), grace=timedelta(...))",
        )
    if options.grace is not None and not other.is_table:
        raise TopologyError(
            "Only a join with a table has a grace of its own",
            where={"step": step},
            hint="A join of streams has it in join_window(...), one with a global table has none",
        )
    if is_table and options.persistent is not None:
        raise TopologyError(
            "A join with a table keeps nothing that could be on disk or in memory",
            where={"step": step},
            hint="Say persistent= where the table is made",
        )
    if (other.table is not None) != (options.key_selector is not None):
        raise TopologyError(
            "A global table is joined by key_selector(key, value), and nothing else is",
            where={"step": step},
            hint="Say key_selector=lambda key, value: ... with a global table, and only there",
        )


def join_streams(
    left: Flow,
    right: Flow,
    *,
    joiner: Joiner,
    windows: JoinWindows,
    kind: JoinKind,
    value: SerdeOrMissing,
    name: str | None,
    persistent: bool | None = None,
    with_key: bool = False,
) -> Flow:
    """The stream of a join of streams within a window of time."""
    check_one_application(left.draft, right.draft)
    draft = left.draft
    base, numbered = name or draft.unique(_base(left, right)), _is_numbered(draft, name)
    left_topic = left.step if numbered else f"{base}-left"
    right_topic = right.step if numbered else f"{base}-right"
    left = _copartitioned(left, left_topic, shared=numbered)
    right = _copartitioned(right, right_topic, shared=numbered)
    numbers = [draft.number(f"KSTREAM-{part}-") for part in _join_parts(kind)]
    steps = _join_steps(numbers, name, kind)
    draft.join_partitions(left.step, right.step, step=steps[2])
    stores = _join_stores(steps, name, base, draft, kind)
    on_disk = draft.keeps(persistent)
    specs = [
        replace(_join_store(s, flow, windows), persistent=on_disk)
        for s, flow in zip(stores[:2], (left, right), strict=True)
    ]
    for spec, flow in zip(specs, (left, right), strict=True):
        draft.add_store(spec, behind=flow.step)
    unmatched = stores[2] if kind.left or kind.right else None
    if unmatched is not None:
        values = [spec.value_serde.for_topic(changelog_base(spec.name), "value") for spec in specs]
        draft.add_store(
            StoreSpec(
                name=unmatched,
                key_serde=TimedSideSerde(specs[0].key_serde),
                value_serde=JoinSideSerde(*values),
                caching=False,
                persistent=on_disk,
            )
        )
    sides = _sides(left, right, specs, steps, kind)
    for flow, window_step, _, own, _, _ in sides:
        draft.add(JoinWindowNode(name=window_step, store=own), after=[flow.step])
    merge = MergeNode(name=steps[4], merged=(steps[2], steps[3]))
    for _, window_step, join_step, own, other, side in sides:
        reads = (other,) if unmatched is None else (other, unmatched)
        draft.add(
            StreamJoinNode(
                name=join_step,
                reads=reads,
                joiner=joiner,
                with_key=with_key,
                side=side,
                windows=windows,
                own_store=own,
                other_store=other,
                outer=kind.left if side == "left" else kind.right,
                unmatched=unmatched,
            ),
            after=[window_step],
        )
    draft.add(merge, after=merge.merged)
    return Flow(draft, merge.name, left.key, value, origin=base)


def join_table(
    stream: Flow,
    table: Flow,
    *,
    joiner: Joiner,
    left: bool,
    value: SerdeOrMissing,
    name: str | None,
    grace: timedelta | None = None,
    with_key: bool = False,
) -> Flow:
    """The stream of records that meet a table's row of their key: the present one, or of a table
    that keeps versions the one of their time, for which they may wait."""
    check_one_application(stream.draft, table.draft)
    grace_ms = None if grace is None else _checked_grace(grace, table)
    draft = stream.draft
    prefix = "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-"
    numbered = _is_numbered(draft, name)
    topic = stream.step if numbered else name or draft.unique(_base(stream, table))
    stream = _copartitioned(stream, topic, shared=numbered)
    step = draft.step_name(name, prefix)
    draft.join_partitions(stream.step, table.step, step=step)
    node = StreamTableJoinNode(
        name=step,
        reads=table.reads,
        table=table.step,
        joiner=joiner,
        with_key=with_key,
        left=left,
        versioned=table.history_ms is not None,
    )
    if grace_ms is not None:
        buffer = f"{step if numbered else topic}-Buffer"
        node = _with_buffer(node, stream, buffer, grace_ms)
    return stream.then(node, value=value)


def _checked_grace(grace: timedelta, table: Flow) -> int:
    """The grace in milliseconds, if the table remembers what was so long ago."""
    check_span(grace, f"The grace of the join with the table of step {table.step}")
    grace_ms = int(grace / timedelta(milliseconds=1))
    if grace_ms < 0:
        raise TopologyError(
            f"The join with the table of step {table.step} has a negative grace of {grace}",
            hint="Let it be 0 or more",
        )
    if table.history_ms is None:
        raise TopologyError(
            f"The table of step {table.step} keeps no versions, so a join cannot have a grace",
            hint="Keep the table in versioned_store(name, history_retention=...)",
        )
    if grace_ms > table.history_ms:
        raise TopologyError(
            f"The table of step {table.step} keeps versions for "
            f"{timedelta(milliseconds=table.history_ms)}, and the join has a grace of {grace}",
            hint="Let history_retention be at least the grace",
        )
    return grace_ms


def _with_buffer(
    node: StreamTableJoinNode, stream: Flow, buffer: str, grace_ms: int
) -> StreamTableJoinNode:
    """The join with a store in which records wait."""
    where = f"The buffer {buffer!r}"
    key, value = needed(stream.key, "key", where), needed(stream.value, "value", where)
    changelog = changelog_base(buffer)
    key, value = key.for_topic(changelog, "key"), value.for_topic(changelog, "value")
    raw, holds = BytesSerde(), (key, value)
    stream.draft.add_store(
        StoreSpec(name=buffer, key_serde=raw, value_serde=raw, holds=holds, caching=False)
    )
    return replace(node, buffer=buffer, grace_ms=grace_ms, key_serde=key, value_serde=value)


def join_tables(
    left: Flow,
    right: Flow,
    *,
    joiner: Joiner,
    kind: JoinKind,
    value: SerdeOrMissing,
    store: Store | None,
    kept: TableOptions,
    name: str | None,
    with_key: bool = False,
) -> Flow:
    """The table of rows that have the same key in two tables."""
    check_one_application(left.draft, right.draft)
    draft = left.draft
    held = _join_store_name(draft, store, kept)
    merge = draft.step_name(name, "KTABLE-MERGE-")
    steps = [draft.number(f"KTABLE-{part}-") for part in ("JOINTHIS", "JOINOTHER")]
    if name is not None:
        steps = [f"{name}-join-this", f"{name}-join-other"]
    draft.join_partitions(left.step, right.step, step=steps[0])
    sides: tuple[tuple[Flow, Flow, str, Side, bool, bool], ...] = (
        (left, right, steps[0], "left", kind.left, kind.right),
        (right, left, steps[1], "right", kind.right, kind.left),
    )
    for here, there, step, side, here_outer, there_outer in sides:
        draft.add(
            TableJoinNode(
                name=step,
                reads=there.reads,
                parent=here.step,
                other=there.step,
                joiner=joiner,
                with_key=with_key,
                side=side,
                here_outer=here_outer,
                there_outer=there_outer,
                versioned=here.history_ms is not None,
            ),
            after=[here.step],
        )
    history = None
    if held is not None:
        where = f"The store {held!r}"
        key, serde = needed(left.key, "key", where), needed(value, "value", where)
        spec = table_store(draft, store, held, key=key, value=serde, options=kept)
        draft.add_store(spec, behind=left.step)
        history = history_of(spec)
    draft.add(TableMergeNode(name=merge, store=held, left=steps[0], right=steps[1]), after=steps)
    reads = (held,) if held is not None else tuple(dict.fromkeys(left.reads + right.reads))
    return Flow(
        draft,
        merge,
        left.key,
        value,
        origin=held or _base(left, right),
        reads=reads,
        history_ms=history,
    )


def _join_store_name(draft: Draft, store: Store | None, kept: TableOptions) -> str | None:
    """What keeps a join's rows; Kafka Streams numbers one of which only is said how it keeps."""
    name = name_of(store)
    if name is None and draft.names == "kafka_streams" and says_how(kept):
        return draft.number("KTABLE-MERGE-STATE-STORE-")
    return name


def merge_streams(
    left: Flow, right: Flow, *, name: str | None, key: Any = None, value: Any = None
) -> Flow:
    """The records of both streams, as they come."""
    check_one_application(left.draft, right.draft)
    draft = left.draft
    step = draft.step_name(name, "KSTREAM-MERGE-")
    merge = MergeNode(name=step, merged=(left.step, right.step))
    draft.add(merge, after=merge.merged)
    where = f"merge (step {step})"
    return replace(
        left,
        step=step,
        key=_merged(left.key, right.key, key, where, "key"),
        value=_merged(left.value, right.value, value, where, "value"),
        rekeyed=left.rekeyed or right.rekeyed,
    )


def _merged(
    left: SerdeOrMissing, right: SerdeOrMissing, given: Any, where: str, option: str
) -> SerdeOrMissing:
    """The serde of both sides; of two types neither can be taken, as in Kafka Streams."""
    if given is not None:
        return chosen_serde(given, None, where, option)
    if not isinstance(left, Serde) or not isinstance(right, Serde):
        return left if isinstance(left, Serde) else right
    types = plain_type(left), plain_type(right)
    # Serdes of one's own may well be two for values of one type.
    return left if None in types or types[0] is types[1] else Missing(where, option)


def _base(left: Flow, right: Flow) -> str:
    return f"{left.origin}-{right.origin}-join"


def _is_numbered(draft: Draft, name: str | None) -> bool:
    """Whether a join's repartition topics are called after the steps that write them."""
    return name is None and draft.names == "kafka_streams"


def _copartitioned(flow: Flow, topic: str, *, shared: bool) -> Flow:
    """The flow, through a repartition topic if its keys were changed.

    Joins of one stream share a topic that is called after it.
    """
    if not flow.rekeyed:
        return flow
    where = f"The repartition topic {topic!r}"
    key, value = needed(flow.key, "key", where), needed(flow.value, "value", where)
    source = flow.draft.add_repartition(flow.step, topic, key, value, shared=shared)
    return replace(flow, step=source, rekeyed=False)


def _join_parts(kind: JoinKind) -> tuple[str, ...]:
    this = "OUTERTHIS" if kind.right else "JOINTHIS"
    other = "OUTEROTHER" if kind.left else "JOINOTHER"
    return ("WINDOWED", "WINDOWED", this, other, "MERGE")


def _join_steps(numbers: list[str], name: str | None, kind: JoinKind) -> list[str]:
    if name is None:
        return numbers
    this = "outer-this-join" if kind.right else "this-join"
    other = "outer-other-join" if kind.left else "other-join"
    parts = ("this-windowed", "other-windowed", this, other, "merge")
    return [f"{name}-{part}" for part in parts]


def _join_stores(
    steps: list[str], name: str | None, base: str, draft: Draft, kind: JoinKind
) -> list[str]:
    """The stores of left records, of right ones, and of those that wait for a partner."""
    if name is None and draft.names == "kafka_streams":
        number = steps[2].rpartition("-")[2]
        return [f"{steps[2]}-store", f"{steps[3]}-store", f"KSTREAM-OUTERSHARED-{number}-store"]
    this = "outer-this-join" if kind.right else "this-join"
    other = "outer-other-join" if kind.left else "other-join"
    shared = "outer-shared-join" if kind.right else "left-shared-join"
    return [f"{name or base}-{part}-store" for part in (this, other, shared)]


def _join_store(store: str, flow: Flow, windows: JoinWindows) -> StoreSpec:
    where = f"The store {store!r}"
    key: Serde[Any] = needed(flow.key, "key", where)
    return StoreSpec(
        name=store,
        key_serde=key,
        value_serde=needed(flow.value, "value", where),
        kind="window",
        caching=False,
        retention_ms=windows.retention_ms,
        window_ms=windows.before_ms + windows.after_ms,
        duplicates=True,
    )


_JoinSide = tuple[Flow, str, str, str, str, Side]


def _sides(
    left: Flow, right: Flow, specs: list[StoreSpec], steps: list[str], kind: JoinKind
) -> tuple[_JoinSide, _JoinSide]:
    """Of each side: where it comes from, its two steps, its store, the other's, and which it is."""
    own, other = specs[0].name, specs[1].name
    return (
        (left, steps[0], steps[2], own, other, "left"),
        (right, steps[1], steps[3], other, own, "right"),
    )
