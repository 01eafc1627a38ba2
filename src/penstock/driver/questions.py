"""How far are those who take tasks? They are asked in threads: the driver's loop waits for nobody.

An instance that stands still keeps a call for seconds, and all that time no job would begin for the
tasks of any other.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.coordination.ids import Epoch, TaskId
from penstock.errors import InstanceError
from penstock.instance.protocol import StatusReply

_ASKED_AT_ONCE = 8

AskStatus = Callable[[str], StatusReply]
"""What an instance says of its tasks. Raises `InstanceError`."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a question."""

    owner: str
    about: Mapping[TaskId, Epoch]
    """The tasks that it was about: of others it may tell what is no longer so."""
    reply: StatusReply | InstanceError


class StatusQuestions:
    """Asks each owner one question at a time."""

    def __init__(self, ask: AskStatus) -> None:
        self._ask = ask
        self._asked: set[str] = set()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="status")

    def ask(self, owner: str, about: Mapping[TaskId, Epoch]) -> None:
        """Ask an owner, unless it owes an answer yet."""
        if owner not in self._asked:
            self._asked.add(owner)
            self._pool.submit(self._put, owner, about)

    def answers(self) -> list[Answer]:
        """What has come since this was last asked."""
        found: list[Answer] = []
        while not self._answers.empty():
            found.append(self._answers.get())
        self._asked -= {each.owner for each in found}
        return found

    def close(self) -> None:
        """Ask nobody any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _put(self, owner: str, about: Mapping[TaskId, Epoch]) -> None:
        reply: StatusReply | InstanceError
        try:
            reply = self._ask(owner)
        except InstanceError as error:
            reply = error
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread
            reply = InstanceError(f"{type(error).__name__}: {error}")
        self._answers.put(Answer(owner=owner, about=about, reply=reply))
