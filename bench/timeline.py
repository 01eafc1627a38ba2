"""When the outputs of each partition arrived, and what that says of gaps."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Arrival = tuple[float, int]
"""At so many seconds on a monotonic clock so many records were seen."""


@dataclass
class Timeline:
    """What a reader of the output saw, partition by partition, in order of time."""

    arrivals: dict[int, list[Arrival]] = field(default_factory=lambda: defaultdict(list))

    def note(self, partition: int, now: float, records: int) -> None:
        """Records of a partition were seen."""
        self.arrivals[partition].append((now, records))

    def has_all_after(self, moment: float, partitions: int) -> bool:
        """Whether every partition had an output since that moment."""
        last = [arrivals[-1][0] for arrivals in self.arrivals.values() if arrivals]
        return len(last) == partitions and min(last) > moment

    def waits(self, partition: int, start: float, end: float) -> list[float]:
        """The times between two arrivals of a partition that reach into [start, end].

        The first begins before `start`, if anything came before; the last ends at `end`, unless
        something came later.
        """
        seen = [now for now, _ in self.arrivals.get(partition, ())]
        before = [now for now in seen if now <= start][-1:] or [start]
        within = [now for now in seen if start < now <= end]
        after = [now for now in seen if now > end][:1] or [end]
        marks = [*before, *within, *after]
        return [later - earlier for earlier, later in itertools.pairwise(marks)]

    def longest_wait(self, partitions: Iterable[int], start: float, end: float) -> float:
        """The longest time that one of these partitions was without an output."""
        return max((max(self.waits(each, start, end)) for each in partitions), default=0.0)

    def late_partitions(self, partitions: Iterable[int], start: float, end: float) -> list[int]:
        """Those whose longest wait is more than half of the longest of all."""
        waits = {each: self.longest_wait([each], start, end) for each in partitions}
        most = max(waits.values(), default=0.0)
        return [each for each, wait in waits.items() if wait > most / 2]

    def rate(
        self, partitions: Iterable[int], start: float, end: float, *, step: float
    ) -> list[tuple[float, float]]:
        """Records per second in steps of time, as (seconds since `start`, rate)."""
        sums = [0] * int((end - start) / step)
        for partition in partitions:
            for now, records in self.arrivals.get(partition, ()):
                index = int((now - start) / step)
                if now >= start and index < len(sums):
                    sums[index] += records
        return [(index * step, records / step) for index, records in enumerate(sums)]


def missed_batches(longest_wait: float, batch_seconds: float) -> float:
    """How many batches a wait is longer than the one that is always between two outputs.

    >>> missed_batches(0.6, 0.2)
    2.0
    >>> missed_batches(0.15, 0.2)
    0.0
    """
    return round(max(0.0, longest_wait / batch_seconds - 1), 3)


def percentile_lag(
    samples: Mapping[float, Sequence[int]], start: float, end: float, *, percent: int
) -> float:
    """The lag that this share of all copies' samples in [start, end] does not exceed."""
    found = [lag for at, lags in samples.items() if start <= at <= end for lag in lags]
    if len(found) < 2:
        return float(sum(found))
    return statistics.quantiles(found, n=100, method="inclusive")[percent - 1]
