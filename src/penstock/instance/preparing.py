"""Writers of tasks that are about to come: made and connected while the last owner still works.

That fences nobody. To make a producer and to connect it takes most of the time that a task whose
stores are open is without an owner, and nothing of it depends on where the task stands.
"""

from __future__ import annotations

import threading
import time

from penstock.changelog.topics import commits_name
from penstock.instance.protocol import PrepareOrder
from penstock.instance.task import TaskEnvironment, new_writer
from penstock.instance.writer import Writer

KEPT_SECONDS = 60.0
"""A task that has not come by then went elsewhere, or stayed."""


class PreparedWriters:
    """The writers that wait for their tasks. Any thread may call."""

    def __init__(self, environment: TaskEnvironment) -> None:
        self._environment = environment
        self._writers: dict[str, tuple[Writer, float]] = {}
        self._made: set[str] = set()
        """The tasks whose writers are made now."""
        self._lock = threading.Lock()

    def prepare(self, order: PrepareOrder) -> None:
        """Have a task's writer ready. Raises `KafkaError`."""
        with self._lock:
            # Who asks again because the first answer takes too long is not to wait as long again.
            if order.task in self._writers or order.task in self._made:
                return
            self._made.add(order.task)
        try:
            writer = new_writer(order.name, self._environment)
            writer.connect(commits_name(self._environment.application_id))
            with self._lock:
                self._writers[order.task] = writer, time.monotonic()
        finally:
            with self._lock:
                self._made.discard(order.task)

    def pop(self, task: str) -> Writer | None:
        """The writer of a task that is taken now, if there is one."""
        with self._lock:
            writer, _ = self._writers.pop(task, (None, 0.0))
        return writer

    def forget_old(self) -> None:
        """Let those go whose tasks did not come."""
        oldest = time.monotonic() - KEPT_SECONDS
        with self._lock:
            self._writers = {task: each for task, each in self._writers.items() if each[1] > oldest}
