"""Instances come and go at random while jobs run and calls fail; then all tasks are served again.

Flapping instances, several that join at once, joins and losses amid moves and take-overs, static
instances that are away, instances of several capacities, orders and answers that are lost.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.coordination.ids import TaskId
from penstock.driver.coordinator import Coordinator
from penstock.driver.getting_ready import GettingReady
from penstock.driver.questions import StatusQuestions
from penstock.errors import InstanceUnreachableError
from penstock.instance.protocol import Message, ReleaseOrder, StatusReply
from tests.unit.test_owners import TASKS, Instances, Pool, World, _pool

__all__ = ["_pool"]

SEEDS = 120
CALM_ROUNDS = 60
CALM_SECONDS = 20.0
"""Of each of those: the interval in which tasks that wait are looked at again is over in some."""


class Fickle(Instances):
    """Instances some of which are away, and that a share of all calls do not reach."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.lost_share = 0.0

    def call(self, name: str, action: str, message: Message, reply: type[Message]) -> Message:
        if name in self.gone or self._chance.random() < self.lost_share:
            raise InstanceUnreachableError("the call was lost")
        if isinstance(message, ReleaseOrder):
            held = self.held.get(name, {}).get(message.task)
            if held is None or tuple(held.epoch) != tuple(message.epoch):
                message = StatusReply(tasks=[])  # It comes too late.
        answer = super().call(name, action, message, reply)
        if self._chance.random() < self.lost_share / 2:
            raise InstanceUnreachableError("the answer was lost")
        return answer


class Story:
    """What happens to one application, by chance."""

    def __init__(self, seed: int) -> None:
        self.now = 1000.0
        self.chance = chance = random.Random(seed)
        protocol = chance.choice(["cooperative", "cooperative", "eager"])
        standbys = chance.choice([0, 1, 2])
        self.world = World(num_standby_replicas=standbys, rebalance_protocol=protocol)
        self.instances = self.world.instances = Fickle(chance)
        owners, coordinator = self.world.owners, cast("Coordinator", self.instances)
        owners._parts.coordinator = coordinator  # type: ignore[misc]
        owners._questions = StatusQuestions(self.instances.status)
        owners._getting_ready = GettingReady(self.world.book, owners._questions, coordinator)
        self._names = (f"i{number}" for number in itertools.count())

    def join(self) -> None:
        name = next(self._names)
        self.instances.capacities[name] = self.chance.choice([1, 1, 2, 3])
        self.instances.change("joined", name)

    def lose(self) -> None:
        if self.instances.held:
            name = self.chance.choice(sorted(self.instances.held))
            self.instances.gone.discard(name)
            self.instances.change(self.chance.choice(["lost", "left"]), name)
            self.world.copies.said.pop(name, None)

    def go_away(self) -> None:
        there = sorted(self.instances.held.keys() - self.instances.gone)
        if there:
            name = self.chance.choice(there)
            self.instances.gone.add(name)
            self.instances.held[name] = {}
            self.world.copies.said.pop(name, None)

    def come_back(self) -> None:
        if self.instances.gone:
            self.instances.come_back(self.chance.choice(sorted(self.instances.gone)))

    def catch_up(self) -> None:
        self.say_lags([0, 10, 20_000])
        said = self.world.copies.said
        self.world.copies.on_their_way = {
            (name, task) for name in said for task in said[name] if self.chance.random() < 0.2
        }

    def say_lags(self, lags: list[int]) -> None:
        there = self.instances.held.keys() - self.instances.gone
        self.world.copies.said = {
            name: {TaskId.parse(task): self.chance.choice(lags) for task in sorted(each.followed)}
            for name, each in sorted(self.world.copies.wanted.items())
            if name in there
        }

    def start_jobs(self) -> None:
        for task in sorted(self.world.plannable()):
            if self.chance.random() < 0.5:
                self.world.book.start(task)

    def end_jobs(self, share: float = 0.6) -> None:
        book = self.world.book
        for entry in book.in_state("running"):
            if self.chance.random() >= share:
                continue
            if book.has_moved(entry.task) or self.chance.random() < 0.2:
                book.doubt(entry.task, due=0.0)
            else:
                book.finish(entry.task, {}, entry.n + 1, due=0.0, bytes_per_record=1.0, metadata={})

    def hear(self) -> None:
        self.world.copies.heard = not self.world.copies.heard
        self.instances.awaited = self.chance.random() < 0.3
        self.instances.silent = {n for n in self.instances.held if self.chance.random() < 0.2}

    def hold_answers_back(self) -> None:
        if Pool.waiting is None:
            Pool.waiting = []
            return
        late, Pool.waiting = Pool.waiting, None
        for work in late:
            work()

    def go_wrong(self) -> None:
        acts = [self.join, self.join, self.lose, self.go_away, self.come_back, self.come_back]
        acts += [self.catch_up, self.catch_up, self.start_jobs, self.start_jobs]
        acts += [self.end_jobs, self.end_jobs, self.hear, self.hold_answers_back]
        self.join()
        for _ in range(self.chance.randint(10, 50)):
            self.instances.lost_share = self.chance.choice([0.0, 0.0, 0.3])
            for act in self.chance.choices(acts, k=self.chance.randint(1, 3)):
                act()
            self.now += self.chance.choice([0.02, 0.02, 0.5, 3.0])
            self.world.round()

    def calm_down(self) -> Iterator[int]:
        """From now on nothing goes wrong; after each round, how many rebalances there were."""
        instances, copies = self.instances, self.world.copies
        instances.lost_share, instances.awaited, copies.heard = 0.0, False, True
        instances.silent.clear()
        if Pool.waiting is not None:
            self.hold_answers_back()
        while instances.gone:
            self.come_back()
        if not instances.held:
            self.join()
        for _ in range(CALM_ROUNDS):
            self.end_jobs(1.0)
            self.say_lags([0])
            copies.on_their_way = set()
            self.now += CALM_SECONDS
            self.world.round()
            yield self.world.totals.rebalances


@pytest.mark.parametrize("seed", range(SEEDS))
def test_all_tasks_are_served_and_spread_and_nothing_moves_any_more(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(seed)
    clock: Any = SimpleNamespace(monotonic=lambda: story.now)
    monkeypatch.setattr("penstock.driver.owners.time", clock)
    story.go_wrong()
    counts = list(story.calm_down())
    world, instances = story.world, story.instances
    assert counts[CALM_ROUNDS // 2] == counts[-1], "tasks move for ever"
    assert world.is_settled()
    assert world.plannable() == set(TASKS)
    owners = world.book.owners
    assert all(str(task) in instances.held[owners[task]] for task in TASKS)
    loads, capacities = Counter(owners.values()), instances.capacities
    for giver in instances.held:
        for taker in instances.held:
            given = (loads[giver] - 1) / capacities[giver]
            assert given < (loads[taker] + 1) / capacities[taker] or giver == taker, (
                f"{giver} has too much: {loads} of {capacities}"
            )
    for rebalance in world.rebalances:
        assert rebalance.moves
        assert rebalance.why
        assert len(set(rebalance.why)) == len(rebalance.why)
