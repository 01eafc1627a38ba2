"""Asks the instances that hold the state, until one of those who may has answered."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from msgspec import structs

from penstock.coordination.ids import TaskId
from penstock.errors import InstanceError, InstanceUnreachableError, StoreUnavailableError
from penstock.instance.protocol import decode, encode
from penstock.instance.query_messages import (
    ANSWER_BYTES,
    Found,
    HeldReply,
    HeldStore,
    StoreAnswer,
    StoreAnswers,
    StoreQuestion,
    StoreQuestions,
)
from penstock.queries.catalogue import AskedStore, Catalogue
from penstock.queries.connections import Connections, Locations
from penstock.queries.contract import (
    TIMEOUT,
    Answer,
    Bound,
    KeyMetadata,
    PartitionLag,
    Question,
    Row,
    Source,
    StoreDescription,
    StoreSize,
)
from penstock.queries.freshness import EndsSeen, Log
from penstock.queries.pages import Page, page_text
from penstock.queries.planning import Part, Plan, plan
from penstock.queries.prepared import Prepared, looked_up, never_waits
from penstock.queries.routing import Holders, age_of, candidates, refusal, role_of, share
from penstock.queries.rows import found_row, looked_up_row

_PAUSE_SECONDS = 0.02
_TRY_SECONDS_MAX = 2.0
"""How long one instance is waited for before it is looked whether another holds the task now."""
_DOUBT_SECONDS = 1.0
"""How long a question waits at the driver for Kafka to say that it still is the driver."""
_CALLS_AT_ONCE = 16
"""Instances that are asked beside others, for all questions."""
_ANYTHING = Bound()


class Places(Locations, Protocol):
    """Where the state is. Any thread may ask; nothing waits, unless it says so."""

    @property
    def decides(self) -> bool:
        """Whether who holds what is decided here, so that `holders_since` never waits."""
        ...

    @property
    def doubt(self) -> str:
        """Why nobody knows whether one that was active still is, where nobody does."""
        ...

    @property
    def ends_seen(self) -> EndsSeen:
        """Where changelogs were seen to end."""
        ...

    def holders(self, task: TaskId) -> Holders:
        """Who holds a task."""
        ...

    def holders_since(self, task: TaskId, moment: float) -> Holders:
        """The same as of that moment, or later, if it can be found out soon; this may wait."""
        ...

    def present(self) -> list[str]:
        """The instances that are there."""
        ...

    def ends(self) -> Mapping[Log, int]:
        """Where all changelogs end now; asks Kafka. Raises `KafkaError`."""
        ...


class StoreQueries:
    """An application's state, asked where it is: `contract.Queries`, for who knows the places."""

    def __init__(self, catalogue: Catalogue, places: Places) -> None:
        self.catalogue = catalogue
        self._places = places
        self._connections = Connections(places)
        self._threads = ThreadPoolExecutor(_CALLS_AT_ONCE, thread_name_prefix="penstock-asking")

    def stores(self) -> list[StoreDescription]:
        """All stores, by name."""
        return [store.description for store in self.catalogue.all()]

    def ask(
        self,
        store: str,
        question: Question,
        *,
        bound: Bound = _ANYTHING,
        timeout: timedelta = TIMEOUT,
    ) -> Answer:
        """The answer of whoever holds the state."""
        deadline = _deadline(timeout)
        planned = plan(self.catalogue.find(store), question)
        if planned.looks_up:
            return looked_up(planned, self._ask_parts(planned, bound, deadline))
        return self._scan(planned, bound, deadline)

    def approximate_count(
        self, store: str, *, bound: Bound = _ANYTHING, timeout: timedelta = TIMEOUT
    ) -> int:
        """About how many entries a store holds in all its partitions."""
        return self._size(self.catalogue.find(store), bound, timeout).entries

    def sized_stores(self) -> list[str]:
        """The names of all stores, those too that steps have for themselves."""
        return sorted(self.catalogue.sized())

    def size(
        self, store: str, *, bound: Bound = _ANYTHING, timeout: timedelta = TIMEOUT
    ) -> StoreSize:
        """About how large a store is in all its partitions."""
        asked = self.catalogue.sized().get(store) or self.catalogue.find(store)
        return self._size(asked, bound, timeout)

    def _size(self, asked: AskedStore, bound: Bound, timeout: timedelta) -> StoreSize:
        deadline = _deadline(timeout)
        message = StoreQuestion(store=asked.spec.name, kind="count", layout=asked.spec.kind)
        told = [
            self._ask_partition(asked, partition, message, bound, deadline)[0]
            for partition in range(asked.partitions)
        ]
        return StoreSize(
            entries=sum(each.count for each in told), bytes=sum(each.size for each in told)
        )

    def key_metadata(self, store: str, key: Any) -> KeyMetadata:
        """Where a key lives."""
        asked = self.catalogue.find(store)
        [partition] = asked.partitions_of([key], [asked.key_bytes(key)])
        present = self._places.present()
        if asked.spec.is_global:
            holders = Holders(owner=next(iter(present), ""), followers=tuple(present[1:]))
        else:
            holders = self._places.holders(asked.task(partition))
        return KeyMetadata(
            store=store,
            partition=partition,
            active=holders.owner if holders.owner in present else "",
            standbys=tuple(name for name in holders.followers if name in present),
        )

    def present(self) -> list[str]:
        """The instances that are there."""
        return self._places.present()

    def lags(self) -> list[PartitionLag]:
        """How far every copy of every store is behind; of instances that do not answer, nothing."""
        deadline = _deadline(TIMEOUT)
        held: list[tuple[str, HeldStore]] = []
        for name in self._places.present():
            try:
                reply = self._connections.call(
                    name, "held", HeldReply(), HeldReply, max(deadline - time.monotonic(), 0.1)
                )
            except InstanceError:
                continue
            held += [(name, each) for each in reply.stores]
        # Asked last: what was committed until then, nobody holds too much of.
        ends = self._places.ends()
        logs = {each.spec.name: each.changelog for each in self.catalogue.all()}
        found = [
            self._lag(name, each, ends.get((logs[each.store], TaskId.parse(each.task).partition)))
            for name, each in held
            if logs.get(each.store)
        ]
        known = [each for each in found if each is not None]
        return sorted(known, key=lambda each: (each.store, each.partition, each.role))

    def _lag(self, name: str, held: HeldStore, end: int | None) -> PartitionLag | None:
        if end is None:
            return None
        task = TaskId.parse(held.task)
        is_owner = held.role == "active" and self._places.holders(task).owner == name
        return PartitionLag(
            store=held.store,
            partition=task.partition,
            instance=name,
            role="active" if is_owner else "standby",
            # Behind the last record that an owner wrote is only the mark of its transaction.
            position=end if is_owner else min(held.next_offset, end),
            end=end,
        )

    # Keys that are looked up.

    def prepare(self, store: str, question: Question) -> Prepared | None:
        """A question for keys, ready to be sent by who must not wait meanwhile, as an event loop
        must not; None if it cannot be. Raises `QuestionRefusedError`.
        """
        asked = self.catalogue.find(store)
        if not self._places.decides or not never_waits(asked):
            return None
        planned = plan(asked, question)
        if not planned.looks_up:
            return None
        messages = _messages(planned)
        calls = self._calls(asked, messages, _ANYTHING)
        paths = [self._connections.socket_of(call.instance) for call in calls]
        if sum(len(call.messages) for call in calls) < len(messages) or None in paths:
            return None
        return Prepared(
            token=self._places.token,
            calls=[
                (path, encode(StoreQuestions(questions=list(call.messages.values()))))
                for path, call in zip(paths, calls, strict=True)
                if path is not None
            ],
            finish=partial(self._finish, planned, calls),
        )

    def _finish(self, planned: Plan, calls: list[_Call], told: Sequence[bytes]) -> Answer | None:
        """The answer, of what each instance said; None if one of them will not do."""
        came_at = time.monotonic()
        settled: dict[int, tuple[StoreAnswer, Source]] = {}
        reasons: dict[int, dict[str, str]] = {part.partition: {} for part in planned.parts}
        for call, body in zip(calls, told, strict=True):
            answers = decode(body, StoreAnswers).answers
            settled |= self._settled(planned.store, call, answers, _ANYTHING, came_at, reasons)
        if len(settled) < len(planned.parts):
            return None
        return looked_up(planned, [(part, settled[part.partition]) for part in planned.parts])

    def _ask_parts(
        self, planned: Plan, bound: Bound, deadline: float
    ) -> list[tuple[Part, tuple[StoreAnswer, Source]]]:
        """The answers of all partitions: each instance is asked once for those that it holds.

        A partition that is left without an answer by that is asked for by itself.
        """
        messages = _messages(planned)
        reasons: dict[int, dict[str, str]] = {part.partition: {} for part in planned.parts}
        settled: dict[int, tuple[StoreAnswer, Source]] = {}
        if len(messages) > 1:
            calls = self._calls(planned.store, messages, bound)
            # The first in this thread, all others beside it.
            waiting = [
                self._threads.submit(
                    self._ask_instance, planned.store, call, bound, deadline, reasons
                )
                for call in calls[1:]
            ]
            for call in calls[:1]:
                settled = self._ask_instance(planned.store, call, bound, deadline, reasons)
            for each in waiting:
                settled |= each.result()
        return [
            (
                part,
                settled.get(part.partition)
                or self._ask_partition(
                    planned.store,
                    part.partition,
                    messages[part.partition],
                    bound,
                    deadline,
                    reasons[part.partition],
                ),
            )
            for part in planned.parts
        ]

    def _calls(
        self, store: AskedStore, messages: Mapping[int, StoreQuestion], bound: Bound
    ) -> list[_Call]:
        """Who is asked first for which partitions."""
        found: dict[tuple[str, bool], dict[int, StoreQuestion]] = {}
        for partition, message in messages.items():
            names = self._candidates(store, store.task(partition), bound)
            if names:
                found.setdefault((names[0], len(names) > 1), {})[partition] = message
        return [
            _Call(instance=name, has_others=has_others, messages=asked)
            for (name, has_others), asked in found.items()
        ]

    def _ask_instance(
        self,
        store: AskedStore,
        call: _Call,
        bound: Bound,
        deadline: float,
        reasons: Mapping[int, dict[str, str]],
    ) -> dict[int, tuple[StoreAnswer, Source]]:
        """What one instance answers, as far as it will do; `reasons` gets why the rest does not."""
        name, remaining = call.instance, deadline - time.monotonic()
        if remaining <= 0:
            return {}
        seconds = min(share(remaining, has_others=call.has_others), _TRY_SECONDS_MAX)
        questions = StoreQuestions(questions=list(call.messages.values()))
        try:
            answers = self._connections.ask_many(name, questions, seconds)
        except InstanceError as error:
            for partition in call.messages:
                reasons[partition][name] = _why(error)
            return {}
        return self._settled(store, call, answers, bound, time.monotonic(), reasons)

    def _settled(
        self,
        store: AskedStore,
        call: _Call,
        answers: Sequence[StoreAnswer],
        bound: Bound,
        came_at: float,
        reasons: Mapping[int, dict[str, str]],
    ) -> dict[int, tuple[StoreAnswer, Source]]:
        """The answers that will do; `reasons` gets why the others do not."""
        name = call.instance
        settled: dict[int, tuple[StoreAnswer, Source]] = {}
        for partition, answer in zip(call.messages, answers, strict=True):
            source, reasons[partition][name] = self._judge(
                store, partition, name, answer, bound, came_at
            )
            if source is not None:
                settled[partition] = (answer, source)
        return settled

    # Rows that are looked for.

    def _scan(self, planned: Plan, bound: Bound, deadline: float) -> Answer:
        rows: list[Row] = []
        sources: list[Source] = []
        size, after = 0, planned.page.after
        next_page: Page | None = None
        for part in planned.parts:
            wanted = planned.question.limit - len(rows)
            if wanted == 0 or size >= ANSWER_BYTES:
                next_page = Page(partition=part.partition)
                break
            message = structs.replace(
                planned.message,
                keys=[planned.keys[number] for number in part.numbers],
                limit=wanted,
                bytes_max=ANSWER_BYTES - size,
                after=after,
            )
            answer, source = self._ask_partition(
                planned.store, part.partition, message, bound, deadline
            )
            rows += [_row(planned, part, found) for found in answer.found]
            size += sum(len(key) + len(value or b"") for _, key, value, _ in answer.found)
            sources.append(source)
            after = None
            if answer.after is not None:
                next_page = Page(partition=part.partition, after=answer.after)
                break
        page = None if next_page is None else page_text(next_page, planned.fingerprint)
        return Answer(rows=rows, sources=sources, next_page=page)

    # One partition.

    def _ask_partition(
        self,
        store: AskedStore,
        partition: int,
        message: StoreQuestion,
        bound: Bound,
        deadline: float,
        reasons: dict[str, str] | None = None,
    ) -> tuple[StoreAnswer, Source]:
        """The first answer that will do; those who may give one are asked again and again.

        `reasons` are why those do not who were asked before.
        """
        task = store.task(partition)
        if not store.spec.is_global:
            message = structs.replace(message, task=str(task))
        reasons = {} if reasons is None else reasons
        doubted_until = time.monotonic() + _DOUBT_SECONDS
        while True:
            names = self._candidates(store, task, bound)
            for tried, name in enumerate(names, start=1):
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                seconds = share(remaining, has_others=tried < len(names))
                try:
                    answer = self._connections.ask(name, message, min(seconds, _TRY_SECONDS_MAX))
                except InstanceError as error:
                    # In the last moments nobody has the time: what was said before tells more.
                    reasons.setdefault(name, _why(error))
                    continue
                source, reasons[name] = self._judge(
                    store, partition, name, answer, bound, time.monotonic()
                )
                if source is not None:
                    return answer, source
                if self._places.decides and reasons[name] == self._places.doubt:
                    # Until Kafka answers the driver, it would be in the way of other questions.
                    deadline = min(deadline, doubted_until)
            if deadline - time.monotonic() <= _PAUSE_SECONDS:
                raise _unavailable(store, partition, bound, reasons)
            time.sleep(_PAUSE_SECONDS)

    def _candidates(self, store: AskedStore, task: TaskId, bound: Bound) -> list[str]:
        present = self._places.present()
        silent = self._connections.silent()
        if store.spec.is_global:
            # All hold it: let none of them have all the work.
            shuffled = random.sample(present, len(present))
            return sorted(shuffled, key=lambda name: name in silent)
        return candidates(self._places.holders(task), bound, present, silent)

    def _holders_after(self, answer: StoreAnswer, task: TaskId, came_at: float) -> Holders:
        """Who holds the task after an answer came: whoever was the owner then still is."""
        if answer.role == "active":
            return self._places.holders_since(task, came_at)
        return self._places.holders(task)

    def _judge(
        self,
        store: AskedStore,
        partition: int,
        name: str,
        answer: StoreAnswer,
        bound: Bound,
        came_at: float,
    ) -> tuple[Source | None, str]:
        """What is to be said of an answer, or why it will not do."""
        holders = self._holders_after(answer, store.task(partition), came_at)
        role = role_of(answer, name, holders, came_at=came_at)
        owned_at = holders.seen_at if holders.owned(answer, name) else None
        if role != answer.role and owned_at is not None and not bound.lets_standbys:
            return None, self._places.doubt
        log = (store.changelog, partition)
        end = self._places.ends_seen.end(log)
        why = refusal(answer, role, bound, partition=partition, end=end)
        if why:
            return None, why
        held_all_at = self._places.ends_seen.held_all_at(log, answer.next_offset)
        # As long as it was the owner, it held all that was committed.
        known_at = max((at for at in (held_all_at, owned_at) if at is not None), default=None)
        age = age_of(answer, role, None if known_at is None else time.monotonic() - known_at)
        if age is None:
            return None, "it was given up, and it is not known how old it is"
        source = Source(
            partition=partition, instance=name, role=role, position=answer.position, age=age
        )
        return source, ""


