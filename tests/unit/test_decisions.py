"""Decision after decision comes to rest, and nobody copies what another has on its disk.

Members are lost, come back with their disks, join and catch up, in any order; what they are told is
done. Each decision is one that a driver would ask for, with the facts that it would have.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.assignment import Assignment, AssignmentOptions, MemberTasks, TaskFacts
from penstock.coordination.assignors import StickyAssignor
from penstock.coordination.ids import TaskId
from penstock.coordination.placements import Placements, Present

RECORDS = 100_000
"""In the changelogs of each task."""
GROWTH = 20_000
"""What a copy that rests on a disk lacks more with each thing that happens."""


class World:
    """Members with disks, and what was decided for them."""

    def __init__(
        self, *, tasks: int, members: int, standbys: int, zones: int = 0, capacities: str = "1"
    ) -> None:
        self.tasks = [TaskId(number % 2, number // 2) for number in range(tasks)]
        self.standbys = standbys
        options = AssignmentOptions(
            num_standby_replicas=standbys, rack_aware_assignment_tags=("zone",) if zones else ()
        )
        self.placements = Placements(
            [TaskFacts(task=task, stateful=True) for task in self.tasks],
            StickyAssignor(),
            options,
            probing_seconds=600.0,
        )
        self._zones = zones
        self._capacities = capacities
        self.members: dict[str, Mapping[str, str]] = {}
        self.capacities: dict[str, int] = {}
        self.owners: dict[TaskId, str] = {}
        self.copies: dict[str, dict[TaskId, int]] = {}
        """By member, what it has of the tasks that it does not own, and how much that lacks."""
        self.disks: dict[int, dict[TaskId, int]] = {}
        """By slot, what a lost member left behind."""
        self._names = 0
        self.begun: list[tuple[str, TaskId]] = []
        self.needless: list[str] = []
        self.is_replacing = False
        for slot in range(members):
            self.join(slot)
        self.rest(random.Random(0))

    # What happens.

    def join(self, slot: int) -> None:
        """A member comes, with what was left on its disk."""
        self._names += 1
        name = f"instance-{slot}.{self._names}"
        self.members[name] = {"zone": str(slot % self._zones)} if self._zones else {}
        self.capacities[name] = int(self._capacities[slot % len(self._capacities)])
        self.copies[name] = self.disks.pop(slot, {})
        self.is_replacing = False
        self.placements.change()

    def lose(self, name: str) -> int:
        """A member goes; the slot in which another may come."""
        slot = int(name.partition("-")[2].partition(".")[0])
        del self.members[name], self.capacities[name]
        own = {task: 0 for task, owner in self.owners.items() if owner == name}
        self.disks[slot] = self.copies.pop(name) | own
        self.owners = {task: owner for task, owner in self.owners.items() if owner != name}
        self.placements.lose(name)
        self._grow()
        return slot

    def catch_up(self, dice: random.Random) -> bool:
        """One of those that follow has caught up; whether there was one."""
        behind = sorted(
            (name, task)
            for name, tasks in self.placements.following.items()
            for task in tasks & self.copies[name].keys()
            if self.copies[name][task]
        )
        if behind:
            name, task = dice.choice(behind)
            self.copies[name][task] = 0
            self._grow()
        return bool(behind)

    def rest(self, dice: random.Random) -> None:
        """All that follows from what happened, until nothing does."""
        self.is_replacing = False
        decisions = 0
        while True:
            if self.placements.why_due(0.0, self.copies) is not None:
                decisions += 1
                assert decisions <= 4 * len(self.tasks) * (1 + self.standbys) + 4, "flapping"
                self.decide()
                continue
            self.begin()
            if not self.catch_up(dice):
                return

    def decide(self) -> Assignment:
        present = Present(
            members=self.members,
            capacities=self.capacities,
            owners=self.owners,
            lags=self.copies,
            records=dict.fromkeys(self.tasks, RECORDS),
        )
        answer = self.placements.decide(0.0, present)
        self.needless += self._needless(answer)
        for task, name in answer.owners.items():
            before = self.owners.get(task, name)
            if before != name:
                self.copies[before][task] = 0
            self.copies[name].pop(task, None)
        self.owners = answer.owners
        if not self.is_replacing:
            self.begin()
        return answer

    def begin(self) -> None:
        """Those who are to follow what they have nothing of begin with it."""
        for name, tasks in self.placements.following.items():
            for task in sorted(tasks - self.copies[name].keys()):
                self.begun.append((name, task))
                self.copies[name][task] = RECORDS

    def _grow(self) -> None:
        following = self.placements.following
        for name, copies in self.copies.items():
            for task in copies.keys() - following.get(name, frozenset()):
                copies[task] = min(RECORDS, copies[task] + GROWTH)
        for copies in self.disks.values():
            for task in copies:
                copies[task] = min(RECORDS, copies[task] + GROWTH)

    # What is to hold.

    def _needless(self, answer: Assignment) -> Iterator[str]:
        """Copies that are to be made from nothing, though another has one, and no more to hold."""
        loads = {name: self._load(name, held) for name, held in answer.members.items()}
        for name, held in answer.members.items():
            followed = held.standby | held.warm_up
            for task in sorted(followed - self.copies[name].keys()):
                if self.owners.get(task) == name:
                    continue
                for other, others in answer.members.items():
                    holds = task in others.active | others.standby | others.warm_up
                    lag = 0 if self.owners.get(task) == other else self.copies[other].get(task)
                    if holds or lag is None or lag >= RECORDS:
                        continue
                    more = loads[other] + 1 / self.capacities[other]
                    if self.members[other] == self.members[name] and more <= loads[name]:
                        yield f"{name} copies {task}, which {other} has but for {lag}"

    def _load(self, name: str, held: MemberTasks) -> float:
        return len(held.active | held.standby | held.warm_up) / self.capacities[name]

    def check_rest(self) -> None:
        """Every task has its standbys, all have caught up, the load is even, nothing moves."""
        answer = self.decide()
        assert answer.moves == ()
        assert not answer.probing
        followers = Counter(task for tasks in self.placements.following.values() for task in tasks)
        wanted = min(self.standbys, len(self.members) - 1)
        assert all(followers[task] == wanted for task in self.tasks)
        for name, tasks in self.placements.following.items():
            assert all(self.copies[name][task] == 0 for task in tasks)
        self._check_even(answer)

    def _check_even(self, answer: Assignment) -> None:
        """No task could go elsewhere without making that the more loaded of the two."""
        for source, gives in answer.members.items():
            for target, takes in answer.members.items():
                less = (len(gives.active) - 1) / self.capacities[source]
                more = (len(takes.active) + 1) / self.capacities[target]
                assert less < more or source == target, "owners are uneven"
                free = gives.standby - takes.active - takes.standby
                less = (len(gives.active | gives.standby) - 1) / self.capacities[source]
                more = (len(takes.active | takes.standby) + 1) / self.capacities[target]
                same = self.members[source] == self.members[target]
                assert less < more or not free or not same, "standbys are uneven"


WORLDS = st.builds(
    World,
    tasks=st.integers(1, 12),
    members=st.integers(1, 6),
    standbys=st.integers(1, 2),
    zones=st.sampled_from((0, 0, 2, 3)),
    capacities=st.sampled_from(("1", "1", "12", "321")),
)


@settings(deadline=None)
@given(WORLDS, st.integers(0, 2**32))
def test_whatever_happens_it_comes_to_rest_and_nothing_is_copied_in_vain(
    world: World, seed: int
) -> None:
    world.check_rest()
    happen(world, random.Random(seed))
    assert world.needless == []


def happen(world: World, dice: random.Random) -> None:
    """Some things happen, and then nothing does."""
    free = [90, 91]
    for _ in range(dice.randint(1, 8)):
        match dice.choice(("lose", "lose", "back", "catch up", "decide", "rest")):
            case "lose" if len(world.members) > 1:
                free.append(world.lose(dice.choice(sorted(world.members))))
                world.is_replacing = dice.random() < 0.5
            case "back" if free:
                world.join(free.pop(dice.randrange(len(free))))
            case "catch up":
                world.catch_up(dice)
            case "decide" if world.placements.why_due(0.0, world.copies) is not None:
                world.decide()
            case "rest":
                world.rest(dice)
                world.check_rest()
            case _:
                pass
    world.rest(dice)
    world.check_rest()


@pytest.mark.parametrize("standbys", [1, 2])
@pytest.mark.parametrize("members", [3, 4, 6])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_copies_anything_when_a_member_is_killed_and_comes_back(
    standbys: int, members: int, seed: int
) -> None:
    world = World(tasks=8, members=members, standbys=standbys)
    world.begun.clear()
    dice = random.Random(seed)
    slot = world.lose(dice.choice(sorted(world.members)))
    world.is_replacing = True
    world.decide()
    world.join(slot)
    world.rest(dice)
    world.check_rest()
    assert world.begun == []
