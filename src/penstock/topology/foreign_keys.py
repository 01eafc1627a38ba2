"""Joins of tables by a foreign key, as steps, stores and internal topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.serdes import Serde
from penstock.serdes.subscription import (
    CombinedKeySerde,
    Response,
    ResponseSerde,
    SubscriptionSerde,
)
from penstock.topology.draft import Draft, SerdeOrMissing, check_one_application, needed
from penstock.topology.flow import Flow
from penstock.topology.holding import Store, TableOptions, history_of, name_of, table_store
from penstock.topology.naming import check_name
from penstock.topology.nodes import (
    AggregateNode,
    AnswerRowNode,
    AnswerSubscriptionNode,
    LatestNode,
    Node,
    RegisterNode,
    ResolveNode,
    SinkNode,
    SourceNode,
    StoreSpec,
    SubscribeNode,
)
from penstock.topology.sinks import Partitioner

SUBSCRIPTION_REGISTRATION = "SUBSCRIPTION-REGISTRATION"
SUBSCRIPTION_PROCESSOR = "SUBSCRIPTION-PROCESSOR"


@dataclass(frozen=True, kw_only=True)
class ForeignKeyJoin:
    """What a join by a foreign key asks for."""

    joiner: Callable[..., Any]
    extractor: Callable[..., Any]
    with_key: bool = False
    left: bool
    value: SerdeOrMissing
    store: Store | None
    kept: TableOptions
    name: str | None
    partitioner: Partitioner | None = None
    """Where keys of the left table are."""
    other_partitioner: Partitioner | None = None
    """Where keys of the right table are."""


def join_foreign_key(left: Flow, right: Flow, join: ForeignKeyJoin) -> Flow:
    """The table of left rows, each with the right row that it refers to."""
    _check(left, right, join)
    draft = left.draft
    base = join.name or name_of(join.store) or draft.unique(_base(left, right))
    names = _Names(draft, base, numbered=join.name is None and draft.names == "kafka_streams")
    where = f"The foreign-key join {base!r}"
    key, left_value = needed(left.key, "key", where), needed(left.value, "value", where)
    foreign, right_value = needed(right.key, "key", where), needed(right.value, "value", where)
    topic = names.topic(SUBSCRIPTION_REGISTRATION)
    # Keys inside of keys and values, and what is hashed, are told topics of Kafka Streams' names.
    told_key = key.for_topic(f"{topic}-pk", "key")
    told_foreign = foreign.for_topic(f"{topic}-fk", "key")
    hashed = left_value.for_topic(f"{topic}-vh", "value")
    subscribe = SubscribeNode(
        name=names.step("subscription-registration-processor", SUBSCRIPTION_REGISTRATION),
        extractor=join.extractor,
        with_key=join.with_key,
        left=join.left,
        foreign_serde=told_foreign,
        value_serde=hashed,
        versioned=left.history_ms is not None,
    )
    draft.add(subscribe, after=[left.step])
    registered = _through_topic(
        draft,
        names,
        "subscription-registration",
        topic,
        [subscribe.name],
        foreign,
        SubscriptionSerde(told_key),
        partitioner=join.other_partitioner,
        by_key_alone=join.other_partitioner is not None,
    )
    told = _right_side(draft, names, registered, right, CombinedKeySerde(told_foreign, told_key))
    draft.join_partitions(registered, right.step, step=told[0])
    answered = _through_topic(
        draft,
        names,
        "subscription-response",
        names.topic("SUBSCRIPTION-RESPONSE"),
        told,
        key,
        ResponseSerde(right_value),
        partitioner=join.partitioner or _told_partition,
        by_key_alone=join.partitioner is not None,
    )
    resolve = ResolveNode(
        name=names.step(
            "subscription-response-resolver", "SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR"
        ),
        reads=left.reads,
        table=left.step,
        joiner=join.joiner,
        with_key=join.with_key,
        left=join.left,
        value_serde=hashed,
    )
    draft.add(resolve, after=[answered])
    draft.join_partitions(answered, left.step, step=resolve.name)
    return _result(draft, names, resolve.name, key, join)


def _right_side(
    draft: Draft, names: _Names, registered: str, right: Flow, combined: CombinedKeySerde
) -> list[str]:
    """The steps that keep who asked and tell them the right row, behind the source of questions.

    Returns those that tell.
    """
    store = names.step("subscription-store", "SUBSCRIPTION-STATE-STORE")
    subscriptions = SubscriptionSerde(combined.left)
    plain = StoreSpec(name=store, key_serde=combined, value_serde=subscriptions, caching=False)
    draft.add_store(replace(plain, persistent=draft.keeps(None)))
    register = RegisterNode(
        name=names.step("subscription-receive", SUBSCRIPTION_PROCESSOR), store=store
    )
    draft.add(register, after=[registered])
    answer = AnswerSubscriptionNode(
        name=names.step("subscription-join-foreign", SUBSCRIPTION_PROCESSOR),
        reads=right.reads,
        table=right.step,
    )
    draft.add(answer, after=[register.name])
    row_name = names.step("foreign-join-subscription", SUBSCRIPTION_PROCESSOR)
    row = AnswerRowNode(name=row_name, store=store, versioned=right.history_ms is not None)
    draft.add(row, after=[right.step])
    return [answer.name, row.name]


def _told_partition(_key: Any, response: Response, _count: int) -> int | None:
    """The left row's own partition, which it told: its key may have been partitioned otherwise.

    One that came of a punctuator, or from an old Java application, told none.
    """
    return response.partition if response.partition >= 0 else None


def _check(left: Flow, right: Flow, join: ForeignKeyJoin) -> None:
    check_one_application(left.draft, right.draft)
    for name, what in ((join.name, "join"), (name_of(join.store), "store")):
        if name is not None:
            check_name(name, what, step=f"join of {left.step}")


def _base(left: Flow, right: Flow) -> str:
    return f"{left.origin}-{right.origin}-foreign-key"


class _Names:
    """The names of a join's many parts: numbered as in Java, or after the join."""

    def __init__(self, draft: Draft, base: str, *, numbered: bool) -> None:
        self._draft = draft
        self._base = base
        self._numbered = numbered

    def step(self, suffix: str, kind: str, *, prefix: str = "KTABLE-FK-JOIN-") -> str:
        """A part's name; it uses up a number either way."""
        number = self._draft.number(f"{prefix}{kind}-")
        return number if self._numbered else f"{self._base}-{suffix}"

    def store(self, suffix: str, kind: str) -> str:
        """The result's store; in Java it has a number even if the join has a name."""
        number = self._draft.number(f"KTABLE-FK-JOIN-{kind}-")
        return number if self._draft.names == "kafka_streams" else f"{self._base}-{suffix}"

    def topic(self, kind: str) -> str:
        """An internal topic's name."""
        return f"{self.step(kind.lower(), kind)}-topic"


