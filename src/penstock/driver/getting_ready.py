"""Has those get ready who are to take tasks, while the owners of these go on."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.coordination.flips import Preparations
from penstock.coordination.ids import TaskId
from penstock.coordination.tasks import TaskBook
from penstock.driver.coordinator import Coordinator
from penstock.driver.questions import StatusQuestions
from penstock.instance.protocol import PrepareOrder


class GettingReady:
    """Tells the next owners of tasks what is to come, and hears which of them are ready."""

    def __init__(
        self, book: TaskBook, questions: StatusQuestions, coordinator: Coordinator
    ) -> None:
        self._book = book
        self._questions = questions
        self._coordinator = coordinator
        self._preparations = Preparations()

    def done(self, moves: Mapping[TaskId, str], now: float) -> set[TaskId]:
        """The tasks of these that may move now.

        One that stands still or is gone gets none: their owners serve them, and go on.
        """
        for task, owner in self._preparations.begin(moves, now).items():
            name = self._book.entries[task].name
            self._questions.prepare(owner, PrepareOrder(task=str(task), name=name))
        for each in self._questions.prepared():
            if each.missed is None:
                self._preparations.end(each.task, each.owner)
            else:
                self._preparations.miss(each.task, each.owner, now)
                self._coordinator.doubt(each.owner, each.missed)
        away = self._coordinator.away()
        for task, owner in moves.items():
            if owner in away or self._coordinator.is_silent(owner):
                self._preparations.miss(task, owner, now)
        return self._preparations.done(moves)
