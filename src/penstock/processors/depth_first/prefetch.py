"""Reads the state that a slice's records will need, in a few calls instead of one per record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.processors.batch import Batch
from penstock.processors.depth_first.building import Builder
from penstock.processors.depth_first.foreign_keys import subscription_range
from penstock.processors.depth_first.foreseen import Input, foreseen
from penstock.processors.depth_first.process import Process
from penstock.processors.depth_first.shaped import ShapedState
from penstock.processors.depth_first.state import FAR, KeyValueState, TimedState
from penstock.processors.depth_first.versioned import VersionedState
from penstock.processors.depth_first.windows import WindowStep
from penstock.serdes.windowed import is_canonical
from penstock.topology import (
    AggregateNode,
    AnswerRowNode,
    FilterNode,
    FlatMapNode,
    GlobalJoinNode,
    MapNode,
    MaterializableNode,
    MergeNode,
    Node,
    PeekNode,
    ProcessNode,
    ReadingNode,
    SelectKeyNode,
    SessionWindows,
    SlidingWindows,
    SourceNode,
    StreamJoinNode,
    SubTopology,
    TableSelectNode,
    TimeWindows,
    WindowAggregateNode,
)

_TRIED = 16
"""Of so many of an input's keys it is asked whether they would be written as they came."""


def prefetch(
    builder: Builder,
    sub_topology: SubTopology,
    inputs: Sequence[tuple[Input, SourceNode, Batch]],
) -> None:
    """Read what the steps behind each source will ask for, as far as the records tell."""
    latest = max((int(batch.timestamps.max()) for _, _, batch in inputs if len(batch)), default=-1)
    for step in builder.steps.values():
        if isinstance(step, WindowStep):
            step.latest = latest
    for waiting in builder.waiting:
        waiting.latest = latest
    for name, source, batch in inputs:
        if not len(batch):
            continue
        binary = _as_stored(source, batch)
        keys, times = binary.to_pylist(), batch.timestamps.tolist()
        if binary.null_count:
            times = [time for key, time in zip(keys, times, strict=True) if key is not None]
            keys = [key for key in keys if key is not None]
        for node in _same_key(source, sub_topology):
            _read_for(builder, node, keys, times)
        earliest = int(batch.timestamps.min())
        for node in _same_record(source, sub_topology):
            pairs = zip(batch.keys.objects(), batch.values.objects(), strict=True)
            _read_by_record(builder, node, pairs, earliest)
        found = foreseen(builder, sub_topology, source, name, batch)
        if found is not None:
            _read_by_record(builder, *found, earliest)


def _as_stored(source: SourceNode, batch: Batch) -> pa.BinaryArray:
    """The keys in the bytes by which stores find them.

    As they came, where some of them show that nobody spelt them otherwise: writing all of them anew
    would cost more than it saves.
    """
    came, serde = batch.keys.as_came(), source.key_serde
    assert came is not None
    if not is_canonical(serde):
        some = np.unique(np.linspace(0, len(batch) - 1, _TRIED).astype(np.int64))
        # What cannot be written is told where a step writes it.
        with contextlib.suppress(Exception):
            if not batch.keys.take(some).binary(serde).equals(came.take(pa.array(some))):
                return batch.keys.binary(serde)
    return came


def _same_key(source: SourceNode, sub_topology: SubTopology) -> Iterable[Node]:
    """The steps that see the source's own keys."""
    waiting: list[Node] = [source]
    seen: set[str] = set()
    while waiting:
        node = waiting.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        yield node
        if not _changes_key(node):
            waiting += [sub_topology.by_name[child] for child in node.children]


def _same_record(source: SourceNode, sub_topology: SubTopology) -> Iterable[Node]:
    """The steps that see the source's own keys and values."""
    waiting: list[Node] = [source]
    while waiting:
        node = waiting.pop()
        for child in (sub_topology.by_name[name] for name in node.children):
            if isinstance(child, GlobalJoinNode | ProcessNode):
                yield child
            elif isinstance(child, FilterNode | PeekNode | MergeNode):
                waiting.append(child)


def _read_by_record(
    builder: Builder, node: Node, pairs: Iterable[tuple[Any, Any]], earliest: int
) -> None:
    """Read the keys that a function names for each record. It must have no effect of its own: it is
    asked again when the record's turn comes, and only then does its exception count.
    """
    wanted: dict[str, list[Any]] = {}
    with contextlib.suppress(Exception):
        if isinstance(node, GlobalJoinNode):
            selected = (node.selector(key, value) for key, value in pairs)
            serialize = node.table.key_serde.serialize
            wanted[node.table.name] = [serialize(key) for key in selected if key is not None]
        elif isinstance(step := builder.steps[node.name], Process):
            wanted = step.keys_to_read(pairs)
    for store, keys in wanted.items():
        state = builder.states.get(store)
        if isinstance(state, KeyValueState):
            state.prefetch(keys)
        elif isinstance(state, VersionedState):
            # To write a version, those from its time on must be known.
            state.prefetch((key, earliest) for key in keys)
        elif isinstance(state, TimedState):
            state.prefetch_ranges(keys)


def _changes_key(node: Node) -> bool:
    if isinstance(node, ProcessNode):
        return not node.fixed_key
    changes = SelectKeyNode | MapNode | FlatMapNode | WindowAggregateNode | TableSelectNode
    return isinstance(node, changes)


def _read_for(builder: Builder, node: Node, keys: list[bytes], times: list[int]) -> None:
    match node:
        case WindowAggregateNode():
            _read_windows(builder, node, keys, times)
        case StreamJoinNode():
            state = builder.states[node.other_store]
            assert isinstance(state, TimedState)
            before, after = node.windows.before_ms, node.windows.after_ms
            if node.side == "right":
                before, after = after, before
            state.prefetch_ranges(
                (key, max(0, time - before), max(0, time + after))
                for key, time in zip(keys, times, strict=True)
            )
        case AnswerRowNode():
            subscriptions = builder.states[node.store]
            assert isinstance(subscriptions, KeyValueState)
            subscriptions.prefetch_ranges(map(subscription_range, keys))
        case AggregateNode() | MaterializableNode() | ReadingNode():
            for store in node.stores:
                held = builder.states.get(store)
                # Under which keys a store of the user's own shape looks, only it knows.
                if isinstance(held, KeyValueState) and not isinstance(held, ShapedState):
                    held.prefetch(keys)
                elif isinstance(held, VersionedState):
                    held.prefetch(zip(keys, times, strict=True))


def _read_windows(
    builder: Builder, node: WindowAggregateNode, keys: list[bytes], times: list[int]
) -> None:
    state = builder.states[node.store]
    assert isinstance(state, TimedState)
    pairs = zip(keys, times, strict=True)
    match node.windows:
        case TimeWindows() as windows:
            state.prefetch_entries(
                (key, start, 0) for key, time in pairs for start in windows.starts(time)
            )
        case SlidingWindows() as windows:
            state.prefetch_ranges(
                (key, max(0, time - 2 * windows.difference_ms), time + 1) for key, time in pairs
            )
        case SessionWindows() as windows:
            state.prefetch_ranges((key, max(0, time - windows.gap_ms), FAR) for key, time in pairs)
