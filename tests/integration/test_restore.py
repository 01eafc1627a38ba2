"""From a changelog to a store, on a real broker: markers, aborts, kills, truncation, recreation."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.changelog import restore as restore_module
from penstock.changelog.clients import LogClients
from penstock.changelog.reading import read_last, wait_stable
from penstock.changelog.restore import (
    RestoreOutcome,
    RestoreProgress,
    RestoreResult,
    check_identity,
    restore,
)
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TopicSpec, changelog_topic, commits_topic
from penstock.config import Config
from penstock.errors import (
    BrokerUnreachableError,
    ChangelogError,
    KafkaError,
    PartitionCountError,
    StateForeignError,
    StoreDamagedError,
    TopicMissingError,
)
from penstock.observability.time_of_day import wall_clock_ms
from penstock.serdes.windowed import split_window_key, window_key
from penstock.stores.contract import KeyValueStore, StoreIdentity, stored_value
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.segments import SegmentedStore
from tests.disks import on_disk, wait_until_gone

SHORT = timedelta(seconds=2)


class Log:
    """A changelog of one partition and a transactional producer for it."""

    def __init__(self, kafka: str) -> None:
        self.config = Config(bootstrap_servers=kafka)
        self.application = f"app-{uuid.uuid4().hex[:8]}"
        self.admin = TopicAdmin(self.config)
        spec = changelog_topic(self.application, "counts", partitions=1)
        # Changelogs of windowed stores lose their oldest records like this.
        self.topic = spec.name
        wide = {**spec.config, "cleanup.policy": "compact,delete", "retention.ms": "-1"}
        self.admin.create([TopicSpec(spec.name, 1, wide)])
        self.clients = LogClients(self.config, self.application)
        self.consumer: Consumer = self.clients.consumer()
        self.producer = self.new_producer()

    def new_producer(self) -> Producer:
        properties = self.config.client_properties(transactional_id=self.application)
        producer = Producer(properties)
        producer.init_transactions(30)
        return producer

    def write(self, records: dict[bytes, bytes | None], *, timestamp: int = 5) -> None:
        """One committed transaction."""
        self.begin(records, timestamp=timestamp)
        self.producer.commit_transaction(30)

    def abort(self, records: dict[bytes, bytes | None]) -> None:
        self.begin(records)
        self.producer.abort_transaction(30)

    def begin(self, records: dict[bytes, bytes | None], *, timestamp: int = 5) -> None:
        self.producer.begin_transaction()
        for key, value in records.items():
            self.producer.produce(self.topic, value, key, partition=0, timestamp=timestamp)
        self.producer.flush(30)

    def end(self) -> int:
        return wait_stable(self.clients, [(self.topic, 0)])[self.topic, 0].end

    def restore(self, store: KeyValueStore, **options: object) -> RestoreResult:
        wanted: dict[str, object] = {"until": self.end(), "silence_max": SHORT, **options}
        return restore(
            store,
            topic=self.topic,
            partition=0,
            consumer=self.consumer,
            **wanted,  # type: ignore[arg-type]
        )


@pytest.fixture
def log(kafka: str) -> Iterator[Log]:
    log = Log(kafka)
    yield log
    log.consumer.close()


def test_committed_records_arrive_with_their_timestamps_and_aborted_ones_do_not(
    log: Log, tmp_path: Path
) -> None:
    log.write({b"a": b"1", b"b": b"2"}, timestamp=10)
    log.abort({b"a": b"never", b"c": b"never"})
    log.write({b"b": None, b"d": b""}, timestamp=20)
    log.abort({b"d": b"never"})
    store = RocksDBStore("counts", tmp_path / "counts")
    seen: list[RestoreProgress] = []
    result = log.restore(store, on_progress=seen.append)
    assert result.outcome is RestoreOutcome.COMPLETE
    assert result.restored == 4
    assert seen[-1].remaining == 0
    assert list(store.all()) == [(b"a", stored_value(10, b"1")), (b"d", stored_value(20, b""))]
    # Behind the last record lie markers and aborted records: the end is a position, not a record.
    assert store.offset() is not None
    assert store.offset() < log.end() - 1  # type: ignore[operator]
    assert log.restore(store) == RestoreResult(RestoreOutcome.COMPLETE, 0, 0)
    store.close()


def test_a_restore_goes_on_from_the_stores_own_offset(log: Log, tmp_path: Path) -> None:
    log.write({b"%d" % i: b"x" for i in range(100)})
    store = RocksDBStore("counts", tmp_path / "counts")
    assert log.restore(store).restored == 100
    store.close()
    log.write({b"%d" % i: b"y" for i in range(7)})
    store = RocksDBStore("counts", tmp_path / "counts")
    assert log.restore(store).restored == 7
    assert log.restore(store).restored == 0
    store.close()


def test_an_empty_changelog_is_restored_at_once(log: Log) -> None:
    store = MemoryStore("counts")
    assert log.restore(store) == RestoreResult(RestoreOutcome.COMPLETE, 0, 0)
    assert store.offset() is None


def test_a_stopped_restore_keeps_what_it_has(log: Log) -> None:
    for _ in range(3):
        log.write({b"%d" % i: b"x" for i in range(6000)})
    store = MemoryStore("counts")
    day = 24 * 3600 * 1000
    # The first fetch may give nothing yet.
    result = log.restore(store, stop=lambda: store.offset() is not None, now_ms=lambda: day)
    assert result.outcome is RestoreOutcome.STOPPED
    # It never was whole: how long it may rest counts from when it began.
    assert log.restore(store, now_ms=lambda: 3 * day).outcome is RestoreOutcome.TRUNCATED
    store.set_caught_up_at(wall_clock_ms())
    assert log.restore(store).outcome is RestoreOutcome.COMPLETE
    assert store.approximate_num_entries() == 6000


def test_records_lost_below_the_stores_offset_are_told_not_skipped(log: Log) -> None:
    log.write({b"%d" % i: b"x" for i in range(50)})
    store = MemoryStore("counts")
    store.apply([(b"0", b"old")], offset=3)
    log.admin.delete_records({(log.topic, 0): 20})
    assert log.restore(store).outcome is RestoreOutcome.TRUNCATED
    assert store.get_many([b"0"]) == [b"old"]
    # At the edge nothing is missing.
    store.apply([], offset=19)
    assert log.restore(store).restored == 30
    # A store that holds nothing starts where the log does.
    assert log.restore(MemoryStore("counts")).restored == 30


def test_a_store_ahead_of_its_changelog_is_an_error(log: Log) -> None:
    log.write({b"a": b"1"})
    store = MemoryStore("counts")
    store.apply([(b"a", b"1")], offset=1000)
    with pytest.raises(ChangelogError, match="the store holds 1000") as caught:
        log.restore(store)
    assert caught.value.where["topic"] == log.topic


def test_a_store_that_was_away_longer_than_tombstones_last_is_rebuilt(log: Log) -> None:
    log.write({b"a": b"1"})
    store = MemoryStore("counts")
    day = 24 * 3600 * 1000
    assert log.restore(store, now_ms=lambda: day).outcome is RestoreOutcome.COMPLETE
    assert store.caught_up_at() == day
    # One that missed nothing is whole, however long it was away.
    whole = log.restore(store, now_ms=lambda: 9 * day, markers=1)
    assert whole.outcome is RestoreOutcome.COMPLETE
    log.write({b"b": b"2"})
    store.set_caught_up_at(day)
    assert log.restore(store, now_ms=lambda: 3 * day).outcome is RestoreOutcome.TRUNCATED
    # A time to come is no time: a clock was wrong.
    store.set_caught_up_at(9 * day)
    assert log.restore(store, now_ms=lambda: 3 * day).outcome is RestoreOutcome.TRUNCATED
    store.set_caught_up_at(day)
    assert log.restore(store, now_ms=lambda: day + day // 2).outcome is RestoreOutcome.COMPLETE


def test_a_restore_that_takes_longer_than_deletions_last_says_so(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_module, "BATCH_RECORDS", 1)
    log.write({b"a": b"1", b"b": b"2"})
    minute = itertools.count(0, 60_000)
    store = MemoryStore("counts")
    hours, seconds = timedelta(hours=1), timedelta(seconds=1)

    def restored(lasting: timedelta) -> RestoreResult:
        found = log.restore(store, now_ms=lambda: next(minute), tombstone_retention=lasting)
        assert found.outcome is RestoreOutcome.COMPLETE
        return found

    assert not restored(hours).outlasted
    # The tail is from when the store was whole.
    log.write({b"c": b"3"})
    assert not restored(hours).outlasted
    store = MemoryStore("counts")
    assert restored(seconds).outlasted
    log.write({b"d": b"4"})
    store.set_caught_up_at(next(minute))
    assert restored(timedelta(minutes=1.5)).outlasted


def test_what_expired_in_a_changelog_leaves_the_disk_of_the_restored_store(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore is interrupted, so that what expires later has reached the disk by then."""
    monkeypatch.setattr(restore_module, "BATCH_RECORDS", 300)
    path, steps = tmp_path / "windows", range(6)
    values = [[os.urandom(64) for _ in range(500)] for _ in steps]

    def opened(*, filling: bool = False) -> SegmentedStore:
        inner = RocksDBStore("windows", path, filling=filling)
        return SegmentedStore(inner, kind="window", retention_ms=100, segment_ms=60)

    for step in steps:
        log.write({window_key(b"%d" % n, step * 200): v for n, v in enumerate(values[step])})
        if step == 2:
            store = opened(filling=True)
            assert log.restore(store).outcome is RestoreOutcome.COMPLETE
            store.close()
            assert on_disk(path, values[2]) == 500
    for filling in (True, False):
        store = opened(filling=filling)
        assert log.restore(store).outcome is RestoreOutcome.COMPLETE
        if filling:
            store.close()
    assert [split_window_key(key)[1] for key, _ in store.fetch(b"7", 0, 10_000)] == [1000]
    for _ in range(12):
        store.apply([(window_key(b"new", 1000), b"small")], offset=store.offset())
        store.flush()
    wait_until_gone(path, itertools.chain(*values[:-1]))
    assert on_disk(path, values[-1]) == 500
    store.close()


