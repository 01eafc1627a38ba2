"""Joins: tables with tables, streams with streams."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from penstock.processors.depth_first.guarding import guarded
from penstock.processors.depth_first.record import Context, Record, Shared
from penstock.processors.depth_first.state import KeyValueState, Stored, WindowState
from penstock.processors.depth_first.steps import Step, Value, View
from penstock.processors.depth_first.tables import Table, row_as_of
from penstock.serdes import Change, JoinSideSerde, SideValue
from penstock.serdes.joined import (
    side_count,
    timed_side_is_left,
    timed_side_key,
    timed_side_rest,
    timed_side_time,
)
from penstock.topology import JoinWindows, StoreSpec, StreamJoinNode, TableJoinNode
from penstock.topology.processor import Record as UserRecord

NEVER = 2**63 - 1
_T = TypeVar("_T")


class TableJoin(Step):
    """One side of a join of tables.

    Where it has to say what a joined row was, and no cached store behind it `knows_old`, it joins
    what both sides have passed on. With what a cache still holds back, which Kafka Streams takes,
    it would name rows that never were: a group that counts them would never be rid of the others.
    """

    def __init__(
        self,
        shared: Shared,
        node: TableJoinNode,
        *,
        here: View,
        other: View,
        sends_old: bool,
        knows_old: bool,
    ) -> None:
        super().__init__(node.name, shared)
        self._node = node
        self._here = here
        self._other = other
        self._sends_old = sends_old
        self._joins_sent = sends_old and not knows_old

    def process(self, record: Record) -> None:
        if record.key is None:
            self.shared.drop("null_key")
            return
        change: Change = record.value
        if self._node.versioned and not change.latest:
            self.shared.drop("out_of_order")
            return
        other = self._other.get(record.key, sent=self._joins_sent)
        timestamp = record.timestamp
        if other is not None:
            timestamp = max(timestamp, other.timestamp)
        elif not self._node.here_outer or (change.new is None and change.old is None):
            return
        right = None if other is None else other.value
        new = self._joined(record.key, change.new, right)
        old = self._joined(record.key, change.old, right) if self._sends_old else None
        self.forward(Record(record.key, Change(new, old), timestamp, record.headers))

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        """The joined row of a key, seen from this side."""
        here, other = self._here.get(key, sent=sent), self._other.get(key, sent=sent)
        if here is None and not self._node.there_outer:
            return None
        if other is None and not self._node.here_outer:
            return None
        value = self._joined(
            key, None if here is None else here.value, None if other is None else other.value
        )
        if value is None:
            return None
        return Value(value, max(row.timestamp for row in (here, other) if row is not None))

    def _joined(self, key: Any, here: Any, there: Any) -> Any:
        node = self._node
        if here is None and (there is None or not node.there_outer):
            return None
        pair = (here, there) if node.side == "left" else (there, here)
        return (
            self.call(node.joiner, key, *pair) if node.with_key else self.call(node.joiner, *pair)
        )


class TableMerge(Step):
    """Brings the two sides of a join of tables together, and may keep the result in a store."""

    def __init__(self, name: str, shared: Shared, left: View, *, sends_old: bool) -> None:
        super().__init__(name, shared)
        self._left = left
        self._sends_old = sends_old
        self.table: Table | None = None

    def attach(self, table: Table) -> None:
        """Give the step a store."""
        self.table = table

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        """The joined row of a key."""
        return (self._left if self.table is None else self.table).get(key, sent=sent)

    def get_as_of(self, key: Any, time: int) -> Value | None:
        """The row that a key had at a time; without a store, of streams that share one."""
        if self.table is None:
            return self._left.get_as_of(key, time)
        return row_as_of(self.table, key, time)

    def process(self, record: Record) -> None:
        change: Change = record.value
        if self.table is not None:
            self.table.put(record, change.new, record.timestamp, old=change.old)
        elif self._sends_old:
            self.forward(record)
        else:
            self.forward(record.with_value(Change(change.new, None, change.latest)))


class JoinWindow(Step):
    """Keeps a stream's records for the other side, after they have been joined themselves."""

    def __init__(self, name: str, shared: Shared, spec: StoreSpec, state: WindowState) -> None:
        super().__init__(name, shared)
        self._spec = spec
        self._state = state
        self._sequence = shared.recall(f"{spec.name}:sequence", 0)
        state.stream_time = shared.recall(f"{spec.name}:time", -1)

    def process(self, record: Record) -> None:
        self.forward(record)
        if record.key is None or record.value is None:
            return
        shared, spec = self.shared, self._spec
        key = shared.encode(self.name, spec.key_serde, record.key, "key")
        value = shared.encode(self.name, spec.value_serde, record.value, "value")
        assert key is not None
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        if self._state.put(key, record.timestamp, self._sequence, value, record.timestamp):
            stored = self._state.store_key(key, record.timestamp, self._sequence)
            self._state.log(stored, value, record.timestamp)
        else:
            shared.drop("expired")

    def finish(self) -> None:
        """Leave what the next slice needs."""
        self.shared.keep(f"{self._spec.name}:sequence", self._sequence)
        self.shared.keep(f"{self._spec.name}:time", self._state.stream_time)


