"""Who holds which task: Kafka Streams' published cases, and what holds whatever the question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import Config
from penstock.coordination.assignment import (
    RUNNING,
    Assignment,
    AssignmentOptions,
    MemberFacts,
    MemberTasks,
    TaskAssignor,
    TaskFacts,
)
from penstock.coordination.assignors import (
    KafkaStreamsAssignor,
    StickyAssignor,
    decide,
    load_assignor,
)
from penstock.coordination.balance import shares
from penstock.coordination.draft import Draft
from penstock.coordination.ids import TaskId
from penstock.coordination.warming import Warming
from penstock.errors import AssignmentError, ConfigError
from tests.conformance.assignment_cases import NO_LIMIT, AssignmentCase, make_assignment_case

UNHURRIED = settings(deadline=None)
CASES = st.integers(0, 2**32).map(make_assignment_case)
BOTH = pytest.mark.parametrize("assignor", [StickyAssignor(), KafkaStreamsAssignor()])
UNKNOWN = 2**62
"""The length of a changelog that nobody can read in time."""
ONE = TaskId(0, 0)


def ids(*texts: str) -> frozenset[TaskId]:
    return frozenset(map(TaskId.parse, texts))


def stateful(*texts: str, records: int = UNKNOWN) -> list[TaskFacts]:
    return [
        TaskFacts(task=task, stateful=True, changelog_records=records)
        for task in sorted(ids(*texts))
    ]


def stateless(*texts: str) -> list[TaskFacts]:
    return [TaskFacts(task=task, stateful=False) for task in sorted(ids(*texts))]


def member(
    name: str, *active: str, standby: Iterable[str] = (), capacity: int = 1, **lags: int
) -> MemberFacts:
    """A member; `t0_1=5` says that it lacks 5 records of task 0_1."""
    return MemberFacts(
        name=name,
        capacity=capacity,
        active=ids(*active),
        standby=ids(*standby),
        lags={TaskId.parse(text[1:]): lag for text, lag in lags.items()},
    )


def all_lags(tasks: Iterable[str], lag: int) -> dict[str, int]:
    return {f"t{text}": lag for text in tasks}


def options(
    *, standbys: int = 0, lag: int = 100, warm_ups: int = 2, tags: tuple[str, ...] = ()
) -> AssignmentOptions:
    return AssignmentOptions(
        num_standby_replicas=standbys,
        acceptable_recovery_lag=lag,
        max_warmup_replicas=warm_ups,
        rack_aware_assignment_tags=tags,
    )


def counts(answer: Assignment) -> dict[str, int]:
    return {
        name: len(held.active | held.standby | held.warm_up)
        for name, held in answer.members.items()
    }


NINE = [f"{sub}_{partition}" for sub in range(3) for partition in range(3)]


@BOTH
class TestPublishedCases:
    """Kafka Streams' own, as its high-availability assignor answers them."""

    def test_tasks_stay_while_others_warm_up(self, assignor: TaskAssignor) -> None:
        members = [
            member("c1", *NINE, **all_lags(NINE, 0)),
            member("c2", standby=NINE, **all_lags(NINE, 10)),
            member("c3"),
        ]
        answer = decide(assignor, stateful(*NINE), members, options(standbys=1, lag=11))
        assert counts(answer) == {"c1": 9, "c2": 9, "c3": 2}
        assert answer.probing

    def test_nobody_waits_who_accepts_any_lag(self, assignor: TaskAssignor) -> None:
        members = [member("c1", *NINE, **all_lags(NINE, 0)), member("c2"), member("c3")]
        answer = decide(assignor, stateful(*NINE), members, options(standbys=1, lag=NO_LIMIT))
        assert counts(answer) == {"c1": 6, "c2": 6, "c3": 6}
        assert not answer.probing

    def test_who_can_take_more_gets_more(self, assignor: TaskAssignor) -> None:
        tasks = stateful(*NINE[:6])
        members = [member(f"c{capacity}", capacity=capacity) for capacity in (1, 2, 3)]
        answer = decide(assignor, tasks, members, options())
        assert [len(answer.members[name].active) for name in ("c1", "c2", "c3")] == [1, 2, 3]

    def test_the_caught_up_serves_while_the_owner_warms_up(self, assignor: TaskAssignor) -> None:
        tasks = stateful("0_0") + stateless("0_1")
        members = [member("c1", "0_0", t0_0=500), member("c2", "0_1", t0_0=0)]
        answer = decide(assignor, tasks, members, options())
        assert answer.members["c1"] == MemberTasks(active=ids("0_1"), warm_up=ids("0_0"))
        assert answer.members["c2"] == MemberTasks(active=ids("0_0"))
        assert answer.probing

    def test_if_nobody_caught_up_the_nearest_serves(self, assignor: TaskAssignor) -> None:
        members = [member("c1", "0_0"), member("c2", t0_0=1000), member("c3", t0_0=500)]
        answer = decide(assignor, stateful("0_0"), members, options(standbys=1))
        assert answer.members["c1"] == MemberTasks(warm_up=ids("0_0"))
        assert answer.members["c2"] == MemberTasks(standby=ids("0_0"))
        assert answer.members["c3"] == MemberTasks(active=ids("0_0"))
        assert answer.probing

    def test_standbys_are_crossed(self, assignor: TaskAssignor) -> None:
        members = [member("c1", "0_0", t0_0=RUNNING), member("c2", "0_1", t0_1=RUNNING)]
        answer = decide(assignor, stateful("0_0", "0_1"), members, options(standbys=1))
        assert answer.members["c1"] == MemberTasks(active=ids("0_0"), standby=ids("0_1"))
        assert answer.members["c2"] == MemberTasks(active=ids("0_1"), standby=ids("0_0"))
        assert not answer.probing

    def test_no_more_warm_up_than_allowed(self, assignor: TaskAssignor) -> None:
        four = ["0_0", "0_1", "1_0", "1_1"]
        members = [member("c1", *four, **all_lags(four, RUNNING)), member("c2")]
        answer = decide(assignor, stateful(*four), members, options(warm_ups=1))
        assert answer.members["c1"].active == ids(*four)
        assert len(answer.members["c2"].warm_up) == 1
        assert not answer.members["c2"].active
        assert answer.probing

    def test_one_member_has_no_standbys(self, assignor: TaskAssignor) -> None:
        members = [member("c1", "0_0", t0_0=RUNNING)]
        answer = decide(assignor, stateful("0_0"), members, options(standbys=1))
        assert answer.members == {"c1": MemberTasks(active=ids("0_0"))}
        assert not answer.probing