def test_a_changelog_that_falls_silent_is_an_error_not_a_hang(log: Log) -> None:
    log.write({b"a": b"1"})
    with pytest.raises(KafkaError, match="gave nothing more"):
        log.restore(MemoryStore("counts"), until=log.end() + 10)


def test_a_changelog_that_is_gone_is_an_error(log: Log) -> None:
    topic = log.topic + "-gone"
    with pytest.raises(TopicMissingError):
        restore(MemoryStore("counts"), topic=topic, partition=0, consumer=log.consumer, until=5)


RESTORER = """
import sys
from pathlib import Path
from penstock.changelog.clients import LogClients
from penstock.changelog.restore import restore
from penstock.config import Config
from penstock.stores.rocksdb import RocksDBStore
path, servers, topic, until, filling = sys.argv[1:]
clients = LogClients(Config(bootstrap_servers=servers), "crash")
store = RocksDBStore("counts", Path(path), filling=filling == "True")
restore(store, topic=topic, partition=0, consumer=clients.consumer(), until=int(until))
"""


@pytest.mark.parametrize("filling", [False, True])
@pytest.mark.crash
def test_a_restore_that_is_killed_ends_in_the_same_state(
    log: Log, tmp_path: Path, filling: bool
) -> None:
    for part in range(4):
        log.write({b"%d" % i: b"%d" % part for i in range(part, 12_000)})
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    path = tmp_path / "counts"
    arguments = [str(path), log.config.bootstrap_servers, log.topic, str(log.end()), str(filling)]
    for hit in (1, 3, 2):
        (crashes / "restore.mid_batch").write_text(str(hit))
        done = subprocess.run(
            [sys.executable, "-c", RESTORER, *arguments],
            env={**os.environ, "PENSTOCK_CRASH_DIR": str(crashes)},
        )
        assert done.returncode == -signal.SIGKILL
        assert not (crashes / "restore.mid_batch").exists()
    store = RocksDBStore("counts", path)
    expected = MemoryStore("counts")
    assert log.restore(store).outcome is RestoreOutcome.COMPLETE
    log.restore(expected)
    assert list(store.all()) == list(expected.all())
    store.close()


