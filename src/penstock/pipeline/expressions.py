"""Expressions that Spark computes itself, as further columns of the rows that it reads."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.processors import Leading
from penstock.serdes import BoolSerde, BytesSerde, LongSerde, Serde, StringSerde
from penstock.topology import SourceNode

COMPUTED = "computed_"
"""With a number behind it: the column of an expression's values."""
_RAW = "raw_"


def with_expressions(
    frame: DataFrame, source: SourceNode, expressions: Sequence[Leading]
) -> DataFrame:
    """The rows with a column more for each expression."""
    names = frame.columns
    kept = [f"{_RAW}{name}" for name in names]
    frame = frame.selectExpr(*(f"{name} AS {_RAW}{name}" for name in names))
    own = {"key": decoded(source.key_serde, "key"), "value": decoded(source.value_serde, "value")}
    for number, each in enumerate(expressions):
        # A text is left as it is: the columns get the names that it uses.
        columns = [f"{_RAW}timestamp AS timestamp"]
        for part, origin in (("key", each.key), ("value", each.value)):
            columns.append(f"{own[part] if origin is None else f'{COMPUTED}{origin}'} AS {part}")
        asked = " AND ".join(
            ["true"]
            + [
                f"coalesce({COMPUTED}{n}, false) = {str(wanted).lower()}"
                for n, wanted in each.passed
            ]
        )
        # On a line of its own: a text may end with a comment.
        value = f"CAST(CASE WHEN {asked} THEN ({each.text}\n) END AS {each.sql_type})"
        frame = frame.selectExpr(*kept, *columns).selectExpr(
            *kept, f"{value} AS {COMPUTED}{number}"
        )
        kept.append(f"{COMPUTED}{number}")
    return frame.selectExpr(
        *(f"{_RAW}{name} AS {name}" for name in names),
        *(name for name in kept if name.startswith(COMPUTED)),
    )


def decoded(serde: Serde[object], part: str) -> str:
    """What these bytes stand for, in Spark's SQL; null for bytes that are no value."""
    column = f"{_RAW}{part}"
    match serde:
        case LongSerde():
            number = f"CAST(conv(hex({column}), 16, -10) AS BIGINT)"
            return f"CASE WHEN octet_length({column}) = 8 THEN {number} END"
        case StringSerde():
            text = f"CAST({column} AS STRING)"
            return f"CASE WHEN is_valid_utf8({text}) THEN {text} END"
        case BoolSerde():
            return f"CASE WHEN octet_length({column}) = 1 THEN {column} = X'01' END"
        case BytesSerde():
            return column
    return "CAST(NULL AS BINARY)"
