"""When an assignor is asked, what it is told, and who is to follow what then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.coordination.assignment import (
    RUNNING,
    Assignment,
    AssignmentOptions,
    MemberFacts,
    MemberTasks,
    TaskAssignor,
    TaskFacts,
)
from penstock.coordination.assignors import StickyAssignor
from penstock.coordination.ids import TaskId
from penstock.coordination.placements import Lags, Placements, Present

A, B, C, D = (TaskId(0, partition) for partition in range(4))


class Recorded:
    """Penstock's assignor, and what it was asked."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, TaskFacts] = {}
        self.members: dict[str, MemberFacts] = {}

    def assign(
        self,
        tasks: Sequence[TaskFacts],
        members: Sequence[MemberFacts],
        options: AssignmentOptions,
    ) -> Assignment:
        self.tasks = {each.task: each for each in tasks}
        self.members = {each.name: each for each in members}
        return StickyAssignor().assign(tasks, members, options)


def placements(
    *tasks: TaskFacts, assignor: TaskAssignor | None = None, standbys: int = 1, lag: int = 100
) -> Placements:
    found = tasks or tuple(TaskFacts(task=task, stateful=True) for task in (A, B, C, D))
    options = AssignmentOptions(num_standby_replicas=standbys, acceptable_recovery_lag=lag)
    return Placements(found, assignor or StickyAssignor(), options, probing_seconds=600.0)


def present(
    members: str,
    owners: Mapping[TaskId, str] | None = None,
    lags: Mapping[str, Mapping[TaskId, int]] | None = None,
    records: int = 0,
) -> Present:
    return Present(
        members={name: {} for name in members.split()},
        owners=owners or {},
        lags=lags or {},
        records=dict.fromkeys((A, B, C, D), records),
    )


def test_the_first_decision_spreads_owners_and_standbys() -> None:
    places = placements()
    assert places.why_due(0.0, {}) == ""
    answer = places.decide(0.0, present("a b"))
    sizes = {name: len(held.active) for name, held in answer.members.items()}
    assert sizes == {"a": 2, "b": 2}
    assert places.following == {
        name: frozenset({A, B, C, D}) - held.active for name, held in answer.members.items()
    }
    assert places.why_due(10_000.0, {}) is None


def test_a_lost_member_is_replaced_by_who_follows_its_tasks() -> None:
    places = placements()
    owners = places.decide(0.0, present("a b c", records=1000)).owners
    followers = {
        task: [name for name, tasks in places.following.items() if task in tasks] for task in owners
    }
    lost = [task for task, owner in owners.items() if owner == "a"]
    places.lose("a")
    left = {task: owner for task, owner in owners.items() if owner != "a"}
    lags = {name: dict.fromkeys(tasks, 5) for name, tasks in places.following.items()}
    assert places.why_due(1.0, lags) == ""
    answer = places.decide(1.0, present("b c", left, lags, records=1000))
    assert lost
    for task in lost:
        assert [answer.owners[task]] == followers[task]
    # Those who are left hold everything twice.
    assert {name: len(tasks) for name, tasks in places.following.items()} == {
        name: 4 - len([owner for owner in answer.owners.values() if owner == name]) for name in "bc"
    }


def test_who_joins_warms_up_and_gets_tasks_when_it_has_caught_up() -> None:
    places = placements(standbys=0)
    owners = places.decide(0.0, present("a")).owners
    places.change()
    answer = places.decide(1.0, present("a b", owners, records=1000))
    assert answer.owners == owners
    warming = answer.members["b"].warm_up
    assert len(warming) == 2
    assert places.following == {"b": warming}
    assert places.why_due(2.0, {"b": dict.fromkeys(warming, 101)}) is None
    assert places.why_due(601.0, {}) == "the probing interval is over"
    [first, _] = sorted(warming)
    lags = {"b": {**dict.fromkeys(warming, 500), first: 100}}
    assert places.why_due(2.0, lags) == f"instance b has caught up with {first}"
    answer = places.decide(2.0, present("a b", owners, lags, records=1000))
    assert {task for task, owner in answer.owners.items() if owner == "b"} == {first}
    assert places.following == {"b": warming - {first}}


