"""Bugs that are planted in what processors are given, to see whether recorded answers find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.processors.depth_first import building, lru, punctuators, run, user_stores, versioned
from penstock.processors.depth_first.process import Process
from penstock.processors.depth_first.state import TimedState
from penstock.topology import SourceNode
from tests.conformance.cases import Case
from tests.conformance.mutants import Mutant


def _missed_calls_are_made_up_for(patch: pytest.MonkeyPatch) -> None:
    """A punctuator is called for every time that was missed."""

    def pass_by(self: Any, now: int) -> None:
        del now
        self.due += self.order.interval_ms

    patch.setattr(punctuators.Punctuator, "pass_by", pass_by)


def _the_first_call_waits(patch: pytest.MonkeyPatch) -> None:
    """Stream time counts from the moment of scheduling, as the wall clock does."""
    original = punctuators.Punctuator.__init__

    def init(self: Any, step: Any, order: Any, action: Any) -> None:
        original(self, step, order, action)
        if self.due == 0:
            self.due = max(step.shared.stream_time, 0) + order.interval_ms

    patch.setattr(punctuators.Punctuator, "__init__", init)


def _wall_clock_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """What is scheduled by the wall clock is never called."""
    patch.setattr(run.RecordRun, "_punctuate", _only_by_stream_time(run.RecordRun._punctuate))


def _only_by_stream_time(original: Callable[..., None]) -> Callable[..., None]:
    def punctuate(self: Any, calls: Any, now: int) -> None:
        if calls is not self._builder.timers.by_wall_clock:
            original(self, calls, now)

    return punctuate


def _reads_do_not_refresh(patch: pytest.MonkeyPatch) -> None:
    """A store of limited size forgets the key that was not written for longest."""

    def get(self: Any, key: bytes) -> Any:
        self._load()
        return self._known.get(key)

    patch.setattr(lru.LruState, "get", get)


def _versions_are_the_latest(patch: pytest.MonkeyPatch) -> None:
    """What a key was at a time is what it is now."""
    original = versioned.UserVersionedStore.get

    def get(self: Any, key: Any, as_of_timestamp: int | None = None) -> Any:
        del as_of_timestamp
        return original(self, key)

    patch.setattr(versioned.UserVersionedStore, "get", get)


def _all_children_are_named(patch: pytest.MonkeyPatch) -> None:
    """What is forwarded to one step goes to all."""
    original = Process.forward_user

    def forward(self: Any, record: Any, to: str | None) -> None:
        del to
        original(self, record, None)

    patch.setattr(Process, "forward_user", forward)


def _headers_stay(patch: pytest.MonkeyPatch) -> None:
    """What a processor forwards has the headers of the record that came."""
    original = Process.forward_user

    def forward(self: Any, record: Any, to: str | None) -> None:
        if self._current is not None:
            record = record.with_headers(self._current.headers)
        original(self, record, to)

    patch.setattr(Process, "forward_user", forward)


def _times_stay(patch: pytest.MonkeyPatch) -> None:
    """What a processor forwards has the time of the record that came."""
    original = Process.forward_user

    def forward(self: Any, record: Any, to: str | None) -> None:
        if self._current is not None:
            record = record.with_timestamp(self._current.timestamp)
        original(self, record, to)

    patch.setattr(Process, "forward_user", forward)


def _ranges_end_too_early(patch: pytest.MonkeyPatch) -> None:
    """A range leaves its last key out."""

    def between(self: Any, lower: Any, upper: Any) -> Any:
        return list(self._state.range(self._bound(lower), self._bound(upper)))

    patch.setattr(user_stores.UserKeyValueStore, "_between", between)


def _backwards_is_forwards(patch: pytest.MonkeyPatch) -> None:
    """What is asked for from the last to the first comes from the first to the last."""
    stores = user_stores.UserKeyValueStore
    patch.setattr(stores, "reverse_range", stores.range)
    patch.setattr(
        user_stores.UserWindowStore, "backward_fetch", user_stores.UserWindowStore.fetch_range
    )


def _windows_of_processors_stay(patch: pytest.MonkeyPatch) -> None:
    """A processor's store of windows or sessions finds what has expired."""
    original = TimedState.__init__

    def init(self: Any, spec: Any, reader: Any, rows: Any) -> None:
        original(self, spec, reader, rows)
        self._alive = self._retention = 10**12

    patch.setattr(TimedState, "__init__", init)


def _siblings_fail_too(patch: pytest.MonkeyPatch) -> None:
    """A step that fails on a record takes it from all others behind the source."""
    original = building.Builder._entry

    def entry(self: Any, parent: str, name: str) -> Any:
        if isinstance(self._sub.by_name[parent], SourceNode):
            return original(self, parent, name)
        return self.steps[name].process

    patch.setattr(building.Builder, "_entry", entry)


def _no_partition_is_any(patch: pytest.MonkeyPatch) -> None:
    """A record for which a partitioner chooses none is written all the same."""
    original = run.Sink._checked

    def checked(self: Any, choice: Any, topic: str, count: int) -> list[int]:
        return original(self, choice, topic, count) or [0]

    patch.setattr(run.Sink, "_checked", checked)


def _uses(*names: str) -> Callable[[Case], bool]:
    """Whether a case has such a processor, or a step with such an option."""

    def uses(case: Case) -> bool:
        options = {key for step in case.steps for key in step}
        kinds = {step["kind"] for step in case.steps if step["op"] == "add_store"}
        return bool(set(names) & {*case.operators, *options, *kinds})

    return uses


MUTANTS: dict[Mutant, Callable[[Case], bool]] = {
    _missed_calls_are_made_up_for: _uses("walker", "waker"),
    _the_first_call_waits: _uses("later"),
    _wall_clock_is_not_looked_at: _uses("waker"),
    _reads_do_not_refresh: _uses("lru"),
    _versions_are_the_latest: _uses("history"),
    _all_children_are_named: _uses("router"),
    _headers_stay: _uses("marker"),
    _times_stay: _uses("marker", "spread"),
    _ranges_end_too_early: _uses("reader"),
    _backwards_is_forwards: _uses("walker", "last"),
    _windows_of_processors_stay: _uses("last", "sessions"),
    _siblings_fail_too: _uses("fails"),
    _no_partition_is_any: _uses("partitioner"),
}
"""Each with the cases in which it is likely to show, which are tried first."""