class TestPublishedMovements:
    """Kafka Streams' cases of the step that holds tasks back, on drafts made by hand."""

    def draft(self, warm_ups: int, **lags: str) -> Draft:
        """c1, c2 and c3 are to serve 0_0, 0_1 and 0_2; `t0_1="c3"` says who caught up."""
        tasks = stateful("0_0", "0_1", "0_2")
        members = [
            member(name, **{task: 0 for task, who in lags.items() if who == name})
            for name in ("c1", "c2", "c3")
        ]
        draft = Draft(tasks, members, options(warm_ups=warm_ups), sticky=False)
        for number, place in enumerate(draft.places.values()):
            place.active.add(TaskId(0, number))
        return draft

    @pytest.mark.parametrize(("warm_ups", "left"), [(NO_LIMIT, {"c2", "c3"}), (1, {"c2"})])
    def test_tasks_go_to_who_caught_up(self, warm_ups: int, left: set[str]) -> None:
        draft = self.draft(warm_ups, t0_0="c1", t0_1="c3", t0_2="c2")
        assert Warming(draft).hold_back_actives() == 2
        places = draft.places
        assert places["c1"].active == ids("0_0")
        assert places["c2"].active == ids("0_2")
        assert places["c3"].active == ids("0_1")
        expected = {"c2": ids("0_1"), "c3": ids("0_2")}
        for name, place in places.items():
            assert place.standby == (expected[name] if name in left else set())

    def test_a_caught_up_standby_changes_places_without_a_warm_up(self) -> None:
        tasks = stateful("0_0")
        members = [member("c1", t0_0=0), member("c2")]
        draft = Draft(tasks, members, options(warm_ups=0), sticky=False)
        draft.places["c1"].standby |= ids("0_0")
        draft.places["c2"].active |= ids("0_0")
        assert Warming(draft).hold_back_actives() == 1
        assert draft.places["c1"].tasks() == MemberTasks(active=ids("0_0"))
        assert draft.places["c2"].tasks() == MemberTasks(standby=ids("0_0"))

    def test_nothing_moves_if_all_lack_as_much(self) -> None:
        draft = self.draft(NO_LIMIT)
        assert Warming(draft).hold_back_actives() == 0


