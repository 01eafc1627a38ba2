"""Which jobs are started: nobody waits for ever, and what failed takes no other task with it."""

from __future__ import annotations

from dataclasses import replace

from penstock.coordination.ids import Range, TaskId
from penstock.coordination.planning import (
    JOIN_SECONDS,
    SMALL_RECORDS,
    Batch,
    PlanLimits,
    Slice,
    TaskView,
    joining,
    plan,
)

LIMITS = PlanLimits(records_max=400, bytes_max=1_000_000, jobs_max=2)
FAR_BEHIND = 10_000


def view(partition: int, *, due: float, alone: bool = False, tick: bool = False) -> TaskView:
    return TaskView(
        task=TaskId(0, partition),
        position={"in": {partition: 0}},
        due=due,
        bytes_per_record=1.0,
        alone=alone,
        tick=tick,
    )


def ends(*records: int) -> dict[tuple[str, int], int]:
    return {("in", partition): count for partition, count in enumerate(records)}


def tasks_of(*views: TaskView, records: tuple[int, ...], running: int = 0) -> list[list[int]]:
    batches = plan(views, ends(*records), now=10.0, running_jobs=running, limits=LIMITS)
    return [[piece.task.partition for piece in batch.slices] for batch in batches]


def test_tasks_with_little_to_do_share_a_job() -> None:
    assert tasks_of(view(0, due=1), view(1, due=2), records=(5, 5)) == [[0, 1]]


def test_a_task_whose_job_failed_gets_a_job_of_its_own() -> None:
    assert tasks_of(view(0, due=1), view(1, due=2, alone=True), records=(5, 5)) == [[0], [1]]


def test_no_task_waits_while_others_go_again_and_again() -> None:
    # One free slot: task 0 was served just now, task 1 has waited.
    alone = view(1, due=1, alone=True)
    assert tasks_of(view(0, due=2), alone, records=(5, 5), running=1) == [[1]]
    behind = view(1, due=1)
    assert tasks_of(view(0, due=2), behind, records=(5, FAR_BEHIND), running=1) == [[1]]


def test_nothing_is_planned_before_it_is_due_or_without_a_free_slot() -> None:
    assert tasks_of(view(0, due=11), records=(5,)) == []
    assert tasks_of(view(0, due=1), records=(5,), running=2) == []


def running(records: int, *, started: float) -> list[tuple[Batch, float]]:
    piece = Slice(task=TaskId(0, 0), ranges=(Range("in", 0, 0, records),))
    return [(Batch(sub_topology=0, slices=(piece,)), started)]


def beside(jobs: list[tuple[Batch, float]], *views: TaskView) -> list[list[int]]:
    """The tasks of the jobs that begin beside these; tasks 0 to 2 have something to read."""
    limits = replace(LIMITS, jobs_max=3)
    ahead = joining(jobs, now=10.0)
    batches = plan(
        views, ends(5, 5, 5, 0), now=10.0, running_jobs=len(jobs), limits=limits, ahead=ahead
    )
    return [[piece.task.partition for piece in batch.slices] for batch in batches]


def test_tasks_wait_for_a_small_job_to_share_the_next_one() -> None:
    assert beside(running(5, started=9.9), view(1, due=1)) == []
    # The one that failed does not wait: it is not to share.
    assert beside(running(5, started=9.9), view(1, due=1, alone=True)) == [[1]]


def test_many_do_not_wait_for_few() -> None:
    assert beside(running(5, started=9.9), view(1, due=1), view(2, due=1)) == [[1, 2]]
    # The others have nothing to read, and do not make it many.
    assert beside(running(5, started=9.9), view(1, due=1), view(3, due=1)) == []


def test_tasks_wait_for_those_that_move_to_share_their_job() -> None:
    there = ends(5)
    assert plan([view(0, due=1)], there, now=10.0, running_jobs=0, limits=LIMITS, moving={0}) == []
    assert plan([view(0, due=1)], there, now=10.0, running_jobs=0, limits=LIMITS, moving={1})


def test_tasks_do_not_wait_for_a_large_job_or_one_that_hangs() -> None:
    assert joining(running(SMALL_RECORDS, started=9.9), now=10.0) == {}
    assert joining(running(5, started=10.0 - JOIN_SECONDS), now=10.0) == {}


def test_a_task_whose_timer_is_due_is_run_without_records() -> None:
    views = [view(0, due=1, tick=True), view(1, due=1), view(2, due=11, tick=True)]
    [batch] = plan(views, ends(0, 0, 0), now=10.0, running_jobs=0, limits=LIMITS)
    assert [(piece.task.partition, piece.ranges) for piece in batch.slices] == [(0, ())]
    assert batch.records == 0


def test_a_tick_shares_the_job_of_tasks_with_records_and_has_none_of_its_own_beside_it() -> None:
    views = [view(0, due=1, tick=True), view(1, due=2, tick=True)]
    [batch] = plan(views, ends(0, 5), now=10.0, running_jobs=0, limits=LIMITS)
    # The task with records runs its timers with them.
    assert [len(piece.ranges) for piece in batch.slices] == [0, 1]
    assert batch.records == 5
