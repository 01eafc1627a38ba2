"""The steps of tables that keep nothing themselves: changes in, changes out.

A change has a new value and, where a step behind needs it, the old one. A filter does: a key that
it never let through needs no deletion.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.processors.batch import Batch, Column
from penstock.processors.calls import call_each
from penstock.processors.column_calls import mapped, truths
from penstock.topology import ColumnFunction, TableFilterNode, TableMapValuesNode

TableNode = TableFilterNode | TableMapValuesNode


def change_table(node: TableNode, batch: Batch) -> Batch:
    """The changes of the next table."""
    values = _changed(node, batch, batch.values)
    old = _changed(node, batch, batch.old) if node.sends_old and batch.old is not None else None
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
    known = batch.take(rows).replace(values=column.take(rows))
    answers = _mapped(node, known) if isinstance(node, TableMapValuesNode) else _kept(node, known)
    result: list[Any] = [None] * len(batch)
    for row, answer in zip(rows.tolist(), answers, strict=True):
        result[row] = answer
    return Column(objects=result)


def _mapped(node: TableMapValuesNode, known: Batch) -> list[Any]:
    if not isinstance(node.mapper, ColumnFunction):
        keys = (known.keys.objects(),) if node.with_key else ()
        return call_each(node.name, known, node.mapper, *keys, known.values.objects())
    [column] = mapped(node.name, known, node.mapper) if len(known) else [Column(objects=[])]
    return column.objects()


def _kept(node: TableFilterNode, known: Batch) -> list[Any]:
    values, predicate = known.values.objects(), node.predicate
    wanted: list[Any]
    if not isinstance(predicate, ColumnFunction):
        wanted = call_each(node.name, known, predicate, known.keys.objects(), values)
    else:
        wanted = truths(node.name, known, predicate).tolist() if len(known) else []
    try:
        return [
            value if bool(want) != node.negate else None
            for want, value in zip(wanted, values, strict=True)
        ]
    except Exception:
        # Some say neither yes nor no: which one is found here.
        call_each(node.name, known, bool, wanted)
        raise
