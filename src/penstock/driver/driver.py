"""The driver's loop: facts come in, decisions are asked for, orders go out.

One thread decides. Jobs run in threads of their own and come back as events, so that no decision is
ever taken on a view that another thread is changing.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from penstock.coordination.assignment import assign
from penstock.coordination.ids import Epoch, TaskId, moved
from penstock.coordination.planning import Batch, PlanLimits, Slice, joining, plan
from penstock.coordination.tasks import Entry, TaskBook
from penstock.driver.coordinator import Coordinator
from penstock.driver.events import (
    BatchEnded,
    Listener,
    Notice,
    RestoreEvent,
    RestoreHearer,
    Totals,
)
from penstock.driver.inputs import InputLogs
from penstock.driver.lease import DriverLease
from penstock.driver.restores import RestoreBook
from penstock.driver.setup import Prepared
from penstock.driver.watch import InputWatch
from penstock.errors import (
    FencedError,
    InstanceError,
    InstanceUnreachableError,
    KafkaError,
    PenstockError,
)
from penstock.instance.protocol import CommitHeader, StatusReply, TaskStatus, error_of
from penstock.pipeline.jobs import JobLabel, Jobs, pickle_sub_topology
from penstock.pipeline.orders import Address, BatchOrder, Outcome, SliceOrder
from penstock.processors import Limits, needed_columns

_log = logging.getLogger("penstock.driver")

_IDLE_SECONDS = 0.02
_STATUS_SECONDS = 0.02
_RETRY_SECONDS = 0.5
_RETRY_DOUBLINGS = 4
"""How often the time between two tries to have a task taken doubles: up to 8 seconds."""
_FAILED_JOBS_MAX = 5
"""So many jobs may fail one after the other before the application gives up and says why."""


@dataclass(frozen=True, kw_only=True)
class _JobEnded:
    batch: Batch
    started: float
    outcomes: list[Outcome]
    error: BaseException | None


@dataclass(frozen=True, kw_only=True)
class DriverParts:
    """What the loop works with; each is a shell around one part of the world."""

    prepared: Prepared
    lease: DriverLease
    coordinator: Coordinator
    jobs: Jobs
    inputs: InputLogs
    watch: InputWatch
    cores: int
    warm_up: Future[None]
    """Spark's first job; tasks are taken meanwhile."""
    hear_restore: RestoreHearer
    visit_executors: Callable[[], object]
    """Start instances on executors that have none; on one machine there are none to visit."""