@dataclass(frozen=True, kw_only=True)
class _Call:
    """What one instance is asked at once, by partition."""

    instance: str
    has_others: bool
    """Whether others may answer for these partitions too."""
    messages: Mapping[int, StoreQuestion]


def _why(error: InstanceError) -> str:
    """What is told of an instance that gave no answer, without the words of what carries calls."""
    return "no answer" if isinstance(error, InstanceUnreachableError) else error.message


def _messages(planned: Plan) -> dict[int, StoreQuestion]:
    """What each partition is asked: of the answer's bytes each has the share of its keys."""
    store, keys = planned.store, planned.keys
    count = sum(len(part.numbers) for part in planned.parts)
    return {
        part.partition: structs.replace(
            planned.message,
            task="" if store.spec.is_global else str(store.task(part.partition)),
            keys=[keys[number] for number in part.numbers],
            bytes_max=max(ANSWER_BYTES * len(part.numbers) // count, 1),
        )
        for part in planned.parts
    }


def _row(planned: Plan, part: Part, found: Found) -> Row:
    """The row of an entry; a version is in the store under other bytes than its key's."""
    spec = planned.store.spec
    if planned.question.kind == "fetch" and spec.kind == "versioned":
        return looked_up_row(spec, planned.question.keys[part.numbers[found[0]]], found)
    return found_row(spec, found)


def _deadline(timeout: timedelta) -> float:
    return time.monotonic() + timeout.total_seconds()


def _unavailable(
    store: AskedStore, partition: int, bound: Bound, reasons: Mapping[str, str]
) -> StoreUnavailableError:
    said = "; ".join(f"{name}: {why}" for name, why in reasons.items() if why)
    standbys = "" if bound.lets_standbys else ", or let a standby answer: stale=True"
    return StoreUnavailableError(
        f"Nobody who may answer did so in time ({said or 'no instance has it'})",
        where={"store": store.spec.name, "partition": partition},
        hint=f"Ask again once the task is served{standbys}",
    )
