"""Which tasks are between two owners, and what is said of it."""

from __future__ import annotations

from penstock.coordination.assignment import Move, Role, Why
from penstock.coordination.ids import TaskId
from penstock.coordination.rebalances import Rebalances, moving_owners

A, B, C = (TaskId(0, partition) for partition in range(3))


def move(
    task: TaskId, target: str, *, source: str = "", role: Role = "active", why: Why = "unowned"
) -> Move:
    return Move(task=task, role=role, source=source, target=target, why=why)


def started() -> Rebalances:
    """Two instances that serve three tasks."""
    rebalances = Rebalances([A, B, C], why="of the first start")
    rebalances.move([move(A, "i1"), move(B, "i2"), move(C, "i1")], number=1)
    for task in (A, B, C):
        rebalances.served(task)
    return rebalances


def moving(rebalances: Rebalances) -> set[TaskId]:
    return {task for task in (A, B, C) if rebalances.is_moving(task)}


def test_the_first_start_is_over_when_every_task_is_served() -> None:
    rebalances = Rebalances([A, B, C], why="of the first start")
    rebalances.note("instance i1 joined")
    assert not rebalances.is_settled
    first = rebalances.move([move(A, "i1"), move(B, "i2"), move(C, "i1")], number=1)
    told = "Rebalance 1, because of the first start: 0_0, 0_2 to i1; 0_1 to i2"
    assert str(first) == told
    assert rebalances.has_begun
    rebalances.served(A)
    rebalances.served(B)
    assert moving(rebalances) == {C}
    assert not rebalances.is_settled
    rebalances.served(C)
    assert rebalances.is_settled


def test_a_lost_instance_moves_its_tasks_and_no_other() -> None:
    rebalances = started()
    rebalances.note("instance i1 was lost")
    rebalances.lose("i1", [A, C])
    assert rebalances.unowned == {A, C}
    assert not rebalances.is_settled
    second = rebalances.move([move(A, "i2"), move(C, "i2")], number=2)
    told = "Rebalance 2, because instance i1 was lost: 0_0, 0_2 from i1 to i2"
    assert str(second) == told
    assert moving(rebalances) == {A, C}
    assert second is not None
    assert moving_owners(second.moves, {B: "i2"}) == {}


def test_tasks_without_any_instance_wait_and_all_that_happened_is_why() -> None:
    rebalances = started()
    rebalances.note("instance i1 was lost")
    rebalances.lose("i1", [A, C])
    rebalances.note("instance i2 was lost")
    rebalances.lose("i2", [B])
    assert rebalances.move([], number=2) is None
    assert not rebalances.is_settled
    rebalances.note("instance i3 joined")
    second = rebalances.move([move(A, "i3"), move(B, "i3"), move(C, "i3")], number=2)
    assert second is not None
    assert second.why == ("instance i1 was lost", "instance i2 was lost", "instance i3 joined")
    assert [(each.source, each.target) for each in second.moves] == [
        ("i1", "i3"),
        ("i2", "i3"),
        ("i1", "i3"),
    ]


def test_who_joins_and_gets_nothing_is_not_why_something_happens_later() -> None:
    rebalances = started()
    rebalances.note("instance i3 joined")
    assert rebalances.move([], number=2) is None
    assert rebalances.is_settled
    rebalances.note("instance i2 left")
    rebalances.lose("i2", [B])
    second = rebalances.move([move(B, "i3")], number=2)
    assert second is not None
    assert second.why == ("instance i2 left",)


def test_a_task_that_its_owner_lost_and_gets_again_is_taken_anew() -> None:
    rebalances = started()
    rebalances.lose("i2", [B])
    second = rebalances.move([move(B, "i2")], number=2)
    assert second is not None
    assert [each.task for each in second.moves] == [B]
    assert moving(rebalances) == {B}


def test_tasks_that_are_followed_elsewhere_are_told_of_and_go_on() -> None:
    rebalances = started()
    rebalances.note("instance i3 joined")
    moves = [
        move(A, "i3", source="i1", role="warm_up", why="balance"),
        move(B, "i3", source="i1", role="standby", why="balance"),
        move(C, "i2", source="i1", why="balance"),
    ]
    second = rebalances.move(moves, number=2)
    assert str(second) == (
        "Rebalance 2, because instance i3 joined: 0_0 as warm-up to i3; "
        "0_1 as standby from i1 to i3; 0_2 from i1 to i2"
    )
    assert moving(rebalances) == {C}
    assert second is not None
    assert moving_owners(second.moves, {A: "i1", B: "i2", C: "i1"}) == {C: "i2"}


def test_tasks_that_stay_may_stop_for_a_while() -> None:
    rebalances = started()
    rebalances.stop([A, B])
    assert moving(rebalances) == {A, B}
    rebalances.lose("i1", [A])
    assert moving(rebalances) == {B}
