"""Penstock's assignors, a user's, and what is asked of their answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.coordination.actives import place_stateful, place_stateless
from penstock.coordination.assignment import (
    Assignment,
    AssignmentOptions,
    MemberFacts,
    TaskAssignor,
    TaskFacts,
)
from penstock.coordination.draft import Draft
from penstock.coordination.ids import TaskId
from penstock.coordination.moves import moves
from penstock.coordination.standbys import place_standbys
from penstock.coordination.warming import Warming
from penstock.errors import AssignmentError, ConfigError
from penstock.option_values import imported


class StickyAssignor:
    """Penstock's assignor: as Kafka Streams', and nothing moves without need.

    Kafka Streams' high-availability assignor aims at the same even spread whoever has what, so that
    one instance less gives nearly every task another place, two at a time. Here tasks and standbys
    stay where they are as far as the load is even; all else is the same.

    >>> one, two = TaskId(0, 0), TaskId(0, 1)
    >>> tasks = [TaskFacts(task=task, stateful=False) for task in (one, two)]
    >>> members = [MemberFacts(name="a"), MemberFacts(name="b", active=frozenset({one}))]
    >>> answer = StickyAssignor().assign(tasks, members, AssignmentOptions())
    >>> {str(task): name for task, name in answer.owners.items()}
    {'0_1': 'a', '0_0': 'b'}
    """

    def assign(
        self,
        tasks: Sequence[TaskFacts],
        members: Sequence[MemberFacts],
        options: AssignmentOptions,
    ) -> Assignment:
        """Who holds what, and the reasons for what moves."""
        return _assignment(Draft(tasks, members, options, sticky=True))


class KafkaStreamsAssignor:
    """Kafka Streams 4.1's high-availability assignor, for those who compare the two."""

    def assign(
        self,
        tasks: Sequence[TaskFacts],
        members: Sequence[MemberFacts],
        options: AssignmentOptions,
    ) -> Assignment:
        """Who holds what, as Kafka Streams would say."""
        return _assignment(Draft(tasks, members, options, sticky=False))


def load_assignor(path: str) -> TaskAssignor:
    """The assignor that the option `task_assignor` names, or Penstock's.

    It is `module:name` of an object with a method `assign`, or of a class of such objects. Raises
    `ConfigError` for anything else.

    >>> type(load_assignor("")).__name__
    'StickyAssignor'
    """
    if not path:
        return StickyAssignor()
    found = imported(path, option="task_assignor")
    assignor: TaskAssignor = found() if isinstance(found, type) else found
    if not callable(getattr(assignor, "assign", None)):
        raise ConfigError(
            f"Option task_assignor names {path!r}, which has no method assign",
            hint="Name a class with assign(self, tasks, members, options)",
        )
    return assignor


def decide(
    assignor: TaskAssignor,
    tasks: Sequence[TaskFacts],
    members: Sequence[MemberFacts],
    options: AssignmentOptions,
) -> Assignment:
    """Ask an assignor, and check what it says; without members there is nothing to ask.

    Raises `AssignmentError` if the assignor fails or its answer cannot be done.
    """
    if not members:
        return Assignment(members={})
    try:
        answer = assignor.assign(tasks, members, options)
    except Exception as error:
        raise AssignmentError(
            f"The task assignor {_name(assignor)} raised {type(error).__name__}: {error}",
            hint="Mend the class that the option task_assignor names, or leave the option out",
        ) from error
    fault = next(_faults(answer, tasks, members), None)
    if fault is not None:
        message, where = fault
        raise AssignmentError(
            f"The task assignor {_name(assignor)} {message}",
            where=where,
            hint="Every task needs one member that has it as active, and no member may hold it "
            "twice",
        )
    # Whoever gave no reasons moved things for their own.
    return answer if answer.moves else replace(answer, moves=moves(answer.members, members))


def _assignment(draft: Draft) -> Assignment:
    """Kafka Streams' steps: first where all are to be, then what holds until they can be there."""
    place_stateful(draft)
    aims = {task: name for name, place in draft.places.items() for task in place.active}
    place_standbys(draft)
    warming = Warming(draft)
    held_back = warming.hold_back_actives() + warming.hold_back_standbys()
    place_stateless(draft)
    held = {name: place.tasks() for name, place in draft.places.items()}
    facts = [place.facts for place in draft.places.values()]
    return Assignment(members=held, probing=held_back > 0, moves=moves(held, facts, aims))


def _name(assignor: TaskAssignor) -> str:
    return f"{type(assignor).__module__}:{type(assignor).__qualname__}"


def _faults(
    answer: Assignment, tasks: Sequence[TaskFacts], members: Sequence[MemberFacts]
) -> Iterator[tuple[str, dict[str, object]]]:
    """What is wrong with an answer: what the assignor did, and where."""
    facts = {each.task: each for each in tasks}
    names = {member.name for member in members}
    owners: dict[TaskId, str] = {}
    for name, held in answer.members.items():
        if name not in names:
            yield f"gave tasks to {name!r}, which is no member", {"member": name}
        for task in sorted(held.active | held.standby | held.warm_up):
            where: dict[str, object] = {"task": task, "member": name}
            roles = [task in each for each in (held.active, held.standby, held.warm_up)]
            if task not in facts:
                yield f"assigned {task}, which is no task of this application", where
            elif sum(roles) > 1:
                yield f"gave {task} to {name} in two roles", where
            elif task in held.active and owners.setdefault(task, name) != name:
                yield f"made both {owners[task]} and {name} the owner of {task}", where
            elif task not in held.active and not facts[task].followed:
                yield f"made {name} follow {task}, which has no changelog", where
    for task in facts.keys() - owners.keys():
        yield f"gave {task} to nobody", {"task": task}
