"""Those who are to take tasks are told so and asked in threads: the driver's loop waits for nobody.

An instance that stands still keeps a call for seconds, and all that time no job would begin for the
tasks of any other.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.coordination.ids import Epoch, TaskId
from penstock.errors import InstanceError, InstanceUnreachableError
from penstock.instance.protocol import PrepareOrder, StatusQuestion, StatusReply, TakeOrder

_log = logging.getLogger("penstock.driver")

_ASKED_AT_ONCE = 8

_PREPARED_AT_ONCE = 2
_WAIT_MS = 50
"""How long an instance may wait for something new before it answers."""

Asked = TakeOrder | PrepareOrder | StatusQuestion
AskStatus = Callable[[str, Asked], StatusReply]
"""What an instance says of its tasks, or to an order. Raises `InstanceError`."""


def asked_as(message: Asked) -> str:
    """The name of the action."""
    match message:
        case TakeOrder():
            return "take"
        case PrepareOrder():
            return "prepare"
        case StatusQuestion():
            return "status"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a question."""

    owner: str
    about: Mapping[TaskId, Epoch]
    """The tasks that it was about: of others it may tell what is no longer so."""
    reply: StatusReply | InstanceError


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What came of telling an instance to get ready for a task."""

    task: TaskId
    owner: str
    missed: InstanceUnreachableError | None = None
    """Why it could not be told, if it could not; else it is as ready as it will be."""


class StatusQuestions:
    """Gives each owner its orders, and asks it then: one message at a time."""

    def __init__(self, ask: AskStatus, *, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` is called when there is an answer."""
        self._ask = ask
        self._wake = wake
        self._asked: set[str] = set()
        self._seen: dict[tuple[str, str], str] = {}
        """In which state an owner last said that a task is."""
        self._orders: dict[str, list[TakeOrder]] = {}
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._prepared: queue.SimpleQueue[Prepared] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="status")
        # To get ready lasts longer than an order, which is not to wait for that.
        self._preparing = ThreadPoolExecutor(_PREPARED_AT_ONCE, thread_name_prefix="prepare")

    @property
    def ordered(self) -> set[str]:
        """Those who have not been given all their orders."""
        return set(self._orders)

    def order(self, owner: str, order: TakeOrder) -> None:
        """Have a task taken, before the next question; earlier orders for it are dropped."""
        self._orders = {
            name: kept
            for name, orders in self._orders.items()
            if (kept := [each for each in orders if each.task != order.task])
        }
        self._orders.setdefault(owner, []).append(order)
        self._seen.pop((owner, order.task), None)

    def prepare(self, owner: str, order: PrepareOrder) -> None:
        """Have an instance get ready to take a task."""
        self._preparing.submit(self._have_prepared, owner, order)

    def prepared(self) -> list[Prepared]:
        """What came of that, since this was last asked."""
        found = []
        while not self._prepared.empty():
            found.append(self._prepared.get())
        return found

    def ask(self, owner: str, about: Mapping[TaskId, Epoch]) -> None:
        """Ask an owner, unless it owes an answer yet."""
        if owner not in self._asked:
            self._asked.add(owner)
            seen = {str(task): self._seen.get((owner, str(task)), "") for task in about}
            question = StatusQuestion(seen=seen, wait_ms=_WAIT_MS)
            self._pool.submit(self._put, owner, self._orders.pop(owner, []), about, question)

    def answers(self) -> list[Answer]:
        """What has come since this was last asked."""
        found: list[Answer] = []
        while not self._answers.empty():
            found.append(self._answers.get())
        self._asked -= {each.owner for each in found}
        for each in found:
            if isinstance(each.reply, StatusReply):
                self._seen |= {(each.owner, told.task): told.state for told in each.reply.tasks}
        return found

    def close(self) -> None:
        """Ask nobody any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._preparing.shutdown(wait=False, cancel_futures=True)

    def _put(
        self,
        owner: str,
        orders: list[TakeOrder],
        about: Mapping[TaskId, Epoch],
        question: StatusQuestion,
    ) -> None:
        reply: StatusReply | InstanceError
        try:
            for order in orders:
                self._give(owner, order)
            reply = self._ask(owner, question)
        except InstanceError as error:
            reply = error
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread
            reply = InstanceError(f"{type(error).__name__}: {error}")
        self._answers.put(Answer(owner=owner, about=about, reply=reply))
        self._wake()

    def _have_prepared(self, owner: str, order: PrepareOrder) -> None:
        missed: InstanceUnreachableError | None = None
        try:
            self._ask(owner, order)
        except InstanceUnreachableError as error:
            missed = error
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread
            # Whoever takes the task does then what could not be done before.
            _log.info("Task %s: %s", order.task, error)
        self._prepared.put(Prepared(task=TaskId.parse(order.task), owner=owner, missed=missed))
        self._wake()

    def _give(self, owner: str, order: TakeOrder) -> None:
        try:
            self._ask(owner, order)
        except InstanceUnreachableError:
            raise
        except InstanceError as error:
            # What it says of its tasks then shows that the order is to be given again.
            _log.info("Task %s: %s", order.task, error)
