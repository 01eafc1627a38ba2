"""Puts the simulated clock, threads, clients and disks in the place of the real ones."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.changelog import reading, restore
from penstock.coordination import commits
from penstock.coordination.flips import Preparations
from penstock.coordination.ids import TaskId
from penstock.driver import copies, driver, lease, owners, questions
from penstock.errors import FencedError, KafkaError
from penstock.instance import (
    early_copies,
    handover,
    holder,
    open_stores,
    preparing,
    process,
    standby,
    standing,
    state,
    task,
    writer,
)
from penstock.instance.open_stores import OpenStores
from penstock.instance.preparing import PreparedWriters
from penstock.instance.protocol import Reply
from penstock.instance.task import OpenTask
from tests.simulation.broker import SimMessage, SimProducer, sim_log_offsets
from tests.simulation.copies import SimCopyWatch, replace_followers
from tests.simulation.disk import SimStore
from tests.simulation.peers import replace_copies
from tests.simulation.world import Process, ViolationError, World, WouldBlock


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

    def __init__(
        self,
        *,
        target: Callable[..., None],
        name: str,
        daemon: bool = False,
        args: tuple[Any, ...] = (),
    ) -> None:
        self._target = partial(target, *args)
        self._name = name

    def start(self) -> None:
        world = _Now.world
        process = world.current
        assert process is not None
        if self._name == "driver-beat":
            process.start_beating()  # type: ignore[attr-defined]
        elif not self._name.startswith("early-"):
            process.after(world.random.uniform(0.0, 0.2), self._target)
        elif world.random.random() < 0.8:
            self._target()  # It is quicker than Kafka.
        else:
            process.after(world.random.uniform(0.0, 3.0), self._target)


class _Pool:
    """A pool of threads."""

    def __init__(self, *_: object, **__: object) -> None:
        self._process: Process | None = _Now.world.current

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        assert self._process is not None
        delay = _Now.world.random.uniform(0.01, 0.2)
        self._process.after(delay, lambda: work(*arguments))


class _Condition:
    """Of what happens at once, so that nobody ever waits for it."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """It is so."""
        assert is_so()

    def notify_all(self) -> None: ...


_THREADING = SimpleNamespace(Lock=_Lock, Event=_Event, Thread=_Thread, Condition=_Condition)


def _make_store(self: OpenStores, order: Any, *, filling: bool = False) -> SimStore:
    return SimStore(order.name, self._held().store_path(order.name), _Now.world)  # type: ignore[arg-type]


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
    for module in (lease, holder, task, copies, standby, preparing, early_copies):
        patch.setattr(module, "threading", _THREADING)
    for module in (holder, driver, questions, copies, standby):
        patch.setattr(module, "ThreadPoolExecutor", _Pool)
    for module in (writer, lease):
        patch.setattr(module, "Producer", SimProducer)
    for module in (writer, task, state, open_stores, restore, standby):
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
    patch.setattr(OpenStores, "_make", _make_store)
    patch.setattr(driver, "CopyWatch", SimCopyWatch)
    replace_followers(patch, lambda: _Now.world)
    replace_copies(patch, lambda: _Now.world)


# Which ways to recover are taken is heard, not asked of the code.


def _count_branches(patch: pytest.MonkeyPatch) -> None:
    _count_verdicts(patch)
    _count_of_task(patch)
    _count_of_driver(patch)
    _count_of_moves(patch)


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


def _count_of_moves(patch: pytest.MonkeyPatch) -> None:
    """What may come between those who get ready for a task and the task."""
    lose, decide, miss = (
        owners.TaskOwners._lose,
        owners.TaskOwners._decide,
        Preparations.miss,
    )
    prepare, pop = PreparedWriters.prepare, PreparedWriters.pop

    def on_lose(self: owners.TaskOwners, change: Any) -> None:
        if change.name in self._pending.values():
            _Now.world.reached("one that was to get a task was lost before")
        lose(self, change)

    def on_decide(self: owners.TaskOwners, now: float) -> None:
        before: Mapping[TaskId, str] = dict(self._pending)
        decide(self, now)
        if any(self._pending.get(task_id) != owner for task_id, owner in before.items()):
            _Now.world.reached("a task that was to move stays, or is to go elsewhere")

    def on_miss(self: Preparations, *given: Any) -> None:
        _Now.world.reached("one that was to get a task did not get ready")
        miss(self, *given)

    def on_prepare(self: PreparedWriters, order: Any) -> None:
        prepare(self, order)
        made: Any = self._writers.get(order.task)
        if made is not None and made[0]._producer.has_fenced:
            raise ViolationError(f"who got ready for {order.task} fenced its owner")

    def on_pop(self: PreparedWriters, name: str) -> Any:
        found = pop(self, name)
        if found is not None:
            _Now.world.reached("an owner began with what it had got ready")
        return found

    patch.setattr(owners.TaskOwners, "_lose", on_lose)
    patch.setattr(owners.TaskOwners, "_decide", on_decide)
    patch.setattr(Preparations, "miss", on_miss)
    patch.setattr(PreparedWriters, "prepare", on_prepare)
    patch.setattr(PreparedWriters, "pop", on_pop)
