"""Bugs that are planted to see whether the recorded answers of Kafka Streams would find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.processors.depth_first import (
    foreign_keys,
    global_joins,
    joins,
    run,
    state,
    steps,
    suppress,
    table_lookup,
    tables,
    windows,
)
from penstock.serdes import Change
from penstock.topology import (
    StreamJoinNode,
    TableFilterNode,
    closing,
    cogrouped,
    draft,
    materialization,
    old_values,
)
from penstock.topology.windows import TimeWindows

Mutant = Callable[[pytest.MonkeyPatch], None]


def _late_records_count(patch: pytest.MonkeyPatch) -> None:
    """Grace is ignored: stream time never closes a window."""
    original = windows.TimeWindowAggregate.process

    def process(self: Any, record: Any) -> None:
        self.stream_time = -1
        original(self, record)

    patch.setattr(windows.TimeWindowAggregate, "process", process)


def _last_window_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A record misses the last of its hopping windows."""
    original = TimeWindows.starts

    def starts(self: TimeWindows, timestamp: int) -> range:
        found = original(self, timestamp)
        return found[:-1] if len(found) > 1 else found

    patch.setattr(TimeWindows, "starts", starts)


def _sessions_do_not_merge(patch: pytest.MonkeyPatch) -> None:
    """A gap of exactly the allowed length begins a new session."""
    original = windows.SessionAggregate.process

    def process(self: Any, record: Any) -> None:
        gap = self.windows
        self.windows = type(gap)(gap_ms=max(gap.gap_ms - 1, 0), grace_ms=gap.grace_ms + 1)
        original(self, record)
        self.windows = gap

    patch.setattr(windows.SessionAggregate, "process", process)


def _no_right_window(patch: pytest.MonkeyPatch) -> None:
    """A late record does not begin the window just after itself."""
    patch.setattr(windows.SlidingWindowAggregate, "_begin_own", lambda *_: None)


def _closes_a_moment_late(patch: pytest.MonkeyPatch) -> None:
    """Results at the close wait a millisecond too long."""
    original = windows.WindowStep.emit_closed

    def emit(self: Any, record: Any, close_time: int, lower: int, upper: int) -> None:
        original(self, record, close_time, lower, upper - 1)

    patch.setattr(windows.WindowStep, "emit_closed", emit)


def _tables_keep_their_times(patch: pytest.MonkeyPatch) -> None:
    """An older update of a table gets the time of the newer one."""

    def process(self: Any, record: Any) -> None:
        if record.key is None:
            self.shared.drop("null_key")
            return
        before = self.table.get(record.key)
        time = record.timestamp if before is None else max(record.timestamp, before.timestamp)
        old = None if before is None else before.value
        self.table.put(record, record.value, time, old=old)

    patch.setattr(tables.Latest, "process", process)


def _adds_before_it_subtracts(patch: pytest.MonkeyPatch) -> None:
    """A table's aggregate adds the new row before it takes out the old one."""
    original = tables.TableAggregate.process

    def process(self: Any, record: Any) -> None:
        change = record.value
        if change.new is not None and change.old is not None:
            original(self, record.with_value(Change(change.new, None)))
            original(self, record.with_value(Change(None, change.old)))
        else:
            original(self, record)

    patch.setattr(tables.TableAggregate, "process", process)


def _filters_tell_everything(patch: pytest.MonkeyPatch) -> None:
    """A table's filter deletes keys that it never let through."""

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options | {"skips_nothing": False})

    original = tables.TableTransform.__init__
    patch.setattr(tables.TableTransform, "__init__", init)


def _joins_its_own_time(patch: pytest.MonkeyPatch) -> None:
    """A join of tables has the time of the side that changed, not of the later one."""
    original = joins.TableJoin.process

    def process(self: Any, record: Any) -> None:
        forward = self.forward
        self.forward = lambda made: forward(
            type(made)(made.key, made.value, record.timestamp, made.headers)
        )
        original(self, record)
        self.forward = forward

    patch.setattr(joins.TableJoin, "process", process)


def _join_window_is_shorter(patch: pytest.MonkeyPatch) -> None:
    """A join of streams leaves out partners at the far end of its window."""
    original = joins.StreamJoin.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self._before -= 1

    patch.setattr(joins.StreamJoin, "__init__", init)


def _matched_records_still_wait(patch: pytest.MonkeyPatch) -> None:
    """A record of an outer join that met a partner is joined with None as well."""
    patch.setattr(joins.Unmatched, "found", lambda *_, **__: None)


def _null_keys_join_nothing(patch: pytest.MonkeyPatch) -> None:
    """A left join drops records without a key."""
    original = table_lookup.StreamTableJoin.process

    def process(self: Any, record: Any) -> None:
        if record.key is not None:
            original(self, record)

    patch.setattr(table_lookup.StreamTableJoin, "process", process)


def _answers_are_never_stale(patch: pytest.MonkeyPatch) -> None:
    """A foreign-key join believes answers to questions that the left row no longer asks."""
    original = foreign_keys.Subscribe._send

    def send(self: Any, record: Any, foreign: Any, instruction: Any) -> None:
        if instruction == foreign_keys.Instruction.DELETE:
            instruction = foreign_keys.Instruction.DELETE_AND_TELL
        original(self, record, foreign, instruction)

    patch.setattr(foreign_keys.Subscribe, "_send", send)


def _suppress_starts_again(patch: pytest.MonkeyPatch) -> None:
    """An update of a waiting change begins its time anew."""
    original = suppress.Suppress._put

    def put(self: Any, record: Any) -> None:
        key = self.shared.encode(self.name, self._node.key_serde, record.key, "key")
        waiting = self._buffer.get(key)
        if waiting is not None and not self._node.final:
            self._buffer._order.remove((waiting.time, key))
            self._buffer._entries[key] = None
            self._buffer.count -= 1
            self._buffer.size -= waiting.size(key)
        original(self, record)

    patch.setattr(suppress.Suppress, "_put", put)


