"""What has happened to an application, kept for whoever looks later; any thread may ask or add."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.observability.tallies import Tally

HappeningKind = Literal["state", "rebalance", "notice", "restore"]
HAPPENINGS_MAX = 500
SECONDS_MAX = 900
BATCHES_MAX = 300
"""How much is kept: the last happenings, a quarter of an hour by the second, the last batches."""
KEPT = {"happenings": HAPPENINGS_MAX, "seconds": SECONDS_MAX, "batches": BATCHES_MAX}
"""The same, as the page is told: it keeps as much, and knows from it whether it has all."""


@dataclass(frozen=True, kw_only=True)
class Happening:
    """Something worth a line: a change of state, a rebalance, a notice."""

    number: int
    at_ms: int
    kind: HappeningKind
    text: str
    details: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A job that ended."""

    number: int
    at_ms: int
    """When it ended."""
    sub_topology: str
    records: int
    outputs: int
    seconds: float
    steps: dict[str, float]
    """Where the time went: those seconds, and before them those of planning."""


@dataclass(kw_only=True)
class Second:
    """What was done in one second."""

    at: int
    records: int = 0
    outputs: int = 0
    batches: int = 0
    busy: float = 0.0
    timed: float = 0.0
    """Of so many records it is known how long they took."""
    latency_ms: float = 0.0
    """What they took together, from their timestamps until they were committed."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """How things stood at a moment."""

    number: int
    at_ms: int
    lag: int | None
    """None where it was not known."""
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class News:
    """What is new since a number; `latest` is the number to ask with the next time."""

    latest: int
    happenings: list[Happening]
    batches: list[Batch]
    seconds: list[Second]
    samples: list[Sample]


@dataclass
class History:
    """The last of everything, in bounded memory.

    >>> history = History(now_ms=lambda: 5_000)
    >>> history.happened("state", "Created to Rebalancing")
    >>> history.batch_ended("counts", records=10, outputs=3, seconds=0.5)
    >>> news = history.since(0)
    >>> [each.text for each in news.happenings], news.seconds[0].records
    (['Created to Rebalancing'], 10)
    >>> history.sampled(lag=7, memory_bytes=2**20)
    >>> history.since(news.latest).samples[0].lag
    7
    >>> history.since(news.latest).happenings
    []
    """

    now_ms: Callable[[], int]
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _latest: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _happenings: deque[Happening] = field(default_factory=lambda: deque(maxlen=HAPPENINGS_MAX))
    _batches: deque[Batch] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))
    _seconds: deque[Second] = field(default_factory=lambda: deque(maxlen=SECONDS_MAX))
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SECONDS_MAX))

    def happened(self, kind: HappeningKind, text: str, **details: Any) -> None:
        """Keep a line."""
        with self._lock:
            self._happenings.append(
                Happening(
                    number=self._number(),
                    at_ms=self.now_ms(),
                    kind=kind,
                    text=text,
                    details=details,
                )
            )

    def batch_ended(
        self,
        sub_topology: str,
        *,
        records: int,
        outputs: int,
        seconds: float,
        steps: Mapping[str, float] | None = None,
        latencies: Tally | None = None,
    ) -> None:
        """Count a job that ended just now."""
        with self._lock:
            now = self.now_ms()
            batch = Batch(
                number=self._number(),
                at_ms=now,
                sub_topology=sub_topology,
                records=records,
                outputs=outputs,
                seconds=seconds,
                steps={step: round(spent, 6) for step, spent in (steps or {}).items()},
            )
            self._batches.append(batch)
            at = now // 1000
            if not self._seconds or self._seconds[-1].at != at:
                self._seconds.append(Second(at=at))
            current = self._seconds[-1]
            current.records += records
            current.outputs += outputs
            current.batches += 1
            current.busy += seconds
            if latencies is not None:
                current.timed += latencies.count
                current.latency_ms += latencies.total

    def sampled(self, *, lag: int | None, memory_bytes: int) -> None:
        """Keep how things stand now."""
        with self._lock:
            self._samples.append(
                Sample(
                    number=self._number(),
                    at_ms=self.now_ms(),
                    lag=lag,
                    memory_bytes=memory_bytes,
                )
            )

    def since(self, number: int) -> News:
        """What came after that number: all that is kept, for 0."""
        with self._lock:
            batches = [each for each in self._batches if each.number > number]
            if number:
                # The second that the reader saw last has gone on since.
                first = min((each.at_ms // 1000 for each in batches), default=None)
                seconds = [] if first is None else [s for s in self._seconds if s.at >= first]
            else:
                seconds = list(self._seconds)
            return News(
                latest=self._latest,
                happenings=[each for each in self._happenings if each.number > number],
                batches=batches,
                seconds=[Second(**vars(each)) for each in seconds],
                samples=[each for each in self._samples if each.number > number],
            )

    def _number(self) -> int:
        self._latest = next(self._numbers)
        return self._latest
