"""Who has how much of each task's state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.coordination.assignment import MemberFacts, TaskFacts
from penstock.coordination.ids import TaskId


class Lags:
    """How many records of a task's changelogs each member lacks, and whether that is few enough.

    Most members know nothing of most tasks, so those who said something are kept by task.
    """

    def __init__(
        self, tasks: Iterable[TaskFacts], members: Sequence[MemberFacts], *, acceptable: int
    ) -> None:
        self._acceptable = acceptable
        self._lengths = {each.task: each.changelog_records for each in tasks if each.followed}
        self._names = [member.name for member in members]
        self._told: dict[TaskId, dict[str, int]] = {task: {} for task in self._lengths}
        for member in members:
            for task, lag in member.lags.items():
                if task in self._told:
                    self._told[task][member.name] = lag

    def lag(self, name: str, task: TaskId) -> int:
        """What the member lacks; nothing of a task that has nothing to follow."""
        if task not in self._told:
            return 0
        return self._told[task].get(name, self._lengths[task])

    def caught_up(self, name: str, task: TaskId) -> bool:
        """Whether the member may serve the task without a long restore."""
        return self.lag(name, task) <= self._acceptable

    def short(self, task: TaskId) -> bool:
        """Whether even a member without any of its state may."""
        return self._lengths.get(task, 0) <= self._acceptable

    def all_caught_up(self, task: TaskId) -> list[str]:
        """Everyone who may."""
        told = self._told[task]
        if not self.short(task):
            return [name for name, lag in told.items() if lag <= self._acceptable]
        return [name for name in self._names if self.caught_up(name, task)]

    def behind(self, name: str, task: TaskId) -> bool:
        """Whether the member may not, and somebody else lacks less."""
        if self.caught_up(name, task):
            return False
        told, lag = self._told[task], self.lag(name, task)
        silent_lack_less = self._lengths[task] < lag and len(told) < len(self._names)
        return silent_lack_less or any(other < lag for other in told.values())

    def nearer(self, task: TaskId, than: str, *, or_equal: bool = False) -> list[str]:
        """Those who lack less than that member, the least first.

        With `or_equal` also those who lack as much and come before it by name.
        """
        limit = (self.lag(than, task), than if or_equal else "")
        told = self._told[task]
        found = [(lag, name) for name, lag in told.items() if (lag, name) < limit]
        length = self._lengths[task]
        if (length, "") < limit:
            silent = (name for name in self._names if name not in told)
            found += [(length, name) for name in silent if (length, name) < limit]
        return [name for _, name in sorted(found)]
