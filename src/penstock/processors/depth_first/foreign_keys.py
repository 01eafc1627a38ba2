"""Joins of tables by a foreign key: left rows subscribe to right ones, which answer.

left change → Subscribe ─ topic ─▶ Register → AnswerSubscription ─┐
                                   right change → AnswerRow ──────┴─ topic ─▶ Resolve → result
"""

from __future__ import annotations

from typing import Any

from penstock.processors.depth_first.record import Record, Shared
from penstock.processors.depth_first.state import KeyValueState, after_prefix
from penstock.processors.depth_first.steps import Step, View
from penstock.serdes import Change
from penstock.serdes.murmur3 import murmur3_128
from penstock.serdes.subscription import (
    CombinedKeySerde,
    Instruction,
    Response,
    Subscription,
    SubscriptionSerde,
    foreign_prefix,
)
from penstock.topology import (
    AnswerRowNode,
    AnswerSubscriptionNode,
    RegisterNode,
    ResolveNode,
    StoreSpec,
    SubscribeNode,
)


class Subscribe(Step):
    """Tells the right side which row a left one refers to."""

    def __init__(self, shared: Shared, node: SubscribeNode) -> None:
        super().__init__(node.name, shared)
        self._node = node

    def process(self, record: Record) -> None:
        change: Change = record.value
        if self._node.versioned and not change.latest:
            self.shared.drop("out_of_order")
            return
        old = self._foreign(record.key, change.old)
        new = self._foreign(record.key, change.new)
        if self._node.left:
            self._left_join(record, change, old, new)
        else:
            self._inner_join(record, change, old, new)

    def _left_join(self, record: Record, change: Change, old: Any, new: Any) -> None:
        if change.new is None and change.old is None:
            return
        if old is not None and self._is_another(old, new):
            self._send(record, old, Instruction.DELETE)
        # A left join has a result for every left row, so there is an answer in every case.
        self._send(record, new, Instruction.TELL_ALWAYS)

    def _inner_join(self, record: Record, change: Change, old: Any, new: Any) -> None:
        if new is None and old is not None:
            self._send(record, old, Instruction.DELETE_AND_TELL)
        elif new is None:
            # As in Kafka Streams, the deletion of a row counts too that never referred to anything.
            if change.new is not None or change.old is not None:
                self.shared.drop("null_foreign_key")
        elif old is None or not self._is_another(old, new):
            self._send(record, new, Instruction.TELL_IF_FOUND)
        else:
            self._send(record, old, Instruction.DELETE)
            self._send(record, new, Instruction.TELL_ALWAYS)

    def _is_another(self, old: Any, new: Any) -> bool:
        """Whether two foreign keys are of different rows: objects need not know when they are."""
        before, after = (
            self.shared.encode(self.name, self._node.foreign_serde, each, "foreign key")
            for each in (old, new)
        )
        return before != after

    def _foreign(self, key: Any, value: Any) -> Any:
        if value is None:
            return None
        node = self._node
        return self.call(node.extractor, *((key, value) if node.with_key else (value,)))

    def _send(self, record: Record, foreign: Any, instruction: Instruction) -> None:
        change: Change = record.value
        data = self.shared.encode(self.name, self._node.value_serde, change.new, "value")
        subscription = Subscription(
            None if data is None else murmur3_128(data),
            instruction,
            record.key,
            self.shared.context.partition,
        )
        self.forward(Record(foreign, subscription, record.timestamp, record.headers))


class Register(Step):
    """Keeps who refers to which right row."""

    def __init__(
        self, shared: Shared, node: RegisterNode, spec: StoreSpec, state: KeyValueState
    ) -> None:
        super().__init__(node.name, shared)
        assert isinstance(spec.key_serde, CombinedKeySerde)
        self._keys = spec.key_serde
        self._values = spec.value_serde
        self._state = state

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        if record.key is None and subscription.instruction != Instruction.TELL_ALWAYS:
            self.shared.drop("null_key")
            return
        if record.key is not None:
            self._keep(record, subscription)
        self.forward(record)

    def _keep(self, record: Record, subscription: Subscription) -> None:
        key = self._keys.serialize((record.key, subscription.key))
        deletes = subscription.instruction in (Instruction.DELETE, Instruction.DELETE_AND_TELL)
        value = None if deletes else self._values.serialize(subscription)
        self._state.put(key, value, record.timestamp)
        self._state.log(key, value, record.timestamp)


class AnswerSubscription(Step):
    """Answers a left row with the right row that there is now."""

    def __init__(self, shared: Shared, node: AnswerSubscriptionNode, table: View) -> None:
        super().__init__(node.name, shared)
        self._table = table

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        row = None if record.key is None else self._table.get(record.key)
        value, timestamp = None, record.timestamp
        if row is not None:
            value, timestamp = row.value, max(timestamp, row.timestamp)
        match subscription.instruction:
            case Instruction.DELETE:
                return
            case Instruction.DELETE_AND_TELL:
                value = None
            case Instruction.TELL_IF_FOUND if row is None:
                return
        response = Response(subscription.value_hash, value, subscription.partition)
        self.forward(Record(subscription.key, response, timestamp, record.headers))


class AnswerRow(Step):
    """Tells everyone who refers to a right row that it changed."""

    def __init__(
        self, shared: Shared, node: AnswerRowNode, spec: StoreSpec, state: KeyValueState
    ) -> None:
        super().__init__(node.name, shared)
        assert isinstance(spec.key_serde, CombinedKeySerde)
        assert isinstance(spec.value_serde, SubscriptionSerde)
        self._keys = spec.key_serde
        self._values = spec.value_serde
        self._state = state
        self._versioned = node.versioned

    def process(self, record: Record) -> None:
        if record.key is None:
            self.shared.drop("null_key")
            return
        change: Change = record.value
        if self._versioned and not change.latest:
            self.shared.drop("out_of_order")
            return
        bounds = subscription_range(self._keys.foreign.serialize(record.key))
        for _, stored in list(self._state.range(*bounds)):
            decode, store = self.shared.decode, self._state.store
            subscription = decode(self.name, store, self._values, stored.value, record.key)
            response = Response(subscription.value_hash, change.new, subscription.partition)
            self.forward(Record(subscription.key, response, record.timestamp, record.headers))


class Resolve(Step):
    """Joins an answer with the left row, if that is still the one which asked."""

    def __init__(self, shared: Shared, node: ResolveNode, table: View) -> None:
        super().__init__(node.name, shared)
        self._node = node
        self._table = table

    def process(self, record: Record) -> None:
        response: Response = record.value
        row = self._table.get(record.key)
        now = None
        if row is not None:
            data = self.shared.encode(self.name, self._node.value_serde, row.value, "value")
            now = None if data is None else murmur3_128(data)
        if now != response.value_hash:
            self.shared.drop("stale_foreign_key_answer")
            return
        result = None
        if response.value is not None or (self._node.left and row is not None):
            left = None if row is None else row.value
            given = (record.key, left) if self._node.with_key else (left,)
            result = self.call(self._node.joiner, *given, response.value)
        self.forward(record.with_value(result))


def subscription_range(foreign: bytes) -> tuple[bytes, bytes | None]:
    """Between which stored keys all lie that refer to a right row of this key."""
    prefix = foreign_prefix(foreign)
    return prefix, after_prefix(prefix)
