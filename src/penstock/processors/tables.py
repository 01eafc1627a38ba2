"""The steps of tables that keep nothing themselves: changes in, changes out.

A change has a new value and, where a step behind needs it, the old one. A filter does: a key that
it never let through needs no deletion.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.processors.batch import Batch, Column
from penstock.processors.calls import call_each
from penstock.topology import TableFilterNode, TableMapValuesNode

TableNode = TableFilterNode | TableMapValuesNode


def change_table(node: TableNode, batch: Batch) -> Batch:
    """The changes of the next table."""
    values = _changed(node, batch, batch.values)
    old = None if batch.old is None else _changed(node, batch, batch.old)
    changed = batch.replace(values=values, old=old)
    if old is None or isinstance(node, TableMapValuesNode):
        return changed
    new_is, old_is = values.present(), old.present()
    if new_is is None or old_is is None:
        return changed
    return changed.keep(new_is | old_is)


def _changed(node: TableNode, batch: Batch, column: Column) -> Column:
    """The column behind the step; its function never sees a deletion."""
    present = column.present()
    rows = np.arange(len(batch)) if present is None else np.flatnonzero(present)
    known, values = batch.take(rows), column.take(rows).objects()
    if isinstance(node, TableMapValuesNode):
        answers = call_each(node.name, known, node.mapper, values)
    else:
        wanted = call_each(node.name, known, node.predicate, known.keys.objects(), values)
        answers = [
            value if bool(want) != node.negate else None
            for want, value in zip(wanted, values, strict=True)
        ]
    result: list[Any] = [None] * len(batch)
    for row, answer in zip(rows.tolist(), answers, strict=True):
        result[row] = answer
    return Column(objects=result)
