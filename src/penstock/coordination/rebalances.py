"""Rebalances: why they happen, which tasks they move, and whether one is under way.

A task that its owner takes anew, because a commit's outcome is unknown or because a static member
came back, does not move: that is no rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.coordination.ids import TaskId


@dataclass(frozen=True, kw_only=True)
class Move:
    """A task that goes from one owner to another; it had none before if `old` is empty."""

    task: TaskId
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """Tasks that got other owners at the same time, and why."""

    number: int
    why: tuple[str, ...]
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        """One line for people.

        >>> moves = [Move(task=TaskId(0, n), old="a", new="b") for n in (0, 1)]
        >>> print(Rebalance(number=2, why=("instance a was lost",), moves=tuple(moves)))
        Rebalance 2, because instance a was lost: 0_0, 0_1 from a to b
        """
        ways: dict[tuple[str, str], list[str]] = {}
        for move in self.moves:
            ways.setdefault((move.old, move.new), []).append(str(move.task))
        told = [
            f"{', '.join(tasks)} {f'from {old} ' if old else ''}to {new}"
            for (old, new), tasks in ways.items()
        ]
        return f"Rebalance {self.number}, because {', '.join(self.why)}: {'; '.join(told)}"


class Rebalances:
    """Which tasks are between two owners; none has one at first, and `why` is why they get one."""

    def __init__(self, tasks: Iterable[TaskId], *, why: str) -> None:
        self._owners = dict.fromkeys(tasks, "")
        self._unowned = set(self._owners)
        self._moving: set[TaskId] = set()
        self._why = [why]
        self._begun = False

    def note(self, why: str) -> None:
        """Something happened that may be why the next rebalance does; not if it is the first."""
        if self._begun:
            self._why.append(why)

    def lose(self, tasks: Iterable[TaskId]) -> None:
        """These tasks have no owner now."""
        self._unowned.update(tasks)

    def move(self, owners: Mapping[TaskId, str], *, number: int) -> Rebalance | None:
        """These are the owners now; the rebalance that this is, if any task has another one.

        An owner that lost a task and gets it again counts as another: it takes it anew.
        """
        moves = tuple(
            Move(task=task, old=self._owners[task], new=new)
            for task, new in sorted(owners.items())
            if task in self._unowned or self._owners[task] != new
        )
        if not moves:
            if not self._unowned:
                self._why.clear()
            return None
        why, self._why = tuple(self._why), []
        self._begun = True
        for each in moves:
            self._owners[each.task] = each.new
            self._unowned.discard(each.task)
            self._moving.add(each.task)
        return Rebalance(number=number, why=why, moves=moves)

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
