"""What a user's processor counts and measures; a slice's sums are told once, when it ends."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.errors import TopologyError
from penstock.observability.tallies import Tally
from penstock.processors.meter import SliceMeter


class UserCounter:
    """Events of one kind."""

    def __init__(self) -> None:
        self._count = 0.0

    def add(self, amount: float = 1) -> None:
        """That much more has happened."""
        if not amount >= 0:
            raise ValueError(f"a counter only grows, and {amount!r} was to be added to it")
        self._count += amount

    def tallies(self) -> dict[str, Tally]:
        """By sensor: what is to be told of it."""
        return {"count": Tally(self._count, 0.0, 0.0, 0.0)} if self._count else {}


class UserMeasure:
    """Values of one kind."""

    sensor = "value"

    def __init__(self) -> None:
        self._tally: Tally | None = None

    def record(self, value: float) -> None:
        """That was measured."""
        one = Tally.of(float(value))
        self._tally = one if self._tally is None else self._tally + one

    def tallies(self) -> dict[str, Tally]:
        """By sensor: what is to be told of it."""
        tally = self._tally
        if tally is None:
            return {}
        return {"count": Tally(tally.count, 0.0, 0.0, 0.0), self.sensor: tally}


class UserTimer(UserMeasure):
    """How long something takes, of one kind; may be entered while it runs."""

    sensor = "latency"

    def __init__(self) -> None:
        super().__init__()
        self._began: list[float] = []

    def __enter__(self) -> Self:
        self._began.append(time.perf_counter())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.record(time.perf_counter() - self._began.pop())


NAMES_MAX = 100
"""How many metrics a processor may have."""
_M = TypeVar("_M", UserCounter, UserMeasure, UserTimer)
_WORDS: dict[type[Any], str] = {
    UserCounter: "a counter",
    UserMeasure: "a measure",
    UserTimer: "a timer",
}


class UserMetrics:
    """The metrics of one processor, by name."""

    def __init__(self, step: str, meter: SliceMeter) -> None:
        self._step = step
        self._meter = meter
        self._made: dict[str, UserCounter | UserMeasure] = {}

    def counter(self, name: str) -> UserCounter:
        """The counter of that name."""
        return self._of(UserCounter, name)

    def measure(self, name: str) -> UserMeasure:
        """The measure of that name."""
        return self._of(UserMeasure, name)

    def timer(self, name: str) -> UserTimer:
        """The timer of that name."""
        return self._of(UserTimer, name)

    def _of(self, kind: type[_M], name: str) -> _M:
        known = self._made.get(name)
        if known is None:
            if len(self._made) == NAMES_MAX:
                raise TopologyError(
                    f"The processor of step {self._step} has more than {NAMES_MAX} metrics; the "
                    f"last one is {name!r}",
                    hint="Let names be of the program, not of records: each stays for ever",
                )
            known = self._made[name] = kind()
        if type(known) is not kind:
            raise TopologyError(
                f"The metric {name!r} of step {self._step} is {_WORDS[type(known)]} already, and "
                f"is asked for as {_WORDS[kind]}",
                hint="Give one of them another name",
            )
        return known

    def finish(self) -> None:
        """Tell the slice's sums."""
        for name, metric in self._made.items():
            for sensor, tally in metric.tallies().items():
                self._meter.told(self._step, name, sensor, tally)
