"""When copies of tasks' state begin to be built: not while a lost instance is being replaced."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.coordination.ids import TaskId
from penstock.coordination.placements import Following, Lags

REPLACED_SECONDS = 10.0
"""How long at most: a child is back within a few seconds, and its disk has most of the state."""
AGAIN_SECONDS = 60.0
"""From one such wait to the next: who dies again and again does not keep others from it."""


class Beginnings:
    """Lets instances go on to follow what they do, and holds back what they would begin with.

    When an instance is lost, those that are left take over its tasks, and are to follow others in
    its place. Gibibytes were copied for that beside the first slices of the tasks that had been
    taken over, and for nothing: two seconds later the replacement was there, with all of it.
    """

    def __init__(self) -> None:
        self._begun: Following = {}
        self._since: float | None = None
        self._last: float | None = None

    def may_follow(self, following: Following, *, replacing: bool, now: float) -> Following:
        """Who is to follow what at this moment.

        >>> from penstock.coordination.ids import TaskId
        >>> first, second = TaskId(0, 0), TaskId(0, 1)
        >>> beginnings = Beginnings()
        >>> both = {"a": frozenset({first, second})}
        >>> _ = beginnings.may_follow({"a": frozenset({first})}, replacing=False, now=0.0)
        >>> beginnings.may_follow(both, replacing=True, now=1.0) == {"a": {first}}
        True
        >>> beginnings.may_follow(both, replacing=False, now=2.0) == both
        True
        """
        begun = {
            name: tasks & self._begun.get(name, frozenset()) for name, tasks in following.items()
        }
        if begun == following or not replacing or not self._may_wait(now):
            self._since = None
            begun = dict(following)
        self._begun = begun
        return begun

    def followed(
        self,
        owners: Mapping[TaskId, str],
        lags: Lags,
        catching_up: Collection[tuple[str, TaskId]],
    ) -> list[TaskId]:
        """The tasks that their new owners followed, and so have in a moment.

        >>> from penstock.coordination.ids import TaskId
        >>> task, beginnings = TaskId(0, 0), Beginnings()
        >>> _ = beginnings.may_follow({"a": frozenset({task})}, replacing=False, now=0.0)
        >>> beginnings.followed({task: "a"}, {"a": {task: 7}}, []) == [task]
        True
        >>> beginnings.followed({task: "a"}, {"a": {task: 7}}, [("a", task)])
        []
        """
        return [
            task
            for task, owner in owners.items()
            if task in self._begun.get(owner, ()) and task in lags.get(owner, ())
            if (owner, task) not in catching_up
        ]

    def are_due(self, *, replacing: bool, now: float) -> bool:
        """Whether something was held back that need not be any longer."""
        return self._since is not None and not (replacing and self._may_wait(now))

    def _may_wait(self, now: float) -> bool:
        if self._since is None:
            if self._last is not None and now - self._last < AGAIN_SECONDS:
                return False
            self._since = self._last = now
        return now - self._since < REPLACED_SECONDS
