"""Global tables: all of a topic on every instance, kept up to date by a consumer of its own.

A table is followed in a thread: opened, brought to its topic's end, and kept there. Whatever makes
its store and its topic no longer belong together, the topic made anew, records gone before they
were read, a damaged store, ends in the same way: the store is wiped, the table is read from the
topic's start, and someone is told.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, TopicPartition

from penstock.changelog.clients import LogClients
from penstock.changelog.reading import EARLIEST, LATEST, LogRange, log_offsets
from penstock.changelog.restore import is_too_old
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TOMBSTONES_MS, ExistingTopic, policies
from penstock.changelog.whole_topic import read_messages, starts
from penstock.errors import (
    InstanceError,
    KafkaError,
    PenstockError,
    StateForeignError,
    StoreDamagedError,
    TaskNotHereError,
)
from penstock.instance.answers import answers
from penstock.instance.global_processing import GlobalProgram, Programs, program_for
from penstock.instance.protocol import GlobalOrder, ReadHeader, Reply
from penstock.instance.query_answers import findings
from penstock.instance.query_messages import StoreAnswer, StoreQuestion
from penstock.instance.restores import Restores, TopicRestore
from penstock.observability.time_of_day import wall_clock_ms
from penstock.stores.contract import StoreIdentity
from penstock.stores.directory import GLOBAL_DIRECTORY, StateDirectory, TaskDirectory
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine
from penstock.stores.whole_topic import LAYOUT, WholeTopicStore

_log = logging.getLogger("penstock.instance")

BATCH_RECORDS = 5_000
WATCH_SECONDS = 5.0
"""How often a topic is asked whether it is still the same."""
_POLL_SECONDS = 0.05
_RETRY_SECONDS = 0.5
_WAIT_SECONDS = 0.02
_LASTING_MIN = timedelta(minutes=5)
"""A table that follows is known to be whole every few seconds, unless its instance is busy."""
_OUTLASTED = (
    "reading it took longer than {} keeps deletions (delete.retention.ms): keys that were deleted "
    "may be back in it. Raise the setting, and delete the table's directory, below global/"
)
_FORGOTTEN = "it was away for so long that {} may have forgotten deletions"


class GlobalTables:
    """All global tables of an instance; they follow their topics from the start."""

    def __init__(
        self,
        orders: Sequence[GlobalOrder],
        directory: StateDirectory,
        logs: LogClients,
        *,
        programs: Programs | None = None,
        engine: RocksDBEngine | None = None,
    ) -> None:
        self.restores = Restores()
        application_id = directory.application_id
        programs = programs or Programs()
        processed = {
            order.store: GlobalProgram(
                program_for(programs, order.store),
                application_id,
                skips_undecodable=order.skips_undecodable,
                on_processing_error=order.on_processing_error or programs.handler,
                dead_letter_topic=order.dead_letter_topic or None,
            )
            for order in orders
            if order.is_processed
        }
        self._directory = directory.lock_global() if orders else None
        self._tables: dict[str, GlobalTable] = {}
        for order in orders:
            assert self._directory is not None
            self._tables[order.store] = GlobalTable(
                order,
                application_id,
                self._directory,
                logs,
                restores=self.restores,
                program=processed.get(order.store),
                engine=engine,
            )
        for table in self._tables.values():
            table.start()

    def __contains__(self, store: object) -> bool:
        return store in self._tables

    @property
    def fault(self) -> PenstockError | None:
        """Why one of them cannot go on."""
        faults = (table.fault for table in self._tables.values())
        return next((fault for fault in faults if fault is not None), None)

    def wait(self, stop: Callable[[], bool]) -> None:
        """Wait until each holds what its topic holds now. Raises what keeps one from it."""
        for table in self._tables.values():
            table.wait(stop)

    def read(self, header: ReadHeader, questions: pa.Table) -> Iterator[pa.RecordBatch | Reply]:
        """What a table answers, as of now: it has no part in any task's commits."""
        table = self._tables[header.store]
        try:
            yield from answers(table.store(), header.question, questions)
        except (TaskNotHereError, StoreDamagedError) as error:
            if isinstance(error, StoreDamagedError):
                table.damaged(error)
            yield Reply(status="lost", reason=str(error))
            return
        yield Reply(status="ok", n=header.n)

    def ask(self, question: StoreQuestion) -> StoreAnswer:
        """What a table says to someone outside of any task."""
        table = self._tables[question.store]
        whole_at = table.whole_at
        try:
            result = findings(table.store(), question)
        except (TaskNotHereError, StoreDamagedError) as error:
            if isinstance(error, StoreDamagedError):
                table.damaged(error)
            return StoreAnswer(reason=str(error))
        return StoreAnswer(
            role="global",
            age_ms=int((time.monotonic() - whole_at) * 1000),
            found=result.found,
            count=result.count,
            size=result.size,
            after=result.after,
        )

    def new_notes(self) -> list[str]:
        """What happened to them since this was last asked."""
        return [note for table in self._tables.values() for note in table.new_notes()]

    def flush(self) -> None:
        """Make what was read durable, and export how far that is."""
        offsets: dict[tuple[str, int], int] = {}
        for table in self._tables.values():
            offsets |= table.flush()
        if self._directory is not None and offsets:
            self._directory.write_checkpoint(offsets)

    def close(self) -> None:
        """Stop following, and close the stores."""
        if self._directory is None:
            return
        for table in self._tables.values():
            table.stop()
        with contextlib.suppress(PenstockError):
            self.flush()
        for table in self._tables.values():
            table.close()
        self._directory.unlock()


