"""Joins of streams with global tables, which every instance holds whole."""

from __future__ import annotations

from typing import Any

from penstock.processors.depth_first.record import Record, Shared
from penstock.processors.depth_first.state import KeyValueState
from penstock.processors.depth_first.steps import Step
from penstock.topology import GlobalJoinNode


class GlobalJoin(Step):
    """Joins a record with the row of the key that the selector names."""

    def __init__(self, shared: Shared, node: GlobalJoinNode, state: KeyValueState) -> None:
        super().__init__(node.name, shared)
        self._node = node
        self._state = state

    def process(self, record: Record) -> None:
        node = self._node
        key = self.call(node.selector, record.key, record.value)
        if record.value is None or (key is None and not node.left):
            self.shared.drop("null_key" if key is None else "null_value")
            return
        right = None if key is None else self._row(key)
        if right is not None or node.left:
            given = (record.key, record.value) if node.with_key else (record.value,)
            self.forward(record.with_value(self.call(node.joiner, *given, right)))

    def _row(self, key: Any) -> Any:
        data = self.shared.encode(self.name, self._node.table.key_serde, key, "key")
        assert data is not None
        stored = self._state.get(data)
        if stored is None:
            return None
        table = self._node.table
        return self.shared.decode(self.name, table.name, table.value_serde, stored.value, key)
