"""A task on its instance: taking it, reading, committing, giving it up.

Steps are numbered as in docs/architecture.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from msgspec import structs

from penstock.changelog.commit_record import CommitRecord
from penstock.changelog.reading import read_last
from penstock.changelog.snapshots import SnapshotSource
from penstock.changelog.topics import commits_name
from penstock.config import Config
from penstock.coordination.ids import TaskId
from penstock.errors import (
    CustomStoreError,
    ExternalStoreError,
    FencedError,
    InstanceError,
    KafkaError,
    PenstockError,
    StoreDamagedError,
    TaskNotHereError,
)
from penstock.instance.changes import collect_changes, logged_rows
from penstock.instance.clients import SharedClients
from penstock.instance.early_copies import Peer
from penstock.instance.external import ExternalStores
from penstock.instance.handover import (
    changelog_ends,
    check_driver,
    check_inputs,
    check_owner,
    input_logs,
    later,
    next_record,
    offsets_metadata,
)
from penstock.instance.protocol import (
    CommitHeader,
    FollowOrder,
    ReadHeader,
    Reply,
    TakeOrder,
    TaskState,
    TaskStatus,
    fault_of,
)
from penstock.instance.recovery import not_yet_written, plain, recovery_fields
from penstock.instance.rejections import (
    fitting_batch,
    numbered_rows,
    refused_outbox,
    to_be_judged,
)
from penstock.instance.standing import Standing, judged, settled
from penstock.instance.state import TaskStores
from penstock.instance.writer import (
    BATCH_BYTES,
    WriteAbortedError,
    Writer,
    WriteRejectedError,
    WriteUnknownError,
)
from penstock.observability.crash_points import crash_point
from penstock.observability.recorder import Recorder
from penstock.stores.contract import Change, KeyValueStore
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb_engine import RocksDBEngine

_log = logging.getLogger("penstock.instance")

_STORE_FAILURES_MAX = 3
"""How often in a row a store that the user brought may fail before its task does."""


HandOver = Callable[[Callable[[], bool]], TaskStores | None]
"""Ends a standby's following of the task, and gives its open stores, if it has any. It waits a
moment for what they lack, until its argument says to stop."""


def no_global_tables(stop: Callable[[], bool]) -> None:
    """What an application without global tables waits for."""


@dataclass(frozen=True, kw_only=True)
class TaskEnvironment:
    """What a task has from its instance."""

    application_id: str
    config: Config
    directory: StateDirectory
    clients: SharedClients
    lease_holds: Callable[[], bool]
    recorder: Recorder = field(default_factory=lambda: Recorder("OFF"))
    engine: RocksDBEngine | None = None
    """Shared by all stores; without one, that of the process."""
    snapshots: Sequence[SnapshotSource] = ()
    """Where copies of stores may be found, best first."""
    peer: Callable[[str], Peer] | None = None
    """The copies that another instance has, by its location."""
    await_global_tables: Callable[[Callable[[], bool]], None] = no_global_tables
    """Waits until they hold what their topics hold now, or until its argument says to stop."""

    def stores(self, order: TakeOrder | FollowOrder) -> TaskStores:
        """The stores of a task, which are not open yet."""
        peers = [] if self.peer is None else [self.peer(location) for location in order.peers]
        return TaskStores(
            order,
            self.directory,
            self.clients,
            engine=self.engine,
            peers=peers,
            snapshots=self.snapshots,
            recorder=self.recorder,
        )


class OpenTask:
    """One task that this instance owns under one epoch."""

    def __init__(self, order: TakeOrder, environment: TaskEnvironment) -> None:
        self.order = order
        self._environment = environment
        self._partition = TaskId.parse(order.task).partition
        self._stores = environment.stores(order)
        timeout = environment.config.session_timeout.total_seconds() / 2
        self._external = ExternalStores(order, environment.application_id, timeout_seconds=timeout)
        self._writer: Writer | None = None
        self._batch_bytes = BATCH_BYTES
        self._standing = Standing()
        self._state: TaskState = "taking"
        self._fault: PenstockError | None = None
        self._notes: list[str] = []
        self._store_failures = 0
        # One commit at a time. Reads go on beside it until the store is written, and are refused
        # afterwards by their number.
        self._lock = threading.Lock()
        self._applying = False
        self._stopping = threading.Event()

    # Taking a task.

    def take(self, followed: HandOver | None = None, prepared: Writer | None = None) -> None:
        """Become the owner, with what standby and writer have ready; what goes wrong is told."""
        try:
            with self._lock:
                if self._stopping.is_set():
                    self._close_stores()  # It was given up before it was taken.
                else:
                    self._take(followed, prepared)
        except PenstockError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread
            # What it does not tell would leave the task taking for ever.
            _log.exception("Task %s cannot be taken", self.order.task)
            self._fail(InstanceError(f"{type(error).__name__}: {error}"))

    def _take(self, followed: HandOver | None, prepared: Writer | None) -> None:
        self._state = self._stores.meter.became("taking")
        self._applying = False
        if followed is None:
            self._stores.begin(self._stopping.is_set)
        # 1. Fence the old owner and wait for its pending markers.
        self._writer = _opened_writer(self.order, self._environment, self._batch_bytes, prepared)
        # 2. Where the task stands, and where its changelogs end.
        self._standing = self._find_standing()
        if self._standing.is_owed:
            _send_owed(self._writer, self._external, self._standing, self.order, self._environment)
        # 3. Apply the changelogs to there: most of it is done by who followed them until now.
        if followed is not None:
            self._stores = followed(self._stopping.is_set) or self._stores
        self._state = self._stores.meter.became("restoring")
        self._stores.open(self._standing.record)
        self._notes += self._stores.restore(self._stopping.is_set)
        if self._stores.lost and not self._stopping.is_set():
            self._read_again()
        self._environment.await_global_tables(self._stopping.is_set)
        crash_point("restore.before_running")
        if self._stopping.is_set():
            return
        # 4. Serve, under the new epoch; the first transaction writes it.
        self._state = self._stores.meter.became("running")

    def _find_standing(self) -> Standing:
        environment, order = self._environment, self.order
        topic, partition = commits_name(environment.application_id), order.commits_partition
        data = read_last(environment.clients.logs, topic, partition, stop=self._stopping.is_set)
        record = None if data is None else CommitRecord.decode(data)
        if record is not None:
            check_owner(order, record)
        kept = self._external.open(record)
        for each in (record, kept):
            if each is not None:
                check_inputs(order, each)
        standing, notes = settled(
            order,
            environment.clients,
            record=record,
            kept=kept,
            exactly_once=environment.config.exactly_once,
        )
        self._notes += notes
        return standing

    def _read_again(self) -> None:
        """Go back to where the task began, with empty stores: one of them is lost."""
        lost = self._stores.lost
        standing, note = _begun_again(
            self._standing, self.order, self._environment, lost=lost, stop=self._stopping.is_set
        )
        self._stores.start_empty()
        self._standing = standing
        self._notes += note

    # Reading.

    def read(self, header: ReadHeader, questions: pa.Table) -> Iterator[pa.RecordBatch | Reply]:
        """A store's answers, if the caller's number is the next one; the reply comes last."""
        reply = self._read_refusal(header)
        if reply is not None:
            yield reply
            return
        try:
            yield from self._stores.meter.answers(self.store(header.store), header, questions)
        except StoreDamagedError as error:
            with self._lock:
                yield self._rebuild(header.store, error)
            return
        except (CustomStoreError, ExternalStoreError) as error:
            with self._lock:
                yield self._store_failed(error)
            return
        except TaskNotHereError as error:
            yield Reply(status="lost", reason=str(error))
            return
        # A commit may have gone by meanwhile; then these values are of two times.
        yield self._read_refusal(header) or Reply(status="ok", n=header.n)

    def _read_refusal(self, header: ReadHeader) -> Reply | None:
        reply = self._refusal(header.epoch, header.n)
        if reply is None and self._applying:
            return Reply(status="lost", reason="another run of the slice has just committed")
        return reply

    # Committing.

    def commit(self, header: CommitHeader, batches: Iterator[pa.RecordBatch]) -> Reply:
        """Commit a slice, once: step 6 of a batch."""
        with self._lock:
            # a. Epoch and lease.
            reply = self._refusal(header.epoch, header.n) or judged(self._standing, header)
            if reply is None:
                reply = self._commit(header, batches)
        for _ in batches:
            pass  # The caller still sends; what a refused commit brings is read and dropped.
        return reply

    def _commit(self, header: CommitHeader, batches: Iterator[pa.RecordBatch]) -> Reply:
        assert self._writer is not None
        writer = self._writer
        # b. One transaction: changelog records and outputs in row order, the commit record, the
        #    group's offsets.
        try:
            changes, record = self._write(writer, header, batches)
            logs = {name: log for name in changes if (log := self._stores.changelog(name))}
            ends = changelog_ends(logs, self._partition, self._environment.clients)
            times = later(self._standing.times, header.times)
            writer.commit(header.end, offsets_metadata(self.order.closes, record, times))
        except WriteAbortedError as error:
            return self._aborted(writer, str(error))
        except WriteRejectedError as error:
            return self._rejected(writer, header, error)
        except (WriteUnknownError, KafkaError) as error:
            self._notes.append(f"{error.summary}: the task is taken again")
            return self._lost(error)
        except (CustomStoreError, ExternalStoreError) as error:
            return self._store_failed(error)
        except pa.ArrowException as error:
            # The stream broke: its worker is gone, and nothing of its slice may become visible.
            return self._aborted(writer, f"The worker went away: {error}")
        except Exception as error:  # noqa: BLE001 - a transaction must not stay open behind it
            _log.exception("Task %s: a commit failed", self.order.task)
            return self._lost(InstanceError(f"{type(error).__name__}: {error}"))
        self._stores.meter.blocked(writer.blocked_seconds)
        crash_point("commit.after_txn_before_store")
        # c. The stores, and how much of the changelog they hold now.
        store = ""
        self._applying = True
        try:
            for store, store_changes in changes.items():
                with self._stores.meter.writing(store, store_changes):
                    self._stores.apply(store, store_changes, ends.get(store))
            for store in self._stores.marked:
                self._stores.mark(store, record.n)
        except StoreDamagedError as error:
            return self._rebuild(store, error)
        except CustomStoreError as error:
            return self._store_failed(error)
        except PenstockError as error:
            self._fail(error)
            return Reply(status="lost", reason=str(error))
        self._standing = self._standing.after(record, times)
        self._applying = False
        self._store_failures = 0
        crash_point("commit.after_store_before_reply")
        # d. The answer.
        return structs.replace(self._standing.reply(), status="ok")

    def _write(
        self, writer: Writer, header: CommitHeader, batches: Iterator[pa.RecordBatch]
    ) -> tuple[dict[str, list[Change]], CommitRecord]:
        changelogs = [self._stores.changelog(name) for name in header.stores]
        changes: dict[str, list[Change]] = {}
        outputs: list[pa.RecordBatch] = []
        writer.begin()
        crash_point("commit.before_changelog_send")
        sent = 0
        for batch in batches:
            rows = numbered_rows(batch, sent) if header.numbered else batch
            sent += batch.num_rows
            logged = logged_rows(rows, changelogs)
            if self._standing.recovery.until:
                logged = not_yet_written(logged, header, self.order)
            if self._external.has_outbox:
                outputs += [logged] if logged.num_rows else []
            elif logged.num_rows:
                writer.send(
                    logged, changelogs=changelogs, topics=header.topics, own=self._partition
                )
            collect_changes(batch, header.stores, self._stores.versioned, changes)
        ends = self._stores.ends(changes)
        recovery = recovery_fields(self._standing.recovery.after(header.end))
        record = next_record(self.order, header, self._standing.position, ends)
        record = structs.replace(record, **recovery)
        if self._external.in_use:
            self._applying = True
            self._external.commit(writer, record, changes, outputs=outputs, topics=header.topics)
        _send_record(writer, record, self.order, self._environment)
        return changes, record

    def _aborted(self, writer: Writer, reason: str) -> Reply:
        if self._external.in_use:
            return self._lost(WriteUnknownError(reason))  # The database may have it already.
        try:
            writer.abort()
        except (WriteUnknownError, FencedError) as error:
            return self._lost(error)
        return Reply(status="lost", n=self._standing.n, reason=reason)

    def _rejected(self, writer: Writer, header: CommitHeader, error: WriteRejectedError) -> Reply:
        """Kafka does not take some records: a smaller batch may do, else the worker's handler says
        what becomes of them, as soon as it is known which they are."""
        own = [each.changelog for each in self.order.stores]
        for_handler = to_be_judged(error.rejected, own)
        # A database may have the commit already: whoever takes the task sends the rest, or says so.
        if not for_handler or self._external.is_ahead(error.rejected):
            self._notes.append(f"{error.summary}: the task is taken again")
            return self._lost(error)
        fits, topic = fitting_batch(self._environment.clients, for_handler)
        if 0 < fits < self._batch_bytes:
            self._batch_bytes = fits
            self._notes.append(
                f"{topic} refused a batch of records: the task is taken again, and its batches are "
                f"of {fits} bytes at most"
            )
            return self._lost(error)
        # Another producer: this one tells of the refused transaction's records in the next one.
        writer.discard()
        try:
            self._writer = _opened_writer(self.order, self._environment, self._batch_bytes)
        except KafkaError as failure:
            return self._lost(failure)
        self._applying = False
        known = for_handler if header.numbered else []
        return Reply(status="rejected", reason=str(error), rejected=known)

    def _lost(self, error: PenstockError) -> Reply:
        """The outcome is unknown: throw the producer away and take the task anew."""
        assert self._writer is not None
        self._writer.discard()
        self._writer = None
        self._close_stores()
        if isinstance(error, FencedError):
            self._fail(error)
        else:
            self._state = self._stores.meter.became("taking")
            threading.Thread(target=self.take, name=f"retake-{self.order.task}").start()
        return Reply(status="lost", reason=str(error))

    def _rebuild(self, store: str, error: StoreDamagedError) -> Reply:
        """A store that was opened well turned out to be damaged: its changelog has it all."""
        if self._state != "running":
            return Reply(status="lost", reason=f"the task is {self._state}")
        self._notes.append(f"{error.summary}: {self._stores.remedy(store)}")
        try:
            self._stores.wipe(store)
        except PenstockError as failure:
            self._fail(failure)
            return Reply(status="lost", reason=str(failure))
        return self._lost(error)

    def _store_failed(self, error: CustomStoreError | ExternalStoreError) -> Reply:
        """A store that the user brought raised: open it afresh, a few times in a row.

        One that a database keeps is left to the driver, which has the task taken again in a while.
        """
        if self._state != "running":
            return Reply(status="lost", reason=f"the task is {self._state}")
        self._store_failures += 1
        if isinstance(error, ExternalStoreError) or self._store_failures >= _STORE_FAILURES_MAX:
            self._fail(error)
            return Reply(status="lost", reason=str(error))
        self._notes.append(f"{error.summary}: the task is taken again")
        return self._lost(error)

    # Giving up.

    def _close_stores(self) -> None:
        self._external.close()
        self._stores.close()

    def flush(self) -> bool:
        """Make the stores durable, and export how far they are; False if a commit goes on."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._state == "running":
                self._stores.flush()
        except StoreDamagedError as error:
            named = error.where.get("store")
            if named not in [each.name for each in self.order.stores]:
                raise  # A user's store need not say its name.
            self._rebuild(str(named), error)
        except CustomStoreError as error:
            self._store_failed(error)
        finally:
            self._lock.release()
        return True

    @property
    def is_running(self) -> bool:
        """Whether the task is served."""
        return self._state == "running"

    @property
    def is_active(self) -> bool:
        """Whether this is who answers for the task: its stores hold all that was committed."""
        is_whole = not self._standing.recovery.until
        return self._environment.lease_holds() and self.is_running and is_whole

    @property
    def stores(self) -> TaskStores:
        """The task's stores, for those who copy them or look at them."""
        return self._stores

    def store(self, name: str) -> KeyValueStore:
        """The open store of that name, wherever it is kept. Raises `TaskNotHereError`."""
        return self._external.get(name) or self._stores.get(name)

    def stop_taking(self) -> None:
        """Have a `take` that is under way, or still to come, end early; does not wait for it."""
        self._stopping.set()

    def close(self) -> None:
        """Stop serving; flush and close the stores. Twice does nothing, but waits for the first."""
        self.stop_taking()
        if self._state == "restoring":
            crash_point("restore.close_while_restoring")
        with self._lock:
            self._state = self._stores.meter.became("closed")
            if self._writer is not None:
                self._writer.discard()
                self._writer = None
            self._close_stores()

    def tell(self, notes: list[str]) -> None:
        """Have something told with the task's next status."""
        self._notes += notes

    def status(self) -> TaskStatus:
        """Where the task stands."""
        standing = self._standing
        return TaskStatus(
            task=self.order.task,
            epoch=self.order.epoch,
            state=self._state,
            position=standing.position,
            n=standing.n,
            metadata=standing.metadata,
            until=plain(standing.recovery.until),
            group_is_stale=standing.group_is_stale,
            restores=self._stores.restores.latest(),
            notes=list(self._notes),
            fault=None if self._fault is None else fault_of(self._fault),
        )

    def _refusal(self, epoch: tuple[int, int], n: int) -> Reply | None:
        """Why a call cannot be served, or None."""
        if tuple(epoch) != tuple(self.order.epoch):
            return Reply(status="gone", reason=f"epoch {epoch} is not {self.order.epoch}")
        if not self._environment.lease_holds():
            return Reply(status="gone", reason="the lease on the driver's heartbeat has ended")
        if self._state != "running":
            return Reply(status="lost", reason=f"the task is {self._state}")
        standing = self._standing
        if n <= standing.n:
            return standing.reply()
        return None

    def _fail(self, error: PenstockError) -> None:
        self._fault = error
        self._state = self._stores.meter.became("failed")
        self._close_stores()