class GlobalTable:
    """One topic in one store. A thread of its own writes; any thread may read."""

    def __init__(
        self,
        order: GlobalOrder,
        application_id: str,
        directory: TaskDirectory,
        logs: LogClients,
        *,
        restores: Restores,
        program: GlobalProgram | None = None,
        engine: RocksDBEngine | None = None,
    ) -> None:
        self._program = program
        self.fault: PenstockError | None = None
        self.whole_at = self._asked_at = time.monotonic()
        """When the store was last known to hold all of the topic; of one that ever did."""
        self._whole_ms = self._asked_ms = wall_clock_ms()
        """The same by the clock, which a machine that is asleep does not stop."""
        self._asked: tuple[dict[int, int], float, int] | None = None
        """Where the topic ended when that was asked, and when that was, by both, if it was not read
        to there yet."""
        self._since_ms: int | None = None
        """Since when what the store lacks is being read; None if it lacked nothing."""
        self._order = order
        self._application_id = application_id
        self._directory = directory
        self._engine = engine
        self._logs = logs
        self._restores = restores
        self._admin = TopicAdmin(logs.config, admin=logs.admin)
        self._store: WholeTopicStore | None = None
        self._damage: StoreDamagedError | None = None
        self._complete = False
        self._positions: dict[int, int] = {}
        self._notes: list[str] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"global-{order.store}", daemon=True)

    def start(self) -> None:
        """Begin to follow the topic."""
        self._thread.start()

    def stop(self) -> None:
        """Follow no more; returns when the thread has ended."""
        self._stopping.set()
        self._thread.join()

    def close(self) -> None:
        """Close the store; to be called after `stop`."""
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(PenstockError):
                store.close()

    def store(self) -> WholeTopicStore:
        """The store, once it held all of the topic. Raises `TaskNotHereError`."""
        store = self._store
        where = {"store": self._order.store, "topic": self._order.topic}
        if self.fault is not None:
            # What is there no longer follows the topic: whoever reads is to learn why.
            raise TaskNotHereError(f"The global table stopped: {self.fault}", where=where)
        if store is None or not self._complete:
            raise TaskNotHereError("The global table is being read from its topic", where=where)
        return store

    def new_notes(self) -> list[str]:
        """What happened since this was last asked."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    def wait(self, stop: Callable[[], bool]) -> None:
        """Wait until the store holds what the topic holds now. Raises what keeps it from that."""
        ends: dict[int, int] | None = None
        while not stop() and not self._stopping.is_set():
            if self.fault is not None:
                raise self.fault
            if not self._complete:
                ends = None  # Of the topic as it is now: it may have been made anew.
            elif ends is None:
                ends = self._ends(list(self._positions))
            elif self._reached(ends):
                return
            time.sleep(_WAIT_SECONDS)

    def damaged(self, error: StoreDamagedError) -> None:
        """A read found the store damaged: have it read again from the topic."""
        self._damage = error

    def flush(self) -> dict[tuple[str, int], int]:
        """Make what was read durable; the last offset of each partition that surely is."""
        store = self._store
        if store is None or not self._complete:
            return {}
        try:
            # Not now: its topic may have been out of reach for long.
            store.set_caught_up_at(self._whole_ms)
            positions = store.positions()
            store.flush()
        except TaskNotHereError:
            return {}  # It is being wiped.
        if not self._order.persistent:
            return {}
        return {(self._order.topic, p): at - 1 for p, at in positions.items() if at > 0}

    # The thread.

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except StoreDamagedError as error:
                self._wipe(error.summary)
            except KafkaError as error:
                # It may come back, and until then nothing new can be processed either.
                _log.warning("Global table %s: %s", self._order.store, error)
                self._stopping.wait(_RETRY_SECONDS)
            except PenstockError as error:
                self.fault = error
                return
            except Exception as error:  # noqa: BLE001 - nobody waits for this thread
                _log.exception("Global table %s cannot be followed", self._order.store)
                self.fault = InstanceError(f"{type(error).__name__}: {error}")
                return

    def _follow(self) -> None:
        """Open the store, bring it to the topic's end and keep it there, while both stay."""
        topic = self._describe()
        store = self._open(topic)
        asked_at, asked_ms = time.monotonic(), wall_clock_ms()
        ranges = self._ranges(topic)
        held = store.positions()
        begin = starts(held, ranges)
        if begin is None:
            self._wipe(f"{topic.name} no longer holds what the table needs next")
            return
        ends = {partition: log.end for partition, log in ranges.items()}
        if begin != ends and _is_old(store, topic):
            self._wipe(_FORGOTTEN.format(topic.name))
            return
        if store.caught_up_at() is None:
            # A store that is cut off on its way was never complete; its age counts from here.
            store.set_caught_up_at(wall_clock_ms())
        self._positions = dict(begin)
        self._asked_at, self._asked_ms, self._asked = asked_at, asked_ms, None
        self._since_ms = None if begin == ends else store.caught_up_at()
        consumer = self._logs.consumer()
        told = TopicRestore(self._restores, self._order.store, topic.name, begin, ends, held)
        try:
            consumer.assign([TopicPartition(topic.name, p, at) for p, at in begin.items()])
            self._keep_up(consumer, store, topic, told)
        finally:
            told.suspend()
            consumer.close()

    def _keep_up(
        self, consumer: Consumer, store: WholeTopicStore, topic: ExistingTopic, told: TopicRestore
    ) -> None:
        watch_due = time.monotonic() + WATCH_SECONDS
        while not self._stopping.is_set():
            if self._damage is not None:
                raise self._damage
            if not told.is_over and self._reached(told.ends):
                told.end()
                store.set_caught_up_at(self._asked_ms)
                self.whole_at, self._whole_ms = self._asked_at, self._asked_ms
                self._judge_first_read(topic)
                self._complete = True
            messages = consumer.consume(BATCH_RECORDS, _POLL_SECONDS)
            read = read_messages(messages)
            if read.lost:
                self._wipe(f"{topic.name} no longer holds what the table needs next")
                return
            changes = read.changes
            # An end that is told counts, too: of deletions that are gone nothing else is left.
            if messages and self._complete and self._was_cut_off(topic):
                self._wipe(_FORGOTTEN.format(topic.name))
                return
            if self._program is not None:
                changes = self._program.changes(messages, store)
            # What a processor made nothing of has been read too.
            if changes or (messages and self._program is not None):
                store.apply_read(changes, read.positions)
                told.read(read)
            self._positions = {**self._positions, **read.positions}
            if time.monotonic() > watch_due:
                now = self._describe()
                if (now.id, now.partitions) != (topic.id, topic.partitions):
                    # A client that knows the topic learns of new partitions minutes later.
                    self._logs = LogClients(self._logs.config, self._logs.application_id)
                    return
                watch_due = time.monotonic() + WATCH_SECONDS
                self._note_whole()

    def _judge_first_read(self, topic: ExistingTopic) -> None:
        """Tell of one that took longer than deletions last: some may be gone that it came too late
        for, of keys that it had read.
        """
        now_ms, since_ms = wall_clock_ms(), self._since_ms
        if since_ms is None or not is_too_old(since_ms, now_ms=now_ms, lasting=_lasting(topic)):
            return
        # The topic was never out of reach. Read anew, it would take as long again.
        self._whole_ms = now_ms
        if "compact" in policies(topic.config.get("cleanup.policy", "")):
            self._tell(_OUTLASTED.format(topic.name))

    def _was_cut_off(self, topic: ExistingTopic) -> bool:
        """Whether the topic was out of reach for so long that deletions may be gone by now."""
        now_ms, lasting = wall_clock_ms(), max(_lasting(topic), _LASTING_MIN)
        # A clock that was set back says nothing of a table that follows.
        return is_too_old(min(self._whole_ms, now_ms), now_ms=now_ms, lasting=lasting)

    def _note_whole(self) -> None:
        """A quiet topic tells nothing: whether all of it was read is asked now and then."""
        if not self._complete:
            return
        asked_at, asked_ms = time.monotonic(), wall_clock_ms()
        asked = (self._ends(list(self._positions)), asked_at, asked_ms)
        # A busy topic is never read to its very end, but to where it ended some time ago. One that
        # is read with a delay is waited for: where it ends by then, it would not reach either.
        for ends, at, at_ms in filter(None, (self._asked, asked)):
            if self._reached(ends):
                self.whole_at, self._whole_ms, self._asked = at, at_ms, None
        self._asked = self._asked or asked

    def _describe(self) -> ExistingTopic:
        return self._admin.require([self._order.topic])[self._order.topic]

    def _ranges(self, topic: ExistingTopic) -> dict[int, LogRange]:
        partitions = [(topic.name, p) for p in range(topic.partitions)]
        firsts = log_offsets(self._logs, partitions, EARLIEST, IsolationLevel.READ_COMMITTED)
        ends = self._ends(list(range(topic.partitions)))
        return {p: LogRange(firsts[topic.name, p], ends[p]) for p in ends}

    def _ends(self, partitions: list[int]) -> dict[int, int]:
        topic = self._order.topic
        wanted = [(topic, p) for p in partitions]
        found = log_offsets(self._logs, wanted, LATEST, IsolationLevel.READ_COMMITTED)
        return {p: found[topic, p] for p in partitions}

    def _reached(self, ends: Mapping[int, int]) -> bool:
        positions = self._positions
        return all(positions.get(p, -1) >= end for p, end in ends.items())

    def _open(self, topic: ExistingTopic) -> WholeTopicStore:
        """The store, which is empty if it was another topic's."""
        if self._store is None:
            self._store = self._make_store()
        wanted = self._identity(topic)
        found = self._store.identity()
        if found is not None and found.application_id != wanted.application_id:
            raise StateForeignError(
                f"The store belongs to the application {found.application_id!r}",
                where={"store": wanted.store},
                hint="Set state_dir to another directory",
            )
        if found is not None and found != wanted:
            self._wipe(why_anew(found, wanted))
            self._store = self._make_store()
        self._store.set_identity(wanted)
        return self._store

    def _make_store(self) -> WholeTopicStore:
        name = self._order.store
        if not self._order.persistent:
            return WholeTopicStore(MemoryStore(name))
        path = self._directory.store_path(name)
        try:
            return WholeTopicStore(RocksDBStore(name, path, engine=self._engine))
        except StoreDamagedError as error:
            self._wipe(error.summary)
            return WholeTopicStore(RocksDBStore(name, path, engine=self._engine))

    def _wipe(self, why: str) -> None:
        """Start afresh, and have it told."""
        self._complete, self._positions, self._damage = False, {}, None
        self.close()
        self._directory.wipe_store(self._order.store)
        self._tell(f"{why}. It is read again from the topic's start")

    def _tell(self, what: str) -> None:
        with self._lock:
            self._notes.append(f"Global table {self._order.store}: {what}")

    def _identity(self, topic: ExistingTopic) -> StoreIdentity:
        return StoreIdentity(
            application_id=self._application_id,
            task=GLOBAL_DIRECTORY,
            store=self._order.store,
            changelog_topic=topic.name,
            changelog_topic_id=topic.id,
            layout=LAYOUT,
            # A copy of the topic's bytes is right whatever they are read as.
            filled_as="" if self._program is None else self._program.filled_as,
        )


def why_anew(found: StoreIdentity, wanted: StoreIdentity) -> str:
    """Why a copy is of no use, which is another one than is wanted."""
    topic = wanted.changelog_topic
    if found.changelog_topic != topic:
        return f"{topic} replaces {found.changelog_topic}"
    if found.changelog_topic_id != wanted.changelog_topic_id:
        return f"{topic} was deleted and made anew"
    was, now = (each.filled_as or "the topic's bytes" for each in (found, wanted))
    return f"it was filled otherwise ({was}) than it is now ({now})"


def _is_old(store: WholeTopicStore, topic: ExistingTopic) -> bool:
    """Whether deletions that the store has not seen may be gone from the topic."""
    caught_up_at = store.caught_up_at()
    if caught_up_at is None or not store.positions():
        return False
    return is_too_old(caught_up_at, now_ms=wall_clock_ms(), lasting=_lasting(topic))


def _lasting(topic: ExistingTopic) -> timedelta:
    """How long deletions stay in a topic."""
    return timedelta(milliseconds=int(topic.config.get("delete.retention.ms", TOMBSTONES_MS)))