def _through_topic(
    draft: Draft,
    names: _Names,
    suffix: str,
    topic: str,
    parents: list[str],
    key: Serde[Any],
    value: Serde[Any],
    *,
    partitioner: Partitioner | None,
    by_key_alone: bool,
) -> str:
    """Send what steps give through an internal topic; returns its source."""
    key, value = key.for_topic(topic, "key"), value.for_topic(topic, "value")
    sink = SinkNode(
        name=names.step(f"{suffix}-sink", "SINK", prefix="KTABLE-"),
        topic=topic,
        key_serde=key,
        value_serde=value,
        repartition=True,
        partitioner=partitioner,
        by_key_alone=by_key_alone,
    )
    draft.add(sink, after=parents)
    source = SourceNode(
        name=names.step(f"{suffix}-source", "SOURCE", prefix="KTABLE-"),
        topics=(topic,),
        key_serde=key,
        value_serde=value,
        repartition=True,
    )
    return draft.add_source(source)


def _result(
    draft: Draft, names: _Names, parent: str, key: Serde[Any], join: ForeignKeyJoin
) -> Flow:
    step = names.step("result", "OUTPUT")
    store = name_of(join.store) or names.store("result-store", "OUTPUT-STATE-STORE")
    value = needed(join.value, "value", f"The store {store!r}")
    spec = table_store(draft, join.store, store, key=key, value=value, options=join.kept)
    draft.add_store(spec, behind=parent)
    node: Node = LatestNode(name=step, store=store)
    if join.store is not None:
        node = AggregateNode(name=step, kind="latest", store=store)
    draft.add(node, after=[parent])
    return Flow(draft, step, key, value, origin=store, reads=(store,), history_ms=history_of(spec))