def new_writer(name: str, environment: TaskEnvironment, batch_bytes: int = BATCH_BYTES) -> Writer:
    """A producer for the task of that name, which has fenced nobody yet."""
    return Writer(
        environment.config,
        transactional_id=f"{environment.application_id}-{name}",
        group=environment.clients.group,
        batch_bytes=batch_bytes,
    )


def _opened_writer(
    order: TakeOrder,
    environment: TaskEnvironment,
    batch_bytes: int,
    prepared: Writer | None = None,
) -> Writer:
    """A producer for the task, which fences those before it. Raises `KafkaError`."""
    writer = prepared or new_writer(order.name, environment, batch_bytes)
    writer.open(commits_name(environment.application_id))
    return writer


def _begun_again(
    standing: Standing,
    order: TakeOrder,
    environment: TaskEnvironment,
    *,
    lost: str,
    stop: Callable[[], bool],
) -> tuple[Standing, list[str]]:
    """Where a task stands that is to go back to where it began, and what is told of that."""
    # The owner of a driver that took over would not hear of it before its next commit.
    commits = commits_name(environment.application_id)
    check_driver(order, environment.clients.logs, commits=commits, stop=stop)
    logs = input_logs(order, environment.clients)
    recovery = standing.recovery.restarted(standing.position, logs, task=order.task, lost=lost)
    if not recovery.until:
        return standing, []
    position = {topic: dict(recovery.begun[topic]) for topic in standing.position}
    note = f"{lost}: the task reads its input again, from {position} to {recovery.until}"
    begun = replace(standing, position=position, metadata={}, times={}, recovery=recovery)
    return begun, [note]


def _send_record(
    writer: Writer, record: CommitRecord, order: TakeOrder, environment: TaskEnvironment
) -> None:
    commits = commits_name(environment.application_id)
    writer.send_record(commits, order.commits_partition, order.name.encode(), record.encode())
    writer.flush()


def _send_owed(
    writer: Writer,
    external: ExternalStores,
    standing: Standing,
    order: TakeOrder,
    environment: TaskEnvironment,
) -> None:
    """The last owner ended between the database and Kafka: write there what it did not."""
    assert standing.record is not None
    try:
        writer.begin()
        external.send_waiting(writer, standing.n)
        _send_record(writer, standing.record, order, environment)
        beside = offsets_metadata(order.closes, standing.record, standing.times)
        writer.commit(standing.position, beside)
    except (WriteAbortedError, WriteUnknownError) as error:
        raise KafkaError(f"The last commit cannot be finished: {error}") from error
    except WriteRejectedError as error:
        raise refused_outbox(error.rejected, order.task) from error
    # Under at-least-once the driver writes the group.
    standing.group_is_stale = not environment.config.exactly_once
