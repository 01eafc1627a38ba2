"""Functions of columns that look at nothing but the source's records are asked once for a slice.

Asked for one record at a time, Arrow's functions cost a hundred times as much. A function that
raises here is asked again where its record comes by: there the error has its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from penstock.errors import UserFunctionError
from penstock.processors.batch import Batch
from penstock.processors.column_calls import mapped, truths
from penstock.processors.depth_first.record import Answers
from penstock.processors.records import Int64s
from penstock.processors.stateless import transform
from penstock.topology import (
    BranchNode,
    ColumnFunction,
    DropNullKeyNode,
    FilterNode,
    MapNode,
    MapValuesNode,
    Node,
    SelectKeyNode,
    SourceNode,
    SplitNode,
    SubTopology,
)


def answers_ahead(sub_topology: SubTopology, source: SourceNode, batch: Batch) -> Answers:
    """What the functions of columns behind a source answer to its records."""
    found: dict[tuple[str, int], dict[int, Any]] = {}
    if len(batch) and any(_functions(node) for node in sub_topology.nodes):
        _Ahead(sub_topology, found).below(source, batch)
    return found


class _Ahead:
    def __init__(
        self, sub_topology: SubTopology, found: dict[tuple[str, int], dict[int, Any]]
    ) -> None:
        self._sub = sub_topology
        self._found = found

    def below(self, node: Node, batch: Batch) -> None:
        """Ask the functions behind a step that these rows come out of."""
        if not len(batch):
            return
        for name in node.children:
            child = self._sub.by_name[name]
            try:
                if isinstance(child, SplitNode):
                    self._split(child, batch)
                elif isinstance(child, DropNullKeyNode):
                    self.below(child, transform(child, batch, Counter(), rank=0))
                else:
                    self._through(child, batch)
            except UserFunctionError:
                continue

    def _through(self, node: Node, batch: Batch) -> None:
        match node:
            case FilterNode(predicate=ColumnFunction() as function):
                mask = truths(node.name, batch, function)
                self._note(node.name, function, batch.offsets, mask.tolist())
                self.below(node, batch.keep(~mask if node.negate else mask))
            case MapValuesNode(mapper=ColumnFunction() as function):
                [values] = mapped(node.name, batch, function)
                self._note(node.name, function, batch.offsets, values.objects())
                self.below(node, batch.replace(values=values))
            case SelectKeyNode(selector=ColumnFunction() as function):
                [keys] = mapped(node.name, batch, function)
                self._note(node.name, function, batch.offsets, keys.objects())
                self.below(node, batch.replace(keys=keys))
            case MapNode(mapper=ColumnFunction() as function):
                keys, values = mapped(node.name, batch, function)
                pairs = zip(keys.objects(), values.objects(), strict=True)
                self._note(node.name, function, batch.offsets, pairs)
                self.below(node, batch.replace(keys=keys, values=values))

    def _split(self, node: SplitNode, batch: Batch) -> None:
        for child in (self._sub.by_name[name] for name in node.children):
            predicate = child.predicate if isinstance(child, BranchNode) else None
            if predicate is None:
                self.below(child, batch)
                return
            if not isinstance(predicate, ColumnFunction) or not len(batch):
                return
            mask = truths(child.name, batch, predicate)
            self._note(node.name, predicate, batch.offsets, mask.tolist())
            self.below(child, batch.keep(mask))
            batch = batch.keep(~mask)

    def _note(
        self, step: str, function: ColumnFunction, offsets: Int64s, answers: Iterable[Any]
    ) -> None:
        self._found[step, id(function)] = dict(zip(offsets.tolist(), answers, strict=True))


def _functions(node: Node) -> bool:
    parts = ("predicate", "mapper", "selector")
    return any(isinstance(getattr(node, part, None), ColumnFunction) for part in parts)
