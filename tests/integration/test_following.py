"""A task that another instance follows, on a real broker and without Spark."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.changelog.reading import LogRange, read_committed, wait_stable
from penstock.changelog.snapshots import (
    Manifest,
    Snapshot,
    SnapshotFile,
    SnapshotSource,
    read_files,
)
from penstock.changelog.topic_plan import ConfigChange
from penstock.instance import protocol, standby
from penstock.instance.global_tables import GlobalTables
from penstock.instance.holder import Holder
from penstock.instance.protocol import (
    CopiesReply,
    CopyStatus,
    FollowOrder,
    InputOrder,
    Message,
    PrepareOrder,
    ReleaseOrder,
    StatusQuestion,
    StatusReply,
    StoreOrder,
    TakeOrder,
    TaskStatus,
    UnfollowOrder,
)
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask, TaskEnvironment
from penstock.observability.time_of_day import wall_clock_ms
from penstock.stores.contract import StoreIdentity, stored_value
from penstock.stores.directory import StateDirectory
from penstock.stores.failures import damaged
from penstock.stores.rocksdb import RocksDBStore
from tests.harness import wait_until
from tests.integration.test_task import Rows, World, ask, commit


class Follower:
    """An instance with a directory of its own, asked as the driver asks."""

    def __init__(
        self, world: World, directory: Path, snapshots: Sequence[SnapshotSource] = ()
    ) -> None:
        self.world = world
        self.directory = StateDirectory.open(directory, world.application)
        environment = TaskEnvironment(
            application_id=world.application,
            config=world.config,
            directory=self.directory,
            clients=world.clients,
            lease_holds=lambda: True,
            snapshots=snapshots,
        )
        tables = GlobalTables([], self.directory, world.clients.logs)
        self.holder = Holder(environment, tables)

    def call(self, action: str, message: Message) -> Message:
        return self.holder.actions[action](protocol.encode(message))

    def follow(self, *stores: StoreOrder) -> None:
        order = FollowOrder(
            task="0_0",
            name="counts-0",
            stores=list(stores) or [self.world.store_order()],
            commits_partition=1,
        )
        self.call("follow", order)

    def copies(self) -> CopiesReply:
        reply = self.call("copies", CopiesReply(copies=[]))
        assert isinstance(reply, CopiesReply)
        return reply

    def copy(self) -> CopyStatus:
        [found] = self.copies().copies
        return found

    def wait_for(self, condition: Callable[[CopyStatus], bool]) -> CopyStatus:
        deadline = time.monotonic() + 60
        while not condition(self.copy()):
            assert time.monotonic() < deadline, self.copy()
            time.sleep(0.01)
        return self.copy()

    def wait_caught_up(self) -> CopyStatus:
        """Wait until it holds all that the changelog holds now."""
        where = (self.world.changelog, 0)
        # A commit is over before its marker is written.
        end = wait_stable(self.world.clients.logs, [where])[where].end
        return self.wait_for(
            lambda copy: (
                copy.state == "following"
                and copy.positions[self.world.changelog] >= end
                and copy.lag == 0
            )
        )

    def wait_unwatched(self) -> None:
        """Wait until nobody asks any more whether a copy has all of its changelog."""
        standbys = self.holder._standbys
        wait_until(lambda: standbys._watch_due > time.monotonic() + 100, what="it was asked last")

    def take(self, *stores: StoreOrder) -> OpenTask:
        self.world.owners += 1
        order = TakeOrder(
            task="0_0",
            name="counts-0",
            epoch=(1, self.world.owners),
            first_taking=False,
            inputs=[
                InputOrder(
                    topic=self.world.input,
                    partition=0,
                    topic_id=self.world.topics[self.world.input].id,
                    partitions=1,
                    reset="earliest",
                )
            ],
            stores=list(stores) or [self.world.store_order()],
            commits_partition=1,
        )
        self.call("take", order)
        deadline = time.monotonic() + 60
        while (task := self.holder.task("0_0")) is None:
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.01)
        return task

    def statuses(self) -> list[TaskStatus]:
        """One of each task that was ordered to be taken; none of those that are followed."""
        reply = self.call("status", StatusQuestion())
        assert isinstance(reply, StatusReply)
        return reply.tasks

    def status(self) -> TaskStatus:
        [found] = self.statuses()
        return found

    def restored(self) -> dict[str, int]:
        return {each.store: each.restored for each in self.status().restores}

    def close(self) -> None:
        self.holder.close()
        self.directory.close()


@pytest.fixture
def world(kafka: str, tmp_path: Path) -> Iterator[World]:
    world = World(kafka, tmp_path / "owner")
    world.produce(20)
    yield world
    world.close()


@pytest.fixture
def follower(world: World, tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(world, tmp_path / "follower")
    yield follower
    follower.close()


def rows(*numbers: int) -> Rows:
    return [(b"%d" % n, b"%d" % n, n + 1) for n in numbers]


def values(task: OpenTask, *numbers: int) -> list[Any]:
    return [value for (value,) in ask(task, "get", *[(b"%d" % n,) for n in numbers])]


def expected(*numbers: int) -> list[bytes]:
    return [stored_value(n + 1, b"%d" % n) for n in numbers]


@pytest.mark.parametrize("persistent", [True, False])
def test_what_is_committed_comes_to_the_follower_which_restores_nothing_when_it_takes(
    world: World, follower: Follower, persistent: bool
) -> None:
    order = world.store_order(persistent=persistent)
    owner = world.take(order)
    commit(owner, rows(*range(1000)), to=1, metadata={})
    follower.follow(order)
    follower.wait_caught_up()
    for n in range(1000, 1005):
        commit(owner, rows(n), to=n - 998, metadata={})
    commit(owner, [(b"7", None, 9)], to=7, metadata={})
    assert follower.wait_caught_up().notes == []
    follower.holder.flush()
    owner.close()
    task = follower.take(order)
    assert follower.restored() == {"counts": 0}
    assert follower.copies().copies == []
    assert values(task, 0, 7, 1004) == [*expected(0), None, *expected(1004)]
    assert task.status().position == {world.input: {0: 7}}
    assert commit(task, rows(1), to=8, metadata={}).status == "ok"


def test_who_gets_ready_fences_nobody_before_it_takes_the_task(
    world: World, follower: Follower
) -> None:
    owner = world.take()
    commit(owner, rows(0), to=1, metadata={})
    follower.follow()
    follower.wait_caught_up()
    follower.call("prepare", PrepareOrder(task="0_0", name="counts-0"))
    ready, _ = follower.holder._writers._writers["0_0"]
    for n in (1, 2):
        assert commit(owner, rows(n), to=n + 1, metadata={}).status == "ok"
    task = follower.take()
    assert task._writer is ready
    assert task.status().position == {world.input: {0: 3}}
    assert values(task, 0, 1, 2) == expected(0, 1, 2)
    reply = commit(owner, rows(3), to=4, metadata={})
    assert (reply.status, owner.status().state) == ("lost", "failed")
    assert commit(task, rows(4), to=4, metadata={}).status == "ok"
    assert values(task, 3, 4) == [None, *expected(4)]
    owner.close()


def test_a_standby_that_is_found_damaged_while_it_is_handed_over_is_made_anew(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = world.take()
    commit(owner, rows(*range(10)), to=1, metadata={})
    follower.follow()
    follower.wait_caught_up()
    owner.close()
    followed = follower.holder._standbys.get("0_0")
    assert followed is not None
    began, flush = threading.Event(), RocksDBStore.flush

    def damaged_flush(store: RocksDBStore) -> None:
        if began.is_set() or str(follower.directory.path) not in str(store.path):
            return flush(store)
        began.set()
        assert followed._stopping.wait(60)  # The task is taken meanwhile.
        raise damaged("a block is wrong", store="counts", path=store.path)

    monkeypatch.setattr(RocksDBStore, "flush", damaged_flush)
    flushing = threading.Thread(target=follower.holder.flush)
    flushing.start()
    assert began.wait(60)
    task = follower.take()
    flushing.join()
    assert values(task, 1, 9) == [*expected(1), *expected(9)]


class AtWork:
    """The copies of an owner that commits while it is asked for one."""

    def __init__(self, owner: OpenTask, directory: Path, *, counted_first: bool) -> None:
        self._owner, self._directory = owner, directory
        self._counted_first = counted_first

    @contextlib.contextmanager
    def open(self, task: str, wanted: StoreIdentity) -> Iterator[Snapshot | None]:
        before = self._owner.stores.get("counts").offset()
        commit(self._owner, rows(1, 2, 3), to=2, metadata={})
        offset = before if self._counted_first else self._owner.stores.get("counts").offset()
        assert offset is not None
        with self._owner.stores.copy("counts", "test") as self._directory:
            files = read_files(self._directory)
            yield Snapshot(Manifest(identity=wanted, offset=offset, files=files), self._pour)

    def _pour(self, file: SnapshotFile, target: Path) -> Iterator[None]:
        shutil.copy(self._directory / file.name, target)
        yield


@pytest.mark.parametrize("counted_first", [False, True])
def test_a_copy_is_used_though_its_owner_goes_on_while_it_is_made(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted_first: bool
) -> None:
    owner = world.take()
    commit(owner, rows(0), to=1, metadata={})
    copies = [AtWork(owner, tmp_path, counted_first=counted_first)]
    applied, apply = list[bytes](), RocksDBStore.apply

    def noting(store: RocksDBStore, changes: Any, *, offset: int | None) -> None:
        if store.path.is_relative_to(tmp_path / "follower"):
            applied.extend(key for key, _ in changes)
        apply(store, changes, offset=offset)

    monkeypatch.setattr(RocksDBStore, "apply", noting)
    with contextlib.closing(Follower(world, tmp_path / "follower", copies)) as follower:
        follower.follow()
        follower.wait_caught_up()
        [note] = follower.copy().notes
        assert "comes from a snapshot" in note
        commit(owner, rows(4), to=3, metadata={})
        follower.wait_caught_up()
        # It holds more than it says, and than the changelog had when that was looked at.
        assert applied == [b"4"]
        owner.close()
        # Of the changelog it read what came after the copy, and nothing before.
        task = follower.take()
        assert values(task, *range(5)) == expected(*range(5))
        assert follower.restored() == {"counts": 0}


def test_what_is_written_while_a_copy_catches_up_is_applied_once(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = world.take()
    commit(owner, [(b"1", b"old", 2)], to=1, metadata={})
    commit(owner, [(b"1", b"new", 3)], to=2, metadata={})

    def as_of_the_first(*given: Any, **options: Any) -> dict[tuple[str, int], LogRange]:
        found = wait_stable(*given, **options)
        # A record and its marker come after that.
        return {where: LogRange(log.start, log.end - 2) for where, log in found.items()}

    monkeypatch.setattr("penstock.instance.state.wait_stable", as_of_the_first)
    applied, apply = list[int | None](), RocksDBStore.apply

    def noting(store: RocksDBStore, changes: Any, *, offset: int | None) -> None:
        applied.append(offset)
        apply(store, changes, offset=offset)

    monkeypatch.setattr(RocksDBStore, "apply", noting)
    follower.follow()
    follower.wait_caught_up()
    # Read again from its first record on, the store would say "old" for a moment.
    assert applied == sorted(set(applied))
    # So it would by what came before it had to catch up once more.
    followed = follower.holder._standbys.get("0_0")
    assert followed is not None
    messages = list(read_committed(world.clients.logs, world.changelog, 0))
    followed.apply(world.changelog, messages[:1], followed.round - 1)
    assert applied == sorted(set(applied))


def test_what_is_not_committed_is_not_applied(world: World, follower: Follower) -> None:
    owner = world.take()
    commit(owner, rows(1), to=1, metadata={})
    follower.follow()
    follower.wait_caught_up()
    producer = Producer(
        {"bootstrap.servers": world.kafka, "transactional.id": f"{world.application}-counts-0"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(world.changelog, b"2", b"2", partition=0)
    producer.flush()
    # It is in the log, and the copy lacks it, but does not get it.
    follower.wait_for(lambda copy: copy.lag == 1)
    producer.abort_transaction()
    follower.wait_caught_up()
    owner.close()
    assert values(follower.take(), 1, 2) == [*expected(1), None]


def test_a_task_is_released_and_followed_and_taken_again(world: World, follower: Follower) -> None:
    task = follower.take()
    commit(task, rows(*range(100)), to=1, metadata={})
    follower.follow()  # It owns the task, and has nothing to follow.
    assert follower.copies() == CopiesReply(copies=[], owned={"0_0": (1, 1)})
    follower.call("release", ReleaseOrder(task="0_0", epoch=(1, 0)))
    assert follower.copies().owned  # An order for an earlier owner.
    follower.call("release", ReleaseOrder(task="0_0", epoch=(1, 1)))
    assert follower.copies().owned == {}
    follower.follow()
    follower.wait_caught_up()
    owner = world.take()
    commit(owner, rows(200), to=2, metadata={})
    owner.close()
    follower.wait_caught_up()
    task = follower.take()
    assert follower.restored() == {"counts": 0}
    assert values(task, 99, 200) == expected(99, 200)


def test_what_is_followed_no_longer_rests_on_the_disk(world: World, follower: Follower) -> None:
    owner = world.take()
    commit(owner, rows(*range(10)), to=1, metadata={})
    follower.follow()
    copy = follower.wait_caught_up()
    follower.call("unfollow", UnfollowOrder(task="0_0"))
    resting = follower.wait_for(lambda copy: copy.state == "at_rest" and bool(copy.positions))
    # The last record's offset is known, and not the marker's behind it.
    assert resting.positions == {world.changelog: copy.positions[world.changelog] - 1}
    owner.close()
    follower.take()
    assert follower.restored() == {"counts": 0}


def test_who_flushes_and_beats_does_not_wait_for_a_copy_that_catches_up(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, caught_up = threading.Event(), threading.Event()

    def catch_up(stores: TaskStores, stop: Callable[[], bool]) -> list[str]:
        began.set()
        assert caught_up.wait(60)
        return []

    monkeypatch.setattr(TaskStores, "catch_up", catch_up)
    follower.follow()
    assert began.wait(60)
    flushing = threading.Thread(target=follower.holder.flush)
    flushing.start()
    flushing.join(10)
    waits = flushing.is_alive()
    caught_up.set()
    flushing.join()
    assert not waits


def test_a_task_is_taken_that_is_followed_no_longer_while_others_catch_up_for_long(
    world: World, follower: Follower
) -> None:
    owner = world.take()
    commit(owner, rows(*range(10)), to=1, metadata={})
    follower.follow()
    follower.wait_caught_up()
    owner.close()
    caught_up = threading.Event()
    for _ in range(standby.CATCH_UPS_AT_ONCE):
        follower.holder._standbys._pool.submit(caught_up.wait, 60)
    follower.call("unfollow", UnfollowOrder(task="0_0"))
    assert values(follower.take(), 9) == expected(9)
    caught_up.set()


def test_a_store_without_a_changelog_is_not_followed(world: World, follower: Follower) -> None:
    owner = world.take()
    commit(owner, rows(1), to=1, metadata={})
    owner.close()
    both = [world.store_order(), StoreOrder(name="scratch")]
    follower.follow(*both)
    follower.wait_caught_up()
    assert not (follower.directory.path / "0_0" / "scratch").exists()
    task = follower.take(*both)
    assert follower.restored() == {"counts": 0}
    assert values(task, 1) == expected(1)


def test_a_damaged_copy_is_made_anew(world: World, follower: Follower) -> None:
    owner = world.take()
    commit(owner, rows(*range(10)), to=1, metadata={})
    follower.follow()
    follower.wait_caught_up()
    follower.call("unfollow", UnfollowOrder(task="0_0"))
    follower.wait_for(lambda copy: copy.state == "at_rest" and bool(copy.positions))
    (follower.directory.path / "0_0" / "counts" / "CURRENT").write_text("no manifest")
    follower.follow()
    notes = follower.wait_caught_up().notes
    assert any(f"rebuilding it from {world.changelog}" in note for note in notes), notes
    owner.close()
    assert values(follower.take(), 9) == expected(9)


def test_a_copy_that_was_cut_off_for_longer_than_deletions_last_begins_anew(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "WATCH_SECONDS", 1_000.0)
    owner = world.take()
    commit(owner, rows(*range(10)), to=1, metadata={})
    follower.follow()
    assert follower.wait_caught_up().notes == []
    follower.wait_unwatched()
    days = 2 * 86_400_000
    monkeypatch.setattr(standby, "wall_clock_ms", lambda: wall_clock_ms() + days)
    commit(owner, rows(*range(10, 12)), to=2, metadata={})
    [note] = follower.wait_for(lambda copy: bool(copy.notes)).notes
    assert "may have forgotten deletions that store counts missed" in note
    follower.wait_caught_up()
    # What goes to the disk is when it was whole, and not when that was written.
    [(_, stores)] = follower.holder._standbys.stores()
    stores.whole_at["counts"] = 5
    follower.holder.flush()
    assert stores.get("counts").caught_up_at() == 5
    owner.close()
    assert values(follower.take(), 9, 11) == expected(9, 11)


def test_a_copy_of_a_changelog_that_was_quiet_for_long_goes_on(
    world: World, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "WATCH_SECONDS", 0.01)
    owner = world.take()
    commit(owner, rows(*range(10)), to=1, metadata={})
    follower.follow()
    follower.wait_caught_up()
    [(_, stores)] = follower.holder._standbys.stores()
    now = wall_clock_ms() + 2 * 86_400_000
    monkeypatch.setattr(standby, "wall_clock_ms", lambda: now)
    wait_until(lambda: stores.whole_at["counts"] == now, what="it was asked where the log ends")
    commit(owner, rows(*range(10, 12)), to=2, metadata={})
    assert follower.wait_caught_up().notes == []
    # Nor does one begin anew that took so long to catch up: it would take as long again.
    monkeypatch.setattr(standby, "WATCH_SECONDS", 1_000.0)
    follower.wait_unwatched()
    [followed] = follower.holder._standbys.all()
    stores.whole_at["counts"], followed._begun_ms = now - 2 * 86_400_000, now
    commit(owner, rows(*range(12, 14)), to=3, metadata={})
    assert follower.wait_caught_up().notes == []
    owner.close()
    assert values(follower.take(), 9, 11, 13) == expected(9, 11, 13)
    assert follower.restored() == {"counts": 0}


def test_a_changelog_that_lost_what_the_copy_needs_next_is_told_and_tried_again(
    world: World, follower: Follower
) -> None:
    owner = world.take()
    commit(owner, rows(*range(10)), to=1, metadata={})
    follower.follow()
    follower.wait_caught_up()
    follower.call("unfollow", UnfollowOrder(task="0_0"))
    follower.wait_for(lambda copy: copy.state == "at_rest" and bool(copy.positions))
    commit(owner, rows(*range(20, 30)), to=2, metadata={})
    world.admin.alter([ConfigChange(world.changelog, "cleanup.policy", "", "compact,delete")])
    # The last record is left, which the owner holds already.
    world.admin.delete_records({(world.changelog, 0): 20})
    follower.follow()
    failed = follower.wait_for(lambda copy: copy.state == "failed" and bool(copy.notes))
    assert "lost its start" in failed.notes[0]
    # The owner has all, and others go on; the copy becomes whole by another way.
    follower.call("unfollow", UnfollowOrder(task="0_0"))
    follower.wait_for(lambda copy: copy.state == "at_rest")
    owner.close()
    # What it has, nobody can make anew.
    kept = RocksDBStore("counts", follower.directory.path / "0_0" / "counts")
    assert kept.offset() == 9
    kept.close()
    shutil.rmtree(follower.directory.path / "0_0")
    shutil.copytree(world.state.path / "0_0", follower.directory.path / "0_0")
    follower.follow()
    follower.wait_for(lambda copy: copy.state == "following")
    assert values(follower.take(), 9, 29) == expected(9, 29)
