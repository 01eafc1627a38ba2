"""Where the time of a slice goes, in a worker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from penstock.observability import groups
from penstock.observability.groups import Level, includes
from penstock.observability.tallies import Entry, Tallies, Tally
from penstock.processors.meter import SliceMeter


class SliceClock:
    """Times the steps of one slice; two looks at the clock for each Arrow batch and each call."""

    def __init__(self, level: Level) -> None:
        self._on = includes(level, "INFO")
        self._tallies = Tallies()
        self._busy = 0.0
        self._asked = 0.0
        self._committed = 0.0
        self._waited = 0.0

    def polled(self, records: int, seconds: float) -> None:
        """An Arrow batch came, for which so long was waited."""
        self._waited += seconds
        if self._on:
            self._tallies.add(groups.THREAD, "poll", (), Tally.of(seconds))
            self._tallies.add(groups.THREAD, "poll-records", (), Tally.of(records))

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """While records go through the steps; what is asked of instances meanwhile is not that."""
        began, asked = time.perf_counter(), self._asked
        try:
            yield
        finally:
            self._busy += time.perf_counter() - began - (self._asked - asked)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """While an instance is asked for state."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._asked += time.perf_counter() - began

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """While an instance commits."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._committed += time.perf_counter() - began

    def entries(self, meter: SliceMeter | None, *, records: int) -> list[Entry]:
        """What is to be told of a slice that was committed, with what its steps counted."""
        if not self._on:
            return []
        tallies = self._tallies
        if records:
            tally = Tally.many(records, self._busy)
            tallies.add(groups.THREAD, "process", (), tally)
            tallies.add(groups.TASK, "process", (), tally)
            tallies.add(groups.THREAD, "process-records", (), Tally.of(records))
        for step, seconds in (
            ("read", self._waited),
            ("process", self._busy),
            ("state", self._asked),
            ("commit", self._committed),
        ):
            tallies.add(groups.JOB, "step", (step,), Tally.of(seconds))
        if meter is not None:
            tallies.add_all(meter.entries(time.time() * 1000))
        return tallies.entries()
