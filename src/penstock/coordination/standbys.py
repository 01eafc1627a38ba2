"""Who follows which task, ready to take it over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from penstock.coordination.balance import even_out, interleaved, shares, uneven
from penstock.coordination.draft import Draft, Lack, LeastLoaded, Place
from penstock.coordination.ids import TaskId

Tags = tuple[tuple[str, str], ...]
"""The tags of a member that standbys are spread over."""


def place_standbys(draft: Draft) -> None:
    """Give every task that can be followed its standbys, on members that differ in their tags.

    A standby stays where it is if that serves the purpose. Where members with other tags run out,
    any will do; where members run out, there are fewer standbys.
    """
    if not draft.options.num_standby_replicas:
        return
    placing = _Placing(draft)
    followers = [
        placing.begin(task, place)
        for place in draft.places.values()
        for task in place.active
        if draft.tasks[task].followed
    ]
    followers.sort(key=lambda each: each.task)
    for each in followers:
        placing.keep(each, spread=True)
    for each in followers:
        placing.add(each, spread=True)
    for each in followers:
        placing.keep(each, spread=False)
        placing.add(each, spread=False)
    wanted = draft.options.rack_aware_assignment_tags
    if draft.sticky:
        for group in _groups(draft):
            _Evening(draft, group).move()
    else:
        even_out(draft, "standby", lambda a, b: _values(a, wanted) == _values(b, wanted))


def _values(place: Place, tags: Iterable[str]) -> tuple[str | None, ...]:
    """A member's values of these tags; it may have others, which nothing is spread over."""
    return tuple(place.facts.tags.get(tag) for tag in tags)


def _groups(draft: Draft) -> list[list[Place]]:
    """Members among which standbys may move: those with the same tags, so that they stay spread."""
    wanted = draft.options.rack_aware_assignment_tags
    groups: dict[tuple[str | None, ...], list[Place]] = defaultdict(list)
    for place in draft.places.values():
        groups[_values(place, wanted)].append(place)
    return list(groups.values())


class _Evening:
    """Moves as few standbys as make the load even, roles aside, among some members."""

    def __init__(self, draft: Draft, places: list[Place]) -> None:
        self._draft = draft
        self._places = places
        counts = {place.name: place.count for place in places}
        capacities = {place.name: place.facts.capacity for place in places}
        share = shares(counts, capacities)
        self._room = {name: share[name] - counts[name] for name in share}
        self._takers = [place for place in places if self._room[place.name] > 0]
        self._givers = [place for place in places if self._room[place.name] < 0]

    def move(self) -> None:
        """First to who has begun to follow, or every round would begin with others."""
        places = self._draft.places
        for _, task, source, target in sorted(self._begun()):
            self._move(task, places[source], places[target])
        least = LeastLoaded(self._takers, lambda place: place.load)
        for giver in self._givers:
            for task in self._by_lack(giver):
                taker = self._least_loaded(least, task)
                if taker is not None and self._move(task, giver, taker):
                    least.changed(taker)
        if any(room < 0 for room in self._room.values()):
            while self._level():
                pass

    def _level(self) -> bool:
        """Move what no taker could take, for they held it, to others; whether anything moved."""
        for giver in sorted(self._places, key=lambda place: -place.load):
            for taker in sorted(self._places, key=lambda place: place.load):
                if not uneven(giver, taker):
                    break
                for task in self._by_lack(giver):
                    if not taker.holds(task):
                        giver.standby.remove(task)
                        taker.standby.add(task)
                        return True
        return False

    def _by_lack(self, giver: Place) -> list[TaskId]:
        """What it would follow, first what it has least of."""
        return sorted(
            interleaved(giver.standby),
            key=lambda task: self._draft.lack(giver.name, task),
            reverse=True,
        )

    def _least_loaded(self, takers: LeastLoaded, task: TaskId) -> Place | None:
        return takers.find(lambda place: not self._room[place.name] or place.holds(task))

    def _begun(self) -> Iterator[tuple[Lack, TaskId, str, str]]:
        for taker in self._takers:
            known = taker.facts.standby | taker.facts.lags.keys()
            for giver in self._givers:
                for task in known & giver.standby:
                    yield self._draft.lack(taker.name, task), task, giver.name, taker.name

    def _move(self, task: TaskId, giver: Place, taker: Place) -> bool:
        fits = self._room[giver.name] < 0 < self._room[taker.name]
        if not fits or task not in giver.standby or taker.holds(task):
            return False
        giver.standby.remove(task)
        taker.standby.add(task)
        self._room[giver.name] += 1
        self._room[taker.name] -= 1
        return True


