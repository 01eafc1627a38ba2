"""Aggregations by window: tumbling, hopping, sliding and session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.processors.depth_first.record import Record, Shared
from penstock.processors.depth_first.state import FAR
from penstock.processors.depth_first.steps import Step, Value
from penstock.processors.depth_first.window_store import Window, WindowStore
from penstock.serdes import Change, Windowed
from penstock.serdes.windowed import window_end
from penstock.topology import (
    Node,
    SessionWindows,
    SlidingWindows,
    SourceNode,
    SubTopology,
    TimeWindows,
    WindowAggregateNode,
)
from penstock.topology.fingerprints import parents_of

W = TypeVar("W", bound=TimeWindows | SlidingWindows | SessionWindows)


class Fold(NamedTuple):
    """How an aggregation begins, goes on, and makes one of two."""

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any] | None


def only_memory(store: str) -> str:
    """The name under which a step leaves its times that has its store alone."""
    return f"{store}:0"


def window_memory(sub_topology: SubTopology, node: WindowAggregateNode) -> str:
    """The name under which a step leaves its times: its store's, which stays where names change.

    Where streams that are grouped together share one, by the topics that each comes from: one that
    is added, or changes places with another, must not be late by the other's time.
    """
    users = window_users(sub_topology, node.store)
    if len(users) == 1:
        return only_memory(node.store)
    before = parents_of(sub_topology)
    topics = [_topics_of(sub_topology, user, before) for user in users]
    own = topics[users.index(node)]
    alike = [user for user, each in zip(users, topics, strict=True) if each == own]
    return f"{node.store}:{'+'.join(own)}:{alike.index(node)}"


def _topics_of(
    sub_topology: SubTopology, node: Node, before: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """The topics and patterns, as the program says them, whose records come to a step."""
    found: set[str] = set()
    waiting, known = [node.name], {node.name}
    while waiting:
        each = sub_topology.by_name[waiting.pop()]
        if isinstance(each, SourceNode):
            found.update(each.topics if each.pattern is None else [each.pattern.pattern])
        waiting += (above := set(before[each.name]) - known)
        known |= above
    return tuple(sorted(found))


def closed_keys(sub_topology: SubTopology) -> dict[str, list[str]]:
    """For stores of windows that are given out when they close: where in a slice's metadata their
    steps leave up to when they did that."""
    nodes = [node for node in sub_topology.nodes if isinstance(node, WindowAggregateNode)]
    return {
        store: [
            _closed_key(window_memory(sub_topology, node))
            for node in window_users(sub_topology, store)
        ]
        for store in {node.store for node in nodes if node.emit == "close"}
    }


def window_users(sub_topology: SubTopology, store: str) -> list[WindowAggregateNode]:
    """The steps that leave their times under a store's name.

    Not those that look into it: one that is added must not move the others.
    """
    nodes = [node for node in sub_topology.nodes if isinstance(node, WindowAggregateNode)]
    return [node for node in nodes if node.store == store]


def _closed_key(memory: str) -> str:
    return f"{memory}:closed"


class WindowStep(Step, Generic[W]):
    """What all windowed aggregations share: stream time, lateness, results at the close.

    `memory` is the name under which a step finds again what it left: its store's, which stays when
    the program changes, as a generated step's name does not.
    """

    store: WindowStore

    def __init__(
        self, name: str, shared: Shared, fold: Fold, windows: W, *, at_close: bool, memory: str
    ) -> None:
        super().__init__(name, shared)
        self._memory = memory
        self.fold = fold
        self.windows = windows
        self._emits_at_close = at_close
        self.stream_time = shared.recall(f"{memory}:stream-time", -1)
        self._last_close = shared.recall(_closed_key(memory), -1)
        self.latest = -1
        """The latest time in this slice's records: no close in it can be later."""

    def attach(self, store: WindowStore) -> None:
        """Give the step its store."""
        self.store = store

    def get(self, key: Windowed[Any], *, sent: bool = False) -> Value | None:
        """The row of a windowed key."""
        return self.store.row(key, sent=sent)

    def finish(self) -> None:
        """Leave what the next slice needs."""
        self.shared.keep(f"{self._memory}:stream-time", self.stream_time)
        self.shared.keep(_closed_key(self._memory), self._last_close)
        self.store.finish()

    def update(self, record: Record, key: bytes, window: Window, before: Value | None) -> None:
        """Add a record to a window's value."""
        if before is None:
            old, timestamp = self.call(self.fold.initializer), record.timestamp
        else:
            old, timestamp = before.value, max(record.timestamp, before.timestamp)
        told = self.store.before(old)
        new = self.call(self.fold.aggregator, record.key, record.value, old)
        self.store.put(record, key, window, new, timestamp, old=told)

    def drop_late(self) -> None:
        """Count a record, or one of its windows, that came too late."""
        self.shared.drop("late")

    def emit_closed(self, record: Record, close_time: int, lower: int, upper: int) -> None:
        """Emit the final results of windows between two bounds."""
        # No record of this slice can close more than the latest one does.
        until = upper + max(0, self.latest - self.stream_time)
        began, emitted = perf_counter(), 0
        for windowed, value in self.store.closed(lower, upper, until):
            time = self.result_time(windowed, value)
            self.forward(Record(windowed, Change(value.value, None), time, record.headers))
            emitted += 1
        self.shared.meter.closed(self.name, emitted, perf_counter() - began)
        self._last_close = close_time

    def result_time(self, windowed: Windowed[Any], value: Value) -> int:
        """The timestamp of a final result."""
        del windowed
        return value.timestamp

    def should_emit(self, close_time: int) -> bool:
        """Whether windows may have closed since the last look."""
        return self._emits_at_close and self._last_close < close_time

    @property
    def last_close(self) -> int | None:
        """The time of the last look; None if there was none."""
        return None if self._last_close < 0 else self._last_close