class Driver:
    """Runs batches until it is told to stop or cannot go on."""

    def __init__(self, parts: DriverParts, commits: dict[str, int], listener: Listener) -> None:
        self._parts = parts
        self._commits = commits
        self._listener = listener
        layouts = parts.prepared.layout.tasks
        generation = parts.lease.record.generation
        self._subs = {t.task.sub_topology: t.sub_topology for t in layouts}
        self._book = TaskBook(
            [(t.task, t.name) for t in layouts],
            generation=generation,
            ticking=[number for number, sub in self._subs.items() if sub.has_processors],
        )
        self._pickled = {number: pickle_sub_topology(sub) for number, sub in self._subs.items()}
        config = parts.prepared.config
        self._limits = PlanLimits(
            records_max=config.slice_records_max,
            bytes_max=config.slice_bytes_max,
            jobs_max=max(2, parts.cores + 1),
        )
        self._pool = ThreadPoolExecutor(self._limits.jobs_max, thread_name_prefix="job")
        self._ended: queue.Queue[_JobEnded] = queue.Queue()
        self._running: list[tuple[Batch, float]] = []
        self._batches = 0
        self._failed_in_a_row = 0
        self._status_due = 0.0
        self._plan_due = 0.0
        self._restores = RestoreBook()
        self.totals = Totals()

    # The loop.

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Loop until `should_stop`; raises what ends the application."""
        while not should_stop():
            if self._parts.lease.lost is not None:
                raise self._parts.lease.lost
            self._replace_lost_instances()
            self._assign()
            self._ask_owners()
            self._start_jobs()
            self._take_in(self._wait())

    def is_ready(self) -> bool:
        """Whether every task is served by its owner, and Spark is warm."""
        waiting = self._book.in_state("taking") or self._book.in_state("unowned")
        return self._parts.warm_up.done() and not waiting

    def drain(self, timeout_seconds: float) -> None:
        """Let the running jobs end; cancel them when the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while self._running and time.monotonic() < deadline:
            self._take_in(self._next_ended(0.1), stopping=True)
        self._tell_restores(self._restores.lose_all())
        if self._running:
            self._parts.jobs.cancel(self._group)
        self._pool.shutdown(wait=True, cancel_futures=True)

    # Instances and tasks.

    def _replace_lost_instances(self) -> None:
        for name, slot in self._parts.coordinator.lost():
            lost = self._book.lose_owner(name)
            tasks = ", ".join(str(task) for task in lost) or "no tasks"
            for whose in (name, *map(str, lost)):
                self._tell_restores(self._restores.lose(whose))
            self._notice(f"Instance {name} is lost, and with it {tasks}; others take over")
            if slot is not None:
                self._parts.coordinator.start_child(slot)
            else:
                self._parts.visit_executors()

    def _assign(self) -> None:
        if all(entry.owner for entry in self._book.entries.values()):
            return
        names = self._parts.coordinator.names()
        owners = assign(self._book.entries, names, self._book.owners)
        for task, owner in owners.items():
            if not self._book.entries[task].owner:
                self._give(task, owner)

    def _give(self, task: TaskId, owner: str) -> None:
        entry = self._book.own(task, owner)
        order = self._parts.prepared.take_order(
            task,
            epoch=entry.epoch,
            first_taking=not entry.taken_before,
            commits_partition=self._commits[entry.name],
            peers=self._parts.coordinator.peers(owner),
        )
        try:
            self._parts.coordinator.call(owner, "take", order, StatusReply)
        except InstanceError as error:
            _log.info("Task %s: %s", task, error)
            self._parts.coordinator.doubt(owner)

    def _ask_owners(self) -> None:
        """Ask those who take tasks how far they are."""
        now = time.monotonic()
        taking = self._book.in_state("taking")
        if not taking or now < self._status_due:
            return
        self._status_due = now + _STATUS_SECONDS
        for owner in sorted({entry.owner for entry in taking}):
            for status in self._status_of(owner):
                self._hear(owner, status)

    def _status_of(self, owner: str) -> list[TaskStatus]:
        try:
            question = StatusReply(tasks=[])
            reply = self._parts.coordinator.call(owner, "status", question, StatusReply)
        except InstanceUnreachableError:
            self._parts.coordinator.doubt(owner)
            return []
        held = {status.task for status in reply.tasks}
        for entry in self._book.in_state("taking"):
            if entry.owner == owner and str(entry.task) not in held:
                self._give(entry.task, owner)  # The order was lost on its way.
        self._tell_restores(self._restores.hear(owner, None, reply.tables))
        return reply.tasks

    def _hear(self, owner: str, status: TaskStatus) -> None:
        entry = self._book.entries[TaskId.parse(status.task)]
        if entry.owner != owner or entry.epoch != tuple(status.epoch):
            return
        self._tell_restores(self._restores.hear(status.task, status.epoch, status.restores))
        for note in status.notes[entry.notes_told :]:
            self._notice(note)
        entry.notes_told = len(status.notes)
        if status.state == "running" and entry.state == "taking":
            self._book.serving(
                entry.task,
                Epoch(*status.epoch),
                status.position,
                status.n,
                status.metadata,
                until=status.until,
            )
            if status.group_is_stale:
                self._write_group_again(entry, status)
        elif status.state == "failed" and entry.state == "taking":
            self._take_again(entry, status)

    def _write_group_again(self, entry: Entry, status: TaskStatus) -> None:
        """Tools see the lag through the group; a task without new records would not write it."""
        if self._parts.prepared.config.exactly_once:
            self._commit_nothing(Slice(task=entry.task, ranges=()))
        else:
            self._parts.lease.write_group(status.position)

    def _take_again(self, entry: Entry, status: TaskStatus) -> None:
        """A task could not be taken: try again what may go away, raise the rest."""
        assert status.fault is not None
        error = error_of(status.fault)
        may_go_away = type(error) in (KafkaError, FencedError) or "unreachable" in error.code
        if not may_go_away:
            raise error
        if time.monotonic() >= entry.due:
            self._notice(f"Task {entry.task} is taken again: {error}")
            entry.due = time.monotonic() + _RETRY_SECONDS * 2**entry.failed_takes
            entry.failed_takes = min(entry.failed_takes + 1, _RETRY_DOUBLINGS)
            entry.notes_told = 0
            self._give(entry.task, entry.owner)

    # Jobs.

    def _start_jobs(self) -> None:
        now = time.monotonic()
        if now < self._plan_due or len(self._running) >= self._limits.jobs_max:
            return
        if not self._parts.warm_up.done():
            return
        self._parts.warm_up.result()
        now_ms = _wall_clock_ms()
        views = self._book.views(now_ms=now_ms)
        if not any(view.due <= now for view in views):
            return
        try:
            ends = self._parts.inputs.ends()
            jumps = self._parts.watch.check(now, self._book, ends)
        except KafkaError as error:
            if type(error) is not KafkaError and "unreachable" not in error.code:
                raise
            self._notice(f"Kafka does not answer: {error}")
            self._plan_due = now + _RETRY_SECONDS
            return
        for jump in jumps:
            gaps = ", ".join(f"{r.topic}-{r.partition} {r.start}-{r.end}" for r in jump.ranges)
            self._notice(f"Records of task {jump.task} are gone from the log; it skips {gaps}")
            self._commit_nothing(Slice(task=jump.task, ranges=jump.ranges))
        batches = plan(
            self._book.views(now_ms=now_ms) if jumps else views,
            ends,
            now=now,
            running_jobs=len(self._running),
            limits=self._limits,
            wait=joining(self._running, now=now),
        )
        for batch in batches:
            self._submit(batch)
        if not batches:
            self._plan_due = now + _IDLE_SECONDS

    def _submit(self, batch: Batch) -> None:
        self._batches += 1
        order = self._order(batch)
        sub = self._subs[batch.sub_topology]
        application_id = self._parts.prepared.application_id
        label = JobLabel(
            group=self._group,
            description=f"{application_id} {sub.name} #{self._batches}",
            pool=sub.name,
        )
        started = time.monotonic()
        self._running.append((batch, started))
        needs = needed_columns(sub)

        def work() -> None:
            outcomes: list[Outcome] = []
            error: BaseException | None = None
            try:
                outcomes = self._parts.jobs.run(
                    order, needs=needs, label=label, records=batch.records
                )
            except Exception as failure:  # noqa: BLE001 - Spark's failures come in many kinds.
                error = failure
            self._ended.put(_JobEnded(batch=batch, started=started, outcomes=outcomes, error=error))

        self._pool.submit(work)

    @property
    def _group(self) -> str:
        return f"penstock-{self._parts.prepared.application_id}"

    def _order(self, batch: Batch) -> BatchOrder:
        prepared = self._parts.prepared
        config = prepared.config
        slices: dict[int, SliceOrder] = {}
        for piece in batch.slices:
            entry = self._book.start(piece.task)
            member = self._parts.coordinator.member(entry.owner)
            address = Address(
                host=member.host if member else "",
                unix_location=member.unix_location if member else "",
                tcp_location=member.tcp_location if member else "",
            )
            slices[piece.task.partition] = SliceOrder(
                task=str(piece.task),
                epoch=entry.epoch,
                n=entry.n + 1,
                start={t: dict(p) for t, p in entry.position.items()},
                end=moved(entry.position, piece.ranges),
                address=address,
                metadata=dict(entry.metadata),
                more=piece.more,
            )
        return BatchOrder(
            application_id=prepared.application_id,
            sub_topology=self._pickled[batch.sub_topology],
            slices=slices,
            limits=Limits(
                cache_max_bytes=config.statestore_cache_max_bytes // max(self._parts.cores, 1),
                on_bad_record=config.deserialization_exception_handler,
                on_processing_error=config.processing_exception_handler,
                on_production_error=config.production_exception_handler,
                dead_letter_topic=config.errors_dead_letter_queue_topic_name or None,
                dead_letters_of_dropped=config.dead_letter_dropped_records,
                partition_counts=prepared.partition_counts,
            ),
            token=self._parts.coordinator.token,
            timeout_seconds=config.session_timeout.total_seconds() * 0.8,
            now_ms=_wall_clock_ms(),
        )

    # What came back.

    def _wait(self) -> _JobEnded | None:
        return self._next_ended(_IDLE_SECONDS)

    def _next_ended(self, timeout_seconds: float) -> _JobEnded | None:
        try:
            return self._ended.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def _take_in(self, ended: _JobEnded | None, *, stopping: bool = False) -> None:
        if ended is None:
            return
        self._running.remove((ended.batch, ended.started))
        self._plan_due = 0.0
        if ended.error is not None:
            self._job_failed(ended, stopping)
            return
        self._failed_in_a_row = 0
        outcomes = {TaskId.parse(each.task): each for each in ended.outcomes}
        for piece in ended.batch.slices:
            outcome = outcomes.get(piece.task)
            if outcome is None:
                # 7. The range gave no row: all of it was markers.
                self._book.doubt(piece.task, due=time.monotonic())
                self._commit_nothing(piece)
            elif outcome.status == "skipped":
                _log.info("Task %s was skipped: %s", piece.task, outcome.reason)
                # Never infer where it stands: the owner is asked.
                self._book.doubt(piece.task, due=time.monotonic())
            elif outcome.status == "failed":
                assert outcome.fault is not None
                raise error_of(outcome.fault)
            else:
                self._committed(piece.task, outcome, ended.started)
        self._report(ended)

    def _committed(self, task: TaskId, outcome: Outcome, started: float) -> None:
        config = self._parts.prepared.config
        size = outcome.size_bytes / outcome.records if outcome.records else 0.0
        recovering = bool(self._book.entries[task].until)
        self._book.finish(
            task,
            outcome.position,
            outcome.n,
            due=started + config.commit_interval.total_seconds(),
            bytes_per_record=size,
            metadata=outcome.metadata,
        )
        if recovering and not self._book.entries[task].until:
            self._notice(f"Task {task} has read its input again, up to where it was")
        self.totals.records += outcome.records
        self.totals.changes += outcome.changes
        self.totals.outputs += outcome.outputs
        for reason, count in outcome.dropped.items():
            self.totals.dropped[reason] = self.totals.dropped.get(reason, 0) + count
        if not config.exactly_once:
            self._parts.lease.write_group(outcome.position)

    def _commit_nothing(self, piece: Slice) -> None:
        """Move a task over a range without records; if that fails, its owner will be asked."""
        entry = self._book.entries[piece.task]
        header = CommitHeader(
            task=str(entry.task),
            epoch=entry.epoch,
            n=entry.n + 1,
            start={topic: dict(partitions) for topic, partitions in entry.position.items()},
            end=moved(entry.position, piece.ranges),
            stores=[],
            topics=[],
            rows=0,
            metadata=dict(entry.metadata),
        )
        try:
            reply = self._parts.coordinator.commit_nothing(entry.owner, header)
        except InstanceError:
            self._parts.coordinator.doubt(entry.owner)
            return
        if reply.status in ("ok", "done"):
            self._book.finish(
                entry.task,
                reply.position,
                reply.n,
                due=time.monotonic(),
                bytes_per_record=0.0,
                metadata=reply.metadata,
            )

    def _job_failed(self, ended: _JobEnded, stopping: bool) -> None:
        for piece in ended.batch.slices:
            self._book.doubt(piece.task, due=time.monotonic() + _RETRY_SECONDS, alone=True)
        if stopping:
            return
        self._failed_in_a_row += 1
        reason = _reason(ended.error)
        _log.info("A Spark job failed", exc_info=ended.error)
        self._notice(f"A Spark job failed and is planned again: {reason}")
        if self._failed_in_a_row >= _FAILED_JOBS_MAX:
            raise PenstockError(
                f"{_FAILED_JOBS_MAX} Spark jobs failed one after the other; the last: {reason}",
                hint="Run with PENSTOCK_SPARK_LOG=1 to see Spark's log",
            ) from ended.error

    def _report(self, ended: _JobEnded) -> None:
        self.totals.batches += 1
        self._listener(
            BatchEnded(
                sub_topology=self._subs[ended.batch.sub_topology].name,
                records=sum(each.records for each in ended.outcomes),
                changes=sum(each.changes for each in ended.outcomes),
                outputs=sum(each.outputs for each in ended.outcomes),
                seconds=time.monotonic() - ended.started,
                skipped=sum(each.status == "skipped" for each in ended.outcomes),
            )
        )

    def _tell_restores(self, events: list[RestoreEvent]) -> None:
        for event in events:
            self._parts.hear_restore(event)

    def _notice(self, text: str) -> None:
        _log.warning("%s", text)
        self._listener(Notice(text=text))


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _reason(error: BaseException | None) -> str:
    """The one line that says what went wrong, out of Spark's pages."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return repr(error)
    if any(line.startswith("Traceback ") for line in lines):
        return lines[-1]
    named = next((line for line in lines if "Exception: " in line), lines[0])
    return named.rpartition("Exception: ")[2]