def test_the_last_record_is_the_last_committed_one(log: Log) -> None:
    assert read_last(log.clients, log.topic, 0) is None
    log.write({b"k": b"first"})
    log.write({b"k": b"second"})
    log.abort({b"k": b"aborted"})
    assert read_last(log.clients, log.topic, 0) == b"second"


def test_reading_waits_for_a_transaction_that_is_open(log: Log) -> None:
    log.write({b"k": b"first"})
    log.begin({b"k": b"second"})
    with pytest.raises(KafkaError, match="still open") as caught:
        read_last(log.clients, log.topic, 0, timeout=timedelta(seconds=0.5))
    assert caught.value.where["topic"] == log.topic
    timer = threading.Timer(0.5, log.producer.commit_transaction)
    began = time.monotonic()
    timer.start()
    assert read_last(log.clients, log.topic, 0) == b"second"
    assert time.monotonic() - began >= 0.4
    timer.join()


def test_a_new_owner_ends_the_old_ones_transaction(log: Log) -> None:
    log.write({b"k": b"first"})
    log.begin({b"k": b"second"})
    log.new_producer()
    assert read_last(log.clients, log.topic, 0) == b"first"


def test_an_identity_belongs_to_one_task_and_one_changelog() -> None:
    store = MemoryStore("counts")
    mine = StoreIdentity(
        application_id="clinic",
        task="0_3",
        store="counts",
        changelog_topic="clinic-counts-changelog",
        changelog_topic_id="first",
    )
    check_identity(store, mine)
    check_identity(store, mine)
    cases: list[tuple[str, str, type[Exception]]] = [
        ("application_id", "ward", StateForeignError),
        ("task", "0_4", StoreDamagedError),
        ("store", "sums", StoreDamagedError),
        ("changelog_topic_id", "second", ChangelogError),
    ]
    for field, value, error in cases:
        other = StoreIdentity(
            **{**{f: getattr(mine, f) for f in mine.__struct_fields__}, field: value}
        )
        with pytest.raises(error):
            check_identity(store, other)
    nameless = MemoryStore("counts")
    nameless.apply([(b"a", b"1")], offset=1)
    with pytest.raises(StoreDamagedError):
        check_identity(nameless, mine)


