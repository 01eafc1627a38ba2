"""The driver's loop: facts come in, decisions are asked for, orders go out.

One thread decides. Jobs run in threads of their own and come back as events, so that no decision is
ever taken on a view that another thread is changing.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from penstock.coordination.ids import TaskId, moved
from penstock.coordination.planning import Batch, PlanLimits, Slice, joining, plan
from penstock.coordination.tasks import TaskBook
from penstock.coordination.waits import waited_for
from penstock.driver.batch_steps import latencies_of, steps_of
from penstock.driver.copies import CopyWatch
from penstock.driver.events import BatchEnded, Listener, Totals, Waiting, give_notice
from penstock.driver.owners import TaskOwners
from penstock.driver.parts import DriverParts, WarmSpark
from penstock.driver.whereabouts import Whereabouts
from penstock.errors import InstanceError, KafkaError, PenstockError
from penstock.instance.protocol import CommitHeader, FollowOrder, error_of
from penstock.observability.time_of_day import wall_clock_ms
from penstock.pipeline.jobs import JobLabel, pickle_sub_topology, travelling_handler
from penstock.pipeline.orders import Address, BatchOrder, Outcome, SliceOrder
from penstock.processors import Limits, needed_columns
from penstock.queries.asking import StoreQueries

_log = logging.getLogger("penstock.driver")

_IDLE_SECONDS = 0.02
_RETRY_SECONDS = 0.5
_TELL_SECONDS = 1.0
"""How soon again it is told what is waited for: tasks are opened in crowds."""
_OPENING = ("unowned", "taking")
_FAILED_JOBS_MAX = 5
"""So many jobs may fail one after the other before the application gives up and says why."""


@dataclass(frozen=True, kw_only=True)
class _JobEnded:
    batch: Batch
    started: float
    planning: float = 0.0
    outcomes: list[Outcome]
    error: BaseException | None


class Driver:
    """Runs batches until it is told to stop or cannot go on."""

    def __init__(
        self, parts: DriverParts, commits: Mapping[str, int], listener: Listener, totals: Totals
    ) -> None:
        self._parts = parts
        self._listener = listener
        self._totals = totals
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
        said = (config.processing_exception_handler, config.production_exception_handler)
        self._handlers = tuple(map(travelling_handler, said))
        self._limits = PlanLimits(
            records_max=config.slice_records_max,
            bytes_max=config.slice_bytes_max,
            jobs_max=0,  # Until Spark is warm.
        )
        self._spark: WarmSpark | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._ended: queue.Queue[_JobEnded | None] = queue.Queue()
        """What came back; None if it is only to be looked what else is new."""
        self._running: list[tuple[Batch, float]] = []
        self._batches = 0
        self._failed_in_a_row = 0
        self._plan_due = 0.0
        self._waiting_due = 0.0
        copies = self._watch_copies(commits)
        self._owners = TaskOwners(
            parts,
            self._book,
            commits,
            listener=listener,
            totals=totals,
            copies=copies,
            commit_nothing=self._commit_nothing,
            wake=partial(self._ended.put, None),
        )
        self.places = Whereabouts(parts, self._owners, copies.ends_seen)
        self.queries = StoreQueries(parts.catalogue, self.places)

    def _watch_copies(self, commits: Mapping[str, int]) -> CopyWatch:
        parts = self._parts

        def order_for(task: TaskId, follower: str) -> FollowOrder:
            return parts.prepared.follow_order(
                task,
                commits_partition=commits[self._book.entries[task].name],
                peers=parts.coordinator.peers(follower),
            )

        return CopyWatch(
            parts.coordinator,
            parts.prepared.changelogs(),
            ends_of=parts.changelogs.ends,
            order_for=order_for,
        )

    @property
    def book(self) -> TaskBook:
        """What is known of each task; to be read, not to be changed."""
        return self._book

    @property
    def owners(self) -> TaskOwners:
        """Who owns and follows what; to be read, not to be changed."""
        return self._owners

    # The loop.

    def run(self, should_stop: Callable[[], bool], *, hear_settled: Callable[[bool], None]) -> None:
        """Loop until `should_stop`; raises what ends the application.

        In each round `hear_settled` is told whether every task has an owner that serves it.
        """
        while not should_stop():
            self.step(hear_settled)
            self._take_in(self._next_ended(_IDLE_SECONDS))

    def step(self, hear_settled: Callable[[bool], None]) -> None:
        """One round without its wait for a job to end."""
        self._parts.monitor.pulse.turn()
        self._parts.lease.check()
        self._owners.hear_members()
        self._owners.assign_tasks()
        # Before owners are asked: a rebalance that is over at once is told too.
        self._parts.monitor.settled(self._owners.are_settled)
        self._hear_spark()
        runs = self._owners.are_settled and self._spark is not None
        hear_settled(runs)
        if not runs:
            self._tell_waiting()
        if self._owners.ask():
            self._plan_due = 0.0
        self._start_jobs()

    def _tell_waiting(self) -> None:
        now = time.monotonic()
        if now < self._waiting_due:
            return
        entries = self._book.entries
        opening = [task for task, entry in entries.items() if entry.state in _OPENING]
        step = waited_for(
            instances=len(self._parts.coordinator.names()),
            tasks=len(entries),
            opening=[str(task) for task in opening],
            restoring={str(task) for task in opening if self._owners.restores_of(task)},
        )
        if step != self._parts.monitor.waits_for:
            self._waiting_due = now + _TELL_SECONDS
            self._listener(Waiting(step=step))

    def drain(self, timeout_seconds: float) -> None:
        """Let the running jobs end; cancel them when the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while self._running and time.monotonic() < deadline:
            self._take_in(self._next_ended(0.1), stopping=True)
        self._owners.close()
        if self._spark is not None and self._running:
            self._spark.jobs.cancel(self._group)
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    # Jobs.

    def _hear_spark(self) -> None:
        """Take note that Spark is warm; raises what kept it from that, or that it has ended."""
        if self._spark is not None:
            # Also while nothing is to do: whoever watches it is not to think that it runs.
            self._spark.check()
        elif self._parts.spark.done():
            self._spark = self._parts.spark.result()
            self._limits = replace(self._limits, jobs_max=max(2, self._spark.cores + 1))
            self._pool = ThreadPoolExecutor(self._limits.jobs_max, thread_name_prefix="job")

    def _start_jobs(self) -> None:
        now = time.monotonic()
        if self._parts.is_paused():
            return
        if now < self._plan_due or len(self._running) >= self._limits.jobs_max:
            return
        now_ms = wall_clock_ms()
        views = self._book.views(now_ms=now_ms)
        if not any(view.due <= now for view in views):
            return
        try:
            ends = self._parts.inputs.ends()
            jumps = self._parts.watch.check(now, self._book, ends)
        except KafkaError as error:
            if type(error) is not KafkaError and "unreachable" not in error.code:
                raise
            self._parts.monitor.pulse.heard(False)
            self._notice(f"Kafka does not answer: {error}")
            self._plan_due = now + _RETRY_SECONDS
            return
        self._parts.monitor.pulse.heard(True)
        self._parts.monitor.lags(self._book, ends)
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
            ahead=joining(self._running, now=now),
            moving=self._owners.flips.moving(now),
        )
        for batch in batches:
            self._submit(batch, since=now)
        if not batches:
            self._plan_due = now + _IDLE_SECONDS

    def _submit(self, batch: Batch, *, since: float) -> None:
        spark, pool = self._spark, self._pool
        # Nothing is planned before.
        assert spark is not None
        assert pool is not None
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
                outcomes = spark.jobs.run(order, needs=needs, label=label, records=batch.records)
            except Exception as failure:  # noqa: BLE001 - Spark's failures come in many kinds.
                error = failure
            self._ended.put(
                _JobEnded(
                    batch=batch,
                    started=started,
                    planning=started - since,
                    outcomes=outcomes,
                    error=error,
                )
            )

        pool.submit(work)

    @property
    def _group(self) -> str:
        return f"penstock-{self._parts.prepared.application_id}"

    def _order(self, batch: Batch) -> BatchOrder:
        prepared = self._parts.prepared
        config = prepared.config
        cores = 1 if self._spark is None else max(self._spark.cores, 1)
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
                reads_again=bool(entry.until),
            )
        return BatchOrder(
            application_id=prepared.application_id,
            sub_topology=self._pickled[batch.sub_topology],
            slices=slices,
            limits=Limits(
                cache_max_bytes=config.statestore_cache_max_bytes // cores,
                on_bad_record=config.deserialization_exception_handler,
                on_processing_error=self._handlers[0],
                on_production_error=self._handlers[1],
                dead_letter_topic=config.errors_dead_letter_queue_topic_name or None,
                dead_letters_of_dropped=config.dead_letter_dropped_records,
                partition_counts=prepared.partition_counts,
                metrics=config.metrics_recording_level,
            ),
            token=self._parts.coordinator.token,
            trust=self._parts.coordinator.trust,
            timeout_seconds=config.session_timeout.total_seconds() * 0.8,
            now_ms=wall_clock_ms(),
        )

    # What came back.

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
        unanswered = [TaskId.parse(each.task) for each in ended.outcomes if each.unanswered]
        self._book.doubt_owners_of(unanswered, due=time.monotonic())
        self._report(ended)

    def _committed(self, task: TaskId, outcome: Outcome, started: float) -> None:
        config = self._parts.prepared.config
        size = outcome.size_bytes / outcome.records if outcome.records else 0.0
        entry = self._book.entries[task]
        self._parts.monitor.committed(entry.owner, self._subs[task.sub_topology].name, outcome)
        recovering = bool(entry.until)
        if self._book.has_moved(task):
            self._book.doubt(task, due=time.monotonic())
        else:
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
        self._totals.records += outcome.records
        self._totals.changes += outcome.changes
        self._totals.outputs += outcome.outputs
        for reason, count in outcome.dropped.items():
            self._totals.dropped[reason] = self._totals.dropped.get(reason, 0) + count
        if not config.exactly_once:
            self._parts.lease.write_group(outcome.position)

    def _commit_nothing(self, piece: Slice) -> None:
        """Move a task over a range without records; if that fails, its owner will be asked."""
        entry = self._book.entries[piece.task]
        # An owner that does not know what became of it takes the task anew, from another position.
        self._book.doubt(piece.task, due=time.monotonic())
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
        except InstanceError as error:
            self._parts.coordinator.doubt(entry.owner, error)
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
        self._hear_spark()  # Its end is why, perhaps.
        self._parts.monitor.job_failed()
        self._failed_in_a_row += 1
        reason = _reason(ended.error)
        _log.info("A Spark job failed", exc_info=ended.error)
        self._notice(f"A Spark job failed and is planned again: {reason}")
        if self._failed_in_a_row >= _FAILED_JOBS_MAX:
            if isinstance(ended.error, PenstockError):
                raise ended.error
            raise PenstockError(
                f"{_FAILED_JOBS_MAX} Spark jobs failed one after the other; the last: {reason}",
                hint="Run with PENSTOCK_SPARK_LOG=1 to see Spark's log",
            ) from ended.error

    def _report(self, ended: _JobEnded) -> None:
        self._totals.batches += 1
        seconds = time.monotonic() - ended.started
        sub = self._subs[ended.batch.sub_topology]
        event = BatchEnded(
            sub_topology=sub.name,
            records=sum(each.records for each in ended.outcomes),
            changes=sum(each.changes for each in ended.outcomes),
            outputs=sum(each.outputs for each in ended.outcomes),
            seconds=seconds,
            skipped=sum(each.status == "skipped" for each in ended.outcomes),
            steps=steps_of(ended.outcomes, planning=ended.planning, seconds=seconds),
            latencies=latencies_of(ended.outcomes, {each.name for each in sub.sources}),
        )
        self._parts.monitor.job_ended(event.sub_topology, event.seconds, skipped=event.skipped)
        self._listener(event)

    def _notice(self, text: str) -> None:
        give_notice(self._listener, text)


def _reason(error: BaseException | None) -> str:
    """The one line that says what went wrong, out of Spark's pages."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return repr(error)
    if any(line.startswith("Traceback ") for line in lines):
        return lines[-1]
    named = next((line for line in lines if "Exception: " in line), lines[0])
    return named.rpartition("Exception: ")[2]
