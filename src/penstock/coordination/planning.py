"""Which ranges are read next, and in which jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.coordination.ids import Position, Range, TaskId
from penstock.processors import WALL_CLOCK_DUE


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """What the planner needs to know of a task that no job is running for."""

    task: TaskId
    position: Position
    due: float
    """Not before this time, in seconds of the caller's clock."""
    bytes_per_record: float
    alone: bool
    """Its last job failed: it gets a job of its own, so that it holds up nobody."""
    until: Position = field(default_factory=dict)
    """Of a task that reads its input again: no slice goes over where it stood before."""
    tick: bool = False
    """A timer of its processors is due: it is run even if it has no records."""


@dataclass(frozen=True, kw_only=True)
class PlanLimits:
    """How large a slice, and how many jobs at once."""

    records_max: int
    bytes_max: int
    jobs_max: int


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The ranges of one task that are processed and committed together; a tick has none."""

    task: TaskId
    ranges: tuple[Range, ...]
    more: frozenset[tuple[str, int]] = frozenset()
    """Inputs that have more in Kafka than their range: what comes next there is not known."""

    @property
    def records(self) -> int:
        """How many offsets the ranges span; markers make the number of records smaller."""
        return sum(each.end - each.start for each in self.ranges)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One Spark job: a slice for each of several tasks of one sub-topology."""

    sub_topology: int
    slices: tuple[Slice, ...]

    @property
    def records(self) -> int:
        """How many offsets the whole batch spans."""
        return sum(each.records for each in self.slices)


Ends = Mapping[tuple[str, int], int]
"""The last stable offset of each input partition, by topic and partition."""


SMALL_RECORDS = 20_000
"""A job over fewer records costs mostly its own start. With half of it, the tasks of an application
that reads 20,000 records a second on two cores fell out of step by one failover, and stayed so."""
JOIN_SECONDS = 2.0
"""How long tasks wait for a small job: one that hangs must not hold them up. Not less: on a busy
machine three jobs side by side took three times as long as one for all, and so kept it busy."""


def joining(running: Iterable[tuple[Batch, float]], *, now: float) -> Counter[int]:
    """By sub-topology, how many tasks are in small jobs that have not run for long.

    As many ready tasks, or fewer, wait for those and share their next job. Without this, tasks that
    once fell out of step (an instance was lost) would have jobs of their own for ever, each at the
    price of one that serves all. More do not wait: the job of one that fell behind holds up nobody.
    """
    tasks: Counter[int] = Counter()
    for batch, started in running:
        if batch.records < SMALL_RECORDS and now - started < JOIN_SECONDS:
            tasks[batch.sub_topology] += len(batch.slices)
    return tasks


def tick_is_due(metadata: Mapping[str, str], *, now_ms: int) -> bool:
    """Whether a task with users' processors is to be run though it may have no records.

    One that was never run is: `init` has not scheduled anything yet. After that, each run says when
    the next is due.

    >>> tick_is_due({}, now_ms=5), tick_is_due({"wall-clock-due": "6"}, now_ms=5)
    (True, False)
    """
    due = metadata.get(WALL_CLOCK_DUE)
    return due is None or int(due) <= now_ms


def plan(
    tasks: Iterable[TaskView],
    ends: Ends,
    *,
    now: float,
    running_jobs: int,
    limits: PlanLimits,
    ahead: Mapping[int, int] = MappingProxyType({}),
    moving: Collection[int] = (),
) -> list[Batch]:
    """The jobs to start now.

    Tasks of a sub-topology share a job while there is little to do, for a job has a price of its
    own. A task that is far behind gets its own, so that those that keep up never wait for it.
    `ahead` is how many tasks of each sub-topology are waited for, to share their next job: see
    `joining`. Those in `moving` wait too, for a task that is on its way to another owner.
    """
    free = limits.jobs_max - running_jobs
    together: dict[int, list[Slice]] = {}
    oldest: dict[int, float] = {}
    batches: list[tuple[float, Batch]] = []
    for view in sorted(tasks, key=lambda each: (each.due, each.task)):
        piece = _next_slice(view, ends, limits) if view.due <= now else None
        if piece is None:
            continue
        number = view.task.sub_topology
        if view.alone or piece.records >= _far_behind(limits):
            batches.append((view.due, Batch(sub_topology=number, slices=(piece,))))
        else:
            together.setdefault(number, []).append(piece)
            oldest.setdefault(number, view.due)
    for number, pieces in sorted(together.items()):
        if len(pieces) <= ahead.get(number, 0) or number in moving:
            continue
        batches.append((oldest[number], Batch(sub_topology=number, slices=tuple(pieces))))
    # Who waits longest goes first. With any other order, tasks that are quickly ready again take
    # every free slot, and the rest wait for ever.
    batches.sort(key=lambda each: each[0])
    return [batch for _, batch in batches[: max(free, 0)]]


def _far_behind(limits: PlanLimits) -> int:
    return max(limits.records_max // 4, 1)


def _next_slice(view: TaskView, ends: Ends, limits: PlanLimits) -> Slice | None:
    """As much as is there, shared evenly between the inputs up to the limits; else a tick."""
    by_bytes = int(limits.bytes_max / max(view.bytes_per_record, 1.0))
    available = [
        Range(topic, partition, start, _end(view, ends, topic, partition, start))
        for topic, partitions in sorted(view.position.items())
        for partition, start in sorted(partitions.items())
    ]
    available = [each for each in available if each.end > each.start]
    if not available:
        return Slice(task=view.task, ranges=()) if view.tick else None
    share = max(1, min(limits.records_max, by_bytes) // len(available))
    ranges = tuple(each._replace(end=min(each.end, each.start + share)) for each in available)
    more = frozenset(
        (each.topic, each.partition)
        for each, there in zip(ranges, available, strict=True)
        if each.end < there.end
    )
    return Slice(task=view.task, ranges=ranges, more=more)


def _end(view: TaskView, ends: Ends, topic: str, partition: int, start: int) -> int:
    end = ends.get((topic, partition), start)
    until = view.until.get(topic, {}).get(partition)
    return end if until is None else min(end, until)
