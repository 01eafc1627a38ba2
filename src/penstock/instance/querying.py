"""Which copy of a store an instance answers from, and what is true of that copy at that moment.

Nobody but the owner of a task, while it serves it and its lease holds, answers as active. What any
other copy holds was committed too: it may be old, and says how old.
"""

from __future__ import annotations

from functools import partial

from msgspec import structs

from penstock.errors import (
    CustomStoreError,
    ExternalStoreError,
    StoreDamagedError,
    TaskNotHereError,
)
from penstock.instance.protocol import UNKNOWN_LAG
from penstock.instance.query_answers import Findings, findings, values_of
from penstock.instance.query_messages import HeldStore, StoreAnswer, StoreQuestion
from penstock.instance.standby import Followed
from penstock.instance.state import TaskStores
from penstock.instance.task import OpenTask
from penstock.observability.time_of_day import wall_clock_ms
from penstock.stores.contract import KeyValueStore
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.steady import Coming

_FAILURES = (TaskNotHereError, StoreDamagedError, CustomStoreError, ExternalStoreError)


def ask(question: StoreQuestion, task: OpenTask | None, followed: Followed | None) -> StoreAnswer:
    """What an instance says of a task's store, by the best copy that it has."""
    try:
        if task is not None and task.is_active:
            return _ask_owner(question, task)
        if followed is not None and followed.positions:
            return _ask_standby(question, followed)
        if task is not None:
            # On its way from standby to owner: what it had is still there.
            return _ask_copy(question, task.stores)
    except _FAILURES as error:
        return StoreAnswer(reason=str(error))
    where = "is not held here" if followed is None else f"is {followed.state} here"
    return StoreAnswer(reason=f"task {question.task} {where}")


def _ask_owner(question: StoreQuestion, task: OpenTask) -> StoreAnswer:
    stores = task.stores
    answer = _look(question, stores, task.store(question.store))
    # Asked again: it may have stood still since, while others took over.
    if not task.is_active or task.stores is not stores:
        return StoreAnswer(reason=f"task {question.task} was given up meanwhile")
    return structs.replace(answer, role="active", epoch=task.order.epoch)


def _ask_standby(question: StoreQuestion, followed: Followed) -> StoreAnswer:
    topic = followed.stores.changelog(question.store)
    # Before the look: what is there is at least so much.
    next_offset = followed.positions.get(topic, 0)
    answer = _ask_copy(question, followed.stores)
    next_offset = max(next_offset, answer.next_offset)
    return structs.replace(answer, next_offset=next_offset, lag=followed.lag_of(topic))


def _ask_copy(question: StoreQuestion, stores: TaskStores) -> StoreAnswer:
    whole_at = stores.whole_at.get(question.store)
    if whole_at is None:
        return StoreAnswer(reason=f"task {question.task} is not whole here yet")
    answer = _look(question, stores, stores.get(question.store))
    return structs.replace(answer, role="standby", age_ms=max(0, wall_clock_ms() - whole_at))


def _look(question: StoreQuestion, stores: TaskStores, store: KeyValueStore) -> StoreAnswer:
    logged = bool(stores.changelog(question.store))

    def look() -> tuple[Findings, int | None]:
        return findings(store, question), store.offset() if logged else None

    def look_ahead(coming: Coming) -> tuple[Findings, int | None]:
        found = values_of(partial(coming.get_many, store), question)
        return found, coming.offset if logged else None

    # Of other kinds of stores a write changes more than the keys that it names.
    is_plain = question.kind == "get" and isinstance(store, RocksDBStore | MemoryStore)
    steady = stores.steady(question.store)
    ahead = look_ahead if is_plain else None
    result, position = stores.meter.asked(question, lambda: steady.look(look, ahead=ahead))
    return StoreAnswer(
        position=position,
        next_offset=0 if position is None else position + 1,
        lag=UNKNOWN_LAG,
        found=result.found,
        count=result.count,
        size=result.size,
        after=result.after,
    )


def held_by_owner(task: OpenTask) -> list[HeldStore]:
    """The stores of which an instance has the active copy."""
    if not task.is_active:
        return []
    logged = (order.name for order in task.order.stores if order.logged)
    return [_held(task.order.task, name, task.stores) for name in logged]


def _held(task: str, name: str, stores: TaskStores) -> HeldStore:
    offset = stores.get(name).offset()
    next_offset = 0 if offset is None else offset + 1
    return HeldStore(task=task, store=name, role="active", next_offset=next_offset)


def held_by_standby(followed: Followed) -> list[HeldStore]:
    """The stores that an instance follows."""
    logged = followed.stores.logged
    return [
        HeldStore(
            task=followed.order.task, store=logged[topic], role="standby", next_offset=next_offset
        )
        for topic, next_offset in followed.positions.items()
    ]
