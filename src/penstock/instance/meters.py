"""What an instance counts of its tasks and their stores: a bulk read or a commit at a time."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from penstock.instance.answers import answers
from penstock.instance.protocol import FollowOrder, Question, ReadHeader, StoreOrder, TakeOrder
from penstock.instance.query_messages import StoreQuestion
from penstock.observability import groups
from penstock.observability.groups import SUPPRESSION, store_scope
from penstock.observability.recorder import Recorder
from penstock.observability.tallies import Tally
from penstock.observability.time_of_day import wall_clock_ms
from penstock.stores.contract import ByteStore, Change, KeyValueStore
from penstock.stores.rocksdb import RocksDBStore

_log = logging.getLogger("penstock.instance")

S = TypeVar("S", bound=str)
T = TypeVar("T")
_CALLS: dict[Question, str] = {"get": "get", "fetch": "fetch", "times": "fetch"}


class TaskMeter:
    """Counts for one task of an instance, which puts its own name before all tags."""

    def __init__(self, recorder: Recorder, order: TakeOrder | FollowOrder) -> None:
        self._recorder = recorder
        self._task = order.task
        self._stores = {each.name: each for each in order.stores}
        # A standby is updated; what is restored is to be served.
        self._restoring = "restore" if isinstance(order, TakeOrder) else "update"
        self._open: dict[int, tuple[str, int]] = {}
        self._numbers = itertools.count()
        self._rocksdb: dict[str, RocksDBStore] = {}

    def promote(self) -> None:
        """The standby is to be served: what is applied from now on is a restore."""
        self._restoring = "restore"

    def became(self, state: S) -> S:
        """Log the task's new state, and return it."""
        told = {"task": self._task, "task_state": state}
        _log.info("Task %s is now %s", self._task, state, extra=told)
        return state

    def tags(self, store: str) -> tuple[str, ...]:
        """What tells a store's metrics from others'."""
        order = self._stores.get(store)
        scope = "rocksdb-state" if order is None else scope_of(order)
        return (self._task, scope, store)

    def open_iterators(self) -> dict[str, list[int]]:
        """By store, when the reads of ranges that are under way began, in ms since 1970."""
        found: dict[str, list[int]] = {name: [] for name in self._stores}
        for store, began in list(self._open.values()):
            found.setdefault(store, []).append(began)
        return found

    def answers(
        self, store: KeyValueStore, header: ReadHeader, questions: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        """What a store answers, timed: what is done with it in between does not count."""
        number = next(self._numbers)
        if header.question != "get":
            self._open[number] = (header.store, wall_clock_ms())
        spent, began = 0.0, time.perf_counter()
        try:
            for batch in answers(store, header.question, questions):
                spent += time.perf_counter() - began
                yield batch
                began = time.perf_counter()
            spent += time.perf_counter() - began
        finally:
            self._open.pop(number, None)
        self._read(header.store, header.question, questions, spent)

    def asked(self, question: StoreQuestion, look: Callable[[], T]) -> T:
        """What is found for somebody who queries the store, timed like other reads."""
        call, count = _call_of(question)
        is_get = call == "get"
        if not count or (is_get and not self._recorder.records("DEBUG")):
            return look()
        number, began = next(self._numbers), time.perf_counter()
        if not is_get:
            self._open[number] = (question.store, wall_clock_ms())
        try:
            found = look()
        finally:
            self._open.pop(number, None)
        if self._recorder.records("DEBUG"):
            seconds = time.perf_counter() - began
            self._called(question.store, call, count, seconds)
            if not is_get:
                self._called(question.store, "iterator-duration", 1, seconds)
        return found

    def opened(self, store: ByteStore) -> None:
        """What keeps the bytes of a store was opened, perhaps again."""
        if isinstance(store, RocksDBStore):
            self._rocksdb[store.name] = store

    def rocksdb(self) -> dict[str, RocksDBStore]:
        """The stores that RocksDB keeps; one that is closed says so when it is asked."""
        return dict(self._rocksdb)

    def blocked(self, seconds: float) -> None:
        """A commit waited so long for Kafka."""
        self._recorder.add(groups.THREAD, "blocked", (), Tally.of(seconds))

    def _read(self, store: str, question: Question, questions: pa.Table, seconds: float) -> None:
        if not self._recorder.records("DEBUG") or not questions.num_rows:
            return
        if question != "get":
            self._called(store, "iterator-duration", 1, seconds)
        counts = (
            {_CALLS[question]: questions.num_rows} if question in _CALLS else _ranges(questions)
        )
        for call, count in counts.items():
            self._called(store, call, count, seconds * count / questions.num_rows)

    @contextlib.contextmanager
    def writing(self, store: str, changes: Sequence[Change]) -> Iterator[None]:
        """While a commit's changes are written to a store."""
        began = time.perf_counter()
        yield
        if not self._recorder.records("DEBUG") or not changes:
            return
        each = (time.perf_counter() - began) / len(changes)
        gone = sum(value is None for _, value in changes)
        order = self._stores.get(store)
        deletes = "remove" if order is not None and order.kind == "session" else "delete"
        self._called(store, "put", len(changes) - gone, each * (len(changes) - gone))
        self._called(store, deletes, gone, each * gone)

    def flush(self, name: str, store: KeyValueStore) -> None:
        """Make a store durable, timed."""
        began = time.perf_counter()
        store.flush()
        seconds = time.perf_counter() - began
        self._called(name, "flush", 1, seconds)
        self._recorder.add(groups.UPDATER, "checkpoint", (), Tally.of(seconds))

    def restored(self, records: int, seconds: float) -> None:
        """A batch of a changelog was applied, by a restore or to a standby."""
        tally = Tally.many(records, seconds)
        self._recorder.add(groups.TASK, self._restoring, (self._task,), tally)
        self._recorder.add(groups.UPDATER, self._restoring, (), tally)
        if self._restoring == "restore":
            self._recorder.add(groups.UPDATER, "call", (), Tally.of(seconds))

    def restore_ended(self, store: str, seconds: float) -> None:
        """A store holds all of its changelog."""
        self._called(store, "restore", 1, seconds)

    def _called(self, store: str, call: str, count: int, seconds: float) -> None:
        if count:
            self._recorder.add(groups.STORE, call, self.tags(store), Tally.many(count, seconds))


def scope_of(order: StoreOrder) -> str:
    """The name under which Kafka Streams counts that kind of store."""
    if is_suppression(order):
        return SUPPRESSION
    if order.database is not None or order.supplier:
        return "external-state" if order.database is not None else "custom-state"
    return store_scope(order.kind, persistent=order.persistent)


def is_suppression(order: StoreOrder) -> bool:
    """Whether the store is the buffer of a `suppress`: no other has its times in its values."""
    return order.time_index == "value_tail"


def _call_of(question: StoreQuestion) -> tuple[str, int]:
    """What Kafka Streams counts a query as, and how often it would."""
    match question.kind:
        case "get" | "as_of":
            return "get", len(question.keys)
        case "fetch":
            return "fetch", len(question.keys)
        case "count":
            return "", 0
    if question.layout in ("window", "session"):
        return "fetch", 1
    is_all = question.lower is None and question.upper is None
    return "all" if is_all else "range", 1


def _ranges(questions: pa.Table) -> dict[str, int]:
    """How many ranges are open at both ends, and how many are not."""
    rows = zip(*(column.to_pylist() for column in questions.columns), strict=True)
    everything = sum(lower is None and upper is None for lower, upper in rows)
    return {"all": everything, "range": questions.num_rows - everything}