def _suppressed_rows_have_others_headers(patch: pytest.MonkeyPatch) -> None:
    """A change that waited has the headers of the record that lets it go."""
    original = suppress.Suppress._let_go

    def let_go(self: Any, key: Any, entry: Any) -> None:
        own, now = entry.context, self.shared.context
        mixed = type(own)(own.topic, own.partition, own.offset, own.timestamp, now.headers)
        original(self, key, entry._replace(context=mixed))

    patch.setattr(suppress.Suppress, "_let_go", let_go)


def _global_rows_are_optional(patch: pytest.MonkeyPatch) -> None:
    """An inner join with a global table lets everything through."""
    original = global_joins.GlobalJoin.__init__

    def init(self: Any, shared: Any, node: Any, held: Any) -> None:
        original(self, shared, type(node)(**{**vars(node), "left": True}), held)

    patch.setattr(global_joins.GlobalJoin, "__init__", init)


def _children_in_reverse(patch: pytest.MonkeyPatch) -> None:
    """A record meets the branches of a topology in the wrong order."""
    original = steps.Step.connect

    def connect(self: Any, children: Any) -> None:
        original(self, children if isinstance(self, steps.Split) else children[::-1])

    patch.setattr(steps.Step, "connect", connect)


def _windows_never_expire(patch: pytest.MonkeyPatch) -> None:
    """A store finds windows that its retention has ended."""
    original = state.TimedState.__init__

    def init(self: Any, spec: Any, reader: Any, rows: Any) -> None:
        original(self, spec, reader, rows)
        self._alive = self._retention = 10**12

    patch.setattr(state.TimedState, "__init__", init)


def _stream_time_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What steps leave for the next slice is lost."""
    original = run.RecordRun.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options | {"metadata": {}})

    patch.setattr(run.RecordRun, "__init__", init)


def _merges_give_records_twice(patch: pytest.MonkeyPatch) -> None:
    """A step that is named twice as a parent gets its results twice."""
    original = draft.Draft.add

    def add(self: Any, node: Any, *, after: Any = ()) -> str:
        parents = list(after)
        name = original(self, node, after=parents)
        for parent in set(parents):
            self._children[parent] += [name] * (parents.count(parent) - 1)
        return name

    patch.setattr(draft.Draft, "add", add)


def _cogroups_keep_every_aggregator(patch: pytest.MonkeyPatch) -> None:
    """A stream that is cogrouped twice is aggregated twice."""

    def cogroup(self: Any, grouped: Any, aggregator: Any) -> Any:
        return type(self)((*self.parts, (grouped.grouping, aggregator)))

    patch.setattr(cogrouped.CogroupedKStream, "cogroup", cogroup)


def _the_left_grace_counts(patch: pytest.MonkeyPatch) -> None:
    """Where windows meet, those of the right side may come too late."""
    patch.setattr(closing, "_longest", lambda graces: graces[0])


def _filters_know_what_rows_were(patch: pytest.MonkeyPatch) -> None:
    """A filter knows of a store that its table got only later."""
    original = old_values.OldValues.__init__

    def init(self: Any, nodes: Any) -> None:
        original(self, nodes)
        filters = [node for node in nodes.values() if isinstance(node, TableFilterNode)]
        for node in filters:
            if self._ask(node.parent, force=False):
                self.senders.add(node.name)

    patch.setattr(old_values.OldValues, "__init__", init)


def _inner_sides_drop_null_keys(patch: pytest.MonkeyPatch) -> None:
    """A left join does not see what its inner side has without a key."""
    original = materialization._joins_null_keys

    def joins_null_keys(node: Any) -> bool:
        return node.outer if isinstance(node, StreamJoinNode) else original(node)

    patch.setattr(materialization, "_joins_null_keys", joins_null_keys)


def _absent_rows_are_not_transformed(patch: pytest.MonkeyPatch) -> None:
    """A transformer is not asked about a row that its table does not have."""
    patch.setattr(tables.TableTransformValues, "_transformed", tables.TableTransform._transformed)


MUTANTS: dict[Mutant, tuple[str, ...]] = {
    _late_records_count: ("tumbling", "hopping"),
    _last_window_is_forgotten: ("hopping",),
    _sessions_do_not_merge: ("session",),
    _no_right_window: ("sliding",),
    _closes_a_moment_late: ("tumbling", "session"),
    _tables_keep_their_times: ("to_table",),
    _adds_before_it_subtracts: ("table_group",),
    _filters_tell_everything: ("to_table",),
    _joins_its_own_time: ("table_join",),
    _join_window_is_shorter: ("stream_join",),
    _matched_records_still_wait: ("stream_join",),
    _null_keys_join_nothing: ("table_lookup",),
    _answers_are_never_stale: ("foreign_join",),
    _suppress_starts_again: ("suppress",),
    _suppressed_rows_have_others_headers: ("suppress",),
    _global_rows_are_optional: ("global_lookup",),
    _children_in_reverse: ("table_lookup",),
    _windows_never_expire: ("session", "tumbling"),
    _stream_time_is_forgotten: ("tumbling",),
    _merges_give_records_twice: ("table_lookup",),
    _cogroups_keep_every_aggregator: ("cogroup",),
    _the_left_grace_counts: (),
    _filters_know_what_rows_were: (),
    _inner_sides_drop_null_keys: ("stream_join",),
    _absent_rows_are_not_transformed: (),
}
"""Each with operators that it shows in: small cases of those are tried first.

Without any, it shows in the known tables.
"""