class TimeWindowAggregate(WindowStep[TimeWindows]):
    """Windows of one size, tumbling or hopping."""

    def process(self, record: Record) -> None:
        if record.key is None:
            self.shared.drop("null_key")
            return
        self.stream_time = max(self.stream_time, record.timestamp)
        close_time = self.stream_time - self.windows.grace_ms
        key = self.store.key(record.key)
        for start in self.windows.starts(record.timestamp):
            window = Window(start, window_end(start, self.windows.size_ms))
            if window.end > close_time:
                self.update(record, key, window, self.store.get(key, window))
            else:
                self.drop_late()
        if self.should_emit(close_time):
            self._emit(record, close_time)

    def _emit(self, record: Record, close_time: int) -> None:
        size, last = self.windows.size_ms, self.last_close
        upper = close_time - size
        if upper < 0:
            return
        lower = 0 if last is None else max(0, last - size) + 1
        if last is not None and self._same_windows(upper, lower - 1):
            return
        self.emit_closed(record, close_time, lower, upper)

    def _same_windows(self, one: int, other: int) -> bool:
        return list(self.windows.starts(one)) == list(self.windows.starts(other))


class SlidingWindowAggregate(WindowStep[SlidingWindows]):
    """A window for each set of records that lie close enough together.

    A record ends one window, and begins one just after itself; each exists once a record is in it.
    """

    _close_time = 0

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.shared.drop("null_key" if record.key is None else "null_value")
            return
        self.stream_time = max(self.stream_time, record.timestamp)
        self._close_time = close_time = self.stream_time - self.windows.grace_ms
        if record.timestamp + 1 + self.windows.difference_ms <= close_time:
            self.drop_late()
            return
        key = self.store.key(record.key)
        if record.timestamp < self.windows.difference_ms:
            self._process_early(record, key)
        else:
            self._process(record, key)
        if self.should_emit(close_time):
            self._emit(record, close_time)

    def _process(self, record: Record, key: bytes) -> None:
        time, difference = record.timestamp, self.windows.difference_ms
        around = self.store.windows(key, max(0, time - 2 * difference), time + 1)
        starts = {window.start for window, _ in around}
        left: Value | None = None
        right: Value | None = None
        left_exists = right_exists = False
        previous: int | None = None
        for window, value in reversed(around):
            if window.start == time + 1:
                right_exists = True
            elif window.end > time:
                # The function may change the value in place, which another window begins with.
                right = right or self._copied(value)
                self._update(record, key, window, value)
            elif window.end == time:
                left_exists = True
                self._update(record, key, window, value)
                if value.timestamp >= time:
                    # A record of this very time made all windows already.
                    return
                previous = value.timestamp
            else:
                left, previous = value, value.timestamp
                break
        if previous is not None:
            self._begin_after(record, key, previous, starts)
        if not left_exists:
            near = previous is not None and time - difference <= previous
            before = left if near else None
            self._update(record, key, Window(time - difference, time), before)
        if not right_exists:
            self._begin_own(record, key, right)

    def _process_early(self, record: Record, key: bytes) -> None:
        """A record less than a window after the beginning of time: the first window begins at 0."""
        time = record.timestamp
        around = self.store.windows(key, 0, time + 1)
        starts = {window.start for window, _ in around}
        first: tuple[Window, Value] | None = None
        right: Value | None = None
        previous: int | None = None
        for window, value in around:
            if window.start == 0:
                first = (window, value)
                previous = value.timestamp if value.timestamp < time else None
            elif window.start <= time:
                right = self._copied(value)
                self._update(record, key, window, value)
        if right is None and first is not None and first[1].timestamp > time:
            right = first[1]
        if time + 1 not in starts:
            self._begin_own(record, key, right)
        if first is None:
            self._update(record, key, Window(0, self.windows.difference_ms), None)
        else:
            if previous is not None and previous + 1 not in starts:
                self._update(record, key, self._window(previous + 1), None)
            self._update(record, key, *first)

    def _copied(self, value: Value) -> Value:
        return Value(self.store.copied(value.value), value.timestamp)

    def _begin_after(self, record: Record, key: bytes, previous: int, starts: set[int]) -> None:
        """Make the window that the record before begins, if this one is the first in it."""
        start = previous + 1
        if start not in starts and start + self.windows.difference_ms >= record.timestamp:
            self._update(record, key, self._window(start), None)

    def _begin_own(self, record: Record, key: bytes, later: Value | None) -> None:
        """Make the window just after the record, if records that came before are in it."""
        if later is not None and later.timestamp > record.timestamp:
            window = self._window(record.timestamp + 1)
            self.store.put(record, key, window, later.value, later.timestamp, old=None)

    def _update(self, record: Record, key: bytes, window: Window, before: Value | None) -> None:
        if window.end >= self._close_time:
            self.update(record, key, window, before)
        else:
            self.drop_late()

    def _window(self, start: int) -> Window:
        return Window(start, start + self.windows.difference_ms)

    def _emit(self, record: Record, close_time: int) -> None:
        upper = close_time - self.windows.difference_ms - 1
        last = self.last_close
        if upper >= 0:
            lower = 0 if last is None else max(0, last - self.windows.difference_ms)
            self.emit_closed(record, close_time, lower, upper)


