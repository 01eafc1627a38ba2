"""Random questions for an assignor: members that joined, left, fell behind, or never met."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Self

from penstock.coordination.assignment import (
    RUNNING,
    AssignmentOptions,
    MemberFacts,
    TaskFacts,
)
from penstock.coordination.ids import TaskId

NO_LIMIT = 2**63 - 1
"""The acceptable lag of those who never want to wait."""


@dataclass(frozen=True, kw_only=True)
class AssignmentCase:
    """One question."""

    tasks: tuple[TaskFacts, ...]
    members: tuple[MemberFacts, ...]
    options: AssignmentOptions

    def as_json(self) -> dict[str, Any]:
        """The question as Assignor.java reads it."""
        return {
            "tasks": [[str(t.task), t.stateful, t.changelog_records] for t in self.tasks],
            "members": [
                {
                    "name": member.name,
                    "capacity": member.capacity,
                    "tags": dict(member.tags),
                    "active": [str(task) for task in sorted(member.active)],
                    "standby": [str(task) for task in sorted(member.standby)],
                    "lags": {str(task): lag for task, lag in sorted(member.lags.items())},
                }
                for member in self.members
            ],
            "options": {
                "standbys": self.options.num_standby_replicas,
                "lag": self.options.acceptable_recovery_lag,
                "warmups": self.options.max_warmup_replicas,
                "tags": list(self.options.rack_aware_assignment_tags),
            },
        }

    @classmethod
    def from_json(cls, question: dict[str, Any]) -> Self:
        """The question back."""
        options = question["options"]
        return cls(
            tasks=tuple(
                TaskFacts(task=TaskId.parse(task), stateful=stateful, changelog_records=records)
                for task, stateful, records in question["tasks"]
            ),
            members=tuple(
                MemberFacts(
                    name=member["name"],
                    capacity=member["capacity"],
                    tags=member["tags"],
                    active=frozenset(map(TaskId.parse, member["active"])),
                    standby=frozenset(map(TaskId.parse, member["standby"])),
                    lags={TaskId.parse(task): lag for task, lag in member["lags"].items()},
                )
                for member in question["members"]
            ),
            options=AssignmentOptions(
                num_standby_replicas=options["standbys"],
                acceptable_recovery_lag=options["lag"],
                max_warmup_replicas=options["warmups"],
                rack_aware_assignment_tags=tuple(options["tags"]),
            ),
        )


def make_assignment_case(seed: int) -> AssignmentCase:
    """The case of that number."""
    dice = random.Random(seed)
    tasks = _tasks(dice)
    tagged = dice.random() < 0.3
    options = AssignmentOptions(
        num_standby_replicas=dice.choice((0, 1, 1, 2)),
        acceptable_recovery_lag=dice.choice((0, 100, 10_000, NO_LIMIT)),
        max_warmup_replicas=dice.choice((1, 2, 5)),
        rack_aware_assignment_tags=("cluster", "zone") if tagged else (),
    )
    names = [f"m{number}" for number in range(dice.randint(1, 7))]
    same = dice.random() < 0.5
    actives, standbys = _before(dice, tasks, [*names, "gone"], options.num_standby_replicas)
    members = tuple(
        MemberFacts(
            name=name,
            capacity=2 if same else dice.randint(1, 4),
            tags={"zone": dice.choice("abc"), "cluster": dice.choice("xy")} if tagged else {},
            active=frozenset(actives[name]),
            standby=frozenset(standbys[name]),
            lags=_lags(dice, tasks, actives[name], standbys[name]),
        )
        for name in names
    )
    return AssignmentCase(tasks=tasks, members=members, options=options)


def _tasks(dice: random.Random) -> tuple[TaskFacts, ...]:
    return tuple(
        TaskFacts(
            task=TaskId(sub_topology, partition),
            stateful=stateful,
            changelog_records=dice.choice((0, 50, 5_000, 1_000_000)) if stateful else 0,
        )
        for sub_topology in range(dice.randint(1, 3))
        for stateful in [dice.random() < 0.8]
        for partition in range(dice.randint(1, 9))
    )


def _before(
    dice: random.Random, tasks: tuple[TaskFacts, ...], names: list[str], standbys: int
) -> tuple[dict[str, set[TaskId]], dict[str, set[TaskId]]]:
    """Who had what: dealt evenly, or to a few, so that others look as if they had just joined."""
    had = names if dice.random() < 0.5 else dice.sample(names, dice.randint(1, len(names)))
    actives: dict[str, set[TaskId]] = {name: set() for name in names}
    followers: dict[str, set[TaskId]] = {name: set() for name in names}
    for number, each in enumerate(tasks):
        actives[had[number % len(had)]].add(each.task)
        for further in range(1, min(standbys, len(had) - 1) + 1):
            if each.stateful:
                followers[had[(number + further) % len(had)]].add(each.task)
    return actives, followers


def _lags(
    dice: random.Random,
    tasks: tuple[TaskFacts, ...],
    active: set[TaskId],
    standby: set[TaskId],
) -> dict[TaskId, int]:
    lags: dict[TaskId, int] = {}
    for each in tasks:
        left_over = dice.random() < 0.1
        if not each.stateful or not (each.task in active | standby or left_over):
            continue
        if each.task in active and dice.random() < 0.8:
            lags[each.task] = RUNNING
        else:
            lags[each.task] = dice.choice((0, 10, 1_000, each.changelog_records))
    return lags
