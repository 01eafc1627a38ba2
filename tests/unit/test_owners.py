"""Tasks go to other owners between two slices, and nothing waits for it but the task itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from penstock.config import Config
from penstock.coordination.assignment import TaskFacts
from penstock.coordination.ids import Epoch, TaskId
from penstock.coordination.members import Change, ChangeKind, Member
from penstock.coordination.rebalances import Rebalance
from penstock.coordination.tasks import TaskBook
from penstock.driver.copies import CopyWatch, Wanted
from penstock.driver.events import Event, Notice, Rebalanced, Totals
from penstock.driver.monitor import Monitor
from penstock.driver.owners import TaskOwners
from penstock.driver.parts import DriverParts
from penstock.driver.questions import Asked, StatusQuestions, asked_as
from penstock.errors import FencedError, InstanceError, InstanceUnreachableError, PenstockError
from penstock.instance.protocol import (
    Message,
    PrepareOrder,
    ReleaseOrder,
    StatusReply,
    TakeOrder,
    TaskState,
    TaskStatus,
    fault_of,
)

TASKS = A, B, C, D = tuple(TaskId(0, partition) for partition in range(4))


class Instances:
    """Instances that do at once what they are told."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, TakeOrder]] = {}
        self.news: list[Change] = []
        self.told: list[str] = []
        self.silent: set[str] = set()
        self.gone: set[str] = set()
        self.stopped: set[str] = set()
        """Those who answer nothing, which nobody knows yet."""
        self.awaited = False
        self.capacities: dict[str, int] = {}
        self.others_take_over = False
        self.failing: PenstockError | None = None
        """Why they cannot take any task, if they cannot."""

    def change(self, kind: ChangeKind, name: str) -> None:
        if kind == "joined":
            self.held[name] = {}
        elif kind != "resumed":
            del self.held[name]
        self.news.append(Change(kind=kind, name=name))

    def changes(self) -> list[Change]:
        news, self.news = self.news, []
        return news

    def restart_children(self, *, others_take_over: bool) -> None:
        self.others_take_over = others_take_over

    def awaits_children(self) -> bool:
        return self.awaited

    def names(self) -> list[str]:
        return sorted(self.held)

    def away(self) -> frozenset[str]:
        return frozenset(self.gone)

    def come_back(self, name: str) -> None:
        """A static one that was away has another process, which holds nothing."""
        self.gone.discard(name)
        self.held[name] = {}
        self.news.append(Change(kind="returned", name=name))

    def member(self, name: str) -> Member:
        return Member(
            name=name,
            host="here",
            pid=1,
            unix_location="",
            tcp_location="",
            last_beat=0.0,
            capacity=self.capacities.get(name, 1),
        )

    def peers(self, name: str) -> list[str]:
        return []

    def is_silent(self, name: str) -> bool:
        return name in self.silent

    def doubt(self, name: str, error: InstanceError) -> None:
        self.told.append(f"doubted {name}")

    def call(self, name: str, action: str, message: Message, reply: type[Message]) -> Message:
        if name not in self.held or name in self.stopped:
            raise InstanceUnreachableError("gone")
        if isinstance(message, PrepareOrder):
            self.told.append(f"prepare {message.task} {name}")
        held = self.held[name]
        if isinstance(message, TakeOrder):
            self.told.append(f"take {message.task} {name}")
            held[message.task] = message
        elif isinstance(message, ReleaseOrder):
            self.told.append(f"release {message.task} {name}")
            del held[message.task]
        fault = None if self.failing is None else fault_of(self.failing)
        state: TaskState = "failed" if fault else "running"
        return StatusReply(
            tasks=[
                TaskStatus(task=task, epoch=each.epoch, state=state, fault=fault)
                for task, each in held.items()
            ]
        )

    def status(self, name: str, asked: Asked) -> StatusReply:
        return cast("StatusReply", self.call(name, asked_as(asked), asked, StatusReply))

    def owners(self) -> dict[str, str]:
        return {task: name for name, held in self.held.items() for task in held}


