"""An even load: how many tasks each member is to have, and moving them until it is so."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from penstock.coordination.draft import Draft, Place
from penstock.coordination.ids import TaskId

MayMove = Callable[[Place, Place], bool]


def shares(
    counts: Mapping[str, int],
    capacities: Mapping[str, int],
    *,
    more: int = 0,
    taking: Sequence[str] = (),
    giving: Sequence[str] = (),
) -> dict[str, int]:
    """How many tasks each is to have, given what they have and how many have no place.

    Even means that no task can go to another member without making that one the more loaded of the
    two. As few as possible go. Where it is all the same, those in `taking` get more, and those in
    `giving` have to give; the first in these before the others.

    >>> shares({"a": 4, "b": 0}, {"a": 1, "b": 1}, more=1)
    {'a': 3, 'b': 2}
    >>> shares({"a": 2, "b": 2, "c": 0}, {"a": 1, "b": 1, "c": 1}, giving=["b"])
    {'a': 2, 'b': 1, 'c': 1}
    >>> shares({"a": 0, "b": 0, "c": 0}, {"a": 1, "b": 2, "c": 3}, more=6)
    {'a': 1, 'b': 2, 'c': 3}
    """
    result = dict(counts)
    turns = {name: turn for turn, name in enumerate(taking)}
    takers = [
        ((count + 1) / capacities[name], turns.get(name, len(turns)), name)
        for name, count in result.items()
    ]
    heapq.heapify(takers)

    def take() -> None:
        _, turn, name = takers[0]
        result[name] += 1
        heapq.heapreplace(takers, ((result[name] + 1) / capacities[name], turn, name))

    for _ in range(more):
        take()
    # Who gives is never who takes, so an entry of one list does not age by what the other does:
    # as soon as it would, nothing is uneven any more.
    turns = {name: turn for turn, name in enumerate(giving)}
    givers = [
        (-(count - 1) / capacities[name], turns.get(name, len(turns)), name)
        for name, count in result.items()
    ]
    heapq.heapify(givers)
    while -givers[0][0] >= takers[0][0]:
        _, turn, name = givers[0]
        result[name] -= 1
        heapq.heapreplace(givers, (-(result[name] - 1) / capacities[name], turn, name))
        take()
    return result


def even_out(draft: Draft, role: Literal["active", "standby"], may_move: MayMove) -> None:
    """Move tasks of that role from member to member until the load is even, whoever has what.

    In the order of names and tasks, as Kafka Streams does; a member whose load is too low for any
    other to take from it is passed over, which leaves the result the same.
    """
    places = list(draft.places.values())
    moved = True
    while moved:
        moved = False
        lowest = _lowest(places)
        for source in places:
            if (source.count - 1) / source.facts.capacity < lowest:
                continue
            for target in places:
                if uneven(source, target) and may_move(source, target):
                    moved |= _move_some(role, source, target)
            lowest = _lowest(places)


def _lowest(places: list[Place]) -> float:
    """The lowest load that a member could have with one more task."""
    return min((place.count + 1) / place.facts.capacity for place in places)


def _move_some(role: Literal["active", "standby"], source: Place, target: Place) -> bool:
    having, getting = getattr(source, role), getattr(target, role)
    moved = False
    for task in sorted(having):
        if not uneven(source, target):
            break
        if not target.holds(task):
            having.remove(task)
            getting.add(task)
            moved = True
    return moved


def uneven(source: Place, target: Place) -> bool:
    """Whether a task can go from one to the other without making that the more loaded."""
    after = (source.count - 1) / source.facts.capacity
    return after >= (target.count + 1) / target.facts.capacity


def interleaved(tasks: Iterable[TaskId]) -> list[TaskId]:
    """One of each sub-topology, then the next of each: whoever gives some away keeps some of all.

    >>> [str(task) for task in interleaved({TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)})]
    ['0_0', '1_0', '0_1']
    """
    seen: dict[int, int] = defaultdict(int)
    ranked = []
    for task in sorted(tasks):
        ranked.append((seen[task.sub_topology], task))
        seen[task.sub_topology] += 1
    return [task for _, task in sorted(ranked)]
