"""Calls the user's functions: a bare loop in C, and a full account of the call that failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError, UserFunctionError
from penstock.processors.batch import Batch, Column, UnreadableError
from penstock.processors.user_faults import function_error, refused_error
from penstock.serdes import Serde


def call_each(
    step: str, batch: Batch, function: Callable[..., Any], *arguments: Sequence[Any]
) -> list[Any]:
    """What the function returns for each row."""
    results: list[Any] = []
    try:
        # On an exception `extend` keeps what it has, so its length is the index that failed.
        results.extend(map(function, *arguments))
        if len(results) < len(batch):
            stop(function, *(each[len(results)] for each in arguments))
    except Exception as error:
        raise user_error(step, batch, len(results), error) from error
    return results


def stop(function: Callable[..., Any], *arguments: Any) -> None:
    """Raise the `StopIteration` of a function: `map` takes it for its own end, and says nothing.

    (`next(...)` of what has nothing raises it, as users' functions write.)
    """
    function(*arguments)
    raise StopIteration


def user_error(step: str, batch: Batch, row: int, error: Exception) -> UserFunctionError:
    """The error of a user's function, with the record's coordinates."""
    return function_error(step, error, coordinates(step, batch, row))


def coordinates(step: str, batch: Batch, row: int) -> dict[str, object]:
    """Where a row came from."""
    return {
        "topic": batch.topic_of(row),
        "partition": batch.partition,
        "offset": int(batch.offsets[row]),
        "step": step,
    }


def unreadable(step: str, batch: Batch, error: UnreadableError) -> UserFunctionError:
    """The error of a step whose input, or what a store has, cannot be read: of its first row."""
    rows = (row for row in range(len(batch)) if not _is_readable(batch, row))
    row = next(rows, None)
    where = {"topic": batch.topic, "partition": batch.partition, "step": step}
    return UserFunctionError(
        f"Step {step} cannot read what it is given {error}",
        where=where if row is None else coordinates(step, batch, row),
        hint="Give the step or the store before it a serde that reads what it writes",
    )


def _is_readable(batch: Batch, row: int) -> bool:
    one = batch.take(np.array([row], dtype=np.int64))
    try:
        one.keys.objects()
        one.values.objects()
    except UnreadableError:
        return False
    return True


def encode(step: str, batch: Batch, column: Column, serde: Serde[Any], what: str) -> pa.BinaryArray:
    """The column's bytes, or an error that names the first value that the serde refuses."""
    try:
        return column.binary(serde)
    except (PenstockError, OSError):
        raise
    except Exception as error:
        for row, value in enumerate(column.objects()):
            if value is not None:
                _check_value(step, batch, row, value, serde, what)
        raise _refused(step, batch, 0, error, serde, what) from error


def _check_value(
    step: str, batch: Batch, row: int, value: Any, serde: Serde[Any], what: str
) -> None:
    try:
        serde.serialize(value)
    except Exception as error:
        raise _refused(step, batch, row, error, serde, what) from error


def _refused(
    step: str, batch: Batch, row: int, error: Exception, serde: Serde[Any], what: str
) -> UserFunctionError:
    return refused_error(step, serde, what, error, coordinates(step, batch, row))
