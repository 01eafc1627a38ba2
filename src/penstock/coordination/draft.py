"""An assignment in the making: who would hold what, and how loaded that makes them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.coordination.assignment import (
    AssignmentOptions,
    MemberFacts,
    MemberTasks,
    TaskFacts,
)
from penstock.coordination.ids import TaskId
from penstock.coordination.lags import Lags

Lack = tuple[int, bool, int]


@dataclass(slots=True, eq=False)
class Place:
    """A member, and what it would hold."""

    facts: MemberFacts
    active: set[TaskId] = field(default_factory=set)
    standby: set[TaskId] = field(default_factory=set)
    warm_up: set[TaskId] = field(default_factory=set)
    """Those of `standby` that wait to move here."""

    @property
    def name(self) -> str:
        """The member's name."""
        return self.facts.name

    @property
    def count(self) -> int:
        """All tasks, whatever their role."""
        return len(self.active) + len(self.standby)

    @property
    def load(self) -> float:
        """All tasks, for what it can take."""
        return self.count / self.facts.capacity

    def holds(self, task: TaskId) -> bool:
        """Whether it would have the task's state."""
        return task in self.active or task in self.standby

    def tasks(self) -> MemberTasks:
        """What it would hold, for the answer."""
        return MemberTasks(
            active=frozenset(self.active),
            standby=frozenset(self.standby - self.warm_up),
            warm_up=frozenset(self.warm_up),
        )


class Draft:
    """All members with what they would hold; `sticky` if what they have counts."""

    def __init__(
        self,
        tasks: Iterable[TaskFacts],
        members: Iterable[MemberFacts],
        options: AssignmentOptions,
        *,
        sticky: bool,
    ) -> None:
        in_order = sorted(members, key=lambda member: member.name)
        self.tasks = {each.task: each for each in sorted(tasks, key=lambda each: each.task)}
        self.places = {member.name: Place(member) for member in in_order}
        self.options = options
        self.sticky = sticky
        self.lags = Lags(self.tasks.values(), in_order, acceptable=options.acceptable_recovery_lag)
        self.previous = self._previous_owners() if sticky else {}

    def lack(self, name: str, task: TaskId) -> Lack:
        """How much a member lacks of a task, to compare: who has caught up lacks nothing.

        Where that is all the same, who is to follow it already comes first.
        """
        lag = self.lags.lag(name, task)
        lacking = 0 if self.lags.caught_up(name, task) else lag
        return lacking, task not in self.places[name].facts.standby, lag

    def _previous_owners(self) -> dict[TaskId, str]:
        """Who serves each task now; of two who say so, the one who lacks less."""
        owners: dict[TaskId, str] = {}
        for name, place in self.places.items():
            for task in place.facts.active & self.tasks.keys():
                other = owners.get(task)
                if other is None or self.lags.lag(name, task) < self.lags.lag(other, task):
                    owners[task] = name
        return owners


class LeastLoaded:
    """Finds the member with the lowest load, of those that will do; by name where equal."""

    def __init__(self, places: Sequence[Place], load: Callable[[Place], float]) -> None:
        self._load = load
        self._places = {place.name: place for place in places}
        self._heap = [(load(place), place.name) for place in places]
        heapq.heapify(self._heap)

    def find(self, refused: Callable[[Place], bool]) -> Place | None:
        """The member, or none if all are refused."""
        aside: list[tuple[float, str]] = []
        found = None
        while self._heap and found is None:
            load, name = self._heap[0]
            place = self._places[name]
            if load != self._load(place):
                heapq.heappop(self._heap)  # It has changed; `changed` has put in another.
            elif refused(place):
                aside.append(heapq.heappop(self._heap))
            else:
                found = place
        for each in aside:
            heapq.heappush(self._heap, each)
        return found

    def changed(self, place: Place) -> None:
        """The load of that member is another now."""
        heapq.heappush(self._heap, (self._load(place), place.name))
