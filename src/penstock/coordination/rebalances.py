"""Rebalances: why they happen, what they move, and whether one is under way.

A task that its owner takes anew, because a commit's outcome is unknown or because a static member
came back, does not move: that is no rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.coordination.assignment import Move
from penstock.coordination.ids import TaskId


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """Tasks that got other places at the same time, and why."""

    number: int
    why: tuple[str, ...]
    moves: tuple[Move, ...]

    @property
    def active_moves(self) -> tuple[Move, ...]:
        """The tasks that got another owner."""
        return tuple(move for move in self.moves if move.role == "active")

    def __str__(self) -> str:
        """One line for people.

        >>> lost = [
        ...     Move(task=TaskId(0, n), role="active", source="a", target="b", why="unowned")
        ...     for n in (0, 1)
        ... ]
        >>> copy = Move(task=TaskId(0, 1), role="warm_up", source="b", target="c", why="balance")
        >>> print(Rebalance(number=2, why=("instance a was lost",), moves=(*lost, copy)))
        Rebalance 2, because instance a was lost: 0_0, 0_1 from a to b; 0_1 as warm-up to c
        """
        ways: dict[str, list[str]] = {}
        for move in self.moves:
            ways.setdefault(_way(move), []).append(str(move.task))
        told = [f"{', '.join(tasks)} {way}" for way, tasks in ways.items()]
        return f"Rebalance {self.number}, because {', '.join(self.why)}: {'; '.join(told)}"


def moving_owners(moves: Iterable[Move], owners: Mapping[TaskId, str]) -> dict[TaskId, str]:
    """The new owners of tasks that have one who serves them until then."""
    return {
        move.task: move.target for move in moves if move.role == "active" and move.task in owners
    }


def new_moves(
    moves: Iterable[Move], waiting: Mapping[TaskId, str], owners: Mapping[TaskId, str]
) -> tuple[Move, ...]:
    """Those that were not decided before.

    `waiting` has the new owners of tasks that have not gone to them yet: until then they are in
    every answer again, and so is the old owner, if there is one, as the one who is to follow them.

    >>> there = Move(task=TaskId(0, 1), role="active", source="a", target="b", why="balance")
    >>> back = Move(task=TaskId(0, 1), role="standby", source="b", target="a", why="balance")
    >>> new_moves([there, back], {TaskId(0, 1): "b"}, {TaskId(0, 1): "a"})
    ()
    """
    moves = tuple(moves)
    same = {
        move.task
        for move in moves
        if move.role == "active" and waiting.get(move.task) == move.target
    }
    return tuple(
        move
        for move in moves
        if move.task not in same or (move.role != "active" and move.target != owners.get(move.task))
    )


def _way(move: Move) -> str:
    if move.role == "warm_up":
        return f"as warm-up to {move.target}"
    role = "" if move.role == "active" else "as standby "
    source = f"from {move.source} " if move.source else ""
    return f"{role}{source}to {move.target}"


class Rebalances:
    """Which tasks are between two owners; none has one at first, and `why` is why they get one."""

    def __init__(self, tasks: Iterable[TaskId], *, why: str) -> None:
        self._unowned = dict.fromkeys(tasks, "")
        """By task, who owned it last."""
        self._moving: set[TaskId] = set()
        self._why = [why]
        self._begun = False

    @property
    def has_begun(self) -> bool:
        """Whether tasks were given to members at all."""
        return self._begun

    @property
    def unowned(self) -> frozenset[TaskId]:
        """The tasks that have no owner."""
        return frozenset(self._unowned)

    def note(self, why: str) -> None:
        """Something happened that may be why the next rebalance does; not if it is the first.

        Once is enough, however often it happens until then.
        """
        if self._begun and why not in self._why:
            self._why.append(why)

    def lose(self, owner: str, tasks: Iterable[TaskId]) -> None:
        """These tasks have no owner now."""
        for task in tasks:
            self._unowned[task] = owner
            self._moving.discard(task)

    def move(self, moves: Iterable[Move], *, number: int) -> Rebalance | None:
        """This was decided; the rebalance that it is, if anything moves."""
        told = tuple(
            replace(move, source=self._unowned[move.task])
            if move.role == "active" and move.task in self._unowned
            else move
            for move in moves
        )
        if not told:
            if not self._unowned:
                self._why.clear()
            return None
        why, self._why = tuple(self._why), []
        self._begun = True
        for each in told:
            if each.role == "active":
                self._unowned.pop(each.task, None)
                self._moving.add(each.task)
        return Rebalance(number=number, why=why, moves=told)

    def stop(self, tasks: Iterable[TaskId]) -> None:
        """These tasks stay, and are not served for a while all the same."""
        self._moving.update(tasks)

    def served(self, task: TaskId) -> None:
        """The task's owner serves it."""
        self._moving.discard(task)

    def is_moving(self, task: TaskId) -> bool:
        """Whether the task's new owner does not serve it yet."""
        return task in self._moving

    @property
    def is_settled(self) -> bool:
        """Whether every task has an owner that serves it, or did since it got it."""
        return not self._unowned and not self._moving
