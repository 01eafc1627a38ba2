"""The tasks of an instance: who is taken again waits until its stores were let go."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import KafkaError
from penstock.instance import holder as module
from penstock.instance import preparing, protocol
from penstock.instance.holder import Holder
from penstock.instance.preparing import PreparedWriters
from penstock.instance.protocol import (
    PrepareOrder,
    ReleaseOrder,
    StatusQuestion,
    StatusReply,
    TakeOrder,
    TaskState,
    TaskStatus,
)
from penstock.observability.recorder import Recorder


class SlowTask:
    """A task whose stores take long to close; what happens is written down."""

    happened: list[tuple[str, int]]
    closable: threading.Event
    something: threading.Condition

    def __init__(self, order: TakeOrder, _: object) -> None:
        self.order = order
        self.is_running = False
        self.prepared: object = None
        self.state: TaskState = "taking"
        self.notes: list[str] = []
        self._has_stores = False

    def take(self, _: object, prepared: object) -> None:
        self.prepared = prepared
        self._has_stores = True
        self._tell("taken")

    def stop_taking(self) -> None: ...

    def tell(self, notes: list[str]) -> None:
        self.notes += notes

    def close(self) -> None:
        self._tell("closing")
        # Who was given up before it was taken has nothing to close.
        assert not self._has_stores or self.closable.wait(60)
        self._tell("closed")

    def status(self) -> TaskStatus:
        order = self.order
        return TaskStatus(
            task=order.task,
            epoch=order.epoch,
            state=self.state,
            position={},
            n=0,
            notes=list(self.notes),
        )

    def _tell(self, what: str) -> None:
        with self.something:
            self.happened.append((what, self.order.epoch[1]))
            self.something.notify_all()


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> type[SlowTask]:
    monkeypatch.setattr(module, "OpenTask", SlowTask)
    SlowTask.happened = []
    SlowTask.closable, SlowTask.something = threading.Event(), threading.Condition()
    return SlowTask


def order(number: int) -> bytes:
    return protocol.encode(
        TakeOrder(
            task="0_1",
            name="0_1",
            epoch=(1, number),
            first_taking=False,
            inputs=[],
            stores=[],
            commits_partition=1,
        )
    )


@pytest.mark.parametrize(
    "orders",
    [
        # Each number is an order to take the task under that epoch, or to release it (< 0).
        [-1, 2],
        [-1, 2, 3],
        [-1, 2, -2, 3],
        [2, 3],
        [2, -2, 3],
    ],
)
def test_a_task_that_comes_back_waits_until_its_stores_were_let_go(
    task: type[SlowTask], orders: list[int]
) -> None:
    environment: Any = SimpleNamespace(recorder=Recorder("OFF"))
    tables: Any = SimpleNamespace(new_notes=list, restores=SimpleNamespace(latest=list))
    actions = Holder(environment, tables).actions
    last = orders[-1]

    def wait_for(*wanted: tuple[str, int]) -> None:
        with task.something:
            assert task.something.wait_for(lambda: set(wanted) & set(task.happened), 60)

    actions["take"](order(1))
    wait_for(("taken", 1))
    for number in orders:
        if number < 0:
            actions["release"](protocol.encode(ReleaseOrder(task="0_1", epoch=(1, -number))))
        else:
            actions["take"](order(number))
        wait_for(("closing", 1))
        if number == -2:
            wait_for(("closed", 2))
    # Who releases the first closes it, and so does everybody who is to take it after that.
    waiting = sum(number in (-1, 2, 3) for number in orders)
    with task.something:
        # It waits for the first to be closed, or has not, and takes the task.
        assert task.something.wait_for(
            lambda: (
                task.happened.count(("closing", 1)) == waiting or ("taken", last) in task.happened
            ),
            60,
        )
    task.closable.set()
    wait_for(("taken", last))
    closed, taken = task.happened.index(("closed", 1)), task.happened.index(("taken", last))
    assert closed < taken


def test_what_is_to_be_said_of_the_directory_is_told_once_with_a_tasks_status(
    task: type[SlowTask],
) -> None:
    environment: Any = SimpleNamespace(recorder=Recorder("OFF"))
    tables: Any = SimpleNamespace(new_notes=list, restores=SimpleNamespace(latest=list), fault=None)
    actions = Holder(environment, tables, notes=["doubtful"]).actions

    def told() -> list[list[str]]:
        reply = actions["status"](protocol.encode(StatusQuestion()))
        assert isinstance(reply, StatusReply)
        return [each.notes for each in reply.tasks]

    # While there is nobody to say it, it waits.
    assert told() == []
    actions["take"](order(1))
    with task.something:
        assert task.something.wait_for(lambda: ("taken", 1) in task.happened, 60)
    assert told() == told() == [["doubtful"]]


def test_a_writer_that_was_made_before_is_the_next_owners(
    task: type[SlowTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    class Writer:
        def connect(self, topic: str) -> None:
            made.append(topic)

    monkeypatch.setattr(preparing, "new_writer", lambda name, environment: Writer())
    environment: Any = SimpleNamespace(recorder=Recorder("OFF"), application_id="app")
    tables: Any = SimpleNamespace()
    holder = Holder(environment, tables)
    prepare = PrepareOrder(task="0_1", name="counts-1")
    for _ in range(2):
        holder.actions["prepare"](protocol.encode(prepare))
    assert made == ["app-commits"], "asked twice, it is ready"
    holder.actions["take"](order(1))
    with task.something:
        assert task.something.wait_for(lambda: ("taken", 1) in task.happened, 60)
    taken: Any = holder._tasks["0_1"]
    assert isinstance(taken.prepared, Writer)
    assert holder._writers.pop("0_1") is None


def test_who_asks_again_does_not_wait_for_a_writer_that_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connecting, found = threading.Event(), threading.Event()

    class Writer:
        def connect(self, topic: str) -> None:
            connecting.set()
            assert found.wait(60)
            raise KafkaError("Nothing answers")

    monkeypatch.setattr(preparing, "new_writer", lambda name, environment: Writer())
    writers = PreparedWriters(SimpleNamespace(application_id="app"))  # type: ignore[arg-type]
    order = PrepareOrder(task="0_1", name="counts-1")
    told: list[str] = []

    def ask() -> None:
        with pytest.raises(KafkaError):
            writers.prepare(order)
        told.append("failed")

    asking = threading.Thread(target=ask)
    asking.start()
    assert connecting.wait(60)
    writers.prepare(order)
    assert told == []
    found.set()
    asking.join(60)
    assert told == ["failed"]
    assert writers.pop("0_1") is None
    # It is tried anew.
    with pytest.raises(KafkaError):
        writers.prepare(order)


def test_a_task_that_did_not_come_leaves_no_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SimpleNamespace(connect=lambda topic: None)
    monkeypatch.setattr(preparing, "new_writer", lambda name, environment: writer)
    writers = PreparedWriters(SimpleNamespace(application_id="app"))  # type: ignore[arg-type]
    for kept_seconds, kept in ((60.0, writer), (-1.0, None)):
        monkeypatch.setattr(preparing, "KEPT_SECONDS", kept_seconds)
        writers.prepare(PrepareOrder(task="0_1", name="counts-1"))
        writers.forget_old()
        assert writers.pop("0_1") is kept


def test_who_has_seen_how_a_task_stands_hears_when_that_changes(task: type[SlowTask]) -> None:
    environment: Any = SimpleNamespace(recorder=Recorder("OFF"))
    tables: Any = SimpleNamespace(new_notes=list, restores=SimpleNamespace(latest=list), fault=None)
    holder = Holder(environment, tables)
    holder.actions["take"](order(1))
    with task.something:
        assert task.something.wait_for(lambda: ("taken", 1) in task.happened, 60)
    question = protocol.encode(StatusQuestion(seen={"0_1": "taking"}, wait_ms=60_000))
    told: list[Any] = []
    asking = threading.Thread(target=lambda: told.append(holder.actions["status"](question)))
    asking.start()
    held: Any = holder._tasks["0_1"]
    held.state = "running"
    asking.join(50)
    assert [each.state for each in told[0].tasks] == ["running"]