def decided(case: AssignmentCase, assignor: TaskAssignor | None = None) -> Assignment:
    # `decide` refuses an answer in which a task has no owner or two, or a member holds it twice.
    return decide(assignor or StickyAssignor(), case.tasks, case.members, case.options)


def even(loads: dict[str, int], capacities: dict[str, int]) -> bool:
    """Whether no task can go to another member without making that one the more loaded."""
    return all(
        (loads[source] - 1) / capacities[source] < (loads[target] + 1) / capacities[target]
        for source in loads
        for target in loads
        if source != target
    )


def applied(case: AssignmentCase, answer: Assignment, *, caught_up: bool = True) -> AssignmentCase:
    """The same members after they did what they were told; what they leave stays on their disks."""
    members = []
    for each in case.members:
        held = answer.members[each.name]
        followed = held.standby | held.warm_up
        lags = {task: max(lag, 1_000) if lag == RUNNING else lag for task, lag in each.lags.items()}
        lags |= dict.fromkeys(followed, 0) if caught_up else {}
        lags |= dict.fromkeys(held.active, RUNNING)
        members.append(replace(each, active=held.active, standby=followed, lags=lags))
    return replace(case, members=tuple(members))


def settled(case: AssignmentCase, *, rounds: int) -> AssignmentCase:
    """The members when nobody waits any more, which takes so many rounds at most."""
    for _ in range(rounds):
        answer = decided(case)
        case = applied(case, answer)
        if not answer.probing:
            return case
    raise AssertionError(f"still waiting after {rounds} rounds")


def size(case: AssignmentCase) -> int:
    return sum(each.stateful for each in case.tasks)


def rounds_max(case: AssignmentCase) -> int:
    """Kafka Streams' bound for members of which nothing is known."""
    return 2 * size(case) * (1 + case.options.num_standby_replicas) + 1


