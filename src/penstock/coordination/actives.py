"""Where tasks are to be served in the end, whoever has their state now."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.coordination.balance import even_out, interleaved, shares
from penstock.coordination.draft import Draft, Lack, LeastLoaded, Place
from penstock.coordination.ids import TaskId


def place_stateful(draft: Draft) -> None:
    """Give every task with state a place: even in number and, if sticky, with as few moves."""
    tasks = [task for task, facts in draft.tasks.items() if facts.stateful]
    if draft.sticky:
        _keep(draft, tasks)
    else:
        places = list(draft.places.values())
        for number, task in enumerate(tasks):
            places[number % len(places)].active.add(task)
        even_out(draft, "active", lambda source, target: True)


def place_stateless(draft: Draft) -> None:
    """Give every task without state a place, so that all tasks together are even in number."""
    tasks = [task for task, facts in draft.tasks.items() if not facts.stateful]
    homeless = [task for task in tasks if task not in draft.previous]
    for task in tasks:
        if task in draft.previous:
            draft.places[draft.previous[task]].active.add(task)
    load = _with_one_more if draft.sticky else _as_it_is
    least = LeastLoaded(list(draft.places.values()), load)
    for task in homeless:
        place = least.find(lambda place: False)
        assert place is not None, "there are members"
        place.active.add(task)
        least.changed(place)
    if draft.sticky:
        _even_out_stateless(draft, set(tasks), least)


def _as_it_is(place: Place) -> float:
    return len(place.active) / place.facts.capacity


def _with_one_more(place: Place) -> float:
    return (len(place.active) + 1) / place.facts.capacity


def _with_one_less(place: Place) -> float:
    return (len(place.active) - 1) / place.facts.capacity


def _even_out_stateless(draft: Draft, tasks: set[TaskId], least: LeastLoaded) -> None:
    """Take from the most loaded that has such a task until none can give one."""
    most = LeastLoaded(list(draft.places.values()), lambda place: -_with_one_less(place))
    own = {name: sorted(place.active & tasks) for name, place in draft.places.items()}
    while True:
        source = most.find(lambda place: not own[place.name])
        target = least.find(lambda place: False)
        if not source or not target or _with_one_less(source) < _with_one_more(target):
            return
        task = own[source.name].pop()
        source.active.remove(task)
        target.active.add(task)
        for place in (source, target):
            most.changed(place)
            least.changed(place)


def _keep(draft: Draft, tasks: list[TaskId]) -> None:
    """Leave tasks where they are, but for those that are over a member's share."""
    owners = {task: draft.previous[task] for task in tasks if task in draft.previous}
    for task, owner in owners.items():
        draft.places[owner].active.add(task)
    counts = {name: len(place.active) for name, place in draft.places.items()}
    homeless = [task for task in tasks if task not in owners]
    share = _shares(draft, owners, counts, more=len(homeless))
    moving = _Moving(draft, owners, {name: share[name] - counts[name] for name in share})
    moving.to_those_who_have_state()
    moving.to_the_least_loaded(homeless)
    for name, room in moving.room.copy().items():
        if room < 0:
            tasks = interleaved(draft.places[name].active)
            # What anybody can serve at once goes before what has to be restored.
            moving.to_the_least_loaded(sorted(tasks, key=lambda task: not draft.lags.short(task)))


def _shares(
    draft: Draft, owners: dict[TaskId, str], counts: dict[str, int], *, more: int
) -> dict[str, int]:
    """How many tasks each is to have: where it is all the same, so that those get some who have
    their state, from those who own them.
    """
    capacities = {name: place.facts.capacity for name, place in draft.places.items()}
    share = shares(counts, capacities, more=more)
    if share == counts:
        return share

    def may_go(task: TaskId, name: str) -> bool:
        owner = owners.get(task)
        if owner is None:
            return True
        return (counts[owner] - 1) / capacities[owner] >= (counts[name] + 1) / capacities[name]

    known = _known(draft, draft.places.values(), may_go)
    return shares(
        counts,
        capacities,
        more=more,
        taking=list(dict.fromkeys(name for _, _, name in known)),
        giving=list(dict.fromkeys(owners[task] for _, task, _ in known if task in owners)),
    )


def _known(
    draft: Draft, places: Iterable[Place], may_go: Callable[[TaskId, str], bool]
) -> list[tuple[Lack, TaskId, str]]:
    """What these have state of, or are to have; first what they lack least of."""
    return sorted(
        (draft.lack(place.name, task), task, place.name)
        for place in places
        for task in (place.facts.standby | place.facts.lags.keys()) & draft.tasks.keys()
        if draft.tasks[task].stateful and may_go(task, place.name)
    )


class _Moving:
    """Tasks on their way to those who have less than their share."""

    def __init__(self, draft: Draft, owners: dict[TaskId, str], room: dict[str, int]) -> None:
        self._draft = draft
        self._owners = owners
        self._placed: set[TaskId] = set()
        self.room = room
        """How many tasks each is to get; to give, if negative."""

    def to_those_who_have_state(self) -> None:
        """Give what somebody has state of to the one who has most of it.

        Those that were warmed up for a move go first, or every round would warm up others.
        """
        takers = [place for name, place in self._draft.places.items() if self.room[name] > 0]
        for _, task, name in _known(self._draft, takers, lambda task, _: self._may_move(task)):
            if self._may_move(task) and self.room[name] > 0:
                self._move(task, self._draft.places[name])

    def to_the_least_loaded(self, tasks: Iterable[TaskId]) -> None:
        """Give the tasks, as far as they must go, to those with the lowest load."""
        takers = [place for name, place in self._draft.places.items() if self.room[name] > 0]
        least = LeastLoaded(takers, _as_it_is)
        for task in tasks:
            if self._may_move(task):
                target = least.find(lambda place: self.room[place.name] <= 0)
                assert target is not None, "there is room for all that must go"
                self._move(task, target)
                least.changed(target)

    def _may_move(self, task: TaskId) -> bool:
        if task in self._placed:
            return False
        owner = self._owners.get(task)
        return owner is None or self.room[owner] < 0

    def _move(self, task: TaskId, target: Place) -> None:
        owner = self._owners.get(task)
        if owner is not None:
            self._draft.places[owner].active.remove(task)
            self.room[owner] += 1
        target.active.add(task)
        self.room[target.name] -= 1
        self._placed.add(task)