class _Followers:
    """How many standbys a task misses, and the tags that a further one must not have."""

    def __init__(self, task: TaskId, missing: int) -> None:
        self.task = task
        self.missing = missing
        self._members = 0
        self._taken: set[tuple[str, str]] = set()

    def take(self, tags: Tags, values: dict[str, int]) -> None:
        """One more member holds the task. A tag whose values are used up counts no more."""
        self._members += 1
        for tag, value in tags:
            if values[tag] <= self._members:
                self._taken = {each for each in self._taken if each[0] != tag}
            else:
                self._taken.add((tag, value))

    def may_have(self, tags: Tags) -> bool:
        """Whether a member with these tags differs from those who hold the task."""
        return self._taken.isdisjoint(tags)


class _Placing:
    """Finds members for standbys; those with the same tags are one group."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._tags = {
            name: _tags(place, draft.options.rack_aware_assignment_tags)
            for name, place in draft.places.items()
        }
        found: dict[str, set[str]] = defaultdict(set)
        for tags in self._tags.values():
            for tag, value in tags:
                found[tag].add(value)
        self._values = {tag: len(values) for tag, values in found.items()}
        groups: dict[Tags, list[Place]] = defaultdict(list)
        for name, place in draft.places.items():
            groups[self._tags[name]].append(place)
        self._groups = {
            tags: LeastLoaded(places, lambda place: place.load) for tags, places in groups.items()
        }
        self._had: dict[TaskId, list[str]] = defaultdict(list)
        for name, place in draft.places.items():
            for task in place.facts.standby | place.facts.lags.keys() if draft.sticky else ():
                self._had[task].append(name)

    def begin(self, task: TaskId, owner: Place) -> _Followers:
        """A task without followers."""
        followers = _Followers(task, self._draft.options.num_standby_replicas)
        followers.take(self._tags[owner.name], self._values)
        return followers

    def keep(self, followers: _Followers, *, spread: bool) -> None:
        """Let those follow who did, or have the state, as far as they are needed.

        Of those who have caught up, who follows already; else who has most of it, such as an owner
        that is to give the task away, or one who came back with its disk.
        """
        task = followers.task
        if not followers.missing or task not in self._had:
            return
        ranked = sorted(self._had[task], key=lambda name: (self._draft.lack(name, task), name))
        places = [self._draft.places[name] for name in ranked]
        while followers.missing:
            # Each that follows changes which tags count, so the first may do after the second.
            fitting = (
                place
                for place in places
                if not spread or followers.may_have(self._tags[place.name])
                if not place.holds(task)
            )
            place = next(fitting, None)
            if place is None:
                return
            self._follow(followers, place)

    def add(self, followers: _Followers, *, spread: bool) -> None:
        """Let the least loaded follow, as many as are missing."""
        while followers.missing:
            found = [
                place
                for tags, group in self._groups.items()
                if not spread or followers.may_have(tags)
                if (place := group.find(lambda place: place.holds(followers.task)))
            ]
            if not found:
                return
            self._follow(followers, min(found, key=lambda place: (place.load, place.name)))

    def _follow(self, followers: _Followers, place: Place) -> None:
        tags = self._tags[place.name]
        place.standby.add(followers.task)
        followers.missing -= 1
        followers.take(tags, self._values)
        self._groups[tags].changed(place)


def _tags(place: Place, names: tuple[str, ...]) -> Tags:
    return tuple((name, place.facts.tags[name]) for name in names if name in place.facts.tags)