class JoinTimes:
    """What the two sides of a join of streams know together: the time, and who waits longest."""

    def __init__(self, shared: Shared, name: str) -> None:
        self._shared = shared
        self._name = name
        self.stream_time = shared.recall(f"{name}:time", -1)
        self.oldest = shared.recall(f"{name}:oldest", NEVER)

    def finish(self) -> None:
        """Leave what the next slice needs."""
        self._shared.keep(f"{self._name}:time", self.stream_time)
        self._shared.keep(f"{self._name}:oldest", self.oldest)


class Unmatched:
    """Records that wait for a partner until their window closes."""

    def __init__(self, shared: Shared, spec: StoreSpec, state: KeyValueState) -> None:
        assert isinstance(spec.value_serde, JoinSideSerde)
        self._shared = shared
        self._store = spec.name
        self._values = spec.value_serde
        self._keys = spec.key_serde
        self._state = state
        self._names: list[bytes] | None = None

    def add(self, step: str, key: bytes, timestamp: int, side: SideValue) -> None:
        """Let a record wait."""
        name = timed_side_key(timestamp, side.left, key)
        stored = self._state.get(name)
        waiting = [] if stored is None else self._sides(step, name, stored)
        data = self._shared.encode(step, self._values, [*waiting, side], "value")
        self._write(name, data, timestamp)

    def found(self, key: bytes, timestamp: int, *, left: bool, now: int) -> None:
        """A partner came for what waits under this key and time."""
        name = timed_side_key(timestamp, left, key)
        if self._state.get(name) is not None:
            self._write(name, None, now)

    def remove(self, name: bytes, now: int) -> None:
        """Forget what waits under a stored key."""
        self._write(name, None, now)

    def waiting(self) -> Iterator[tuple[bytes, Stored]]:
        """All that wait by time, of one time the right side first: their name and what is stored.

        All names are read at the first look of a slice: the looks are many, and most end early.
        Nothing may be added or removed before the look has ended.
        """
        if self._names is None:
            self._names = [name for name, _ in self._state.range(None, None)]
        for name in self._names:
            stored = self._state.get(name)
            assert stored is not None
            yield name, stored

    def read(self, step: str, name: bytes, stored: Stored) -> list[tuple[Any, SideValue]]:
        """What waits under a name: key and value of each. Raises `UserFunctionError`."""
        key = self._shared.decode(step, self._store, self._keys, name, name).key
        return [(key, side) for side in self._sides(step, name, stored)]

    def value_bytes(self, side: SideValue) -> bytes:
        """The bytes of a value that waits."""
        return (self._values.left if side.left else self._values.right).serialize(side.value)

    def _sides(self, step: str, name: bytes, stored: Stored) -> list[SideValue]:
        sides: list[SideValue] = self._shared.decode(
            step, self._store, self._values, stored.value, name
        )
        return sides

    def _write(self, name: bytes, value: bytes | None, timestamp: int) -> None:
        if self._names is not None:
            at = bisect_left(self._names, name)
            known = at < len(self._names) and self._names[at] == name
            if value is None and known:
                del self._names[at]
            elif value is not None and not known:
                self._names.insert(at, name)
        self._state.put(name, value, timestamp)
        self._state.log(name, value, timestamp)


