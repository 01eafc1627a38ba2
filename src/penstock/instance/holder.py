"""The tasks that an instance holds, behind the actions that driver and workers call."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from msgspec import structs

from penstock.errors import PenstockError, StateDirectoryError
from penstock.instance import protocol, querying
from penstock.instance.global_tables import GlobalTables
from penstock.instance.metrics import InstanceMetrics
from penstock.instance.pace import Pace
from penstock.instance.preparing import PreparedWriters
from penstock.instance.protocol import (
    CommitHeader,
    CopiesReply,
    CopyStatus,
    FollowOrder,
    Message,
    MetricsReply,
    PrepareOrder,
    ReadHeader,
    ReleaseOrder,
    Reply,
    StatusQuestion,
    StatusReply,
    TakeOrder,
    TaskStatus,
    UnfollowOrder,
    error_of,
    fault_of,
)
from penstock.instance.query_messages import (
    HeldReply,
    HeldStore,
    StoreAnswer,
    StoreAnswers,
    StoreQuestion,
    StoreQuestions,
)
from penstock.instance.server import Handler
from penstock.instance.standby import Standbys
from penstock.instance.task import OpenTask, TaskEnvironment
from penstock.observability import groups
from penstock.observability.readings import Snapshot
from penstock.observability.tallies import Tally

_TAKES_AT_ONCE = 16
"""Taking mostly waits for Kafka, 0.25 s for a producer alone: many at once start fast."""
_LOOK_SECONDS = 0.002


class Holder:
    """Takes, serves and releases tasks, and follows others."""

    def __init__(
        self,
        environment: TaskEnvironment,
        tables: GlobalTables,
        *,
        has_company: bool = False,
        notes: Iterable[str] = (),
    ) -> None:
        """With `has_company`, the driver runs on this machine, and what it started. `notes` are
        told with the first task's status.
        """
        self._notes = list(notes)
        self._environment = environment
        self._tables = tables
        self._standbys = Standbys(environment, Pace(lambda: has_company or bool(self._tasks)))
        self._tasks: dict[str, OpenTask] = {}
        self._leaving: dict[str, list[OpenTask]] = {}
        """Tasks that were released or replaced, until their stores are closed."""
        self._writers = PreparedWriters(environment)
        self._metrics = InstanceMetrics(environment.recorder)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=_TAKES_AT_ONCE, thread_name_prefix="take")

    @property
    def actions(self) -> Mapping[str, Handler]:
        """What the driver can ask for."""
        return {
            "prepare": self._prepare,
            "take": self._take,
            "release": self._release,
            "status": self._tell_status,
            "follow": self._follow,
            "unfollow": self._unfollow,
            "copies": self._copies,
            "ask_many": self._ask_many,
            "held": self._held,
            "metrics": self._tell_metrics,
        }

    def tasks(self) -> list[str]:
        """The tasks that are held or followed here, or on their way."""
        with self._lock:
            # One that is being taken is followed until its owner is ready for its stores.
            return list(dict.fromkeys([*self._tasks, *self._standbys.tasks()]))

    def task(self, name: str) -> OpenTask | None:
        """The task of that name, if it is served here."""
        task = self._tasks.get(name)
        return task if task is not None and task.is_running else None

    @property
    def disk_failure(self) -> StateDirectoryError | None:
        """Why a task cannot be kept on this instance's disk, if one cannot."""
        told = [task.status().fault for task in list(self._tasks.values())]
        faults = [error_of(fault) for fault in told if fault is not None]
        return next((each for each in faults if isinstance(each, StateDirectoryError)), None)

    def read(self, header: ReadHeader, questions: pa.Table) -> Iterator[pa.RecordBatch | Reply]:
        """What a task's store answers."""
        task = self._tasks.get(header.task)
        if task is None:
            return iter([Reply(status="gone", reason="not held here")])
        if header.store in self._tables:
            return self._tables.read(header, questions)
        return task.read(header, questions)

    def commit(self, header: CommitHeader, batches: Iterator[pa.RecordBatch]) -> Reply:
        """Commit a task's slice."""
        task = self._tasks.get(header.task)
        if task is None:
            for _ in batches:
                pass
            return Reply(status="gone", reason="not held here")
        began = time.perf_counter()
        reply = task.commit(header, batches)
        if reply.status == "ok":
            self._count("commit", time.perf_counter() - began)
        return reply

    def metrics(self) -> Snapshot:
        """What the instance's metrics show now."""
        return self._metrics.snapshot(
            [(task.status().state, task.stores) for task in list(self._tasks.values())],
            self._standbys.stores(),
        )

    def _tell_metrics(self, body: bytes) -> Message:
        return MetricsReply(readings=self.metrics())

    def _count(self, name: str, seconds: float) -> None:
        self._environment.recorder.add(groups.THREAD, name, (), Tally.of(seconds))

    def running_tasks(self) -> list[OpenTask]:
        """The tasks that are served."""
        return [task for task in list(self._tasks.values()) if task.is_running]

    def flush(self) -> list[OpenTask]:
        """Make all stores durable, but for those of tasks that commit now: these are returned.

        Who asks must not wait behind a commit for a broker that is gone: others' stores come next.
        """
        busy = [task for task in list(self._tasks.values()) if not task.flush()]
        self._standbys.flush()
        self._tables.flush()
        self._writers.forget_old()
        return busy

    def close(self) -> None:
        """Close all tasks, at the same time: each flushes a store."""
        with self._lock:
            tasks = list(self._tasks.values())
            self._tasks.clear()
        # First all, then one by one: a take that is queued before its close would restore in full.
        for task in tasks:
            task.stop_taking()
        list(self._pool.map(OpenTask.close, tasks))
        self._standbys.close()
        self._pool.shutdown()

    def _prepare(self, body: bytes) -> Message:
        order = protocol.decode(body, PrepareOrder)
        self._standbys.hurry(order.task)
        self._writers.prepare(order)
        return StatusReply(tasks=[])

    def _take(self, body: bytes) -> Message:
        order = protocol.decode(body, TakeOrder)
        with self._lock:
            held = self._tasks.get(order.task)
            if held is not None and tuple(held.order.epoch) >= tuple(order.epoch):
                # A repeated or late order; what is held is at least as new.
                return StatusReply(tasks=[held.status()])
            task = OpenTask(order, self._environment)
            self._tasks[order.task] = task
            leaving = list(self._leaving.get(order.task, ()))
            if held is not None:
                self._leaving.setdefault(order.task, []).append(held)
        self._count("task-created", 0.0)
        self._pool.submit(self._replace, leaving, held, task)
        return StatusReply(tasks=[task.status()])

    def _replace(self, leaving: list[OpenTask], held: OpenTask | None, task: OpenTask) -> None:
        for each in leaving:
            # Its stores may take long to be flushed. Who only tried their lock would give up, and
            # the application with it.
            each.close()
        if held is not None:
            self._give_up(held)
        began = time.perf_counter()
        name = task.order.task
        followed = partial(self._standbys.hand_over, name) if self._standbys.uses(name) else None
        task.take(followed, self._writers.pop(name))
        if task.is_running:
            self._count("tasks-assigned-latency", time.perf_counter() - began)

    def _close_task(self, task: OpenTask) -> None:
        began = time.perf_counter()
        task.close()
        self._count("task-closed", 0.0)
        self._count("tasks-revoked-latency", time.perf_counter() - began)

    def _release(self, body: bytes) -> Message:
        order = protocol.decode(body, ReleaseOrder)
        with self._lock:
            held = self._tasks.get(order.task)
            newer = held is not None and tuple(held.order.epoch) > tuple(order.epoch)
            task = None if newer else self._tasks.pop(order.task, None)
            if task is not None:
                self._leaving.setdefault(order.task, []).append(task)
        if task is not None:
            # The next owner need not wait for a flush, and neither need the driver.
            task.stop_taking()
            self._pool.submit(self._give_up, task)
        return self._status()

    def _give_up(self, task: OpenTask) -> None:
        self._close_task(task)
        with self._lock:
            left = [each for each in self._leaving.pop(task.order.task, ()) if each is not task]
            if left:
                self._leaving[task.order.task] = left
        # What it counted belongs to its next owner, which may be this one again.
        if task.order.task not in self._tasks:
            self._environment.recorder.forget(task.order.task)

    def _follow(self, body: bytes) -> Message:
        order = protocol.decode(body, FollowOrder)
        with self._lock:
            if order.task not in self._tasks:
                self._standbys.follow(order)
        return self._copies(b"")

    def _unfollow(self, body: bytes) -> Message:
        self._standbys.unfollow(protocol.decode(body, UnfollowOrder).task)
        return self._copies(b"")

    def _copies(self, body: bytes) -> Message:
        with self._lock:
            owned = {name: task.order.epoch for name, task in self._tasks.items()}
        followed = self._standbys.status()
        known = {*owned, *(each.task for each in followed)}
        resting = [
            CopyStatus(task=task, state="at_rest", positions=positions)
            for task, positions in self._environment.directory.checkpoints(but=known).items()
        ]
        return CopiesReply(copies=[*followed, *resting], owned=owned)

    def answer_questions(self, body: bytes) -> bytes:
        """The answers to a message of questions."""
        return protocol.encode(self._ask_many(body))

    def _ask_many(self, body: bytes) -> Message:
        asked = protocol.decode(body, StoreQuestions).questions
        return StoreAnswers(answers=[self._answer(question) for question in asked])

    def _answer(self, question: StoreQuestion) -> StoreAnswer:
        if question.store in self._tables:
            return self._tables.ask(question)
        task = self._tasks.get(question.task)
        return querying.ask(question, task, self._standbys.get(question.task))

    def _held(self, body: bytes) -> Message:
        stores: list[HeldStore] = []
        for task in list(self._tasks.values()):
            # One that is being closed has nothing.
            with contextlib.suppress(PenstockError):
                stores += querying.held_by_owner(task)
        for followed in self._standbys.all():
            stores += querying.held_by_standby(followed)
        return HeldReply(stores=stores)

    def _tell_status(self, body: bytes) -> Message:
        question = protocol.decode(body, StatusQuestion)
        deadline = time.monotonic() + question.wait_ms / 1000
        # Looked at, not waited for: it lasts a moment, and only while tasks are taken.
        while self._is_as_seen(question.seen) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return self._status()

    def _is_as_seen(self, seen: Mapping[str, str]) -> bool:
        held = [(self._tasks.get(task), state) for task, state in seen.items()]
        return bool(held) and all(task and task.status().state == state for task, state in held)

    def _status(self) -> StatusReply:
        tasks = list(self._tasks.values())
        if tasks:
            # They have no status of their own; whoever asks for one task's gets all.
            notes, self._notes = [*self._notes, *self._tables.new_notes()], []
            tasks[0].tell(notes)
        return StatusReply(
            tasks=[self._with_tables(task.status()) for task in tasks],
            tables=self._tables.restores.latest(),
        )

    def _with_tables(self, status: TaskStatus) -> TaskStatus:
        """A task cannot go on when a global table cannot."""
        fault = self._tables.fault
        if fault is None or status.state != "running":
            return status
        return structs.replace(status, state="failed", fault=fault_of(fault))
