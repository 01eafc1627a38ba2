"""Joins of tables by a foreign key, as steps, stores and internal topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import TopologyError
from penstock.serdes import Serde
from penstock.serdes.subscription import CombinedKeySerde, ResponseSerde, SubscriptionSerde
from penstock.topology.draft import Draft, SerdeOrMissing, needed
from penstock.topology.flow import Flow
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


@dataclass(frozen=True, kw_only=True)
class ForeignKeyJoin:
    """What a join by a foreign key asks for."""

    joiner: Callable[[Any, Any], Any]
    extractor: Callable[[Any], Any]
    left: bool
    value: SerdeOrMissing
    store: str | None
    caching: bool
    logging: bool
    name: str | None


def join_foreign_key(left: Flow, right: Flow, join: ForeignKeyJoin) -> Flow:
    """The table of left rows, each with the right row that it refers to."""
    if left.draft is not right.draft:
        raise TopologyError(
            "The two tables belong to different applications",
            hint="Make both from one Application or StreamsBuilder",
        )
    draft = left.draft
    base = join.name or join.store or f"{left.origin}-{right.origin}-foreign-key"
    names = _Names(draft, base, numbered=join.name is None and draft.names == "kafka_streams")
    where = f"The foreign-key join {base!r}"
    key, left_value = needed(left.key, "key", where), needed(left.value, "value", where)
    foreign, right_value = needed(right.key, "key", where), needed(right.value, "value", where)
    subscriptions = SubscriptionSerde(key)

    registered = _through_topic(
        draft,
        SubscribeNode(
            name=names.step("SUBSCRIPTION-REGISTRATION"),
            extractor=join.extractor,
            left=join.left,
            value_serde=left_value,
        ),
        left.step,
        names.topic("SUBSCRIPTION-REGISTRATION"),
        foreign,
        subscriptions,
    )
    store = names.store("SUBSCRIPTION-STATE-STORE")
    draft.add_store(
        StoreSpec(
            name=store,
            key_serde=CombinedKeySerde(foreign, key),
            value_serde=subscriptions,
            caching=False,
        )
    )
    register = RegisterNode(name=names.step("SUBSCRIPTION-PROCESSOR"), store=store)
    draft.add(register, after=[registered])
    answer = AnswerSubscriptionNode(
        name=names.step("SUBSCRIPTION-JOIN"), reads=right.reads, table=right.step
    )
    draft.add(answer, after=[register.name])
    row = AnswerRowNode(name=names.step("ROW-JOIN"), store=store)
    draft.add(row, after=[right.step])
    draft.join_partitions(registered, right.step)
    answered = _answers(draft, names, [answer.name, row.name], key, ResponseSerde(right_value))
    draft.join_partitions(answered, left.step)
    resolve = ResolveNode(
        name=names.step("RESPONSE-RESOLVER"),
        reads=left.reads,
        table=left.step,
        joiner=join.joiner,
        left=join.left,
        value_serde=left_value,
    )
    draft.add(resolve, after=[answered])
    return _result(draft, names, resolve.name, key, join)


class _Names:
    """The names of a join's many parts: numbered as in Java, or after the join."""

    def __init__(self, draft: Draft, base: str, *, numbered: bool) -> None:
        self._draft = draft
        self._base = base
        self._numbered = numbered
        self._made: dict[str, str] = {}

    def step(self, part: str) -> str:
        """A step's name."""
        number = self._draft.number(f"KTABLE-FK-JOIN-{part}-")
        name = number if self._numbered else f"{self._base}-{part.lower()}"
        self._made[part] = name
        return name

    def topic(self, part: str) -> str:
        """An internal topic's name: that of the step that writes it."""
        name = self._made.get(part) or self.step(part)
        return f"{name}-topic"

    def store(self, part: str) -> str:
        """A store's name."""
        return self.step(part)


def _through_topic(
    draft: Draft, node: SubscribeNode, parent: str, topic: str, key: Serde[Any], value: Serde[Any]
) -> str:
    draft.add(node, after=[parent])
    sink = SinkNode(
        name=f"{topic}-sink", topic=topic, key_serde=key, value_serde=value, repartition=True
    )
    draft.add(sink, after=[node.name])
    return _source(draft, topic, key, value)


def _answers(
    draft: Draft, names: _Names, steps: list[str], key: Serde[Any], value: ResponseSerde
) -> str:
    topic = names.topic("SUBSCRIPTION-RESPONSE")
    sink = SinkNode(
        name=f"{topic}-sink",
        topic=topic,
        key_serde=key,
        value_serde=value,
        repartition=True,
        # The left row's own partition, which it told: its key may have been partitioned otherwise.
        partitioner=lambda key, response, count: response.partition,
    )
    draft.add(sink, after=steps)
    return _source(draft, topic, key, value)


def _source(draft: Draft, topic: str, key: Serde[Any], value: Serde[Any]) -> str:
    return draft.add_source(
        SourceNode(
            name=f"{topic}-source",
            topics=(topic,),
            key_serde=key,
            value_serde=value,
            repartition=True,
        )
    )


def _result(
    draft: Draft, names: _Names, parent: str, key: Serde[Any], join: ForeignKeyJoin
) -> Flow:
    store = join.store or names.store("OUTPUT-STATE-STORE")
    step = names.step("OUTPUT")
    value = needed(join.value, "value", f"The store {store!r}")
    draft.add_store(
        StoreSpec(
            name=store,
            key_serde=key,
            value_serde=value,
            caching=join.caching,
            logging=join.logging,
        )
    )
    node: Node = LatestNode(name=step, store=store)
    if join.store is not None:
        node = AggregateNode(name=step, kind="latest", store=store)
    draft.add(node, after=[parent])
    return Flow(draft, step, key, value, origin=store, reads=(store,))
