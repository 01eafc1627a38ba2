"""Puts the simulated clock, threads, clients and disks in the place of the real ones."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.changelog import reading, restore
from penstock.coordination import commits
from penstock.driver import copies, driver, lease, owners, questions
from penstock.errors import FencedError, KafkaError
from penstock.instance import (
    handover,
    holder,
    preparing,
    process,
    standby,
    standing,
    state,
    task,
    writer,
)
from penstock.instance.protocol import Reply
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask
from tests.simulation.broker import SimMessage, SimProducer, sim_log_offsets
from tests.simulation.copies import SimCopyWatch, replace_followers
from tests.simulation.disk import SimStore
from tests.simulation.world import Process, World, WouldBlock


class _Now:
    """The world that is simulated now."""

    world: World


def _time() -> Any:
    def sleep(seconds: float) -> None:
        if _Now.world.is_crowded:
            raise KafkaError("simulated: a transaction is still open")
        _Now.world.reached("waited for open transactions in a log")
        _Now.world.wait(max(seconds, 0.2))

    return SimpleNamespace(
        monotonic=lambda: _Now.world.now,
        perf_counter=lambda: _Now.world.now,
        time_ns=lambda: int(_Now.world.now * 1e9),
        sleep=sleep,
    )


class _Lock:
    """A lock; who would have to wait for it tries again later."""

    def __init__(self) -> None:
        self.is_held = False

    def __enter__(self) -> None:
        if self.is_held:
            raise WouldBlock
        self.is_held = True

    def __exit__(self, *_: object) -> None:
        self.is_held = False

    def acquire(self, *, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it if it is free; who would wait for a while has waited in vain."""
        assert not blocking or timeout >= 0
        free, self.is_held = not self.is_held, True
        return free

    def release(self) -> None:
        self.is_held = False


class _Event:
    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        """Rest, for about as long as a piece of work takes."""
        del timeout  # By the real clock.
        if not self._set:
            _Now.world.wait(_Now.world.random.choice([0.0, 0.05, 1.0]))
        return self._set


class _Thread:
    """What a thread would do is done soon."""

    def __init__(self, *, target: Callable[[], None], name: str, daemon: bool = False) -> None:
        self._target = target
        self._name = name

    def start(self) -> None:
        world = _Now.world
        process = world.current
        assert process is not None
        if self._name == "driver-beat":
            process.start_beating()  # type: ignore[attr-defined]
        else:
            process.after(world.random.uniform(0.0, 0.2), self._target)


class _Pool:
    """A pool of threads."""

    def __init__(self, *_: object, **__: object) -> None:
        self._process: Process | None = _Now.world.current

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        assert self._process is not None
        delay = _Now.world.random.uniform(0.01, 0.2)
        self._process.after(delay, lambda: work(*arguments))


_THREADING = SimpleNamespace(Lock=_Lock, Event=_Event, Thread=_Thread)


def _make_store(self: TaskStores, order: Any, *, filling: bool = False) -> SimStore:
    assert self._directory is not None
    return SimStore(order.name, self._directory.store_path(order.name), _Now.world)  # type: ignore[arg-type]


def _crash_point(name: str, **_: object) -> None:
    _Now.world.point(name)


@contextlib.contextmanager
def simulated(
    mutant: Callable[[pytest.MonkeyPatch], None] | None = None,
) -> Iterator[Callable[[World], None]]:
    """Everything below is simulated meanwhile; what it gives is told which world is next.

    With a bug in it, if there is a `mutant`.
    """
    with pytest.MonkeyPatch.context() as patch:
        _replace_clients(patch)
        _count_branches(patch)
        if mutant is not None:
            mutant(patch)

        def enter(world: World) -> None:
            _Now.world = world
            SimProducer.world = world

        yield enter


def _replace_clients(patch: pytest.MonkeyPatch) -> None:
    clock = _time()
    timed: tuple[ModuleType, ...] = (reading, restore, lease, driver, owners, process)
    timed += (copies, standby, preparing)
    for module in timed:
        patch.setattr(module, "time", clock)
    for module in (lease, holder, task, copies, standby, preparing):
        patch.setattr(module, "threading", _THREADING)
    for module in (holder, driver, questions, copies, standby):
        patch.setattr(module, "ThreadPoolExecutor", _Pool)
    for module in (writer, lease):
        patch.setattr(module, "Producer", SimProducer)
    for module in (writer, task, state, restore, standby):
        patch.setattr(module, "crash_point", _crash_point)
    patch.setattr(writer, "crash_point_soon", _crash_point)
    # No record is ever refused here: there is nothing to look for while a flush waits.
    patch.setattr(writer, "_LOOK_SECONDS", math.inf)
    member = SimpleNamespace(join=lambda: None, close=lambda: None, write=lambda position: None)
    patch.setattr(lease, "GroupMember", lambda *_, **__: member)
    patch.setattr(lease, "process_start", lambda pid: 0.0)
    patch.setattr(reading, "log_offsets", sim_log_offsets)
    patch.setattr(reading, "EARLIEST", "earliest")
    patch.setattr(reading, "LATEST", "latest")
    patch.setattr(restore, "Message", SimMessage)
    patch.setattr(driver, "pickle_sub_topology", lambda sub: b"")
    patch.setattr(TaskStores, "_make_store", _make_store)
    patch.setattr(driver, "CopyWatch", SimCopyWatch)
    replace_followers(patch, lambda: _Now.world)