class SessionAggregate(WindowStep[SessionWindows]):
    """Sessions: records of a key with no longer pause between them than the gap."""

    def process(self, record: Record) -> None:
        if record.key is None:
            self.shared.drop("null_key")
            return
        time, gap = record.timestamp, self.windows.gap_ms
        self.stream_time = max(self.stream_time, time)
        close_time = self.stream_time - self.windows.grace_ms - gap
        key = self.store.key(record.key)
        near = [
            (session, value)
            for session, value in self.store.windows(key, time - gap, FAR)
            if session.start <= time + gap
        ]
        told = [self.store.before(value.value) for _, value in near]
        aggregate, merged = self._merged(record, near)
        if merged.end < close_time:
            self.drop_late()
        else:
            if merged != Window(time, time):
                for (session, _), old in zip(near, told, strict=True):
                    self.store.put(record, key, session, None, session.end, old=old)
            aggregate = self.call(self.fold.aggregator, record.key, record.value, aggregate)
            self.store.put(record, key, merged, aggregate, merged.end, old=None)
        if self.should_emit(close_time):
            self._emit(record, close_time)

    def result_time(self, windowed: Windowed[Any], value: Value) -> int:
        del value
        return windowed.end

    def _merged(self, record: Record, near: list[tuple[Window, Value]]) -> tuple[Any, Window]:
        assert self.fold.merger is not None
        aggregate = self.call(self.fold.initializer)
        start = end = record.timestamp
        for session, value in near:
            aggregate = self.call(self.fold.merger, record.key, aggregate, value.value)
            start, end = min(start, session.start), max(end, session.end)
        return aggregate, Window(start, end)

    def _emit(self, record: Record, close_time: int) -> None:
        last = self.last_close
        upper = close_time - 1
        if upper >= 0:
            self.emit_closed(record, close_time, 0 if last is None else last, upper)
