"""Progress as the broker sees it: the consumer group's committed offsets, sampled over time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaException, TopicPartition

from bench import clients
from bench.errors import BenchError
from bench.load import PARTITIONS

SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Sample:
    """At `seconds` on a monotonic clock, `records` of the input were committed."""

    seconds: float
    records: int


class Alive(Protocol):
    """Raises when the system that is measured has ended."""

    def check(self) -> None: ...


def rate(samples: list[Sample], *, warmup: int, measured: int) -> float:
    """Records per second, from the first sample past the warm-up to the first past the measured.

    Both ends are commits that were seen, so records committed beyond an end count on both sides.
    """
    begin = first_at(samples, warmup)
    end = first_at(samples, warmup + measured)
    if end.seconds <= begin.seconds:
        raise BenchError(
            "the measured part was committed at once: use more records (--records) or a smaller "
            "warm-up"
        )
    return (end.records - begin.records) / (end.seconds - begin.seconds)


def first_at(samples: list[Sample], records: int) -> Sample:
    """The first sample with at least so many records committed."""
    for sample in samples:
        if sample.records >= records:
            return sample
    raise BenchError(f"{records} records were never committed: only {samples[-1:]} was seen")


class CommittedOffsets:
    """The committed offsets of a group on its topics, over one connection, joining nothing."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        group: str,
        topics: Iterable[str],
        partitions: int = PARTITIONS,
    ) -> None:
        self._consumer = clients.consumer(
            bootstrap_servers,
            group=group,
            # read_committed would wait for a pending transaction instead of answering.
            isolation_level="read_uncommitted",
        )
        self._partitions = [
            TopicPartition(topic, number) for topic in topics for number in range(partitions)
        ]

    def records(self) -> int:
        """The sum over the partitions; nothing committed yet, or no answer in 5 s, is 0."""
        try:
            committed = self._consumer.committed(self._partitions, timeout=5)
        except KafkaException:
            # The group's coordinator is still loading, or not yet elected.
            return 0
        return sum(max(partition.offset, 0) for partition in committed)

    def close(self) -> None:
        self._consumer.close()


def sample_until(
    records: Callable[[], int],
    total: int,
    *,
    alive: Alive,
    stall_seconds: float,
    on_progress: Callable[[int], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Sample]:
    """Sample until all records are committed; raise when the system ends or stands still."""
    samples = [Sample(clock(), 0)]
    while samples[-1].records < total:
        now = clock()
        seen = records()
        # The clock is read before the request: the offsets are at least as new as the time.
        if seen > samples[-1].records:
            samples.append(Sample(now, seen))
            on_progress(seen)
        elif now - samples[-1].seconds > stall_seconds:
            raise BenchError(
                f"no commit for {stall_seconds:.0f} s, at {samples[-1].records} of {total} records"
            )
        alive.check()
        sleep(max(0.0, SAMPLE_SECONDS - (clock() - now)))
    return samples