# Which ways to recover are taken is heard, not asked of the code.


def _count_branches(patch: pytest.MonkeyPatch) -> None:
    _count_verdicts(patch)
    _count_of_task(patch)
    _count_of_driver(patch)


def _count_verdicts(patch: pytest.MonkeyPatch) -> None:
    judge, settle = commits.judge, commits.settle

    def judged(**given: Any) -> str:
        verdict = judge(**given)
        _Now.world.reached(f"a commit was judged: {verdict}")
        return verdict

    def settled(**given: Any) -> commits.Standing:
        standing = settle(**given)
        world = _Now.world
        if standing.group_is_stale:
            world.reached("the group's offsets were written again")
        if standing.moved_by_group:
            world.reached("a task went on where another program left it")
        if given["recorded"] is None and given["group"]:
            world.reached("a task went on from the group's offsets")
        return standing

    patch.setattr(standing, "judge", judged)
    patch.setattr(standing, "settle", settled)


def _count_of_task(patch: pytest.MonkeyPatch) -> None:
    lost, aborted, read_again = OpenTask._lost, OpenTask._aborted, OpenTask._read_again
    refusal, owner = OpenTask._refusal, handover.check_owner

    def on_lost(self: OpenTask, error: Any) -> Reply:
        fenced = isinstance(error, FencedError)
        what = "an owner was fenced" if fenced else "a task was taken anew after an unknown outcome"
        _Now.world.reached(what)
        return lost(self, error)

    def on_aborted(self: OpenTask, *given: Any) -> Reply:
        _Now.world.reached("a transaction was aborted, and its producer went on")
        return aborted(self, *given)

    def on_read_again(self: OpenTask) -> None:
        _Now.world.reached("a task read its input again")
        read_again(self)

    def on_refusal(self: OpenTask, *given: Any) -> Reply | None:
        reply = refusal(self, *given)
        if reply is not None:
            _Now.world.reached(f"a call was not served: {_kind(reply)}")
        return reply

    def on_owner(order: Any, record: Any) -> None:
        try:
            owner(order, record)
        except FencedError:
            _Now.world.reached("a late owner found a newer one's commit")
            raise

    patch.setattr(OpenTask, "_lost", on_lost)
    patch.setattr(OpenTask, "_aborted", on_aborted)
    patch.setattr(OpenTask, "_read_again", on_read_again)
    patch.setattr(OpenTask, "_refusal", on_refusal)
    patch.setattr(task, "check_owner", on_owner)
    _count_restores(patch)


def _kind(reply: Reply) -> str:
    if "epoch" in reply.reason:
        return "another epoch"
    if "lease" in reply.reason:
        return "no lease"
    return reply.reason or "that number was committed before"


def _count_restores(patch: pytest.MonkeyPatch) -> None:
    original = state.restore

    def restored(store: Any, **given: Any) -> Any:
        held = store.offset()
        result = original(store, **given)
        what = "an empty disk" if held is None else "what was on the disk"
        if result.restored:
            _Now.world.reached(f"a store was restored from {what} and its changelog")
        if held is not None and store.files.is_standby:
            _Now.world.reached("a standby was promoted")
        store.files.is_standby = False
        return result

    patch.setattr(state, "restore", restored)


def _count_of_driver(patch: pytest.MonkeyPatch) -> None:
    take_again, give, come_back = (
        owners.TaskOwners._take_again,
        owners.TaskOwners._give,
        owners.TaskOwners._come_back,
    )
    failed, stop_all = driver.Driver._job_failed, owners.TaskOwners._release_pending

    def on_take_again(self: Any, *given: Any) -> None:
        _Now.world.reached("a take that failed was tried again")
        take_again(self, *given)

    def on_give(self: Any, new: Any) -> None:
        if any(self._book.entries[task_id].owner == owner for task_id, owner in new.items()):
            _Now.world.reached("a task was given to its owner again")
        give(self, new)

    def on_come_back(self: Any, change: Any) -> None:
        if change.kind == "returned":
            _Now.world.reached("a static member got its tasks back")
        come_back(self, change)

    def on_failed(self: Any, *given: Any) -> None:
        _Now.world.reached("a job failed, and its tasks were planned alone")
        failed(self, *given)

    patch.setattr(owners.TaskOwners, "_take_again", on_take_again)
    patch.setattr(owners.TaskOwners, "_give", on_give)
    patch.setattr(owners.TaskOwners, "_come_back", on_come_back)

    def on_stop_all(self: Any) -> None:
        _Now.world.reached("a rebalance of all tasks at once")
        stop_all(self)

    patch.setattr(driver.Driver, "_job_failed", on_failed)
    patch.setattr(owners.TaskOwners, "_release_pending", on_stop_all)
