"""The owners of tasks: the lost are replaced, those who take a task are asked how far they are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from penstock.coordination.assignment import assign
from penstock.coordination.ids import Epoch, TaskId
from penstock.coordination.members import Change
from penstock.coordination.planning import Slice
from penstock.coordination.rebalances import Rebalances
from penstock.coordination.tasks import Entry, TaskBook
from penstock.driver.events import Listener, Rebalanced, RestoreEvent, Totals, give_notice
from penstock.driver.parts import DriverParts
from penstock.driver.restores import RestoreBook
from penstock.errors import FencedError, InstanceError, InstanceUnreachableError, KafkaError
from penstock.instance.protocol import StatusReply, TaskStatus, error_of

_log = logging.getLogger("penstock.driver")

_STATUS_SECONDS = 0.02
_RETRY_SECONDS = 0.5
_RETRY_DOUBLINGS = 4
"""How often the time between two tries to have a task taken doubles: up to 8 seconds."""


class TaskOwners:
    """Sees to it that every task has an owner that serves it."""

    def __init__(
        self,
        parts: DriverParts,
        book: TaskBook,
        commits: Mapping[str, int],
        *,
        listener: Listener,
        totals: Totals,
        commit_nothing: Callable[[Slice], None],
    ) -> None:
        self._parts = parts
        self._book = book
        self._commits = commits
        self._listener = listener
        self._totals = totals
        self._commit_nothing = commit_nothing
        self._status_due = 0.0
        self._restores = RestoreBook()
        why = "the inputs changed" if totals.rebalances else "of the first start"
        self._rebalances = Rebalances(book.entries, why=why)

    @property
    def are_settled(self) -> bool:
        """Whether every task has an owner that serves it, or did since it got it."""
        return self._rebalances.is_settled

    def hear_members(self) -> None:
        """Take note of instances that came or went, and start others in the place of the lost."""
        changes = self._parts.coordinator.changes()
        for change in changes:
            match change.kind:
                case "joined":
                    self._rebalances.note(f"instance {change.name} joined")
                case "returned":
                    self._give_back(change.name)
                case "left" | "lost":
                    self._lose(change)
        self._parts.coordinator.restart_children()
        if any(change.kind in ("left", "lost") for change in changes):
            self._parts.visit_executors()

    def assign_tasks(self) -> None:
        """Give tasks that have no owner to instances that are there."""
        owners = self._book.owners
        if len(owners) < len(self._book.entries):
            away = self._parts.coordinator.away()
            kept = {task: owner for task, owner in owners.items() if owner in away}
            others = [task for task in self._book.entries if task not in kept]
            names = set(self._parts.coordinator.names()) - away
            owners = kept | assign(others, names, owners)
        rebalance = self._rebalances.move(owners, number=self._totals.rebalances + 1)
        if rebalance is None:
            return
        self._totals.rebalances += 1
        _log.info("%s", rebalance)
        self._listener(Rebalanced(rebalance=rebalance))
        for move in rebalance.moves:
            self._give(move.task, move.new)

    def _lose(self, change: Change) -> None:
        lost = self._book.lose_owner(change.name)
        self._rebalances.lose(lost)
        self._suspend_restores(change.name, lost)
        tasks = _listed(lost)
        if change.kind == "left":
            self._rebalances.note(f"instance {change.name} left")
            self._notice(f"Instance {change.name} has left; others take over {tasks}")
        else:
            self._rebalances.note(f"instance {change.name} was lost")
            self._notice(f"Instance {change.name} is lost, and with it {tasks}; others take over")

    def _give_back(self, name: str) -> None:
        """A static member is here again, with a process that holds nothing yet: no rebalance."""
        tasks = [task for task, owner in self._book.owners.items() if owner == name]
        self._suspend_restores(name, tasks)
        self._notice(f"Instance {name} is back in time, and keeps {_listed(tasks)}")
        for task in tasks:
            self._give(task, name)

    def _suspend_restores(self, name: str, tasks: list[TaskId]) -> None:
        for whose in (name, *map(str, tasks)):
            self._tell_restores(self._restores.lose(whose))

    def _give(self, task: TaskId, owner: str) -> None:
        entry = self._book.own(task, owner)
        entry.notes_told = 0
        order = self._parts.prepared.take_order(
            task,
            epoch=entry.epoch,
            first_taking=not entry.is_ours,
            commits_partition=self._commits[entry.name],
            peers=self._parts.coordinator.peers(owner),
        )
        try:
            self._parts.coordinator.call(owner, "take", order, StatusReply)
        except InstanceError as error:
            _log.info("Task %s: %s", task, error)
            self._parts.coordinator.doubt(owner)

    def ask(self) -> None:
        """Ask those who take tasks how far they are."""
        now = time.monotonic()
        awaited = self._awaited()
        if not awaited or now < self._status_due:
            return
        self._status_due = now + _STATUS_SECONDS
        asked = {entry.owner for entry in awaited} - self._parts.coordinator.away()
        for owner in sorted(asked):
            for status in self._status_of(owner):
                self._hear(owner, status)

    def _awaited(self) -> list[Entry]:
        """The tasks that have an owner and are not known to be served by it."""
        return [
            entry
            for entry in self._book.entries.values()
            if entry.owner and self._is_awaited(entry)
        ]

    def _is_awaited(self, entry: Entry) -> bool:
        # One that moved while a job ran for it may have been committed by its old owner, and does
        # not look as if it were being taken.
        return entry.state == "taking" or self._rebalances.is_moving(entry.task)

    def _status_of(self, owner: str) -> list[TaskStatus]:
        try:
            question = StatusReply(tasks=[])
            reply = self._parts.coordinator.call(owner, "status", question, StatusReply)
        except InstanceUnreachableError:
            self._parts.coordinator.doubt(owner)
            return []
        held = {status.task: Epoch(*status.epoch) for status in reply.tasks}
        for entry in self._awaited():
            if entry.owner == owner and held.get(str(entry.task), Epoch(0, 0)) < entry.epoch:
                self._give(entry.task, owner)  # The order was lost on its way.
        self._tell_restores(self._restores.hear(owner, None, reply.tables))
        return reply.tasks

    def _hear(self, owner: str, status: TaskStatus) -> None:
        entry = self._book.entries[TaskId.parse(status.task)]
        if entry.owner != owner or entry.epoch != tuple(status.epoch):
            return
        self._tell_restores(self._restores.hear(status.task, status.epoch, status.restores))
        for note in status.notes[entry.notes_told :]:
            self._notice(note)
        entry.notes_told = len(status.notes)
        awaited = self._is_awaited(entry)
        if status.state == "running":
            self._rebalances.served(entry.task)
        if status.state == "running" and entry.state == "taking":
            self._book.serving(
                entry.task,
                Epoch(*status.epoch),
                status.position,
                status.n,
                status.metadata,
                until=status.until,
            )
            if status.group_is_stale:
                self._write_group_again(entry, status)
        elif status.state == "failed" and awaited and entry.state != "running":
            self._take_again(entry, status)

    def _write_group_again(self, entry: Entry, status: TaskStatus) -> None:
        """Tools see the lag through the group; a task without new records would not write it."""
        if self._parts.prepared.config.exactly_once:
            self._commit_nothing(Slice(task=entry.task, ranges=()))
        else:
            self._parts.lease.write_group(status.position)

    def _take_again(self, entry: Entry, status: TaskStatus) -> None:
        """A task could not be taken: try again what may go away, raise the rest."""
        assert status.fault is not None
        error = error_of(status.fault)
        may_go_away = type(error) in (KafkaError, FencedError) or "unreachable" in error.code
        if not may_go_away:
            raise error
        if time.monotonic() >= entry.due:
            self._notice(f"Task {entry.task} is taken again: {error}")
            entry.due = time.monotonic() + _RETRY_SECONDS * 2**entry.failed_takes
            entry.failed_takes = min(entry.failed_takes + 1, _RETRY_DOUBLINGS)
            self._give(entry.task, entry.owner)

    def close(self) -> None:
        """Nobody is asked any more: restores that are under way count as suspended."""
        self._tell_restores(self._restores.lose_all())

    def _tell_restores(self, events: list[RestoreEvent]) -> None:
        for event in events:
            self._parts.hear_restore(event)

    def _notice(self, text: str) -> None:
        give_notice(self._listener, text)


def _listed(tasks: list[TaskId]) -> str:
    return ", ".join(map(str, tasks)) or "no tasks"
