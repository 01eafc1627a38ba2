"""What the driver knows of each task: who owns it, where it stands, what it waits for.

One entry per task, changed by events only; the shell asks what is to be done and tells what
happened.

    unowned ──own──▶ taking ──running──▶ ready ──start──▶ running ──finish──▶ ready
       ▲               ▲                                    │
       └──lose owner───┴────────────── doubt ◀──────────────┘
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.coordination.ids import Epoch, Position, TaskId
from penstock.coordination.planning import TaskView, tick_is_due
from penstock.coordination.recovery import reached

State = Literal["unowned", "taking", "ready", "running"]

FIRST_BYTES_PER_RECORD = 4096.0
"""A guess on the large side: the first slice of a task is small, and measures its records."""


@dataclass
class Entry:
    """One task, as the driver sees it."""

    task: TaskId
    name: str
    state: State = "unowned"
    owner: str = ""
    epoch: Epoch = Epoch(0, 0)
    planned: Epoch = Epoch(0, 0)
    """The epoch under which its last job was planned."""
    position: Position = field(default_factory=dict)
    n: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    until: Position = field(default_factory=dict)
    """While the task reads its input again, because it lost its stores: where it stood then."""
    due: float = 0.0
    bytes_per_record: float = FIRST_BYTES_PER_RECORD
    alone: bool = False
    found_n: int | None = None
    """The number of its last commit when it was first served under this driver."""
    has_run: bool = False
    """Whether this driver has run it: its `init` may schedule other calls than the last program's
    did, of which nothing tells when they are due."""
    notes_told: int = 0
    held: bool = False
    """Whether it is to move, and so no job is to begin for it."""
    failed_takes: int = 0
    """How often in a row its owner could not take it, as far as it matters."""
    fenced_at: float = 0.0
    """When it was heard that its owner was fenced; 0 if it was not."""

    @property
    def is_ours(self) -> bool:
        """Whether it has committed under this driver.

        Until then whoever takes it must look where the group stands: an owner that found it moved
        by someone else, and is lost before its first commit, leaves no trace of that.
        """
        return self.found_n is not None and self.n > self.found_n


class TaskBook:
    """All tasks of the application; those of `ticking` sub-topologies have timers."""

    def __init__(
        self,
        tasks: Iterable[tuple[TaskId, str]],
        *,
        generation: int,
        ticking: Collection[int] = (),
    ) -> None:
        self.entries = {task: Entry(task, name) for task, name in tasks}
        self._generation = generation
        self._ticking = frozenset(ticking)
        self._owners = 0

    def own(self, task: TaskId, owner: str) -> Entry:
        """A new owner takes the task, under an epoch that no earlier owner had."""
        self._owners += 1
        entry = self.entries[task]
        entry.owner = owner
        entry.held = False
        entry.fenced_at = 0.0
        entry.epoch = Epoch(self._generation, self._owners)
        if entry.state != "running":
            entry.state = "taking"
        return entry

    def hold(self, tasks: Collection[TaskId]) -> None:
        """Begin no job for these tasks, and for all others as usual."""
        for task, entry in self.entries.items():
            entry.held = task in tasks

    def serving(
        self,
        task: TaskId,
        epoch: Epoch,
        position: Position,
        n: int,
        metadata: Mapping[str, str],
        until: Position | None = None,
    ) -> None:
        """The owner serves the task, and it stands here."""
        entry = self.entries[task]
        if entry.state == "taking" and entry.epoch == epoch:
            entry.state, entry.position, entry.n = "ready", position, n
            entry.metadata = metadata
            entry.until = until or {}
            entry.found_n = n if entry.found_n is None else entry.found_n
            entry.failed_takes = 0

    def start(self, task: TaskId) -> Entry:
        """A job begins to work on the task."""
        entry = self.entries[task]
        assert entry.state == "ready", entry
        entry.state = "running"
        entry.planned = entry.epoch
        return entry

    def has_moved(self, task: TaskId) -> bool:
        """Whether the task was given away since its job began, or has lost its owner.

        What its old owner committed says nothing of the new one, which may have had to go back.
        """
        entry = self.entries[task]
        return entry.epoch != entry.planned or not entry.owner

    def finish(
        self,
        task: TaskId,
        position: Position,
        n: int,
        *,
        due: float,
        bytes_per_record: float,
        metadata: Mapping[str, str],
    ) -> None:
        """The job committed; the task may go on when it is due."""
        entry = self.entries[task]
        assert n >= entry.n, "a commit number went backwards"
        entry.state, entry.position, entry.n = "ready", position, n
        entry.metadata = metadata
        if reached(position, entry.until):
            entry.until = {}
        entry.due, entry.alone, entry.has_run = due, False, True
        if bytes_per_record:
            entry.bytes_per_record = bytes_per_record

    def doubt(self, task: TaskId, *, due: float, alone: bool = False) -> None:
        """The job did not say that it committed: the owner must be asked where the task stands.

        `alone` if the job failed, so that what fails again takes no other task with it.
        """
        entry = self.entries[task]
        entry.state = "taking" if entry.owner else "unowned"
        entry.due, entry.alone = due, alone

    def doubt_owner(self, owner: str, *, due: float) -> None:
        """An instance does not answer: no job begins for its tasks before it was asked.

        All the others in that job would wait for it.
        """
        for entry in self.in_state("ready"):
            if entry.owner == owner:
                self.doubt(entry.task, due=due)

    def doubt_owners_of(self, tasks: Iterable[TaskId], *, due: float) -> None:
        """Nobody answered for these tasks; whoever took one over meanwhile was not asked."""
        for task in tasks:
            if not self.has_moved(task):
                self.doubt_owner(self.entries[task].owner, due=due)

    def lose_owner(self, owner: str) -> list[TaskId]:
        """An instance is lost; its tasks have no owner now."""
        lost = [task for task, entry in self.entries.items() if entry.owner == owner]
        for task in lost:
            entry = self.entries[task]
            entry.owner = ""
            if entry.state != "running":
                entry.state = "unowned"
        return lost

    @property
    def owners(self) -> dict[TaskId, str]:
        """Who owns what."""
        return {task: entry.owner for task, entry in self.entries.items() if entry.owner}

    def in_state(self, state: State) -> list[Entry]:
        """The entries in that state."""
        return [entry for entry in self.entries.values() if entry.state == state]

    def views(self, *, now_ms: int = 0) -> list[TaskView]:
        """What the planner may plan, when the wall clock says `now_ms`."""
        return [
            TaskView(
                task=entry.task,
                position=entry.position,
                due=entry.due,
                bytes_per_record=entry.bytes_per_record,
                alone=entry.alone,
                until=entry.until,
                tick=entry.task.sub_topology in self._ticking
                and (not entry.has_run or tick_is_due(entry.metadata, now_ms=now_ms)),
            )
            for entry in self.in_state("ready")
            if not entry.held
        ]
