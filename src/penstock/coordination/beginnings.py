"""When copies of tasks' state begin to be built: not while a lost instance is being replaced."""

from __future__ import annotations

from penstock.coordination.placements import Following

REPLACED_SECONDS = 10.0
"""How long at most: a child is back within a few seconds, and its disk has most of the state."""


class Beginnings:
    """Lets instances go on to follow what they do, and holds back what they would begin with.

    When an instance is lost, those that are left take over its tasks, and are to follow others in
    its place. Gibibytes were copied for that beside the first slices of the tasks that had been
    taken over, and for nothing: two seconds later the replacement was there, with all of it.
    """

    def __init__(self) -> None:
        self._begun: Following = {}
        self._since: float | None = None

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
        if not replacing or not self._may_wait(now):
            self._since = None
            self._begun = following
            return following
        self._begun = {
            name: tasks & self._begun.get(name, frozenset()) for name, tasks in following.items()
        }
        return self._begun

    def are_due(self, *, replacing: bool, now: float) -> bool:
        """Whether something was held back that need not be any longer."""
        return self._since is not None and not (replacing and self._may_wait(now))

    def _may_wait(self, now: float) -> bool:
        if self._since is None:
            self._since = now
        return now - self._since < REPLACED_SECONDS
