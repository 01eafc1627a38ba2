"""Calls that users' processors schedule: when they are due, and how they outlive a slice.

A processor lives for one slice. What its `init` schedules is scheduled again with the next one, and
found by its interval and number. What a record or another call schedules is found by the name of
its method. Both are kept under a name of the step that an unrelated change of the program leaves
alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, get_args

import msgspec

from penstock.errors import TopologyError
from penstock.processors.depth_first.record import Shared
from penstock.processors.depth_first.steps import Step
from penstock.serdes.decoders import decoder
from penstock.topology import ProcessNode, SubTopology, TableTransformValuesNode
from penstock.topology.callables import check_awaits_nothing
from penstock.topology.processor import PunctuationType
from penstock.topology.spans import check_span

NEVER = 2**62
"""When a punctuator is due that was cancelled; after every time that there is."""
_MILLISECOND = timedelta(milliseconds=1)
_NUMBERED = re.compile(r".*-[0-9]{10}")
_log = logging.getLogger("penstock.processors")


def timer_memory(step: str, sub: SubTopology) -> str:
    """The name under which a processor's calls are kept: its own or, if nobody named it, its
    stores'.

    A number in a step's name moves when another step is added; whoever took over that name would
    take over the calls.
    """
    if not _NUMBERED.fullmatch(step):
        return step
    unnamed = dict(_unnamed(sub))
    alike = [name for name, stores in unnamed.items() if stores == unnamed[step]]
    return f"processor({'+'.join(unnamed[step])}){alike.index(step)}"


def _unnamed(sub: SubTopology) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The processors that nobody named, and the stores that they are connected to."""
    for node in sub.nodes:
        if _NUMBERED.fullmatch(node.name):
            if isinstance(node, ProcessNode):
                yield node.name, node.reads
            elif isinstance(node, TableTransformValuesNode):
                yield node.name, node.connected


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a method that every slice takes up again, until it is cancelled."""

    name: str
    method: str
    interval_ms: int
    kind: PunctuationType


class Punctuator:
    """A call that is due every interval; where it stands survives the slice."""

    def __init__(self, step: Step, order: Scheduled, action: Callable[[int], object]) -> None:
        self.step = step
        self.order = order
        self.action = action
        # Stream time counts from 0, so that the first record brings the first call; the wall clock
        # counts from the moment of scheduling.
        by_time = order.kind == "stream_time"
        first = 0 if by_time else step.shared.now_ms + order.interval_ms
        self.due = step.shared.recall(order.name, first)

    def cancel(self) -> None:
        """Call no more."""
        self.due = NEVER

    def pass_by(self, now: int) -> None:
        """Be due again after now: one call stands for all the times that were missed."""
        interval = self.order.interval_ms
        self.due += ((now - self.due) // interval + 1) * interval


class Timers:
    """All punctuators of a run; a record may add to them at any time."""

    def __init__(self) -> None:
        self.by_stream_time: list[Punctuator] = []
        self.by_wall_clock: list[Punctuator] = []

    def add(self, punctuator: Punctuator) -> None:
        """Take one in."""
        by_time = punctuator.order.kind == "stream_time"
        (self.by_stream_time if by_time else self.by_wall_clock).append(punctuator)


def next_due(punctuators: Sequence[Punctuator], now: int) -> Punctuator | None:
    """The one that has been due for longest; None if none is."""
    first = min(punctuators, key=lambda each: each.due, default=None)
    return first if first is not None and first.due <= now else None


class Schedule:
    """The punctuators of one processor.

    `owner` is the object whose methods may be scheduled while records are processed; `memory` is
    the name under which an earlier slice left what is scheduled.
    """

    def __init__(self, step: Step, owner: object, timers: Timers, *, memory: str) -> None:
        self._step = step
        self._owner = owner
        self._timers = timers
        self._punctuators: list[Punctuator] = []
        self._memory = memory
        self._key = f"{memory}:scheduled"
        self._number = step.shared.recall(f"{self._key}:number", 0)

    def take_up(self) -> None:
        """Go on with what earlier slices scheduled."""
        kept = self._step.shared.metadata.get(self._key, "[]")
        for order in decoder(list[Scheduled]).decode(kept.encode()):
            action = getattr(self._owner, order.method, None)
            if action is None:
                _log.warning(
                    "Step %s has no method %s any more: its scheduled calls end",
                    self._step.name,
                    order.method,
                )
                self._step.shared.metadata.pop(order.name, None)
            else:
                self._add(order, action)

    def add(
        self,
        interval: timedelta,
        kind: PunctuationType,
        action: Callable[[int], object],
        *,
        in_init: bool,
    ) -> Punctuator:
        """Take in a call that the processor schedules."""
        span = _checked(self._step.name, interval, kind, action)
        if in_init:
            name, method = self._name_in_init(span, kind), ""
        else:
            name, method = f"{self._key}:{self._number}", self._method(action)
            self._number += 1
        order = Scheduled(name=name, method=method, interval_ms=span, kind=kind)
        return self._add(order, action)

    def finish(self) -> None:
        """Leave what the next slice needs; a cancelled call of `init` is to stay so."""
        shared = self._step.shared
        # Also of calls that an earlier program's `init` scheduled, and this one's does not.
        for name in [each for each in shared.metadata if each.startswith(self._in_init)]:
            del shared.metadata[name]
        for each in self._punctuators:
            if each.order.method and each.due == NEVER:
                shared.metadata.pop(each.order.name, None)
            else:
                shared.keep(each.order.name, each.due)
        going = [e.order for e in self._punctuators if e.order.method and e.due != NEVER]
        _keep(shared, self._key, going, self._number)

    @property
    def _in_init(self) -> str:
        return f"{self._memory}:punctuator:"

    def _name_in_init(self, span: int, kind: PunctuationType) -> str:
        """By interval and kind: a call of another interval is another one, and begins anew."""
        alike = f"{self._in_init}{kind}:{span}:"
        return f"{alike}{sum(each.order.name.startswith(alike) for each in self._punctuators)}"

    def _add(self, order: Scheduled, action: Callable[[int], object]) -> Punctuator:
        punctuator = Punctuator(self._step, order, action)
        self._punctuators.append(punctuator)
        self._timers.add(punctuator)
        return punctuator

    def _method(self, action: Any) -> str:
        name = getattr(action, "__name__", "")
        if getattr(action, "__self__", None) is self._owner and hasattr(self._owner, name):
            return str(name)
        raise TopologyError(
            f"The step {self._step.name} schedules a call that is no method of its processor, "
            "while it processes",
            hint="Schedule a method (self.on_time), or schedule in init: the next slice has a new "
            "processor, and finds the call by its name",
        )


def _keep(shared: Shared, key: str, going: list[Scheduled], number: int) -> None:
    if going:
        shared.metadata[key] = msgspec.json.encode(going).decode()
    else:
        shared.metadata.pop(key, None)
    if number:
        shared.keep(f"{key}:number", number)


def _checked(
    step: str, interval: timedelta, kind: PunctuationType, action: Callable[[int], object]
) -> int:
    """The interval in milliseconds, of a call that can be scheduled."""
    check_span(interval, f"The interval of a call that step {step} schedules")
    span = int(interval / _MILLISECOND)
    if span < 1:
        raise TopologyError(
            f"The step {step} schedules a call every {interval}",
            hint="Let it be a millisecond or more",
        )
    check_awaits_nothing(action, f"What step {step} schedules")
    if kind not in get_args(PunctuationType):
        raise TopologyError(
            f"The step {step} schedules a call by {kind!r}",
            hint=f"Use one of {get_args(PunctuationType)}",
        )
    return span
