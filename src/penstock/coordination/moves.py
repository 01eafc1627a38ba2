"""What an assignment changes, and why: for the log line of a rebalance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.coordination.assignment import MemberFacts, MemberTasks, Move, Role, Why
from penstock.coordination.ids import TaskId


def moves(
    held: Mapping[str, MemberTasks],
    members: Iterable[MemberFacts],
    aims: Mapping[TaskId, str] | None = None,
) -> tuple[Move, ...]:
    """Every task that a member gets in a role that it did not have it in.

    `aims` says where tasks with state are to be in the end; without it the reason is a user's
    assignor.
    """
    change = _Change(held, {member.name: member for member in members}, aims)
    found = [*change.actives(), *change.standbys(), *change.warm_ups()]
    return tuple(sorted(found, key=lambda move: (move.task, move.role, move.target)))


class _Change:
    def __init__(
        self,
        held: Mapping[str, MemberTasks],
        facts: Mapping[str, MemberFacts],
        aims: Mapping[TaskId, str] | None,
    ) -> None:
        self._held = held
        self._facts = facts
        self._aims = aims
        self._owners = {task: name for name, tasks in held.items() for task in tasks.active}
        self._had = {task: name for name, each in facts.items() for task in each.active}
        self._left: dict[TaskId, list[str]] = {}
        for name, each in facts.items():
            now = held.get(name, MemberTasks())
            for task in each.standby - now.standby - now.warm_up:
                self._left.setdefault(task, []).append(name)

    def actives(self) -> Iterator[Move]:
        for task, name in self._owners.items():
            if task not in self._facts[name].active:
                source = self._had.get(task, "")
                aimed = self._aims is not None and self._aims.get(task) == source
                why: Why = "unowned" if not source else "lag" if aimed else "balance"
                yield self._move(task, "active", source, name, why)

    def standbys(self) -> Iterator[Move]:
        for name, tasks in self._held.items():
            for task in sorted(tasks.standby - self._facts[name].standby):
                left = self._left.get(task)
                source = left.pop(0) if left else ""
                yield self._move(task, "standby", source, name, "balance" if source else "missing")

    def warm_ups(self) -> Iterator[Move]:
        for name, tasks in self._held.items():
            for task in sorted(tasks.warm_up - self._facts[name].standby):
                why: Why = "lag" if self._had.get(task) == name else "balance"
                yield self._move(task, "warm_up", self._owners[task], name, why)

    def _move(self, task: TaskId, role: Role, source: str, target: str, why: Why) -> Move:
        reason: Why = why if self._aims is not None else "assignor"
        return Move(task=task, role=role, source=source, target=target, why=reason)