def warm_up_rounds(case: AssignmentCase) -> int:
    """How many rounds it takes to warm up every copy of every task once."""
    copies = size(case) * (1 + min(case.options.num_standby_replicas, len(case.members)))
    return -(-copies // case.options.max_warmup_replicas)


class TestWhatever:
    @UNHURRIED
    @given(CASES)
    def test_every_task_has_one_owner_and_standbys_elsewhere(self, case: AssignmentCase) -> None:
        answer = decided(case)
        owners = Counter(task for held in answer.members.values() for task in held.active)
        assert owners == Counter(each.task for each in case.tasks)
        wanted = min(case.options.num_standby_replicas, len(case.members) - 1)
        standbys = Counter(task for held in answer.members.values() for task in held.standby)
        for each in case.tasks:
            assert standbys[each.task] == (wanted if each.followed else 0)

    @UNHURRIED
    @given(CASES)
    def test_no_more_warm_up_than_allowed(self, case: AssignmentCase) -> None:
        for assignor in (StickyAssignor(), KafkaStreamsAssignor()):
            held = decided(case, assignor).members.values()
            assert sum(len(each.warm_up) for each in held) <= case.options.max_warmup_replicas

    @UNHURRIED
    @given(CASES)
    def test_nobody_serves_what_another_has_more_of(self, case: AssignmentCase) -> None:
        answer = decided(case)
        lags = Draft(case.tasks, case.members, case.options, sticky=True).lags
        for name, held in answer.members.items():
            assert not any(lags.behind(name, task) for task in held.active)

    @UNHURRIED
    @given(CASES)
    def test_the_load_is_even_when_nobody_has_to_wait(self, case: AssignmentCase) -> None:
        case = replace(case, options=replace(case.options, acceptable_recovery_lag=NO_LIMIT))
        answer = decided(case)
        assert not answer.probing
        capacities = {each.name: each.capacity for each in case.members}
        kept = {each.task for each in case.tasks if each.stateful}
        held = answer.members
        assert even({name: len(held[name].active & kept) for name in held}, capacities)
        assert even({name: len(held[name].active) for name in held}, capacities)

    @UNHURRIED
    @given(CASES)
    def test_the_same_question_again_moves_nothing(self, case: AssignmentCase) -> None:
        case = settled(case, rounds=rounds_max(case))
        again = decided(case)
        assert again.moves == ()
        assert not again.probing

    @UNHURRIED
    @given(CASES, st.integers(0, 6))
    def test_who_leaves_moves_its_own_tasks_only(self, case: AssignmentCase, number: int) -> None:
        case = settled(case, rounds=rounds_max(case))
        gone = case.members[number % len(case.members)]
        rest = tuple(each for each in case.members if each is not gone)
        answer = decided(replace(case, members=rest))
        moved = {move.task for move in answer.moves if move.role == "active"}
        # Tasks without state cost nothing to move, and even out what those with state leave uneven.
        assert (moved & stateful_of(case) if stateful_of(case) else moved) <= gone.active
        if rest:
            settled(replace(case, members=rest), rounds=warm_up_rounds(case) + 2)

    @UNHURRIED
    @given(CASES)
    def test_a_standby_that_caught_up_takes_over(self, case: AssignmentCase) -> None:
        case = settled(case, rounds=rounds_max(case))
        if len(case.members) == 1 or not case.options.num_standby_replicas:
            return
        gone, *rest = case.members
        answer = decided(replace(case, members=tuple(rest)))
        lags = Draft(case.tasks, rest, case.options, sticky=True).lags
        assert all(lags.caught_up(answer.owners[task], task) for task in gone.active)

    @UNHURRIED
    @given(CASES, st.integers(1, 4))
    def test_who_joins_has_its_share_after_a_few_rounds(
        self, case: AssignmentCase, capacity: int
    ) -> None:
        case = settled(case, rounds=rounds_max(case))
        new = MemberFacts(name="new", capacity=capacity, tags=case.members[0].tags)
        joined = replace(case, members=(*case.members, new))
        before = {task: each.name for each in case.members for task in each.active}
        held = {each.name: len(each.active & stateful_of(case)) for each in joined.members}
        share = shares(held, {each.name: each.capacity for each in joined.members}, more=0)
        after = settled(joined, rounds=warm_up_rounds(case) + 1)
        moved = [
            task
            for each in after.members
            for task in each.active & stateful_of(case)
            if before[task] != each.name
        ]
        assert len(moved) == share["new"]

    @UNHURRIED
    @given(CASES)
    def test_who_warms_up_goes_on_until_it_caught_up(self, case: AssignmentCase) -> None:
        case = replace(case, options=replace(case.options, num_standby_replicas=0))
        case = settled(case, rounds=rounds_max(case))
        joined = replace(case, members=(*case.members, MemberFacts(name="new")))
        first = decided(joined)
        assert decided(applied(joined, first, caught_up=False)).moves == ()


def stateful_of(case: AssignmentCase) -> set[TaskId]:
    return {each.task for each in case.tasks if each.stateful}


class TestStandbysAndTags:
    def zoned(self, zones: str, **options: str) -> list[MemberFacts]:
        """A member per letter, each in the zone of that letter."""
        return [
            MemberFacts(name=f"m{number}", tags={"zone": zone, **options})
            for number, zone in enumerate(zones)
        ]

    @UNHURRIED
    @given(st.integers(1, 30), st.text("abc", min_size=2, max_size=9))
    def test_a_standby_is_in_another_zone_than_its_active(self, tasks: int, zones: str) -> None:
        facts = stateful(*(f"0_{number}" for number in range(tasks)))
        members = self.zoned(zones)
        answer = decide(StickyAssignor(), facts, members, options(standbys=1, tags=("zone",)))
        zone = {each.name: each.tags["zone"] for each in members}
        for name, held in answer.members.items():
            for task in held.standby:
                if len(set(zones)) > 1:
                    assert zone[name] != zone[answer.owners[task]]

    def test_where_zones_run_out_any_will_do(self) -> None:
        members = self.zoned("aab")
        answer = decide(
            StickyAssignor(), stateful("0_0"), members, options(standbys=2, tags=("zone",))
        )
        assert counts(answer) == {"m0": 1, "m1": 1, "m2": 1}

    def test_tags_that_nobody_named_count_for_nothing(self) -> None:
        members = self.zoned("aab")
        answer = decide(
            StickyAssignor(), stateful("0_0"), members, options(standbys=1, tags=("rack",))
        )
        assert answer.members["m1"].standby == ids("0_0")

    def test_a_tag_that_all_differ_in_keeps_no_standby_where_it_is(self) -> None:
        names = [f"0_{number}" for number in range(6)]
        owner, full, empty = self.zoned("abb")
        members = [
            replace(
                owner, capacity=9, active=ids(*names), lags=dict.fromkeys(ids(*names), RUNNING)
            ),
            replace(full, standby=ids(*names), lags=dict.fromkeys(ids(*names), 0)),
            empty,
        ]
        hosts = [replace(each, tags={**each.tags, "host": each.name}) for each in members]
        asked = options(standbys=1, tags=("zone",))
        answer = decide(StickyAssignor(), stateful(*names), hosts, asked)
        assert answer == decide(StickyAssignor(), stateful(*names), members, asked)
        assert answer.members["m2"].warm_up

    def test_a_standby_in_the_zone_of_a_promoted_one_is_built_elsewhere(self) -> None:
        north, south, west = self.zoned("nsw")
        lags = {ONE: 0}
        south = replace(south, standby=ids("0_0"), lags=lags)
        other = replace(south, name="m3")
        answer = decide(
            StickyAssignor(),
            stateful("0_0"),
            [south, west, other],
            options(standbys=1, tags=("zone",)),
        )
        assert answer.owners == {ONE: "m1"}
        # It is in the other zone that it is to be; what m3 has is kept until that caught up.
        assert answer.members["m3"].standby | answer.members["m2"].warm_up == ids("0_0")
        assert north.name not in answer.members

    def test_what_has_no_changelog_has_no_standby_and_waits_for_nobody(self) -> None:
        task = TaskFacts(task=ONE, stateful=True, standbys=False)
        members = [member("a"), member("b")]
        answer = decide(StickyAssignor(), [task], members, options(standbys=1, lag=0))
        assert answer.members == {"a": MemberTasks(active=ids("0_0")), "b": MemberTasks()}


class TestMoves:
    def test_each_says_from_where_to_where_and_why(self) -> None:
        four = ["0_0", "0_1", "1_0", "1_1"]
        members = [member("a", *four[:3], **all_lags(four[:3], RUNNING)), member("b")]
        answer = decide(StickyAssignor(), stateful(*four), members, options(warm_ups=1))
        assert [str(move) for move in answer.moves] == [
            "0_0 (warm-up) from a to b: for an even load",
            "1_1 (active) to b: nobody had it",
        ]

    def test_who_lags_gives_way(self) -> None:
        members = [member("a", "0_0", t0_0=500), member("b", t0_0=0)]
        answer = decide(StickyAssignor(), stateful("0_0"), members, options())
        assert [str(move) for move in answer.moves] == [
            "0_0 (active) from a to b: where more of its state is",
            "0_0 (warm-up) from b to a: where more of its state is",
        ]

    def test_a_standby_that_is_missing_is_built(self) -> None:
        members = [member("a", "0_0", t0_0=RUNNING), member("b")]
        answer = decide(StickyAssignor(), stateful("0_0"), members, options(standbys=1))
        assert [str(move) for move in answer.moves] == [
            "0_0 (standby) to b: it had too few standbys"
        ]


class Everything:
    """A user's assignor: the first member gets all."""

    def assign(
        self,
        tasks: Iterable[TaskFacts],
        members: Iterable[MemberFacts],
        options: AssignmentOptions,
    ) -> Assignment:
        held = MemberTasks(active=frozenset(each.task for each in tasks))
        return Assignment(members={next(iter(members)).name: held})


class Answers:
    """A user's assignor that says what it was told to say."""

    def __init__(self, say: Callable[[], Assignment]) -> None:
        self._say = say

    def assign(self, tasks: object, members: object, options: object) -> Assignment:
        return self._say()


def says(**members: MemberTasks) -> Answers:
    return Answers(lambda: Assignment(members=members))


def no_good() -> Assignment:
    raise KeyError("zone")


PATH = "tests.unit.test_assignment"


class TestUsersAssignor:
    def test_it_is_found_by_its_path(self) -> None:
        assignor = load_assignor(f"{PATH}:Everything")
        members = [member("a"), member("b", "0_0")]
        answer = decide(assignor, stateful("0_0"), members, options())
        assert answer.owners == {ONE: "a"}
        assert [str(move) for move in answer.moves] == [
            "0_0 (active) from b to a: the task assignor said so"
        ]

    @pytest.mark.parametrize("path", ["no_such_module:Thing", f"{PATH}:Nothing", f"{PATH}:PATH"])
    def test_what_is_none_is_refused(self, path: str) -> None:
        with pytest.raises(ConfigError, match="task_assignor"):
            load_assignor(path)

    @pytest.mark.parametrize(
        ("assignor", "message"),
        [
            (says(), "0_0 to nobody"),
            (says(a=MemberTasks(active=ids("0_0", "7_7"))), "7_7, which is no task"),
            (says(x=MemberTasks(active=ids("0_0"))), "'x', which is no member"),
            (
                says(a=MemberTasks(active=ids("0_0")), b=MemberTasks(active=ids("0_0"))),
                "both a and b the owner of 0_0",
            ),
            (says(a=MemberTasks(active=ids("0_0"), standby=ids("0_0"))), "to a in two roles"),
            (
                says(a=MemberTasks(active=ids("0_0", "0_1")), b=MemberTasks(standby=ids("0_1"))),
                "made b follow 0_1, which has no changelog",
            ),
            (Answers(no_good), "raised KeyError"),
        ],
    )
    def test_an_answer_that_cannot_be_done_is_refused(
        self, assignor: TaskAssignor, message: str
    ) -> None:
        tasks = stateful("0_0") + stateless("0_1")
        if "0_1" not in message:
            tasks = tasks[:1]
        with pytest.raises(AssignmentError, match=message):
            decide(assignor, tasks, [member("a"), member("b")], options())

    def test_without_members_nobody_is_asked(self) -> None:
        assert decide(Answers(no_good), stateful("0_0"), [], options()).members == {}

    def test_options_come_from_the_config(self) -> None:
        config = Config.from_properties(
            {
                "num.standby.replicas": "2",
                "acceptable.recovery.lag": "5",
                "max.warmup.replicas": "3",
                "rack.aware.assignment.tags": "zone, cluster",
                "client.tag.zone": "a",
            }
        )
        assert AssignmentOptions.of(config) == options(
            standbys=2, lag=5, warm_ups=3, tags=("zone", "cluster")
        )
        assert config.client_tags == {"zone": "a"}
