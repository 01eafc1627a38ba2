"""`python -m tests.simulation.assignment_size`: 10,000 tasks, 1,000 instances, and who moves.

Prints how long an assignment takes, how many tasks move, and how many must: those without an owner,
and those over an even share. With standbys more move than must when an owner is lost: its standby
takes the task at once, and gives it away again where that left the load uneven.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.coordination.assignment import (
    RUNNING,
    Assignment,
    AssignmentOptions,
    MemberFacts,
    TaskFacts,
)
from penstock.coordination.assignors import StickyAssignor, decide
from penstock.coordination.balance import shares
from penstock.coordination.ids import TaskId

SUB_TOPOLOGIES = 4
RECORDS = 1_000_000
ZONES = "abc"


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one piece of news took, until nobody waited for a warm-up any more."""

    what: str
    rounds: int
    seconds: float
    """Of a core, in the longest of the rounds; a busy machine takes longer by the clock."""
    moved: int
    must: int

    def __str__(self) -> str:
        return (
            f"{self.what:16} {self.rounds:4} rounds, the longest {self.seconds:5.2f} s; "
            f"{self.moved:6} moved, {self.must:6} must"
        )


def run(tasks: int, instances: int, standbys: int) -> Iterator[Line]:
    """A start, no news, a loss, a join, the loss of a tenth."""
    facts = [
        TaskFacts(
            task=TaskId(number % SUB_TOPOLOGIES, number // SUB_TOPOLOGIES),
            stateful=True,
            changelog_records=RECORDS,
        )
        for number in range(tasks)
    ]
    members = [
        MemberFacts(name=f"instance-{number:04}", tags={"zone": ZONES[number % len(ZONES)]})
        for number in range(instances)
    ]
    options = AssignmentOptions(
        num_standby_replicas=standbys, rack_aware_assignment_tags=("zone",) if standbys else ()
    )
    new = MemberFacts(name="instance-new", tags={"zone": ZONES[0]})
    line, members = _settle("start", facts, members, options)
    yield line
    line, members = _settle("no news", facts, members, options)
    yield line
    line, members = _settle("one is lost", facts, members[1:], options)
    yield line
    line, members = _settle("one joins", facts, [*members, new], options)
    yield line
    line, members = _settle("a tenth is lost", facts, members[instances // 10 :], options)
    yield line


def _settle(
    what: str, tasks: list[TaskFacts], members: list[MemberFacts], options: AssignmentOptions
) -> tuple[Line, list[MemberFacts]]:
    must, moved, took = _must_move(tasks, members), 0, []
    while True:
        started = time.process_time()
        answer = decide(StickyAssignor(), tasks, members, options)
        took.append(time.process_time() - started)
        moved += sum(move.role == "active" for move in answer.moves)
        members = [_after(member, answer) for member in members]
        if not answer.probing:
            line = Line(what=what, rounds=len(took), seconds=max(took), moved=moved, must=must)
            return line, members


def _must_move(tasks: list[TaskFacts], members: list[MemberFacts]) -> int:
    """Tasks without an owner, and those over an even share."""
    counts = {member.name: len(member.active) for member in members}
    capacities = {member.name: member.capacity for member in members}
    homeless = len(tasks) - sum(counts.values())
    share = shares(counts, capacities, more=homeless)
    return homeless + sum(max(0, counts[name] - share[name]) for name in counts)


def _after(member: MemberFacts, answer: Assignment) -> MemberFacts:
    held = answer.members[member.name]
    follows = held.standby | held.warm_up
    lags = dict.fromkeys(follows, 0) | dict.fromkeys(held.active, RUNNING)
    return replace(member, active=held.active, standby=follows, lags=lags)


def main() -> None:
    """Print the figures, without and with standbys."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--instances", type=int, default=1_000)
    options = parser.parse_args()
    for standbys in (0, 1):
        print(f"{options.tasks} tasks, {options.instances} instances, {standbys} standbys")
        for line in run(options.tasks, options.instances, standbys):
            print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
