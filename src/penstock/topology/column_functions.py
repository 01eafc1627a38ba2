"""Functions of columns in their steps.

A step holds a `ColumnFunction`. It can be given columns, or be called for one record as any other
function: then the columns have one row. So both ways of computing a slice can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from penstock.serdes import LongSerde, Serde
from penstock.serdes.columns import column_form

Part = Literal["key", "value", "timestamp"]
Columns = Mapping[Part, Any]
"""An Arrow array each, or a list where Arrow has nothing for the values."""

PAIR: tuple[Part, ...] = ("key", "value")
VALUE: tuple[Part, ...] = ("value",)
TIMESTAMPS = LongSerde()


class Evaluator(Protocol):
    """What computes columns of columns."""

    def evaluate(self, columns: Columns, rows: int) -> tuple[Any, ...]:
        """The resulting columns, for so many rows."""


@dataclass(frozen=True)
class Called:
    """A user's function of columns; with `pair` it returns two of them."""

    function: Callable[..., Any]
    takes: tuple[Part, ...]
    pair: bool

    def evaluate(self, columns: Columns, rows: int) -> tuple[Any, ...]:
        """What the function returns; raises `TypeError` if a pair was due and did not come."""
        del rows  # Only those who look at no column need to be told.
        result = self.function(*(columns[part] for part in self.takes))
        if not self.pair:
            return (result,)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"it returned {type(result).__name__}, not a pair of columns")
        return result


@dataclass(frozen=True)
class Result:
    """A column that comes out: of a serde's values, of truths, or of what nobody named."""

    serde: Serde[Any] | None = None
    truths: bool = False

    def checked(self, column: Any, rows: int) -> pa.Array | list[Any]:
        """The column in the type that it must have; `TypeError` or `ValueError` if it cannot."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
            # Depending on its release, pyarrow makes one array or still a chunked one.
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        form = None if self.serde is None else column_form(self.serde)
        kind = pa.bool_() if self.truths else None if form is None else form.type
        if not isinstance(column, pa.Array | list):
            raise TypeError(f"it returned {type(column).__name__}, not a column ({kind or 'list'})")
        if len(column) != rows:
            raise ValueError(f"it returned {len(column)} rows for {rows}")
        if kind is None:
            return column if isinstance(column, list) else column.to_pylist()
        return fitted(column, kind)

    def objects(self, column: pa.Array | list[Any]) -> list[Any]:
        """The Python values of a checked column."""
        if isinstance(column, list):
            return column
        form = None if self.serde is None else column_form(self.serde)
        values: list[Any] = column.to_pylist() if form is None else form.values(column)
        return values


@dataclass(frozen=True)
class ColumnFunction:
    """A function of columns in a step; `inputs` are the columns that it looks at."""

    evaluator: Evaluator
    inputs: tuple[tuple[Part, Serde[Any]], ...]
    results: tuple[Result, ...]

    def __call__(self, key: Any, value: Any, timestamp: int = -1) -> Any:
        """The answer for one record: a value, or a pair."""
        given: dict[Part, Any] = {"key": key, "value": value, "timestamp": timestamp}
        columns = {part: column_of(serde, [given[part]]) for part, serde in self.inputs}
        answers = self.on_columns(columns, 1)
        values = [
            result.objects(answer)[0] for result, answer in zip(self.results, answers, strict=True)
        ]
        return values[0] if len(values) == 1 else tuple(values)

    def on_columns(self, columns: Columns, rows: int) -> list[pa.Array | list[Any]]:
        """The answers for these rows, each in the type that it must have."""
        answers = self.evaluator.evaluate(columns, rows)
        return [
            result.checked(answer, rows)
            for result, answer in zip(self.results, answers, strict=True)
        ]


def column_of(serde: Serde[Any], values: Sequence[Any]) -> pa.Array | list[Any]:
    """A column of values: an Arrow array, or a list where Arrow has nothing for them."""
    form = column_form(serde)
    return list(values) if form is None else form.column(values)


def fitted(column: pa.Array | list[Any], kind: pa.DataType) -> pa.Array:
    """The column in this type, if no value changes by that; `TypeError` or `ValueError` if not."""
    try:
        if isinstance(column, list):
            return pa.array(column, type=kind, from_pandas=False)
        if column.type == kind:
            return column
        if not fits(column.type, kind):
            raise TypeError(f"it returned a column of {column.type}, not of {kind}")
        return column.cast(kind)
    except pa.ArrowException as error:
        raise ValueError(f"it returned a column that is none of {kind}: {error}") from error


def fits(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of one type may be meant as those of another."""
    types = pa.types
    if types.is_dictionary(given):
        return fits(given.value_type, kind)
    families: list[Callable[[pa.DataType], bool]] = [
        types.is_integer,
        types.is_floating,
        lambda t: types.is_string(t) or types.is_large_string(t) or types.is_string_view(t),
        lambda t: types.is_binary(t) or types.is_large_binary(t) or types.is_binary_view(t),
        types.is_timestamp,
        types.is_date,
        types.is_boolean,
        types.is_struct,
        types.is_map,
        lambda t: types.is_list(t) or types.is_large_list(t),
    ]
    if types.is_null(given) or (types.is_integer(given) and types.is_floating(kind)):
        return True
    if types.is_struct(given) and types.is_struct(kind):
        named = {field.name for field in given} == {field.name for field in kind}
        return named and all(fits(given.field(f.name).type, f.type) for f in kind)
    return any(family(given) and family(kind) for family in families)
