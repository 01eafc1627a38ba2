"""The stores of one task: opened, checked, brought up to date, closed."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

from penstock.changelog.clients import LogClients
from penstock.changelog.commit_record import ChangelogEnd, CommitRecord
from penstock.changelog.read_ahead import Readers
from penstock.changelog.reading import LogRange, first_offset, wait_stable
from penstock.changelog.restore import (
    RestoreOutcome,
    check_end,
    noticing_deletion,
    outrun,
    restore,
    truncated,
)
from penstock.changelog.snapshots import (
    Snapshot,
    SnapshotSource,
    copy_snapshot,
)
from penstock.coordination.ids import TaskId
from penstock.errors import (
    ChangelogError,
    PenstockError,
    SnapshotError,
    StateForeignError,
    StoreDamagedError,
)
from penstock.instance.clients import SharedClients
from penstock.instance.early_copies import NONE_EARLY, EarlyCopies, Peer
from penstock.instance.meters import TaskMeter
from penstock.instance.open_stores import OpenStores
from penstock.instance.protocol import FollowOrder, StoreOrder, TakeOrder
from penstock.instance.restore_notes import begun_anew, comes_from, outlasted
from penstock.instance.restores import Restores
from penstock.instance.truncation import KnownStarts, last_known_end
from penstock.observability.crash_points import crash_point
from penstock.observability.recorder import Recorder
from penstock.observability.time_of_day import wall_clock_ms
from penstock.stores.contract import (
    Change,
    KeyValueStore,
    StoreIdentity,
)
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb_engine import RocksDBEngine
from penstock.stores.steady import Coming, Steady

_log = logging.getLogger("penstock.instance")

_LOCK_WAIT = timedelta(seconds=5)
_NOT_THIS_STORE = (StoreDamagedError, StateForeignError, ChangelogError)
"""What is said of a copy that cannot be read, or is not what its manifest says."""
FILLED_MIN = 50_000
"""From how many records on an empty store is filled apart: opening it twice more has a price."""


class TaskStores:
    """What a task keeps on disk. One owner calls the methods that write, one after the other."""

    def __init__(
        self,
        order: TakeOrder | FollowOrder,
        directory: StateDirectory,
        clients: SharedClients,
        *,
        engine: RocksDBEngine | None = None,
        peers: Sequence[Peer] = (),
        snapshots: Sequence[SnapshotSource] = (),
        recorder: Recorder | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.task = self._task = order.task
        self._partition = TaskId.parse(order.task).partition
        self._orders = {each.name: each for each in order.stores if each.database is None}
        self.meter = TaskMeter(recorder or Recorder("OFF"), order)
        self._open = OpenStores(order.task, self._orders, directory, self.meter, engine=engine)
        self._clients = clients
        self._name = order.name
        self._peers = peers
        # Peers have newer copies than the location.
        self._snapshots = [*peers, *snapshots]
        self._early = NONE_EARLY
        self._now_ms = now_ms
        self._wiped: set[str] = set()
        self.read_to: dict[str, int] = {}
        """Where who followed a store has stopped: the next offset of its changelog."""
        self.restores = Restores(self.meter)
        self._ends: dict[str, int] = {}
        markers = 1 if clients.config.exactly_once else 0
        self._known = KnownStarts(order.task, now_ms, markers=markers)
        self._record: CommitRecord | None = None
        self.lost = ""
        """Which store is lost, and why, if the task is to read its input again for that."""

    def begin(self, stop: Callable[[], bool]) -> None:
        """Have copies come from peers of what the disk lacks, before it is known where the task
        stands; `restore` uses them. Nobody may follow the task here."""
        wanted = {
            order.name: self._open.identity(order)
            for order in self._orders.values()
            if order.logged and order.persistent and order.name not in self._wiped
        }
        if self._peers and wanted and not self._open.is_locked:
            # If others have it, `open` waits for them, or says what is wrong.
            with contextlib.suppress(PenstockError):
                self._early = EarlyCopies(
                    self._open.lock(), wanted, name=self._name, peers=self._peers, stop=stop
                )

    def open(self, record: CommitRecord | None) -> None:
        """Lock the task's directory and open its stores; those of a standby are open already."""
        self._record, self.lost = record, ""
        if not self._orders:
            return
        if not self._open.is_locked:
            # A peer may be given a copy of what is here.
            self._open.lock(wait=_LOCK_WAIT)
        crash_point("open.after_lock")
        for order in self._orders.values():
            if order.logged:
                with self._noticing_loss(order):
                    self._ends[order.name] = last_known_end(order, record)
        if record is not None:
            self._known.read(record)
        if record is not None and record.until and any(o.logged for o in self._orders.values()):
            # Of what was read again, changelogs have a part, behind all that was there before.
            self._lose("The task", "was cut off while it read its input again")

    def restore(self, stop: Callable[[], bool]) -> list[str]:
        """Bring every store up to the end of its changelog; what had to be rebuilt is told."""
        notes: list[str] = []
        logged = [order for order in self._orders.values() if order.logged]
        began_ms = wall_clock_ms()
        read_to, self.read_to = self.read_to, {}
        # What their owner wrote meanwhile is to be seen, too.
        self._early.wait()
        logs = _ranges(self._clients.logs, logged, self._partition, stop)
        for order in logged:
            log = logs[order.changelog, self._partition]
            self._known.found[order.name] = log.start
            with self._noticing_loss(order):
                if not self.lost:
                    known = self._ends.get(order.name, -1)
                    check_end(order.changelog, self._partition, log, known)
                    # Without a consumer, which costs a tenth of a second. It may have been closed.
                    if read_to.get(order.name) == log.end and order.name in self._open:
                        notes += self._known.notes(order, log, log.end - 1)
                        self.restores.note_whole(order.name, order.changelog, self._partition, log)
                        self.get(order.name).set_caught_up_at(began_ms)
                    else:
                        notes += self._restore_store(order, log, stop, self._clients.logs.readers)
        for order in self._orders.values():
            if not order.logged and not (order.recovers and self._is_whole(order)):
                # Nobody can tell whether what is on the disk is all that the last owner committed.
                self._open.anew(order)
        return notes

    def catch_up(self, stop: Callable[[], bool]) -> list[str]:
        """Bring the stores that have a changelog to its end, for one who does not own the task.

        A copy that cannot go on is made anew, where its changelog has all that it needs.
        """
        # Who follows rests in between, and an owner is not to wait for that.
        readers = self._clients.logs.followers
        notes: list[str] = []
        logged = [order for order in self._orders.values() if order.logged]
        logs = _ranges(self._clients.logs, logged, self._partition, stop)
        for order in logged:
            log = logs[order.changelog, self._partition]
            if self.lost or stop():
                break
            try:
                notes += self._restore_store(order, log, stop, readers)
            except ChangelogError as error:
                if not self._known.can_rebuild(order, log):
                    raise
                notes.append(f"{error.summary}: {self.remedy(order.name)}")
                self._open.anew(order)
                notes += self._restore_store(order, log, stop, readers)
        return notes

    @property
    def logged(self) -> dict[str, str]:
        """The stores with a changelog, by its topic."""
        return {order.changelog: name for name, order in self._orders.items() if order.logged}

    def start_empty(self) -> None:
        """Make every store anew, because one of them is lost."""
        for order in self._orders.values():
            self._open.anew(order)
        # All that the changelogs are to hold is written now.
        self._known.begin_anew()
        self.lost = ""

    @property
    def marked(self) -> list[str]:
        """Stores that remember, in place of a changelog offset, which commit they hold."""
        return [name for name, each in self._orders.items() if each.recovers and not each.logged]

    def mark(self, name: str, n: int) -> None:
        """Have such a store remember that it holds all of the n-th commit."""
        self.get(name).apply((), offset=n)

    def _is_whole(self, order: StoreOrder) -> bool:
        """Whether a store without a changelog holds what was committed last; else it is lost."""
        if self._record is None:
            return False
        found: int | None = None
        with contextlib.suppress(StoreDamagedError, ChangelogError):
            found = self._open.open(order).offset()
        if found != self._record.n:
            held = "nothing" if found is None else f"commit {found}"
            self._lose(f"Store {order.name}", f"holds {held}, and the last is {self._record.n}")
        return found == self._record.n

    @contextlib.contextmanager
    def _noticing_loss(self, order: StoreOrder) -> Iterator[None]:
        try:
            yield
        except ChangelogError as error:
            if not order.recovers:
                raise
            self._lose(f"Store {order.name}", f"has lost its changelog: {error.message}")

    def _lose(self, what: str, why: str) -> None:
        self.lost = self.lost or f"{what} of task {self._task} {why}"

    def get(self, name: str) -> KeyValueStore:
        """The open store of that name. Raises `TaskNotHereError`."""
        return self._open.get(name)

    @property
    def whole_at(self) -> dict[str, int]:
        """When (milliseconds) each store was last known to hold all that was committed, of those
        that were since they were opened."""
        return self._open.whole_at

    def identity(self, order: StoreOrder) -> StoreIdentity:
        """Whose the store of that order is."""
        return self._open.identity(order)

    def steady(self, name: str) -> Steady:
        """What those who read a store beside its owner look through; a database needs none."""
        return self._open.steady(name)

    def order(self, name: str) -> StoreOrder:
        """What was ordered of that store."""
        return self._orders[name]

    def changelog(self, name: str) -> str:
        """The topic of a store's changelog; empty if it has none."""
        return self._orders[name].changelog if name in self._orders else ""

    @property
    def versioned(self) -> set[str]:
        """The stores whose changes are of versions."""
        return {name for name, order in self._orders.items() if order.kind == "versioned"}

    def remedy(self, name: str) -> str:
        """What is done about a store that cannot be read, for the user."""
        order = self._orders[name]
        if not order.logged:
            return "rebuilding it from the input" if order.recovers else "it starts empty"
        return f"rebuilding it from {order.changelog}"

    def ends(self, changes: Mapping[str, Collection[Change]]) -> dict[str, ChangelogEnd]:
        """What a commit that brings these changes knows of each store's changelog."""
        return {
            name: self._known.end_of(order, self.get(name), changes.get(name, ()))
            for name, order in self._orders.items()
            if order.logged
        }

    def apply(self, name: str, changes: list[Change], offset: int | None) -> None:
        """Write changes and the changelog offset that they end at, if there is a changelog."""
        store = self.get(name)
        # A versioned store must know where in the changelog some of its changes are.
        half = 0 if name in self.versioned else len(changes) // 2
        with self.steady(name).changing(Coming(changes, offset)):
            store.apply(changes[:half], offset=None)
            crash_point("commit.mid_store_write")
            store.apply(changes[half:], offset=offset)
        self._known.applied(name)

    @property
    def snapshot_stores(self) -> list[str]:
        """The stores of which snapshots are made: logged ones, on disk, that can be copied."""
        return [
            name
            for name, each in self._orders.items()
            if each.logged and each.persistent and self._open.offers_copies(name)
        ]

    def copy(self, name: str, purpose: str) -> AbstractContextManager[Path]:
        """The files of a store as they are now, gone afterwards; one at a time for a purpose."""
        return self._open.copy(name, purpose)

    def wipe(self, name: str) -> None:
        """Delete a store that cannot be read; the next `restore` makes it anew."""
        self._open.wipe(name)
        # A copy may be damaged as this one was: next time the changelog is all that counts.
        self._wiped.add(name)

    def flush(self, *, caught_up_at: Mapping[str, int] | None = None) -> None:
        """Make what was applied durable, and export how far that is, while the task runs.

        One who only follows says when each store was at its changelog's end.
        """
        # The owner's store holds all of its changelog. Without this mark it would be taken for one
        # that missed tombstones, and rebuilt, a day after its last restore.
        at = dict.fromkeys(self._orders, self._now_ms()) if caught_up_at is None else caught_up_at
        self._open.flush(at)

    def close(self) -> None:
        """Flush, close and unlock; twice does nothing. What a full disk does not take is told."""
        self._early.end()
        self._early = NONE_EARLY
        self._open.close()

    def _restore_store(
        self, order: StoreOrder, log: LogRange, stop: Callable[[], bool], readers: Readers
    ) -> list[str]:
        notes = self._use_early(order, log)
        try:
            store = self._open.open(order)
        except StoreDamagedError as error:
            notes.append(f"{error.summary}: {self.remedy(order.name)}")
            store = self._open.anew(order)
        empty = store.offset() is None and log.end > 0  # A copy may have what the log lost.
        if empty and order.persistent and order.name not in self._wiped:
            log = self._start_from_snapshot(order, log, stop, notes)
            store = self.get(order.name)
        fills = store.offset() is None and _can_be_filled(order, log.end - log.start)
        if fills:
            store = self._open.reopen(order, filling=True)
        clients = self._clients.logs
        log = LogRange(_log_start(clients, order, self._partition), log.end)
        with readers.turn(stop) as reading, contextlib.closing(clients.consumer()) as consumer:
            for _ in range(2):
                notes += self._known.notes(order, log, store.offset())
                with self.restores.one(order.name, order.changelog, self._partition) as told:
                    result = restore(
                        store,
                        topic=order.changelog,
                        partition=self._partition,
                        consumer=consumer,
                        until=log.end,
                        log_start=log.start,
                        on_progress=told.move,
                        stop=stop,
                        tombstone_retention=timedelta(
                            milliseconds=self._known.tombstones_ms(order)
                        ),
                        writing=lambda: self.steady(order.name).changing(),
                        reading=reading,
                        markers=self._known.markers,
                    )
                    if result.outcome is RestoreOutcome.COMPLETE:
                        if fills:
                            self._open.reopen(order)
                        told.end()
                if result.outcome is not RestoreOutcome.TRUNCATED:
                    notes += outlasted(order, self._task) if result.outlasted else []
                    break
                # The end stays: it is the last commit's. The start may have moved meanwhile.
                log = LogRange(_log_start(clients, order, self._partition), log.end)
                if not self._known.can_rebuild(order, log):
                    # The disk has more than the changelog: what cannot be rebuilt is not wiped.
                    raise truncated(order.changelog, self._partition, log, store.offset())
                notes.append(begun_anew(order, self._task))
                store = self._open.anew(order)
            else:
                raise outrun(order.changelog, self._partition)
        return notes

    def _start_from_snapshot(
        self, order: StoreOrder, log: LogRange, stop: Callable[[], bool], notes: list[str]
    ) -> LogRange:
        """Put a copy in the empty store's place, if one fits; the log, as its owner goes on."""
        wanted, failures = self._open.identity(order), list[str]()
        for source in itertools.takewhile(lambda _: not stop(), self._snapshots):
            if self._early.was_tried(order.name, source):
                continue
            try:
                with source.open(self._name, wanted) as snapshot:
                    if snapshot is not None and snapshot.manifest.offset >= log.end:
                        [log] = _ranges(self._clients.logs, [order], self._partition, stop).values()
                    if snapshot is None or not snapshot.fits(wanted, log, self._known.markers):
                        continue
                    self._replace_by(snapshot, order, stop)
            except (SnapshotError, *_NOT_THIS_STORE) as error:
                self._open.anew(order)
                failures.append(str(error))
                continue
            notes += [*failures, comes_from(snapshot, order, self._task)]
            return log
        notes += [f"{each}. Store {order.name} is rebuilt from its changelog" for each in failures]
        return log

    def _use_early(self, order: StoreOrder, log: LogRange) -> list[str]:
        """Open the copy that came early, if its changelog goes on from there; else it goes."""
        snapshot, notes = self._early.take(order.name)
        if snapshot is not None and not snapshot.fits(
            self._open.identity(order), log, self._known.markers
        ):
            self._open.anew(order)
        elif snapshot is not None:
            try:
                self._open.open(order)
                notes.append(comes_from(snapshot, order, self._task))
            except _NOT_THIS_STORE as error:
                self._open.anew(order)
                notes.append(str(error))
        return notes

    def _replace_by(self, snapshot: Snapshot, order: StoreOrder, stop: Callable[[], bool]) -> None:
        copy_snapshot(snapshot, self._open.emptied(order), stop=stop)
        self._open.open(order)


def _ranges(
    clients: LogClients, orders: list[StoreOrder], partition: int, stop: Callable[[], bool]
) -> dict[tuple[str, int], LogRange]:
    """What the changelogs of these stores hold, once nothing in them is undecided."""
    topics = [(order.changelog, partition) for order in orders]
    with noticing_deletion():
        return wait_stable(clients, topics, stop=stop) if topics else {}


def _log_start(clients: LogClients, order: StoreOrder, partition: int) -> int:
    """Where the changelog of a store begins now."""
    with noticing_deletion():
        return first_offset(clients, order.changelog, partition)


def _can_be_filled(order: StoreOrder, records: int) -> bool:
    """Whether so many changes are written without reading anything, and it pays."""
    if order.supplier or not order.persistent or records <= FILLED_MIN:
        return False
    return order.kind == "key_value" and order.time_index is None
