"""A task on a disk that becomes full or read-only: an error says where, and nothing is lost.

Method: a task is taken, commits, flushes and is closed, as an instance does it, on a file system of
its own. The disk fills up before the n-th call that may write to it, for each n that there is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.config import Config
from penstock.errors import StateDirectoryError, StateDiskFullError, StatePermissionError
from penstock.instance.protocol import CommitHeader, Reply
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask
from penstock.stores import checkpoint_file, directory, rocksdb
from penstock.stores.contract import stored_value
from penstock.stores.directory import StateDirectory
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.rocksdb_engine import RocksDBEngine, RocksDBSettings
from tests.disks import empty, fill, read_only, small_disk
from tests.harness import wait_until
from tests.integration.test_task import World, ask, changes, commit


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    with small_disk(path):
        yield path


@pytest.fixture
def world(kafka: str, disk: Path) -> Iterator[World]:
    world = World(kafka, disk)
    world.produce(99)
    yield world
    world.close()


class Writes:
    """Counts the calls that may write to a task's directory, and does something before one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = 0
        self._before: Callable[[], None] = lambda: None
        for owner, name in (
            (directory.StateDirectory, "_lock_directory"),
            (directory, "_write_holder"),
            (checkpoint_file, "write_atomically"),
            (RocksDBStore, "__init__"),
            (TaskStores, "apply"),
            (RocksDBStore, "flush"),
            (RocksDBStore, "close"),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def arm(self, n: int, before: Callable[[], None]) -> None:
        self._left, self._before = n, before

    @property
    def fired(self) -> bool:
        return self._left <= 0

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._before()
            return call(*arguments, **options)

        return counted


def add(task: OpenTask, value: bytes = b"v") -> Reply:
    """Commit the next key."""
    n = task.status().n + 1
    return commit(task, [(b"%02d" % n, value, n), (b"last", b"%d" % n, n)], to=n, metadata={})


def check(world: World, *, commits: int, value: bytes = b"v") -> None:
    """The task holds what was committed, and nothing else."""
    task = world.take()
    assert task.status().n == commits
    found = [(key, stored) for _, key, stored in ask(task, "range", (None, None))]
    wanted = [(b"%02d" % n, stored_value(n, value)) for n in range(1, commits + 1)]
    last = [(b"last", stored_value(commits, b"%d" % commits))] if commits else []
    assert found == wanted + last
    task.close()


def fault_of(task: OpenTask, kind: type[StateDirectoryError]) -> Path:
    """The path that a task failed for, with an error of that kind."""
    fault = task.status().fault
    assert fault is not None
    assert fault.kind == kind.__name__
    assert fault.hint
    return Path(fault.where["path"])


def test_a_disk_that_fills_up_at_any_write(
    world: World, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, named, commits = Writes(monkeypatch), dict[Path, None](), 0
    for n in itertools.count(1):
        writes.arm(n, functools.partial(fill, disk))
        task = world.try_to_take()
        if task.is_running:
            # The changelog has it, and so it counts, whatever the disk says.
            assert add(task).status == "ok"
            commits += 1
            try:
                task.flush()
            except StateDiskFullError as error:
                named[Path(str(error.where["path"]))] = None
        else:
            named[fault_of(task, StateDiskFullError)] = None
        task.close()
        if not writes.fired:
            break
        empty(disk)
        check(world, commits=commits)
        shutil.rmtree(world.state.path / "0_0")
    own = world.state.path / "0_0"
    assert list(named) == [own, own / ".lock", own / "counts", own / ".checkpoint"]
    # Of all n, three are before the store is open, and the last was not reached.
    assert commits == n - 3


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that must write to the disk within a commit."""
    settings = RocksDBSettings.of(Config())
    small = dataclasses.replace(settings, write_buffer_bytes=65_536, write_buffers_max=2)
    engine = RocksDBEngine(small)
    monkeypatch.setattr(rocksdb, "default_engine", lambda: engine)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    fill(disk)
    try:
        yield
    finally:
        empty(disk)


BAD_DAYS = [(full, StateDiskFullError), (read_only, StatePermissionError)]


@pytest.mark.usefixtures("small_buffers")
@pytest.mark.parametrize(("bad_day", "kind"), BAD_DAYS, ids=["full", "read-only"])
def test_a_commit_whose_store_cannot_be_written(
    world: World,
    disk: Path,
    bad_day: Callable[[Path], contextlib.AbstractContextManager[None]],
    kind: type[StateDirectoryError],
) -> None:
    value = b"v" * 200_000
    task = world.take()
    assert add(task, value).status == "ok"
    commits = 2
    with bad_day(disk):
        # How much RocksDB keeps in its memory is its own choice.
        while (reply := add(task, value)).status == "ok":
            commits += 1
            assert commits < 20
        # Committed in Kafka; the task knows that it does not have it here.
        assert reply.status == "lost"
        path = fault_of(task, kind)
        assert path == world.state.path / "0_0" / "counts"
        assert str(path) in reply.reason
        assert add(task).reason == "the task is failed"
        task.close()
        # Nor is it taken again while that lasts; nor does another instance start there.
        task = world.try_to_take()
        assert fault_of(task, kind).is_relative_to(world.state.path / "0_0")
        task.close()
        with pytest.raises(kind) as refused:
            StateDirectory.open(disk, "another")
        assert str(disk) in str(refused.value)
    check(world, commits=commits, value=value)


def test_a_directory_that_becomes_read_only_between_commits(world: World, disk: Path) -> None:
    task = world.take()
    with read_only(disk):
        assert add(task).status == "ok"
        with pytest.raises(StatePermissionError, match="read-only") as failed:
            task.flush()
        assert failed.value.where["path"] == world.state.path / "0_0" / "counts"
        assert "Mount" in failed.value.hint
        # Whether the store takes it or not, the changelog does.
        add(task)
        task.close()
    check(world, commits=2)


def test_a_commit_that_breaks_off_while_the_disk_is_full(world: World, disk: Path) -> None:
    """Its task is to be taken anew, and what its store still has in memory cannot be flushed."""
    task = world.take()
    assert add(task).status == "ok"

    def broken() -> Iterator[pa.RecordBatch]:
        yield changes([(b"never", b"", 0)])
        raise RuntimeError("it broke off")

    with full(disk):
        status = task.status()
        header = CommitHeader(
            task="0_0",
            epoch=status.epoch,
            n=2,
            start=status.position,
            end={world.input: {0: 2}},
            stores=["counts"],
            topics=[],
            rows=1,
        )
        assert "it broke off" in task.commit(header, broken()).reason
        wait_until(lambda: task.status().state == "failed", what="it cannot be taken")
        assert fault_of(task, StateDiskFullError).is_relative_to(world.state.path / "0_0")
        task.close()
    check(world, commits=1)
