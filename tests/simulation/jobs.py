"""Jobs: workers that read a slice, ask its owner for state and commit; some run twice, some die."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.coordination.planning import Batch
from penstock.driver.driver import _JobEnded
from penstock.errors import InstanceUnreachableError
from penstock.instance import protocol
from penstock.instance.protocol import CHANGE, CommitHeader, ReadHeader, Reply
from penstock.instance.protocol import OUTPUT as OUTPUT_ROW
from penstock.pipeline.orders import BatchOrder, Outcome, SliceOrder
from tests.simulation.application import INPUT, OUTPUT, STORE, next_value
from tests.simulation.broker import Entry
from tests.simulation.world import Process, ViolationError

if TYPE_CHECKING:
    from tests.simulation.drivers import DriverProcess
    from tests.simulation.instances import InstanceProcess

_PREFIX = 8


class Job:
    """One Spark job."""

    def __init__(
        self,
        driver: DriverProcess,
        order: BatchOrder,
        batch: Batch,
        started: float,
        ended: queue.Queue[_JobEnded],
    ) -> None:
        self.driver = driver
        self.order = order
        self.batch = batch
        self.started = started
        self._ended = ended
        self._outcomes: dict[int, Outcome | None] = {}
        self._over = False

    def begin(self) -> None:
        """Start the workers; a job may fail though they go on, and a slice may run twice."""
        world = self.driver.world
        for number, each in self.order.slices.items():
            runs = 2 if world.strikes("slice runs twice") else 1
            for _ in range(runs):
                run = SliceRun(self, number, each)
                run.after(world.random.uniform(0.02, 0.3), run.read)
        if world.strikes("job fails"):
            delay = world.random.uniform(0.02, 1.0)
            self.driver.after(delay, lambda: self._end(RuntimeError("simulated")))

    def tell(self, number: int, outcome: Outcome | None) -> None:
        """A slice ended; the first of its runs counts."""
        self._outcomes.setdefault(number, outcome)
        if len(self._outcomes) == len(self.order.slices):
            self.driver.after(self._last_seconds(), lambda: self._end(None))

    def _last_seconds(self) -> float:
        """How long Spark takes to say that a job has ended; an owner may be gone by then."""
        world = self.driver.world
        if not world.strikes("job ends late"):
            return world.random.uniform(0.0, 0.1)
        owners = {each.address.unix_location for each in self.order.slices.values()}
        for process in list(world.processes):
            if str(process.number) in owners and world.random.random() < 0.6:
                world.fired("instance crash")
                process.die()
        return world.random.uniform(0.5, 4.0)

    def _end(self, error: BaseException | None) -> None:
        if self._over:
            return
        self._over = True
        outcomes = [each for each in self._outcomes.values() if each is not None]
        self._ended.put(
            _JobEnded(batch=self.batch, started=self.started, outcomes=outcomes, error=error)
        )


class SliceRun(Process):
    """One run of one slice, in a worker process of its own."""

    def __init__(self, job: Job, number: int, order: SliceOrder) -> None:
        super().__init__(job.driver.world, f"worker {order.task} #{order.n}")
        self._job = job
        self._number = number
        self._order = order
        self._records: list[tuple[int, Entry]] = []

    def read(self) -> None:
        """Read the records of the range, and the state of their keys."""
        order, log = self._order, self.world.broker.log((INPUT, self._number))
        start, end = order.start[INPUT][self._number], order.end[INPUT][self._number]
        self._records = list(log.committed(start, end))
        if not self._records:
            self._tell(None)
            return
        keys = sorted({entry.key for _, entry in self._records if entry.key is not None})
        header = ReadHeader(task=order.task, epoch=order.epoch, n=order.n, store=STORE)
        questions = pa.table([pa.array(keys, pa.binary())], schema=protocol.QUESTIONS["get"])

        def work(holder: Any) -> tuple[Reply, list[bytes | None]]:
            found: list[bytes | None] = []
            for part in holder.read(header, questions):
                if isinstance(part, Reply):
                    return part, found
                found += part.column(0).to_pylist()
            raise AssertionError

        reply, found = self._ask(work) or (None, [])
        if reply is None:
            return
        if reply.status != "ok":
            self._stopped(reply)
            return
        state = {
            key: None if value is None else value[_PREFIX:]
            for key, value in zip(keys, found, strict=True)
        }
        delay = self.world.random.uniform(0.02, 0.3)
        if self.world.strikes("worker hangs"):
            delay += self.world.random.uniform(3.0, 15.0)
        self.after(delay, lambda: self._commit(state))

    def _commit(self, state: dict[bytes, bytes | None]) -> None:
        order = self._order
        changes, outputs = [], []
        for _, entry in self._records:
            assert entry.key is not None
            assert entry.value is not None
            value = state[entry.key] = next_value(state[entry.key], entry.value)
            changes.append((entry.key, value))
            outputs.append((entry.key, value))
        header = CommitHeader(
            task=order.task,
            epoch=order.epoch,
            n=order.n,
            start=order.start,
            end=order.end,
            stores=[STORE],
            topics=[OUTPUT],
            rows=len(changes) + len(outputs),
        )
        breaks = self.world.strikes("worker dies in its stream")

        def rows() -> Iterator[pa.RecordBatch]:
            yield _rows(CHANGE, self._number, changes)
            if breaks:
                raise pa.ArrowInvalid("simulated: the stream broke")
            yield _rows(OUTPUT_ROW, self._number, outputs)

        reply = self._ask(lambda holder: holder.commit(header, rows()))
        if reply is None:
            return
        if breaks:
            # Spark runs the task again, which finds its number used or not.
            self._tell(Outcome(task=order.task, status="skipped", reason="simulated"))
        elif reply.status == "ok":
            self._tell(_committed(order.task, reply))
        else:
            self._stopped(reply)

    def _ask(self, work: Any) -> Any:
        """What the owner answers; None if the run has ended without an answer."""
        try:
            target = self._job.driver.application.find(self._order.address.unix_location)
            return self.world.network.call(target, lambda: self._served(target, work), timeout=4.8)
        except (InstanceUnreachableError, pa.ArrowException) as error:
            self._tell(
                Outcome(task=self._order.task, status="skipped", reason=str(error), unanswered=True)
            )
            return None

    def _served(self, target: InstanceProcess, work: Any) -> Any:
        """What the owner does with a call; it may serve it only while it is the owner.

        Who has the call is who was held when it came: while a commit that was begun is ended, the
        order for the next epoch may come, whose task waits for it.
        """
        assert target.holder is not None
        may = self.world.now < target.may_serve_until
        held = target.holder._tasks.get(self._order.task)
        answer = work(target.holder)
        reply = answer if isinstance(answer, Reply) else answer[0]
        if reply.status in ("ok", "done"):
            if not may:
                raise ViolationError(f"{target.name} served {self._order.task} without a lease")
            epoch = None if held is None else tuple(held.order.epoch)
            if epoch != tuple(self._order.epoch):
                raise ViolationError(f"{self._order.task} was served under {epoch}")
            if held is not None and not held.is_running:
                raise ViolationError(f"{self._order.task} was served by one that had given it up")
        return answer

    def _stopped(self, reply: Reply) -> None:
        self.world.reached(f"a worker was told {reply.status}")
        task = self._order.task
        if reply.status == "done":
            self._tell(_committed(task, reply))
        else:
            self._tell(Outcome(task=task, status="skipped", reason=f"{reply.status}"))

    def _tell(self, outcome: Outcome | None) -> None:
        self._job.tell(self._number, outcome)
        self.world.processes.remove(self)


def _committed(task: str, reply: Reply) -> Outcome:
    return Outcome(
        task=task, status="committed", n=reply.n, position=reply.position, metadata=reply.metadata
    )


def _rows(kind: int, partition: int, pairs: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    count = len(pairs)
    columns = [
        pa.array([kind] * count, pa.uint8()),
        pa.array([0] * count, pa.int16()),
        pa.array([partition] * count, pa.int32()),
        pa.array([key for key, _ in pairs], pa.binary()),
        pa.array([value for _, value in pairs], pa.binary()),
        pa.array([1] * count, pa.int64()),
        pa.nulls(count, protocol.HEADERS),
    ]
    return pa.record_batch(columns, schema=protocol.ROWS)