class Pool:
    """A pool of threads: what is submitted is done at once, or when a test says so."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    waiting: ClassVar[list[Callable[[], None]] | None] = None

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        if self.waiting is None:
            work(*arguments)
        else:
            self.waiting.append(lambda: work(*arguments))


@pytest.fixture(autouse=True)
def _pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.driver.questions.ThreadPoolExecutor", Pool)
    monkeypatch.setattr(Pool, "waiting", None)


class Copies:
    """What instances have, as a test says."""

    def __init__(self) -> None:
        self.said: dict[str, dict[TaskId, int]] = {}
        self.wanted: Mapping[str, Wanted] = {}
        self.heard = True
        self.on_their_way: set[tuple[str, TaskId]] = set()

    def want(self, wanted: Mapping[str, Wanted]) -> None:
        self.wanted = wanted

    def new_lags(self) -> dict[str, dict[TaskId, int]]:
        return self.said

    def catching_up(self) -> set[tuple[str, TaskId]]:
        return self.on_their_way

    def positions(self) -> dict[str, dict[TaskId, int]]:
        return {}

    def records(self) -> dict[TaskId, int]:
        return dict.fromkeys(TASKS, 50_000)

    def has_heard(self, names: object) -> bool:
        return self.heard

    def new_notes(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


class World:
    """A driver's tasks and their owners, with everything around them made up."""

    def __init__(self, **options: Any) -> None:
        self.instances, self.copies = Instances(), Copies()
        self.book = TaskBook([(task, f"counts-{task.partition}") for task in TASKS], generation=1)
        self.rebalances: list[Rebalance] = []
        self.notices: list[str] = []
        self.totals = Totals()
        self.heard_at = float("inf")
        """When Kafka said last that this is the driver."""
        prepared = SimpleNamespace(
            config=Config(**options),
            task_facts=lambda: [TaskFacts(task=task, stateful=True) for task in TASKS],
            take_order=self._take_order,
        )
        parts = SimpleNamespace(
            monitor=Monitor("app", Config()),
            prepared=prepared,
            coordinator=self.instances,
            lease=SimpleNamespace(holds_since=lambda moment: self.heard_at > moment),
            visit_executors=lambda: None,
            hear_restore=lambda event: None,
        )
        self.owners = TaskOwners(
            cast("DriverParts", parts),
            self.book,
            {f"counts-{task.partition}": task.partition for task in TASKS},
            listener=self._hear,
            totals=self.totals,
            copies=cast("CopyWatch", self.copies),
            commit_nothing=lambda piece: None,
        )

    def _take_order(self, task: TaskId, *, epoch: Epoch, **others: Any) -> TakeOrder:
        return TakeOrder(task=str(task), name="", epoch=epoch, inputs=[], stores=[], **others)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Rebalanced):
            self.rebalances.append(event.rebalance)
        elif isinstance(event, Notice):
            self.notices.append(event.text)

    def join(self, *names: str) -> None:
        for name in names:
            self.instances.change("joined", name)
        self.round()

    def round(self) -> None:
        """One round of the driver's loop, as far as owners are concerned."""
        self.owners.hear_members()
        self.owners.assign_tasks()
        self.owners._status_due = 0.0  # No test waits for a clock.
        self.owners.ask()

    def is_settled(self) -> bool:
        return self.owners.are_settled

    def plannable(self) -> set[TaskId]:
        return {view.task for view in self.book.views()}

    def finish(self, task: TaskId) -> None:
        self.book.finish(task, {}, 1, due=0.0, bytes_per_record=1.0, metadata={})


def test_the_first_tasks_are_spread_over_all_that_are_there() -> None:
    world = World(num_standby_replicas=1)
    world.join("a", "b")
    assert sorted(world.instances.owners().values()) == ["a", "a", "b", "b"]
    assert world.is_settled()
    for name in ("a", "b"):
        wanted = world.copies.wanted[name]
        assert wanted.owned == set(world.instances.held[name])
        assert wanted.followed == {str(task) for task in TASKS} - wanted.owned


def test_a_task_that_was_fenced_is_taken_again_by_who_knows_that_it_is_the_driver() -> None:
    world = World()
    world.instances.failing = FencedError("a newer instance")
    world.heard_at = time.monotonic()
    world.join("a")
    for _ in range(3):
        world.round()
    # Each time an owner of the other driver would have been fenced.
    assert sorted(world.instances.told) == [f"take {task} a" for task in TASKS]
    assert world.notices == []
    world.heard_at = time.monotonic()
    world.round()
    assert len(world.notices) == len(TASKS)
    world.instances.failing = None
    world.round()
    assert sorted(world.instances.told) == sorted(2 * [f"take {task} a" for task in TASKS])
    assert world.is_settled()