class StreamJoin(Step):
    """One side of a join of streams."""

    def __init__(
        self,
        shared: Shared,
        node: StreamJoinNode,
        *,
        other_spec: StoreSpec,
        other: WindowState,
        times: JoinTimes,
        unmatched: Unmatched | None,
    ) -> None:
        super().__init__(node.name, shared)
        self._node = node
        self._left = node.side == "left"
        self._joiner = node.joiner
        self._with_key = node.with_key
        windows: JoinWindows = node.windows
        self._before, self._after = windows.before_ms, windows.after_ms
        if not self._left:
            self._before, self._after = self._after, self._before
        self._grace = windows.grace_ms
        self._spec = other_spec
        self._other = other
        self._times = times
        self._unmatched = unmatched

    def process(self, record: Record) -> None:
        times = self._times
        times.stream_time = max(times.stream_time, record.timestamp)
        if record.value is None or (record.key is None and not self._node.outer):
            self.shared.drop("null_key" if record.key is None else "null_value")
            return
        if record.key is None:
            self.forward(record.with_value(self._joined(record.key, record.value, None)))
            return
        if self._unmatched is not None and record.timestamp == times.stream_time:
            self._emit_unmatched(self._unmatched, record)
        key = self.shared.encode(self.name, self._spec.key_serde, record.key, "key")
        assert key is not None
        until = max(0, record.timestamp + self._after)
        partners = self._other.entries(key, max(0, record.timestamp - self._before), until)
        for (timestamp, _), stored in partners:
            if self._unmatched is not None:
                self._unmatched.found(key, timestamp, left=not self._left, now=record.timestamp)
            spec = self._spec
            decode = self.shared.decode
            there = decode(self.name, spec.name, spec.value_serde, stored.value, record.key)
            value = self._joined(record.key, record.value, there)
            at = max(record.timestamp, timestamp)
            self.forward(Record(record.key, value, at, record.headers))
        if self._node.outer and not partners:
            self._wait(record, key, until)

    def _wait(self, record: Record, key: bytes, until: int) -> None:
        if self._unmatched is None or until < self._times.stream_time:
            self.forward(record.with_value(self._joined(record.key, record.value, None)))
            return
        self._times.oldest = min(self._times.oldest, record.timestamp)
        self._unmatched.add(self.name, key, record.timestamp, SideValue(self._left, record.value))

    def _emit_unmatched(self, unmatched: Unmatched, record: Record) -> None:
        """Join with None what no partner can come for any more."""
        times = self._times
        if not _is_past(times.oldest, self._after + self._grace, times.stream_time):
            return
        times.oldest = NEVER
        open_sides: set[bool] = set()
        told: list[bytes] = []
        for name, stored in unmatched.waiting():
            # As in Kafka Streams this is the time of the entry looked at last, even if an older one
            # still waits: the next look comes no earlier than that.
            times.oldest = timed_side_time(name)
            if len(open_sides) == 2:
                break
            left = timed_side_is_left(name)
            if not _is_past(times.oldest, self._lookback(left) + self._grace, times.stream_time):
                open_sides.add(left)
                if len(open_sides) == 2 and side_count(stored.value) > 1:
                    break  # The look ends with the next value, which is of the same time.
                continue
            for key, value in self._joined_alone(unmatched, name, stored):
                self.forward(Record(key, value, times.oldest, record.headers))
            told.append(name)
        for name in told:
            unmatched.remove(name, record.timestamp)

    def _joined_alone(
        self, unmatched: Unmatched, name: bytes, stored: Stored
    ) -> Iterator[tuple[Any, Any]]:
        """What waits under a name, joined with None: the key and each result.

        What fails here, and may, leaves the join for good: it is not the fault of the record that
        closed its window, nor of those after it.
        """
        if self.shared.on_processing_error == "fail":
            for key, side in unmatched.read(self.name, name, stored):
                yield key, self._alone(key, side)
            return
        waiting: list[tuple[Any, SideValue]] = []
        joined: list[tuple[Any, Any]] = []

        def read(_: object) -> None:
            waiting.extend(unmatched.read(self.name, name, stored))

        def join(given: UserRecord[Any, Any]) -> None:
            joined.append((given.key, self._alone(given.key, side)))

        self._apart(name, stored.value, read, None)
        for key, side in waiting:
            given = UserRecord(key, side.value, timed_side_time(name))
            self._apart(name, unmatched.value_bytes(side), join, given)
            yield from joined
            joined.clear()

    def _apart(self, name: bytes, data: bytes, call: Callable[[_T], None], given: _T) -> None:
        """Call for what waited under a name, whose dead letter has its own key, value and time.

        Which record it was nobody knows any more.
        """
        shared = self.shared
        raw = (timed_side_rest(name), data)
        context = Context("", -1, -1, timed_side_time(name), (), raw)
        call = guarded(shared, self.name, call, shared.on_processing_error)
        shared.within(context, call, given)

    def _alone(self, key: Any, side: SideValue) -> Any:
        pair = (side.value, None) if side.left else (None, side.value)
        return self._call(key, *pair)

    def _lookback(self, left: bool) -> int:
        return self._node.windows.after_ms if left else self._node.windows.before_ms

    def _joined(self, key: Any, here: Any, there: Any) -> Any:
        return self._call(key, here, there) if self._left else self._call(key, there, here)

    def _call(self, key: Any, left: Any, right: Any) -> Any:
        if self._with_key:
            return self.call(self._joiner, key, left, right)
        return self.call(self._joiner, left, right)


def _is_past(time: int, span: int, stream_time: int) -> bool:
    """Whether a span after a time has ended.

    Kafka Streams adds to the largest number when nothing waits, and wraps round; what follows then
    is a look into an empty store.
    """
    if time == NEVER:
        return span > 0
    return time + span < stream_time
