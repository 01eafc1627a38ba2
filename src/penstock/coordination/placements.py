"""When it is to be decided anew who holds which task, and what was decided last.

An assignor is asked when members come or go; and, while tasks wait for copies of their state, when
one of these has caught up, and once in each probing interval.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.coordination.assignment import (
    RUNNING,
    Assignment,
    AssignmentOptions,
    MemberFacts,
    TaskAssignor,
    TaskFacts,
)
from penstock.coordination.assignors import decide
from penstock.coordination.ids import TaskId

Lags = Mapping[str, Mapping[TaskId, int]]
"""By member, how much of each task's changelogs its copy lacks."""
Following = Mapping[str, frozenset[TaskId]]
"""By member, the tasks that it is to follow."""


def lags_to_take(
    lags: Lags,
    catching_up: Collection[tuple[str, TaskId]],
    records: Mapping[TaskId, int],
    *,
    acceptable: int,
) -> Lags:
    """The lags by which it is decided who can take a task.

    A copy that is still catching up does not count as one that has, however little it lacks:
    whoever took the task now would cut that off, and close and open its stores, while nobody is
    served. In a moment it follows, and hands over what is open.

    >>> task = TaskId(0, 0)
    >>> found = lags_to_take({"a": {task: 3}}, [("a", task)], {task: 50_000}, acceptable=10_000)
    >>> found["a"][task]
    10001
    """
    raised = {name: dict(each) for name, each in lags.items()}
    for name, task in catching_up:
        if task in raised.get(name, {}):
            # Of a short changelog nothing is needed.
            least = min(records.get(task, 0), acceptable + 1)
            raised[name][task] = max(raised[name][task], least)
    return raised


@dataclass(frozen=True, kw_only=True)
class Present:
    """What is known when a decision is made."""

    members: Mapping[str, Mapping[str, str]]
    """Those who can be given tasks, with their tags."""
    capacities: Mapping[str, int] = field(default_factory=dict)
    """Of those who can take more than one task for each of the others'."""
    owners: Mapping[TaskId, str]
    """Also owners that are away for a while, and keep their tasks."""
    lags: Lags = field(default_factory=dict)
    records: Mapping[TaskId, int] = field(default_factory=dict)
    """How many records the changelogs of each task have."""


class Placements:
    """Decides who holds what. Time and facts come in; nothing here waits or asks."""

    def __init__(
        self,
        tasks: Iterable[TaskFacts],
        assignor: TaskAssignor,
        options: AssignmentOptions,
        *,
        probing_seconds: float,
    ) -> None:
        self._tasks = {each.task: each for each in tasks}
        self._assignor = assignor
        self._options = options
        self._probing_seconds = probing_seconds
        self._probe_at: float | None = None
        self._changed = True
        self._decided_for: dict[str, tuple[int, Mapping[str, str]]] = {}
        self._following: dict[str, frozenset[TaskId]] = {}
        self._warming: frozenset[tuple[str, TaskId]] = frozenset()
        self._behind: set[tuple[str, TaskId]] = set()
        """Copies for which tasks wait."""

    @property
    def following(self) -> Following:
        """Who is to follow what."""
        return self._following

    @property
    def warming(self) -> frozenset[tuple[str, TaskId]]:
        """Which of those are to take over what they follow, once they have caught up."""
        return self._warming

    @property
    def has_changed(self) -> bool:
        """Whether members came or went since the last decision."""
        return self._changed

    def change(self) -> None:
        """Members came or went."""
        self._changed = True

    def come_back(self, name: str, *, capacity: int, tags: Mapping[str, str]) -> bool:
        """A member that was away is back; whether it is to be decided anew because of that.

        It is if it was decided without it meanwhile: its tasks did not count, and others may have
        joined that are to have some. And if it can take more or less now, or is elsewhere.
        """
        if self._decided_for.get(name) != (capacity, tags):
            self._changed = True
        return self._changed

    def why_due(self, now: float, lags: Lags) -> str | None:
        """Why it is to be decided now, in words; None if it is not.

        Empty if members came or went, which is told by whoever noticed.
        """
        if self._changed:
            return ""
        for name, task in sorted(self._behind):
            lag = lags.get(name, {}).get(task)
            if lag is not None and lag <= self._options.acceptable_recovery_lag:
                return f"instance {name} has caught up with {task}"
        if self._probe_at is not None and now >= self._probe_at:
            return "the probing interval is over"
        return None

    def decide(self, now: float, present: Present) -> Assignment:
        """Ask the assignor. Raises `AssignmentError` if its answer cannot be done."""
        fixed = self._fixed(present)
        tasks = [
            replace(each, changelog_records=present.records.get(task, 0))
            for task, each in self._tasks.items()
            if task not in fixed
        ]
        members = [self._member(name, present, fixed) for name in sorted(present.members)]
        answer = decide(self._assignor, tasks, members, self._options)
        self._changed = False
        self._decided_for = {
            name: (present.capacities.get(name, 1), tags) for name, tags in present.members.items()
        }
        self._probe_at = now + self._probing_seconds if answer.probing else None
        self._following = self._next_following(answer, present.members, fixed)
        self._warming = frozenset(
            (name, task) for name, held in answer.members.items() for task in held.warm_up
        )
        # Where an owner and its standby are to change places, it is the standby that must catch up.
        # Those that had done so before were no help: only the interval asks again.
        self._behind = {
            (name, task)
            for name, held in answer.members.items()
            for task in (held.standby | held.warm_up if answer.probing else ())
            if present.lags.get(name, {}).get(task, present.records.get(task, 0))
            > self._options.acceptable_recovery_lag
        }
        return answer

    def _fixed(self, present: Present) -> frozenset[TaskId]:
        """Tasks that stay: their owner is expected back, or their state exists there only."""
        return frozenset(
            task
            for task, owner in present.owners.items()
            if owner not in present.members
            or (self._tasks[task].stateful and not self._tasks[task].standbys)
        )

    def _member(self, name: str, present: Present, fixed: Collection[TaskId]) -> MemberFacts:
        active = frozenset(
            task for task, owner in present.owners.items() if owner == name and task not in fixed
        )
        lags = {task: lag for task, lag in present.lags.get(name, {}).items() if task not in fixed}
        return MemberFacts(
            name=name,
            capacity=present.capacities.get(name, 1),
            tags=present.members[name],
            active=active,
            standby=self._following.get(name, frozenset()) - active - set(fixed),
            lags={**lags, **dict.fromkeys(active, RUNNING)},
        )

    def _next_following(
        self, answer: Assignment, members: Collection[str], fixed: Collection[TaskId]
    ) -> dict[str, frozenset[TaskId]]:
        following = {}
        for name in {*self._following, *answer.members}:
            held = answer.members.get(name)
            kept = self._following.get(name, frozenset())
            if held is None:
                # One that is away follows again what it did when it is back.
                following[name] = kept if name not in members else frozenset()
            else:
                following[name] = (kept & set(fixed)) | held.standby | held.warm_up
        return {name: tasks for name, tasks in following.items() if tasks}

    def lose(self, name: str) -> None:
        """A member is gone for good."""
        self._following.pop(name, None)
        self._changed = True