def test_a_standby_gets_the_tasks_of_the_lost_at_once() -> None:
    world = World(num_standby_replicas=1)
    world.join("a", "b", "c")
    lost = set(world.instances.held["a"])
    world.copies.said = {
        name: {TaskId.parse(task): 3 for task in wanted.followed}
        for name, wanted in world.copies.wanted.items()
    }
    followers = {
        task: name
        for task in lost
        for name, wanted in world.copies.wanted.items()
        if task in wanted.followed
    }
    world.copies.heard = False  # Nobody is asked first.
    world.instances.change("lost", "a")
    world.round()
    assert world.instances.others_take_over, "and a start would take a core from them"
    owners = world.instances.owners()
    assert lost
    assert {task: owners[task] for task in lost} == followers
    assert world.rebalances[-1].why == ("instance a was lost",)
    assert all(len(each.followed | each.owned) == 4 for each in world.copies.wanted.values())


def test_a_task_moves_after_its_slice_and_others_go_on() -> None:
    world = World()
    world.join("a")
    world.join("b")
    assert set(world.instances.owners().values()) == {"a"}
    warming = {TaskId.parse(task) for task in world.copies.wanted["b"].followed}
    assert len(warming) == 2
    assert world.is_settled()
    assert world.plannable() == set(TASKS)
    first, second = sorted(warming)
    others = set(TASKS) - warming
    world.book.start(first)
    world.copies.said = {"b": dict.fromkeys(warming, 10)}
    world.round()
    assert world.owners.flips.moving(time.monotonic()) == set()  # It is served already.
    # One had no job and has moved; the other waits for its own, and nobody else waits.
    assert world.instances.owners()[str(second)] == "b"
    assert world.instances.owners()[str(first)] == "a"
    assert not world.is_settled()
    assert world.plannable() == others | {second}
    assert str(first) in world.copies.wanted["b"].owned
    # Asked again before that, the assignor says the same again: no other rebalance.
    told = len(world.rebalances)
    world.owners._placements.change()
    world.round()
    assert len(world.rebalances) == world.totals.rebalances == told
    assert world.instances.owners()[str(first)] == "a"
    world.finish(first)
    assert first not in world.plannable()
    world.round()
    assert world.instances.owners()[str(first)] == "b"
    assert world.is_settled()
    assert world.plannable() == set(TASKS)
    # The old owner is made to let go by those who compare what instances hold.
    assert str(first) not in world.copies.wanted["a"].owned
    [*_, last] = world.rebalances
    assert last.why == (f"instance b has caught up with {first}",)
    assert {move.task for move in last.active_moves} == warming


def test_a_task_moves_to_who_follows_it_and_not_to_who_has_almost_caught_up() -> None:
    world = World()
    world.join("a")
    world.join("b")
    warming = {TaskId.parse(task) for task in world.copies.wanted["b"].followed}
    world.copies.said = {"b": dict.fromkeys(warming, 10)}
    world.copies.on_their_way = {("b", task) for task in warming}
    world.round()
    assert set(world.instances.owners().values()) == {"a"}
    world.copies.on_their_way = set()
    world.round()
    assert {TaskId.parse(task) for task in world.instances.held["b"]} == warming


def test_a_move_whose_target_is_lost_does_not_happen() -> None:
    world = World()
    world.join("a")
    world.join("b")
    warming = {TaskId.parse(task) for task in world.copies.wanted["b"].followed}
    for task in warming:
        world.book.start(task)
    world.copies.said = {"b": dict.fromkeys(warming, 10)}
    world.round()
    assert not world.is_settled()
    world.copies.said = {}
    world.instances.change("lost", "b")
    world.round()
    for task in warming:
        world.finish(task)
    world.round()
    assert set(world.instances.owners().values()) == {"a"}
    assert world.is_settled()
    assert world.plannable() == set(TASKS)


def warmed_up() -> tuple[World, set[TaskId]]:
    """Two tasks that are to move from a to b, from the next round on."""
    world = World()
    world.join("a")
    world.join("b")
    warming = {TaskId.parse(task) for task in world.copies.wanted["b"].followed}
    world.copies.said = {"b": dict.fromkeys(warming, 10)}
    return world, warming


