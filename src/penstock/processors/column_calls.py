"""Calls the user's functions of columns, for all rows at once."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import UserFunctionError
from penstock.processors.batch import Batch, Bools, Column
from penstock.processors.calls import coordinates, user_error
from penstock.serdes import Serde
from penstock.topology import ColumnFunction
from penstock.topology.column_functions import Part


def truths(step: str, batch: Batch, function: ColumnFunction) -> Bools:
    """Which rows a predicate is true of; a null counts as false, as `None` does."""
    [answers] = _answers(step, batch, function)
    assert isinstance(answers, pa.Array)
    mask: Bools = answers.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def mapped(step: str, batch: Batch, function: ColumnFunction) -> list[Column]:
    """The columns that a function makes."""
    columns = []
    answers = _answers(step, batch, function)
    for result, answer in zip(function.results, answers, strict=True):
        if isinstance(answer, list):
            columns.append(Column(objects=answer, serde=result.serde))
            continue
        column = Column(arrow=answer, serde=result.serde)
        if pa.types.is_nested(answer.type):
            # Fields that may not be null are: this must be found out here, not somewhere later.
            _check_values(step, batch, column)
        columns.append(column)
    return columns


def _check_values(step: str, batch: Batch, column: Column) -> None:
    try:
        column.check()
    except ValueError as error:
        raise _refused(step, batch, 0, error) from error


def _answers(step: str, batch: Batch, function: ColumnFunction) -> list[pa.Array | list[Any]]:
    if (step, 0) in batch.computed:
        return [batch.computed[step, number] for number in range(len(function.results))]
    columns = {part: _input(step, batch, part, serde) for part, serde in function.inputs}
    try:
        return function.on_columns(columns, len(batch))
    except Exception as error:
        row = _failing_row(function, columns, len(batch))
        raise user_error(step, batch, row, error) from error


def _failing_row(function: ColumnFunction, columns: dict[Part, Any], rows: int) -> int:
    """The first row that fails alone, found by halves; the first of all if none does alone."""
    first, count = 0, rows
    while count > 1:
        half = count // 2
        if _fails(function, columns, first, half):
            count = half
        else:
            first, count = first + half, count - half
    return first if _fails(function, columns, first, 1) else 0


def _fails(function: ColumnFunction, columns: dict[Part, Any], first: int, count: int) -> bool:
    some = {part: column[first : first + count] for part, column in columns.items()}
    with contextlib.suppress(Exception):
        function.on_columns(some, count)
        return False
    return True


def _input(step: str, batch: Batch, part: Part, serde: Serde[Any]) -> pa.Array | list[Any]:
    if part == "timestamp":
        return pa.array(batch.timestamps)
    column = batch.keys if part == "key" else batch.values
    try:
        return column.arrow(serde)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        for row in range(len(batch)):
            try:
                column.take(np.array([row], dtype=np.int64)).arrow(serde)
            except (TypeError, ValueError, OverflowError, AttributeError) as first:
                raise _refused(step, batch, row, first) from first
        raise _refused(step, batch, 0, error) from error


def _refused(step: str, batch: Batch, row: int, error: Exception) -> UserFunctionError:
    return UserFunctionError(
        f"Step {step} has a value that does not fit into its column: {error}",
        where=coordinates(step, batch, row),
        hint="Return the type that the topology names, or name another by key= or value=",
    )
