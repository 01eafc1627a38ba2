"""What the copies of a store say on a real broker: the owner's, a standby's, and in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.instance import querying
from penstock.instance.protocol import StoreOrder
from penstock.instance.query_messages import (
    HeldReply,
    StoreAnswer,
    StoreAnswers,
    StoreQuestion,
    StoreQuestions,
)
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask
from penstock.serdes.windowed import session_key, window_key
from penstock.stores.memory import MemoryStore
from tests.harness import wait_until
from tests.integration.test_following import Follower
from tests.integration.test_task import Rows, World, commit


@pytest.fixture
def world(kafka: str, tmp_path: Path) -> Iterator[World]:
    world = World(kafka, tmp_path / "owner")
    yield world
    world.close()


@pytest.fixture
def follower(world: World, tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(world, tmp_path / "follower")
    yield follower
    follower.close()


def owner_says(task: OpenTask, question: StoreQuestion) -> StoreAnswer:
    return querying.ask(question, task, None)


def follower_says(follower: Follower, question: StoreQuestion) -> StoreAnswer:
    told = follower.call("ask_many", StoreQuestions(questions=[question]))
    assert isinstance(told, StoreAnswers)
    [answer] = told.answers
    return answer


TIMED: dict[str, Any] = {"retention_ms": 1_000_000, "segment_ms": 60_000}
GET = StoreQuestion(store="counts", task="0_0", keys=[b"a", b"b"])
KINDS: dict[str, tuple[dict[str, Any], Rows, StoreQuestion, int]] = {
    "key_value": ({}, [(b"a", b"1", 7), (b"b", b"2", 8), (b"a", b"3", 9)], GET, 2),
    "memory": ({"persistent": False}, [(b"a", b"1", 7)], GET, 2),
    "window": (
        {"kind": "window", **TIMED},
        [(window_key(b"a", start), b"1", start) for start in (0, 60, 120)],
        StoreQuestion(
            store="counts", task="0_0", kind="fetch", layout="window", keys=[b"a"], first=60
        ),
        2,
    ),
    "session": (
        {"kind": "session", **TIMED},
        [(session_key(b"a", 0, 60), b"1", 60), (session_key(b"b", 5, 9), b"1", 9)],
        StoreQuestion(store="counts", task="0_0", kind="scan", layout="session", upper=b"b"),
        1,
    ),
    "versioned": (
        {"kind": "versioned", **TIMED},
        [(b"a", b"1", 7), (b"a", b"2", 9)],
        StoreQuestion(
            store="counts", task="0_0", kind="as_of", keys=[b"a"], as_of=8, retention_ms=1_000_000
        ),
        1,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_owner_and_standby_say_the_same_at_the_same_position(
    world: World, follower: Follower, kind: str
) -> None:
    options, rows, question, count = KINDS[kind]
    order: StoreOrder = world.store_order(**options)
    world.produce(2)
    task = world.take(order)
    assert owner_says(task, question).position is None
    assert commit(task, rows, to=1, metadata={}).status == "ok"
    told = owner_says(task, question)
    assert (told.role, told.position, told.reason) == ("active", len(rows) - 1, "")
    assert tuple(told.epoch) == tuple(task.order.epoch)
    assert len(told.found) == count
    follower.follow(order)
    follower.wait_caught_up()
    # Behind the last record is the mark of its transaction, which may come a moment later.
    wait_until(
        lambda: follower_says(follower, question).next_offset == len(rows) + 1,
        what="the follower read the mark",
    )
    copy = follower_says(follower, question)
    assert (copy.role, copy.position, copy.reason) == ("standby", told.position, "")
    assert (copy.found, copy.lag) == (told.found, 0)
    [held] = follower.call("held", HeldReply()).stores  # type: ignore[attr-defined]
    assert (held.store, held.role, held.next_offset) == ("counts", "standby", len(rows) + 1)
    task.close()
    assert owner_says(task, question).reason


def test_without_its_lease_an_owner_says_nothing_as_active(world: World) -> None:
    world.produce(1)
    task = world.give()
    holds = threading.Event()
    holds.set()
    task._environment = replace(task._environment, lease_holds=holds.is_set)
    task.take()
    assert commit(task, [(b"a", b"1", 7)], to=1, metadata={}).status == "ok"
    assert owner_says(task, GET).role == "active"
    holds.clear()
    answer = owner_says(task, GET)
    assert (answer.reason, answer.found) == ("task 0_0 is not whole here yet", [])
    task.close()


def test_who_loses_its_lease_during_a_look_says_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(1)
    task = world.give(world.store_order(persistent=False))
    holds = threading.Event()
    holds.set()
    task._environment = replace(task._environment, lease_holds=holds.is_set)
    task.take()
    look = MemoryStore.get_many

    def stand_still(store: MemoryStore, keys: list[bytes]) -> list[bytes | None]:
        found = look(store, keys)
        holds.clear()
        return found

    monkeypatch.setattr(MemoryStore, "get_many", stand_still)
    assert "given up" in owner_says(task, GET).reason
    task.close()


@pytest.mark.parametrize(
    ("owner", "step", "state"),
    [
        # Its standby still follows.
        (OpenTask, "_find_standing", "taking"),
        # It has its standby's stores.
        (TaskStores, "restore", "restoring"),
    ],
)
def test_on_the_way_from_standby_to_owner_it_still_answers_as_what_it_was(
    world: World,
    follower: Follower,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    step: str,
    state: str,
) -> None:
    world.produce(2)
    task = world.take()
    assert commit(task, [(b"a", b"1", 7)], to=1, metadata={}).status == "ok"
    follower.follow()
    follower.wait_caught_up()
    go_on = threading.Event()
    do = getattr(owner, step)

    def slow(*arguments: Any) -> Any:
        assert go_on.wait(60)
        return do(*arguments)

    monkeypatch.setattr(owner, step, slow)
    taking = threading.Thread(target=follower.take)
    taking.start()
    try:
        # It takes the task, and nobody serves it yet.
        wait_until(
            lambda: (
                [each.state for each in follower.statuses()] == [state]
                and not follower_says(follower, GET).reason
            ),
            what="the follower was taking the task",
        )
        answer = follower_says(follower, GET)
        assert (answer.role, answer.position) == ("standby", 0)
        assert [value for _, _, value, _ in answer.found] == [b"\x00" * 7 + b"\x071", None]
    finally:
        go_on.set()
        taking.join()
    assert follower_says(follower, GET).role == "active"
    task.close()


def test_a_look_never_sees_half_of_a_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.produce(2)
    task = world.take(world.store_order(persistent=False))
    assert commit(task, [(b"a", b"1", 7), (b"b", b"1", 7)], to=1, metadata={}).status == "ok"
    answers: list[StoreAnswer] = []
    apply = MemoryStore.apply
    askers: list[threading.Thread] = []

    def observed(store: MemoryStore, changes: Any, *, offset: int | None) -> None:
        apply(store, changes, offset=offset)
        if offset is None:
            # The first half is there, the second and the offset are not.
            asker = threading.Thread(target=lambda: answers.append(owner_says(task, GET)))
            askers.append(asker)
            asker.start()
            asker.join(0.05)

    monkeypatch.setattr(MemoryStore, "apply", observed)
    assert commit(task, [(b"a", b"2", 8), (b"b", b"2", 8)], to=2, metadata={}).status == "ok"
    for asker in askers:
        asker.join()
    [answer] = answers
    assert {value[8:] for _, _, value, _ in answer.found if value} == {b"2"}
    # The mark behind a transaction's last record may come after its commit was answered.
    wait_until(lambda: answer.position == world.offset() - 2, what="all is committed")
    task.close()