def test_one_that_does_not_get_ready_gets_no_task_from_an_owner_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("penstock.driver.owners.time.monotonic", lambda: now)
    world, warming = warmed_up()
    world.instances.stopped = {"b"}
    world.instances.told.clear()
    for _ in range(3):
        world.round()
    assert world.instances.told == ["doubted b"] * len(warming), "not asked again at once"
    assert set(world.instances.owners().values()) == {"a"}
    assert world.plannable() == set(TASKS)
    now += 60.0
    world.round()
    assert set(world.instances.owners().values()) == {"a"}, "however long that lasts"
    world.instances.stopped = set()
    now += 1.0
    world.instances.told.clear()
    world.round()
    each = [(f"prepare {task} b", f"take {task} b") for task in sorted(warming)]
    assert world.instances.told == [*(one for one, _ in each), *(two for _, two in each)]
    assert world.is_settled()


@pytest.mark.parametrize("how", ["gone", "silent"])
def test_one_that_is_ready_and_stops_gets_no_task_from_an_owner_that_works(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("penstock.driver.owners.time.monotonic", lambda: now)
    world, warming = warmed_up()
    for task in warming:
        world.book.start(task)
    world.round()
    setattr(world.instances, how, {"b"})
    for task in warming:
        world.finish(task)
    world.round()
    assert set(world.instances.owners().values()) == {"a"}
    assert world.plannable() == set(TASKS)
    setattr(world.instances, how, set[str]())
    now += 1.0
    world.round()
    assert {TaskId.parse(task) for task in world.instances.held["b"]} == warming


def test_one_that_cannot_get_ready_takes_its_tasks_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, warming = warmed_up()
    call = Instances.call

    def broken(self: Instances, name: str, action: str, message: Message, reply: Any) -> Message:
        if isinstance(message, PrepareOrder):
            raise InstanceError("Kafka does not answer it")
        return call(self, name, action, message, reply)

    monkeypatch.setattr(Instances, "call", broken)
    world.round()
    assert {TaskId.parse(task) for task in world.instances.held["b"]} == warming


def test_who_joins_is_heard_first_and_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("penstock.driver.owners.time.monotonic", lambda: now)
    world = World()
    world.join("a")
    world.copies.heard = False
    world.join("b")
    assert world.copies.wanted["a"].owned == {str(task) for task in TASKS}
    assert "b" not in world.copies.wanted
    now = 103.0
    world.round()
    assert world.copies.wanted["b"].followed


def test_eager_gives_up_all_tasks_before_any_is_taken() -> None:
    world = World(rebalance_protocol="eager")
    world.join("a", "b")
    mine = sorted(world.instances.held["a"])
    world.book.start(TaskId.parse(mine[0]))
    world.instances.told.clear()
    world.instances.change("lost", "b")
    world.round()
    assert world.instances.told == []
    assert world.plannable() == set()
    world.finish(TaskId.parse(mine[0]))
    world.round()
    assert sorted(world.instances.told[:2]) == [f"release {task} a" for task in mine]
    assert sorted(world.instances.told[2:]) == [f"take {task} a" for task in TASKS]
    world.round()
    assert world.is_settled()
    assert world.plannable() == set(TASKS)


def test_eager_tells_of_a_move_once_however_often_it_is_decided() -> None:
    world = World(rebalance_protocol="eager")
    world.join("a", "b")
    mine = sorted(world.instances.held["a"])
    world.book.start(TaskId.parse(mine[0]))
    world.instances.change("lost", "b")
    world.round()
    told = len(world.rebalances)
    world.owners._placements.change()
    world.round()
    assert len(world.rebalances) == world.totals.rebalances == told
    assert world.plannable() == set(), "all wait for the slice that is under way, as before"
    world.finish(TaskId.parse(mine[0]))
    world.instances.told.clear()
    world.round()
    assert sorted(world.instances.told[:2]) == [f"release {task} a" for task in mine]
    world.round()
    assert world.is_settled()
    assert world.plannable() == set(TASKS)


def test_eager_has_copies_built_that_stop_nobody() -> None:
    world = World(rebalance_protocol="eager", num_standby_replicas=1)
    world.join("a")
    world.join("b")
    assert world.copies.wanted["b"].followed == {str(task) for task in TASKS}
    assert world.plannable() == set(TASKS)


def test_a_static_member_that_is_back_keeps_its_tasks_and_nobody_decides_anew() -> None:
    world = World()
    world.join("a", "b")
    mine = set(world.instances.held["a"])
    world.instances.gone.add("a")
    world.round()
    world.instances.come_back("a")
    world.round()
    assert set(world.instances.held["a"]) == mine
    assert world.is_settled()
    assert world.totals.rebalances == 1


def test_who_joined_while_a_static_member_was_away_gets_its_share_of_its_tasks() -> None:
    world = World()
    world.join("a")
    world.instances.gone.add("a")
    world.join("b")
    assert world.instances.held["b"] == {}
    world.instances.come_back("a")
    world.round()
    assert set(world.instances.held["a"]) == {str(task) for task in TASKS}
    # As one that had joined now: it follows two of them, and gets them when it has caught up.
    warming = {TaskId.parse(task) for task in world.copies.wanted["b"].followed}
    assert len(warming) == 2
    assert world.rebalances[-1].why == ("instance a is back",)
    world.copies.said = {"b": dict.fromkeys(warming, 10)}
    world.round()
    assert {TaskId.parse(task) for task in world.instances.held["b"]} == warming


def test_who_joined_while_a_static_member_stood_still_gets_its_share_of_its_tasks() -> None:
    world = World()
    world.join("a")
    world.instances.gone.add("a")
    world.join("b")
    world.instances.gone.discard("a")
    world.instances.change("resumed", "a")
    world.round()
    # It keeps what it had, until the other has caught up.
    assert world.book.owners == dict.fromkeys(TASKS, "a")
    assert len(world.copies.wanted["b"].followed) == 2
    assert world.rebalances[-1].why == ("instance a is back",)


def test_a_static_member_that_is_back_with_another_capacity_gets_tasks_by_it() -> None:
    world = World()
    world.join("a", "b")
    world.instances.gone.add("a")
    world.instances.capacities["a"] = 3
    world.instances.come_back("a")
    world.round()
    [task] = world.copies.wanted["a"].followed
    world.copies.said = {"a": {TaskId.parse(task): 10}}
    world.round()
    assert Counter(world.book.owners.values()) == {"a": 3, "b": 1}


def test_who_comes_and_goes_is_told_of_with_what_it_had() -> None:
    world = World()
    world.join("a")
    for kind, name in (("joined", "b"), ("lost", "b"), ("joined", "b"), ("left", "b")):
        world.instances.change(cast("ChangeKind", kind), name)
    world.round()
    assert world.notices == [
        "Instance b is lost; it had no tasks",
        "Instance b has left; it had no tasks",
    ]
    assert world.totals.rebalances == 1, "nothing moved"
    world.instances.change("lost", "a")
    world.join("c")
    [_, second] = world.rebalances
    assert second.why == ("instance a was lost", "instance c joined")
    assert world.notices[2:] == [
        f"Instance a is lost, and with it {', '.join(map(str, TASKS))}; others take over"
    ]


def test_an_owner_that_does_not_answer_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(Pool, "waiting", waiting)
    world.join("a", "b")
    world.round()
    assert len(waiting) == 2  # One question each, however often there is something to ask.
    assert world.plannable() == set()
    waiting.pop()()
    world.round()
    served = {TaskId.parse(task) for task in world.instances.held["b"]}
    assert world.plannable() == served
    # What the other says when it has moved on says nothing of what it was not asked about.
    [late, *_] = waiting
    for task in set(TASKS) - served:
        world.book.own(task, "a")
    late()
    world.round()
    assert world.plannable() == served


def test_an_order_that_is_out_of_date_is_not_given() -> None:
    given: list[str] = []
    about: dict[TaskId, Epoch] = {}

    def ask(owner: str, asked: Asked) -> StatusReply:
        is_order = isinstance(asked, TakeOrder)
        given.append(f"{owner} {asked.task} {asked.epoch[1]}" if is_order else owner)
        return StatusReply(tasks=[])

    def order(task: TaskId, number: int) -> TakeOrder:
        epoch = Epoch(1, number)
        return TakeOrder(
            task=str(task),
            name="",
            epoch=epoch,
            inputs=[],
            stores=[],
            first_taking=False,
            commits_partition=1,
        )

    questions = StatusQuestions(ask)
    questions.order("a", order(A, 1))
    questions.order("a", order(B, 2))
    questions.order("b", order(A, 3))
    assert questions.ordered == {"a", "b"}
    questions.ask("a", about)
    questions.ask("b", about)
    assert given == ["a 0_1 2", "a", "b 0_0 3", "b"]
    assert questions.ordered == set()


def test_no_job_begins_for_the_tasks_of_one_that_misses_its_beats() -> None:
    world = World()
    world.join("a", "b")
    world.instances.told.clear()
    world.instances.silent.add("a")
    kept = {TaskId.parse(task) for task in world.instances.held["b"]}
    held = world.instances.held.pop("a")
    world.round()
    assert world.plannable() == kept
    assert world.instances.told == ["doubted a"]
    # It was only slow.
    world.instances.held["a"] = held
    world.instances.silent.clear()
    world.round()
    assert world.plannable() == set(TASKS)


def test_others_wait_a_moment_for_a_task_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.join("a")
    world.join("b")
    warming = {TaskId.parse(task) for task in world.copies.wanted["b"].followed}
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(Pool, "waiting", waiting)
    world.copies.said = {"b": dict.fromkeys(warming, 10)}
    world.round()
    # Until the new owner is ready, the tasks are served as before.
    assert world.plannable() == set(TASKS)
    assert len(waiting) == len(warming)
    assert world.owners.flips.moving(time.monotonic()) == set()
    for get_ready in waiting:
        get_ready()
    world.round()
    assert world.plannable() == set(TASKS) - warming
    now = time.monotonic()
    assert world.owners.flips.moving(now) == {0}
    assert world.owners.flips.moving(now + 1.0) == set()


def test_nobody_waits_for_the_tasks_of_the_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.join("a", "b")
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(Pool, "waiting", waiting)
    world.instances.change("lost", "a")
    world.round()
    assert len(world.plannable()) == 2
    assert world.owners.flips.moving(time.monotonic()) == set()


def test_others_wait_a_moment_for_tasks_whose_standby_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(num_standby_replicas=1)
    world.join("a", "b", "c")
    lost = {TaskId.parse(task) for task in world.instances.held["a"]}
    world.copies.said = {
        name: {TaskId.parse(task): 3 for task in wanted.followed}
        for name, wanted in world.copies.wanted.items()
    }
    for task in world.plannable():
        world.book.start(task)
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(Pool, "waiting", waiting)
    world.instances.change("lost", "a")
    world.round()
    now = time.monotonic()
    assert world.owners.flips.moving(now) == {0}  # Its last job still runs.
    for task in TASKS:
        if task in lost:
            world.book.doubt(task, due=0.0)
        else:
            world.finish(task)
    assert world.owners.flips.moving(now) == {0}
    monkeypatch.setattr(Pool, "waiting", None)
    for work in waiting:
        work()
    world.round()
    assert world.owners.flips.moving(now) == set()
    assert world.plannable() == set(TASKS)


def test_no_copy_is_begun_while_a_lost_child_is_replaced() -> None:
    world = World(num_standby_replicas=1)
    world.join("a", "b", "c")
    before = {name: wanted.followed for name, wanted in world.copies.wanted.items()}
    world.copies.said = {
        name: {TaskId.parse(task): 3 for task in followed} for name, followed in before.items()
    }
    lost = {TaskId.parse(task) for task in world.instances.held["a"]}
    world.instances.awaited = True
    world.instances.change("lost", "a")
    world.round()
    for name in ("b", "c"):
        assert world.copies.wanted[name].followed <= before[name]
    assert sorted(world.instances.owners()) == [str(task) for task in TASKS]
    # The replacement is there; nothing is begun before it has said what it has.
    world.instances.awaited = False
    world.copies.heard = False
    world.join("a2")
    for name in ("b", "c"):
        assert world.copies.wanted[name].followed <= before[name]
    kept = {TaskId.parse(task): 20_000 for task in before["a"]} | dict.fromkeys(lost, 20_000)
    world.copies.said["a2"] = kept
    world.copies.heard = True
    world.round()
    wanted = world.copies.wanted
    assert wanted["a2"].followed == set(map(str, kept))
    for name in ("b", "c"):
        assert wanted[name].followed <= before[name]


def test_copies_are_begun_when_nobody_comes_in_place_of_the_lost() -> None:
    world = World(num_standby_replicas=1)
    world.join("a", "b", "c")
    world.instances.awaited = True
    world.instances.change("lost", "a")
    world.round()
    assert any(len(each.followed | each.owned) < 4 for each in world.copies.wanted.values())
    world.instances.awaited = False
    world.round()
    wanted = world.copies.wanted
    assert all(len(wanted[name].followed | wanted[name].owned) == 4 for name in ("b", "c"))


def test_who_can_take_more_gets_more() -> None:
    world = World()
    world.instances.capacities["b"] = 3
    world.join("a", "b")
    assert Counter(world.instances.owners().values()) == {"a": 1, "b": 3}


def test_who_takes_over_from_nobody_else_is_replaced_at_once() -> None:
    world = World()
    world.join("a")
    world.instances.change("lost", "a")
    world.round()
    assert not world.instances.others_take_over
