"""Serving tasks where their state is, while it is brought to where they are to be."""

from __future__ import annotations

from penstock.coordination.draft import Draft, Place
from penstock.coordination.ids import TaskId


class Warming:
    """Changes a draft so that nobody gets a task whose state others have more of.

    The one that is to have it warms up meanwhile, so that it can have it in a later round; how many
    do so at once is limited.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._left = draft.options.max_warmup_replicas

    def hold_back_actives(self) -> int:
        """Let others serve the tasks of members that are behind; how many there were."""
        moves = self._behind("active")
        for task, target in moves:
            self._hold_back_active(task, target)
        return len(moves)

    def hold_back_standbys(self) -> int:
        """Let others be standbys in the place of members that are behind; how many were found."""
        found = 0
        for task, target in self._behind("standby"):
            better = self._better_standby(task, target)
            if better is not None:
                found += 1
                better.standby.add(task)
                if self._may_warm_up():
                    target.warm_up.add(task)
                else:
                    target.standby.remove(task)
        return found

    def _behind(self, role: str) -> list[tuple[TaskId, Place]]:
        """Those that have begun to warm up first, or they would begin in vain.

        Then the tasks with the fewest members that could serve them.
        """
        lags = self._draft.lags
        found = [
            (self._is_new(place, task), len(lags.all_caught_up(task)), task, name)
            for name, place in self._draft.places.items()
            for task in (place.active if role == "active" else place.standby - place.warm_up)
            if lags.behind(name, task)
        ]
        return [(task, self._draft.places[name]) for *_, task, name in sorted(found)]

    def _is_new(self, place: Place, task: TaskId) -> bool:
        return not self._draft.sticky or task not in place.facts.standby

    def _hold_back_active(self, task: TaskId, target: Place) -> None:
        source = self._who_can_serve(task, target)
        target.active.remove(task)
        source.active.add(task)
        if task in source.standby:
            # They change places: the target is the standby that the source was.
            source.standby.remove(task)
            target.standby.add(task)
        elif self._may_warm_up():
            target.standby.add(task)
            target.warm_up.add(task)

    def _who_can_serve(self, task: TaskId, target: Place) -> Place:
        caught_up = [self._draft.places[name] for name in self._draft.lags.all_caught_up(task)]
        if not caught_up:
            return self._draft.places[self._draft.lags.nearer(task, target.name)[0]]
        owner = self._draft.previous.get(task)
        stays = [place for place in caught_up if place.name == owner]
        standbys = [place for place in caught_up if task in place.standby]
        return _least_loaded(stays or standbys or caught_up)

    def _better_standby(self, task: TaskId, target: Place) -> Place | None:
        places = self._draft.places
        caught_up = [places[name] for name in self._draft.lags.all_caught_up(task)]
        free = [place for place in caught_up if not place.holds(task)]
        if free:
            stays = [place for place in free if task in place.facts.standby]
            return _least_loaded(stays if stays and self._draft.sticky else free)
        # Kafka Streams also moves a standby to who lacks as much and has a lower id: for nothing.
        or_equal = not self._draft.sticky
        nearer = self._draft.lags.nearer(task, target.name, or_equal=or_equal)
        return next((places[name] for name in nearer if not places[name].holds(task)), None)

    def _may_warm_up(self) -> bool:
        self._left -= 1
        return self._left >= 0


def _least_loaded(places: list[Place]) -> Place:
    return min(places, key=lambda place: (place.load, place.name))