def test_a_warm_up_that_had_caught_up_before_is_not_asked_about_for_ever() -> None:
    class Stubborn:
        def assign(self, *asked: object) -> Assignment:
            held = {"a": MemberTasks(active=frozenset({A}))}
            held["b"] = MemberTasks(warm_up=frozenset({A}))
            return Assignment(members=held, probing=True)

    places = placements(TaskFacts(task=A, stateful=True), assignor=Stubborn())
    lags = {"b": {A: 0}}
    places.decide(0.0, present("a b", {A: "a"}, lags, records=1000))
    assert places.why_due(1.0, lags) is None
    assert places.why_due(600.0, lags) == "the probing interval is over"


def test_owners_run_whatever_their_copies_said_before() -> None:
    recorded = Recorded()
    places = placements(assignor=recorded)
    places.decide(0.0, present("a b", {A: "a"}, {"a": {A: 7}, "b": {A: 9}}, records=50))
    assert recorded.members["a"].lags == {A: RUNNING}
    assert recorded.members["b"].lags == {A: 9}
    assert recorded.tasks[B].changelog_records == 50


def test_tasks_of_a_member_that_is_away_stay_and_so_does_what_it_follows() -> None:
    recorded = Recorded()
    places = placements(assignor=recorded)
    owners = places.decide(0.0, present("a b")).owners
    followed = places.following
    places.change()
    answer = places.decide(1.0, present("b c", owners))
    assert set(recorded.tasks) == {task for task, owner in owners.items() if owner == "b"}
    assert places.following["a"] == followed["a"]
    # Whoever follows the tasks that stay follows them still.
    assert places.following["b"] >= followed["b"]
    assert "a" not in answer.members


def test_state_that_is_nowhere_else_stays_where_it_is() -> None:
    alone = [TaskFacts(task=task, stateful=True, standbys=False) for task in (A, B)]
    places = placements(*alone)
    assert places.decide(0.0, present("a")).owners == {A: "a", B: "a"}
    places.change()
    assert places.decide(1.0, present("a b", {A: "a", B: "a"})).moves == ()
    places.lose("a")
    assert set(places.decide(2.0, present("b")).owners.values()) == {"b"}


def test_without_members_nothing_is_decided() -> None:
    places = placements()
    assert places.decide(0.0, present("")).owners == {}
    assert places.following == {}


def test_who_comes_back_with_its_disk_spares_everybody_new_copies() -> None:
    tasks = tuple(TaskId(0, partition) for partition in range(8))
    places = placements(*(TaskFacts(task=task, stateful=True) for task in tasks))
    records = dict.fromkeys(tasks, 1_000)

    def decided(names: str, owners: Mapping[TaskId, str], lags: Lags) -> dict[TaskId, str]:
        members: dict[str, Mapping[str, str]] = {name: {} for name in names.split()}
        facts = Present(members=members, owners=owners, lags=lags, records=records)
        return places.decide(0.0, facts).owners

    owners = decided("a b c", {}, {})
    followed = places.following
    lags = {name: dict.fromkeys(held, 0) for name, held in followed.items()}
    on_disk = {*lags.pop("a"), *(task for task, owner in owners.items() if owner == "a")}
    places.lose("a")
    owners = decided("b c", {task: name for task, name in owners.items() if name != "a"}, lags)
    served = {task for task, owner in owners.items() if owner == "c"}
    lags = {name: {t: 0 for t in held if owners[t] != name} for name, held in lags.items()}
    # None of the copies that "b" and "c" were to build has been begun.
    lags["a2"] = dict.fromkeys(on_disk, 500)
    owners = decided("a2 b c", owners, lags)
    assert places.following == {"a2": on_disk, **{name: set(lags[name]) for name in ("b",)}}
    for task in sorted(on_disk):
        lags["a2"][task] = 0
        moved = decided("a2 b c", owners, lags)
        for each in moved:
            if owners[each] != moved[each]:
                lags[owners[each]][each] = 0
        owners = moved
        for name, held in places.following.items():
            assert held <= lags[name].keys(), "nobody begins with a copy that it has nothing of"
    assert served > {task for task, owner in owners.items() if owner == "c"}
