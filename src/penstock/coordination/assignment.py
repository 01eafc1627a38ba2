"""Which instance holds which task, and as what: the words of the question and of the answer.

The answers of Penstock's own assignors are made in `assignors`; a user's may be put in their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from penstock.config import Config
from penstock.coordination.ids import TaskId

RUNNING = -1
"""The lag of a member that serves the task: nobody has more of its state."""

Role = Literal["active", "standby", "warm_up"]
Why = Literal["unowned", "balance", "lag", "missing", "assignor"]
"""Why a task gets a place: nobody owned it; its owner had more than its share; its owner lacked
more of its state; it had too few standbys; the user's assignor said so."""

_SENTENCES: dict[Why, str] = {
    "unowned": "nobody had it",
    "balance": "for an even load",
    "lag": "where more of its state is",
    "missing": "it had too few standbys",
    "assignor": "the task assignor said so",
}


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """A task, as far as its place depends on it."""

    task: TaskId
    stateful: bool
    changelog_records: int = 0
    """The sum of its changelogs' end offsets: what a member without any of its state lacks."""
    standbys: bool = True
    """Whether others can follow its state; nobody can without a changelog."""

    @property
    def followed(self) -> bool:
        """Whether its place depends on who has how much of its state."""
        return self.stateful and self.standbys


@dataclass(frozen=True, kw_only=True)
class MemberFacts:
    """A member: what it can take, and what it has from the assignment before."""

    name: str
    capacity: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    """Those it warmed up are among them."""
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    """How many records of a task's changelogs it lacks, or `RUNNING`; if silent, all of them."""

    def __post_init__(self) -> None:
        assert self.capacity > 0, f"member {self.name} can take nothing"


@dataclass(frozen=True, kw_only=True)
class AssignmentOptions:
    """What users say about assignment."""

    num_standby_replicas: int = 0
    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    rack_aware_assignment_tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config) -> AssignmentOptions:
        """The options of an application.

        >>> AssignmentOptions.of(Config(num_standby_replicas=1)).num_standby_replicas
        1
        """
        return cls(
            num_standby_replicas=config.num_standby_replicas,
            acceptable_recovery_lag=config.acceptable_recovery_lag,
            max_warmup_replicas=config.max_warmup_replicas,
            rack_aware_assignment_tags=config.rack_aware_assignment_tags,
        )


@dataclass(frozen=True, kw_only=True)
class MemberTasks:
    """The tasks that a member is to hold, by role."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    warm_up: frozenset[TaskId] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Move:
    """A task that a member did not hold in this role before."""

    task: TaskId
    role: Role
    source: str
    """Who gave the role up, or is to; empty if nobody does."""
    target: str
    why: Why

    def __str__(self) -> str:
        source = f" from {self.source}" if self.source else ""
        role = self.role.replace("_", "-")
        return f"{self.task} ({role}){source} to {self.target}: {_SENTENCES[self.why]}"


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The answer. Whoever assigns says who holds what; the moves follow from it."""

    members: Mapping[str, MemberTasks]
    probing: bool = False
    """Whether tasks wait for members that warm up, so that it is worth asking again soon."""
    moves: tuple[Move, ...] = ()

    @property
    def owners(self) -> dict[TaskId, str]:
        """Who is to serve each task."""
        return {task: name for name, tasks in self.members.items() for task in sorted(tasks.active)}


class TaskAssignor(Protocol):
    """Decides who holds what. The same question must have the same answer, on any machine."""

    def assign(
        self,
        tasks: Sequence[TaskFacts],
        members: Sequence[MemberFacts],
        options: AssignmentOptions,
    ) -> Assignment:
        """A place for every task; there is at least one member."""
        ...
