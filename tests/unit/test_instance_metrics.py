"""What an instance counts of its stores, and what it looks up when it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.config import Config
from penstock.instance import protocol
from penstock.instance.meters import TaskMeter
from penstock.instance.metrics import InstanceMetrics
from penstock.instance.protocol import (
    FollowOrder,
    MetricsReply,
    Question,
    ReadHeader,
    StoreOrder,
    TakeOrder,
)
from penstock.instance.query_messages import StoreQuestion
from penstock.instance.restores import Restores
from penstock.instance.rocksdb_metrics import read_statistics
from penstock.observability import groups
from penstock.observability.catalogue import ROCKSDB_PROPERTIES
from penstock.observability.readings import Reading
from penstock.observability.recorder import Recorder
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine, RocksDBSettings

STORES = [StoreOrder(name="counts"), StoreOrder(name="sessions", kind="session")]


def order(kind: type[TakeOrder | FollowOrder] = TakeOrder, **more: Any) -> Any:
    if kind is TakeOrder:
        more |= {"epoch": (1, 1), "first_taking": True, "inputs": []}
    return kind(task="0_1", name="counts-1", stores=STORES, commits_partition=1, **more)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder("DEBUG", first=("one",), clock=lambda: 1000.0)


@pytest.fixture
def meter(recorder: Recorder) -> TaskMeter:
    return TaskMeter(recorder, order())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    engine = RocksDBEngine(RocksDBSettings.of(Config()), statistics=True)
    found = RocksDBStore("counts", tmp_path / "counts", engine=engine)
    yield found
    found.close()


def shown(recorder: Recorder, name: str, group: str = groups.STORE) -> dict[tuple[str, ...], Any]:
    return found_in(recorder.snapshot(), name, group)


def found_in(snapshot: list[Reading], name: str, group: str) -> dict[tuple[str, ...], Any]:
    return {each.tags: each.value for each in snapshot if (each.group, each.name) == (group, name)}


def ask(meter: TaskMeter, store: RocksDBStore, question: Question, *columns: list[Any]) -> None:
    types = protocol.QUESTIONS[question].types
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
    header = ReadHeader(task="0_1", epoch=(1, 1), n=1, store="counts", question=question)
    questions = pa.table(arrays, schema=protocol.QUESTIONS[question])
    for _ in meter.answers(store, header, questions):
        assert bool(meter.open_iterators()["counts"]) == (question != "get")
    assert meter.open_iterators()["counts"] == []


COUNTS = ("one", "0_1", "rocksdb-state", "counts")


def test_reads_are_counted_by_what_was_asked(
    recorder: Recorder, meter: TaskMeter, store: RocksDBStore
) -> None:
    store.apply([(b"a", b"1"), (b"b", b"2")], offset=1)
    ask(meter, store, "get", [b"a", b"b", b"c"])
    ask(meter, store, "range", [None, b"a"], [None, b"b"])
    assert shown(recorder, "get-rate") == {COUNTS: pytest.approx(3 / 30, rel=0.1)}
    assert shown(recorder, "all-rate")[COUNTS] == pytest.approx(1 / 30, rel=0.1)
    assert shown(recorder, "range-rate")[COUNTS] == pytest.approx(1 / 30, rel=0.1)
    assert shown(recorder, "get-latency-avg")[COUNTS] > 0
    assert shown(recorder, "iterator-duration-max")[COUNTS] > 0


@pytest.mark.parametrize(
    ("question", "call", "count"),
    [
        (StoreQuestion(store="counts", kind="get", keys=[b"a", b"b"]), "get", 2),
        (StoreQuestion(store="counts", kind="as_of", keys=[b"a"], layout="versioned"), "get", 1),
        (StoreQuestion(store="counts", kind="fetch", keys=[b"a"], layout="window"), "fetch", 1),
        (StoreQuestion(store="counts", kind="scan", layout="session", lower=b"a"), "fetch", 1),
        (StoreQuestion(store="counts", kind="scan"), "all", 1),
        (StoreQuestion(store="counts", kind="scan", upper=b"b"), "range", 1),
        (StoreQuestion(store="counts", kind="count"), "get", 0),
    ],
)
def test_queries_are_counted_as_in_kafka_streams(
    recorder: Recorder, meter: TaskMeter, question: StoreQuestion, call: str, count: int
) -> None:
    open_meanwhile = meter.asked(question, lambda: len(meter.open_iterators()["counts"]))
    assert open_meanwhile == (1 if count and call != "get" else 0)
    assert meter.open_iterators()["counts"] == []
    expected = {COUNTS: pytest.approx(count / 30, rel=0.1)} if count else {}
    for each in ("get", "fetch", "all", "range"):
        assert shown(recorder, f"{each}-rate") == (expected if each == call else {})
    assert bool(shown(recorder, "iterator-duration-avg")) == bool(open_meanwhile)


def test_a_read_whose_receiver_goes_away_leaves_no_iterator_open(
    meter: TaskMeter, store: RocksDBStore
) -> None:
    store.apply([(b"a", b"1")], offset=1)
    header = ReadHeader(task="0_1", epoch=(1, 1), n=1, store="counts", question="range")
    both = [pa.array([None], pa.binary())] * 2
    answers = meter.answers(store, header, pa.table(both, schema=protocol.QUESTIONS["range"]))
    next(answers)
    assert len(meter.open_iterators()["counts"]) == 1
    answers.close()  # type: ignore[attr-defined]
    assert meter.open_iterators()["counts"] == []


def test_writes_and_deletions_are_told_apart(recorder: Recorder, meter: TaskMeter) -> None:
    with meter.writing("counts", [(b"a", b"1"), (b"b", None), (b"c", b"2")]):
        pass
    with meter.writing("sessions", [(b"a", None)]):
        pass
    assert shown(recorder, "put-rate")[COUNTS] == pytest.approx(2 / 30, rel=0.1)
    assert set(shown(recorder, "delete-rate")) == {COUNTS}
    assert set(shown(recorder, "remove-rate")) == {
        ("one", "0_1", "rocksdb-session-state", "sessions")
    }


def test_a_restore_is_counted_as_one_and_a_standbys_as_an_update(recorder: Recorder) -> None:
    TaskMeter(recorder, order()).restored(10, 0.1)
    standby = TaskMeter(recorder, order(FollowOrder))
    standby.restored(5, 0.1)
    standby.promote()
    standby.restored(1, 0.1)
    task = ("one", "0_1")
    assert shown(recorder, "restore-total", groups.TASK) == {task: 11}
    assert shown(recorder, "update-total", groups.TASK) == {task: 5}


def of_task(meter: TaskMeter, store: RocksDBStore) -> Any:
    """What looks like the stores of a task."""
    meter.opened(store)
    orders = {each.name: each for each in STORES}
    return SimpleNamespace(
        task="0_1", meter=meter, restores=Restores(), order=orders.get, get=lambda name: store
    )


def test_rocksdb_is_looked_at_when_someone_asks(
    recorder: Recorder, meter: TaskMeter, store: RocksDBStore
) -> None:
    metrics = InstanceMetrics(recorder)
    task = of_task(meter, store)
    store.apply([(b"%d" % i, b"x" * 100) for i in range(1000)], offset=1)
    store.flush()
    first = metrics.snapshot([("running", task)], [])
    for name in ROCKSDB_PROPERTIES:
        assert found_in(first, name, groups.STORE).keys() == {COUNTS}, name
    assert found_in(first, "total-sst-files-size", groups.STORE)[COUNTS] > 0
    written = found_in(first, "bytes-written-total", groups.STORE)[COUNTS]
    assert written > 100_000
    assert found_in(first, "memtable-flush-time-max", groups.STORE)[COUNTS] > 0
    # Nothing was written since: what is counted since the start stays.
    again = metrics.snapshot([("running", task)], [])
    assert found_in(again, "bytes-written-total", groups.STORE)[COUNTS] == written
    assert found_in(again, "thread-state", groups.THREAD) == {("one",): 4}


def test_reads_in_bulk_are_among_the_bytes_read(store: RocksDBStore) -> None:
    store.apply([(b"%d" % i, b"x" * 100) for i in range(100)], offset=1)
    store.flush()
    store.get_many([b"%d" % i for i in range(100)])
    text = store.statistics()
    assert text is not None
    assert read_statistics(text).sums["bytes-read"] >= 100 * 100


def test_a_store_that_is_closed_meanwhile_has_nothing_to_tell(
    recorder: Recorder, meter: TaskMeter, store: RocksDBStore
) -> None:
    task = of_task(meter, store)
    store.close()
    found = InstanceMetrics(recorder).snapshot([("restoring", task)], [])
    assert found_in(found, "estimate-num-keys", groups.STORE) == {}
    assert found_in(found, "thread-state", groups.THREAD) == {("one",): 3}
    assert found_in(found, "active-restoring-tasks", groups.UPDATER) == {("one",): 1}


def test_without_the_level_rocksdb_counts_nothing(tmp_path: Path) -> None:
    plain = RocksDBStore("counts", tmp_path / "counts")
    assert plain.statistics() is None
    plain.close()


def test_a_reply_survives_its_way(recorder: Recorder, meter: TaskMeter) -> None:
    with meter.writing("counts", [(b"a", b"1")]):
        pass
    reply = MetricsReply(readings=recorder.snapshot())
    assert protocol.decode(protocol.encode(reply), MetricsReply) == reply
