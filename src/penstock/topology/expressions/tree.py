"""An expression with all types known, and the rules by which Spark finds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

BOOLEAN = pa.bool_()
SHORT, INT, LONG = pa.int16(), pa.int32(), pa.int64()
DOUBLE = pa.float64()
STRING = pa.string()
BINARY = pa.binary()
NULL = pa.null()

NUMBERS = (SHORT, INT, LONG, DOUBLE)
"""From narrow to wide: of two, Spark computes in the wider one."""
WHOLE = (SHORT, INT, LONG)
KNOWN = (BOOLEAN, *NUMBERS, STRING, BINARY)

SQL_NAMES = {
    BOOLEAN: "BOOLEAN",
    SHORT: "SMALLINT",
    INT: "INT",
    LONG: "BIGINT",
    DOUBLE: "DOUBLE",
    STRING: "STRING",
    BINARY: "BINARY",
    NULL: "NULL",
}


@dataclass(frozen=True)
class Literal:
    """A constant."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class Path:
    """A part of the record, or a field inside it."""

    part: str
    fields: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True)
class Call:
    """A function or an operator; `kernels` knows what it does."""

    name: str
    arguments: tuple[Tree, ...]
    type: pa.DataType
    option: Any = None


Tree = Literal | Path | Call


def sql_name(kind: pa.DataType) -> str:
    """A type as SQL calls it."""
    return SQL_NAMES.get(kind, str(kind))


def common_type(types: list[pa.DataType]) -> pa.DataType | None:
    """The type in which values of these types can be compared; `None` if there is none.

    >>> common_type([INT, DOUBLE, NULL])
    DataType(double)
    """
    present = [kind for kind in dict.fromkeys(types) if kind != NULL]
    if len(present) <= 1:
        return present[0] if present else NULL
    if all(kind in NUMBERS for kind in present):
        return max(present, key=NUMBERS.index)
    return None


def in_type(tree: Tree, kind: pa.DataType) -> Tree:
    """The same value in another type, to which it fits."""
    if tree.type == kind:
        return tree
    if isinstance(tree, Literal):
        as_float = kind == DOUBLE and tree.value is not None
        return Literal(float(tree.value) if as_float else tree.value, kind)
    return Call("cast", (tree,), kind)
