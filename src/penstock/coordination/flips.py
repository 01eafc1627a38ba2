"""Tasks that go to an owner who has their state: others wait for them for a moment."""

from __future__ import annotations

from collections.abc import Iterable

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
