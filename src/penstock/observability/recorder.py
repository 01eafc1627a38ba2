"""Keeps what was counted, over windows of time as Kafka's metrics do, and reads values off it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.observability.catalogue import BY_SENSOR, Metric
from penstock.observability.groups import GROUPS, Level, includes
from penstock.observability.readings import Reading, Snapshot
from penstock.observability.tallies import Entry, Sensor, Tally

WINDOW_SECONDS = 30.0
WINDOWS = 2
"""As Kafka's `metrics.sample.window.ms` and `metrics.num.samples`."""


@dataclass
class _Counted:
    """One sensor: all of its time, and the windows that are not over yet."""

    ever: Tally
    windows: list[tuple[float, Tally]] = field(default_factory=list)
    """Each with the time at which it began."""

    def add(self, now: float, tally: Tally) -> None:
        self.ever = self.ever + tally
        if self.windows and now - self.windows[-1][0] < WINDOW_SECONDS:
            began, known = self.windows[-1]
            self.windows[-1] = (began, known + tally)
        else:
            self.windows = [*self._current(now), (now, tally)][-WINDOWS:]

    def read(self, metric: Metric, now: float) -> float | None:
        if metric.is_counter:
            ever = self.ever
            return (ever.count if metric.statistic == "total" else ever.total) * metric.scale
        windows = self._current(now)
        if metric.statistic in ("avg", "min", "max"):
            return _spread(metric, windows)
        seconds = _elapsed(windows, now)
        events = sum(tally.count for _, tally in windows)
        total = sum(tally.total for _, tally in windows)
        amount = {"rate": events, "per_hour": events * 3600}.get(metric.statistic, total)
        return amount * metric.scale / seconds

    def work(self, now: float) -> float:
        """What its events add up to in the windows."""
        return sum(tally.total for _, tally in self._current(now))

    def _current(self, now: float) -> list[tuple[float, Tally]]:
        return [each for each in self.windows if now - each[0] < WINDOWS * WINDOW_SECONDS]


def _elapsed(windows: list[tuple[float, Tally]], now: float) -> float:
    """The seconds that a rate is over: at least one full window, as if all were there."""
    elapsed = now - windows[0][0] if windows else 0.0
    missing = WINDOWS - 1 - int(elapsed / WINDOW_SECONDS)
    return elapsed + max(missing, 0) * WINDOW_SECONDS


def _spread(metric: Metric, windows: list[tuple[float, Tally]]) -> float | None:
    if not windows:
        return None
    tally = windows[0][1]
    for _, more in windows[1:]:
        tally = tally + more
    if not tally.count:
        return None
    found = {"avg": tally.total / tally.count, "min": tally.least, "max": tally.most}
    return found[metric.statistic] * metric.scale


def _is_of(sensor: Sensor, first: tuple[str, ...]) -> bool:
    """Whether a sensor is an instance's, or its task's; an application may have the same name."""
    is_instances = GROUPS[sensor.group].tags[0] == "thread-id"
    return is_instances and sensor.tags[: len(first)] == first


class Recorder:
    """Counts for one process; any thread may call. `first` is put before all tags.

    >>> recorder = Recorder("DEBUG", first=("instance.1",))
    >>> recorder.add("stream-thread-metrics", "commit", (), Tally.of(0.02))
    >>> {each.name: each.value for each in recorder.snapshot()}["commit-latency-avg"]
    20.0
    """

    def __init__(
        self,
        level: Level = "INFO",
        *,
        first: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.level = level
        self._first = first
        self._clock = clock
        self._lock = threading.Lock()
        self._counted: dict[Sensor, _Counted] = {}
        self._gauges: dict[Sensor, float | str] = {}
        self._known: dict[tuple[str, str], list[Metric]] = {
            sensor: recorded
            for sensor, metrics in BY_SENSOR.items()
            if (recorded := [each for each in metrics if includes(level, each.level)])
        }

    def records(self, level: Level) -> bool:
        """Whether metrics of that level are recorded: else what they need is not measured."""
        return includes(self.level, level)

    def add(self, group: str, name: str, tags: tuple[str, ...], tally: Tally) -> None:
        """Count something; nothing if none of its metrics is recorded."""
        if (group, name) not in self._known:
            return
        sensor, now = Sensor(group, name, (*self._first, *tags)), self._clock()
        with self._lock:
            counted = self._counted.get(sensor)
            if counted is None:
                self._counted[sensor] = _Counted(tally, [(now, tally)])
            else:
                counted.add(now, tally)

    def begin(self, group: str, name: str, tags: tuple[str, ...]) -> None:
        """Show that nothing of it was counted yet: who watches a counter sees its first step only
        if it was 0 before.
        """
        if (group, name) in self._known:
            sensor = Sensor(group, name, (*self._first, *tags))
            with self._lock:
                self._counted.setdefault(sensor, _Counted(Tally.nothing()))

    def add_all(self, entries: Iterable[Entry], *, first: tuple[str, ...] = ()) -> None:
        """Count what another process did; `first` is put before its tags."""
        for entry in entries:
            self.add(entry.group, entry.name, (*first, *entry.tags), entry.tally)

    def set(self, group: str, name: str, tags: tuple[str, ...], value: float | str) -> None:
        """Say what a gauge shows from now on."""
        if (group, name) in self._known:
            with self._lock:
                self._gauges[Sensor(group, name, (*self._first, *tags))] = value

    def replace(
        self, group: str, name: str, values: Iterable[tuple[tuple[str, ...], float]]
    ) -> None:
        """Say what a gauge shows for all tags: those that are not named have none any more."""
        with self._lock:
            for sensor in [each for each in self._gauges if each[:2] == (group, name)]:
                del self._gauges[sensor]
        for tags, value in values:
            self.set(group, name, tags, value)

    def forget(self, *tags: str) -> None:
        """Show no more of an instance, or of a task on it, that is not there any more."""
        first = (*self._first, *tags)
        with self._lock:
            for kept in (self._counted, self._gauges):
                for sensor in [each for each in kept if _is_of(each, first)]:
                    del kept[sensor]

    def work(self, group: str, name: str) -> dict[tuple[str, ...], float]:
        """By tags, what the events of a name add up to lately, such as seconds."""
        now = self._clock()
        with self._lock:
            return {
                sensor.tags: counted.work(now)
                for sensor, counted in self._counted.items()
                if sensor[:2] == (group, name)
            }

    def snapshot(self) -> Snapshot:
        """What all metrics show now."""
        now = self._clock()
        with self._lock:
            counted = [
                Reading(sensor.group, metric.name, sensor.tags, each.read(metric, now))
                for sensor, each in self._counted.items()
                for metric in self._known[sensor.group, sensor.name]
                if metric.statistic != "gauge"
            ]
            gauges = [
                Reading(sensor.group, sensor.name, sensor.tags, value)
                for sensor, value in self._gauges.items()
            ]
        return counted + gauges
