"""Which steps of tables keep rows that nobody named a store for, and which say what a row was.

Kafka Streams decides it call by call: a step asks the table before it, and what that one answers
depends on who has asked before. A filter that comes before the step that makes a table keep its
rows passes deletions on that a filter behind that step leaves out. So the calls are gone through
again, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.topology.nodes import (
    AnswerRowNode,
    LatestNode,
    Node,
    ReadingNode,
    SubscribeNode,
    SuppressNode,
    TableFilterNode,
    TableJoinNode,
    TableMapValuesNode,
    TableMergeNode,
    TableSelectNode,
    TableTransformValuesNode,
)

_ROW_BY_ROW = TableFilterNode | TableMapValuesNode | TableTransformValuesNode
_NEED_OLD = TableSelectNode | SubscribeNode | AnswerRowNode | SuppressNode


class OldValues:
    """The steps of a topology that keep rows (`held`) and that say what each was (`senders`).

    `nodes` are in the order in which they were written.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.held: set[str] = set()
        self.senders: set[str] = set()
        self._nodes = nodes
        self._parents: dict[str, list[str]] = {name: [] for name in nodes}
        for node in nodes.values():
            for child in node.children:
                self._parents[child].append(node.name)
        self._latest = {
            node.store: node.name for node in nodes.values() if isinstance(node, LatestNode)
        }
        for node in nodes.values():
            self._write(node)

    def _write(self, node: Node) -> None:
        """What a step asks for when it is written."""
        if isinstance(node, _NEED_OLD) or (isinstance(node, TableJoinNode) and node.here_outer):
            self._ask_parents(node.name, force=True)
        # It leaves deletions out that it need not tell, where that costs no store.
        if isinstance(node, TableFilterNode) and self._ask(node.parent, force=False):
            self.senders.add(node.name)
        if isinstance(node, ReadingNode):
            self.held.update(self._latest[store] for store in node.reads if store in self._latest)

    def _ask(self, name: str, *, force: bool) -> bool:
        """Ask a step to say what its rows were; with `force` a store is made if it takes one."""
        node = self._nodes[name]
        if isinstance(node, LatestNode):
            if not force and name not in self.held:
                return False
            self.held.add(name)
        elif isinstance(node, _ROW_BY_ROW):
            if node.store is None and not self._ask(node.parent, force=force):
                return name in self.senders
        elif isinstance(node, TableJoinNode):
            self._ask(node.parent, force=True)
            self._ask(node.other, force=True)
        elif isinstance(node, TableMergeNode):
            self._ask_parents(name, force=True)
        elif isinstance(node, SuppressNode):
            return self._ask(node.parent, force=force)
        self.senders.add(name)
        return True

    def _ask_parents(self, name: str, *, force: bool) -> None:
        for parent in self._parents[name]:
            self._ask(parent, force=force)
