"""Tasks that go to an owner who has their state: others wait for them for a moment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from penstock.coordination.ids import TaskId
from penstock.coordination.tasks import TaskBook

FLIP_SECONDS = 0.6
"""How long at most: taking open stores lasts a few tenths of a second. With less, tasks that took
0.64 s on a busy machine missed a job of all others, and stood still for two."""


class Flips:
    """The tasks that were given away just now, and are not served yet.

    The next slice of each is to be in the job of all others: if that did not wait for it, the task
    would miss all of it.
    """

    def __init__(self, book: TaskBook) -> None:
        self._book = book
        self._begun: dict[TaskId, float] = {}

    def begin(self, tasks: Iterable[TaskId], now: float) -> None:
        """These are given to their new owners."""
        self._begun |= dict.fromkeys(tasks, now)

    def moving(self, now: float) -> set[int]:
        """The sub-topologies whose tasks wait for one of these."""
        self._begun = {
            task: at
            for task, at in self._begun.items()
            if now - at < FLIP_SECONDS and self._is_moving(task)
        }
        return {task.sub_topology for task in self._begun}

    def _is_moving(self, task: TaskId) -> bool:
        """Whether it is not served yet; the job of an owner that was lost may not have ended."""
        state = self._book.entries[task].state
        return state == "taking" or (state == "running" and self._book.has_moved(task))


PREPARE_AGAIN_SECONDS = 0.5
"""How soon one that could not be reached is told again to get ready."""


class Preparations:
    """Those who get ready to take tasks, while the owners of these go on.

    >>> task, preparations = TaskId(0, 0), Preparations()
    >>> preparations.begin({task: "b"}, now=1.0)
    {TaskId(sub_topology=0, partition=0): 'b'}
    >>> preparations.begin({task: "b"}, now=1.1), preparations.done({task: "b"})
    ({}, set())
    >>> preparations.end(task, "b")
    >>> preparations.done({task: "b"}) == {task}
    True

    One that cannot be reached does not get a task that another one serves, and is told again.

    >>> preparations.begin({task: "c"}, now=2.0)
    {TaskId(sub_topology=0, partition=0): 'c'}
    >>> preparations.miss(task, "c", now=2.1)
    >>> preparations.done({task: "c"}), preparations.begin({task: "c"}, now=2.5)
    (set(), {})
    >>> preparations.begin({task: "c"}, now=2.6)
    {TaskId(sub_topology=0, partition=0): 'c'}
    """

    def __init__(self) -> None:
        self._due: dict[tuple[TaskId, str], float] = {}
        """When each is to be told; infinity while it is told, and afterwards."""
        self._ready: set[tuple[TaskId, str]] = set()

    def begin(self, moves: Mapping[TaskId, str], now: float) -> dict[TaskId, str]:
        """These tasks are to move, and no others; who is to be told so now."""
        moving = list(moves.items())
        due = [each for each in moving if self._due.get(each, now) <= now]
        self._due = {each: math.inf if each in due else self._due[each] for each in moving}
        self._ready &= self._due.keys()
        return dict(due)

    def end(self, task: TaskId, owner: str) -> None:
        """The new owner is ready, or as ready as it will be."""
        if (task, owner) in self._due:
            self._ready.add((task, owner))

    def miss(self, task: TaskId, owner: str, now: float) -> None:
        """The new owner could not be told, did not answer, or stands still since."""
        if (task, owner) in self._due:
            self._due[task, owner] = now + PREPARE_AGAIN_SECONDS
            self._ready.discard((task, owner))

    def done(self, moves: Mapping[TaskId, str]) -> set[TaskId]:
        """The tasks that may move now."""
        return {task for task, owner in moves.items() if (task, owner) in self._ready}