def test_topics_are_made_grown_and_described(kafka: str) -> None:
    admin = TopicAdmin(Config(bootstrap_servers=kafka))
    application = f"app-{uuid.uuid4().hex[:8]}"
    wanted = [
        changelog_topic(application, "counts", partitions=2),
        commits_topic(application, partitions=3),
    ]
    made = admin.ensure(wanted)
    for spec in wanted:
        found = made[spec.name]
        assert found.partitions == spec.partitions
        assert spec.config.items() <= found.config.items()
        assert len(found.id) == 22
    assert admin.ensure(wanted) == made
    grown = admin.ensure([commits_topic(application, partitions=5)])
    assert grown[f"{application}-commits"].partitions == 5
    with pytest.raises(PartitionCountError):
        admin.ensure([changelog_topic(application, "counts", partitions=3)])
    with pytest.raises(TopicMissingError, match=f"'{application}-commits'"):
        admin.require([f"{application}-commit"])
    assert admin.describe([f"{application}-nothing"]) == {}


def test_a_broker_that_does_not_answer_is_named() -> None:
    config = Config(bootstrap_servers="localhost:1")
    soon = timedelta(milliseconds=500)
    admin = TopicAdmin(config, ask_timeout=soon)
    clients = LogClients(config, "nobody", ask_timeout=soon)
    calls = (
        lambda: admin.describe(["x"]),
        admin.names,
        lambda: wait_stable(clients, [("x", 0)]),
    )
    for call in calls:
        with pytest.raises(
            BrokerUnreachableError, match="Nothing answers at localhost:1"
        ) as caught:
            call()
        assert "penstock dev" in caught.value.hint


_MANY_RESTORES = """
import json, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from penstock.config import Config
from penstock.instance import state
from penstock.instance.clients import SharedClients
from penstock.instance.memory import share_heaps
from penstock.instance.protocol import FollowOrder, StoreOrder
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb_engine import RocksDBEngine, RocksDBSettings

directory, servers, topic, partitions, tasks, budget = sys.argv[1:]
share_heaps()
state.FILLED_MIN = 1_000
config = Config(bootstrap_servers=servers, rocksdb_memory_bytes=int(budget))
clients = SharedClients(config, "many")
place = StateDirectory.open(Path(directory), "many")


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


before = most = resident()
engine = RocksDBEngine(RocksDBSettings.of(config))
over = threading.Event()


def watch():
    global most
    while not over.wait(0.01):
        most = max(most, resident())


def restored(number):
    task = f"{number // int(partitions)}_{number % int(partitions)}"
    store = StoreOrder(name="counts", changelog=topic, changelog_id="id")
    order = FollowOrder(task=task, name=task, stores=[store], commits_partition=1)
    stores = state.TaskStores(order, place, clients, engine=engine)
    stores.open(None)
    stores.restore(over.is_set)
    assert len(stores.get("counts").range(limit=100)) == 100
    return stores


watcher = threading.Thread(target=watch)
watcher.start()
with ThreadPoolExecutor(16) as pool:
    opened = list(pool.map(restored, range(int(tasks))))
over.set()
watcher.join()
for each in opened:
    each.close()
place.close()
print(json.dumps({"grown": most - before, "stores": len(opened)}))
"""


def test_fifty_restores_keep_within_the_budget(kafka: str, tmp_path: Path) -> None:
    """Sixteen at once, of records so small that what goes with them takes most of the memory."""
    config, topic = Config(bootstrap_servers=kafka), f"many-{uuid.uuid4().hex[:8]}"
    budget, partitions, records = 96 * 1024 * 1024, 4, 12_000
    TopicAdmin(config).create([TopicSpec(topic, partitions, {})])
    producer = Producer({"bootstrap.servers": kafka, "queue.buffering.max.messages": 200_000})
    for number in range(records):
        for partition in range(partitions):
            producer.produce(topic, b"%016d" % number, b"%08d" % number, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0
    words = [str(tmp_path), kafka, topic, str(partitions), "50", str(budget)]
    answer = subprocess.run(
        [sys.executable, "-c", _MANY_RESTORES, *words], capture_output=True, check=True, text=True
    )
    seen = json.loads(answer.stdout)
    assert seen["stores"] == 50
    assert seen["grown"] < budget
