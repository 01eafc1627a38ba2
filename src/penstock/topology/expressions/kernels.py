"""What an expression's functions do with columns: exactly what Spark does with them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.topology.expressions.tree import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    STRING,
    WHOLE,
    Call,
    Literal,
    Path,
    Tree,
)

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """The columns that an expression looks at."""

    columns: Mapping[str, pa.Array]
    count: int

    def take(self, places: npt.NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        indices = pa.array(places)
        taken = {name: column.take(indices) for name, column in self.columns.items()}
        return Rows(taken, len(places))


def evaluate(tree: Tree, rows: Rows) -> pa.Array:
    """The expression's value for each row; raises for the rows for which Spark would."""
    return _whole(_value(tree, rows), rows.count)


def _value(tree: Tree, rows: Rows) -> Any:
    """A column, or a scalar that stands for all rows."""
    match tree:
        case Literal():
            return pa.scalar(tree.value, type=tree.type)
        case Path():
            column = rows.columns[tree.part]
            return pc.struct_field(column, list(tree.fields)) if tree.fields else column
    if tree.name in LAZY:
        return LAZY[tree.name](tree, rows)
    return EAGER[tree.name](tree, *(_value(each, rows) for each in tree.arguments))


def _whole(value: Any, count: int) -> pa.Array:
    if isinstance(value, pa.ChunkedArray):
        return pa.concat_arrays(value.chunks) if value.num_chunks else pa.nulls(0, value.type)
    if isinstance(value, pa.Array):
        return value
    return pa.repeat(value, count) if value.is_valid else pa.nulls(count, value.type)


def _where(tree: Tree, rows: Rows, wanted: Bools) -> pa.Array:
    """The value for some rows, null for the others, for which it is not asked for."""
    places = np.flatnonzero(wanted)
    if len(places) == rows.count:
        return evaluate(tree, rows)
    if not len(places):
        return pa.nulls(rows.count, tree.type)
    some = evaluate(tree, rows.take(places))
    back = np.zeros(rows.count, dtype=np.int64)
    back[places] = np.arange(len(places))
    return some.take(pa.array(back, mask=~wanted))


def _bools(column: pa.Array, null: bool) -> Bools:
    bools: Bools = column.fill_null(null).to_numpy(zero_copy_only=False)
    return bools


# Operators that do not look at an argument which does not matter: it may be one that would raise.


def _and(call: Call, rows: Rows) -> pa.Array:
    left = evaluate(call.arguments[0], rows)
    right = _where(call.arguments[1], rows, _bools(left, True))
    return pc.and_kleene(left, right)


def _or(call: Call, rows: Rows) -> pa.Array:
    left = evaluate(call.arguments[0], rows)
    right = _where(call.arguments[1], rows, ~_bools(left, False))
    return pc.or_kleene(left, right)


def _if(call: Call, rows: Rows) -> pa.Array:
    test, then, otherwise = call.arguments
    chosen = _bools(evaluate(test, rows), False)
    one, other = _where(then, rows, chosen), _where(otherwise, rows, ~chosen)
    return pc.if_else(pa.array(chosen), one, other)


def _coalesce(call: Call, rows: Rows) -> pa.Array:
    found = evaluate(call.arguments[0], rows)
    for argument in call.arguments[1:]:
        missing = ~found.is_valid().to_numpy(zero_copy_only=False)
        found = pc.coalesce(found, _where(argument, rows, missing))
    return found


# Numbers.


def _checked(name: str) -> Callable[..., Any]:
    exact, plain = f"{name}_checked", name

    def compute(call: Call, *values: Any) -> Any:
        return pc.call_function(exact if call.type in WHOLE else plain, list(values))

    return compute


def _divide(_: Call, left: Any, right: Any) -> Any:
    _refuse_zero(left, right)
    return pc.divide(left, right)


def _integral_divide(_: Call, left: Any, right: Any) -> Any:
    return pc.divide_checked(left, right)


def _remainder(call: Call, left: Any, right: Any) -> Any:
    _refuse_zero(left, right)
    if call.type == DOUBLE:
        return _by_numpy(np.fmod, left, right, call.type)
    # Nothing divides by 0 where a null hides it; and no remainder by -1 is other than 0.
    right = pc.if_else(pc.equal(right, pa.scalar(-1, right.type)), pa.scalar(1, right.type), right)
    return _by_numpy(np.fmod, left, right, call.type)


def _by_numpy(
    function: Callable[..., npt.NDArray[Any]], left: Any, right: Any, kind: pa.DataType
) -> pa.Array:
    count = max(len(each) if isinstance(each, pa.Array) else 1 for each in (left, right))
    left, right = _whole(left, count), _whole(right, count)
    absent = pc.or_(left.is_null(), right.is_null())
    # What is computed where a null stands is not looked at.
    with np.errstate(all="ignore"):
        numbers = function(left.fill_null(1).to_numpy(), right.fill_null(1).to_numpy())
    return pa.array(
        numbers, type=kind, mask=absent.to_numpy(zero_copy_only=False), from_pandas=False
    )


def _refuse_zero(left: Any, right: Any) -> None:
    zero = pc.and_(pc.is_valid(left), pc.equal(right, pa.scalar(0, right.type)))
    if pc.any(zero).as_py() if isinstance(zero, pa.Array) else zero.as_py():
        raise ZeroDivisionError("division by zero")


def _to_whole(rounding: str) -> Callable[..., Any]:
    def compute(_: Call, number: Any) -> Any:
        return _each(_saturated, LONG, pc.call_function(rounding, [number]))

    return compute


def _saturated(number: float) -> int:
    """As Java makes a long of a double: the nearest there is, and 0 of what is no number."""
    if math.isnan(number):
        return 0
    if abs(number) < 2.0**63:
        return int(number)
    return 2**63 - 1 if number > 0 else -(2**63)


def _round(call: Call, number: Any) -> Any:
    digits = Decimal(1).scaleb(-call.option)

    def rounded(value: float) -> float:
        if not math.isfinite(value):
            return value
        exact = Decimal(repr(value))
        if exact.as_tuple().exponent >= -call.option:
            return value + 0.0
        # Java's decimals know no negative zero.
        return float(exact.quantize(digits, ROUND_HALF_UP)) + 0.0

    return _each(rounded, DOUBLE, number)


def _root(_: Call, number: Any) -> Any:
    return pc.sqrt(number)


def _is_nan(_: Call, number: Any) -> Any:
    # Unlike elsewhere, Spark's answer for a null is no null.
    return pc.coalesce(pc.is_nan(number), pa.scalar(False))


# Comparisons. To Spark a NaN equals itself and is greater than every other number.


def _equal(_: Call, left: Any, right: Any) -> Any:
    same = pc.equal(left, right)
    if left.type != DOUBLE:
        return same
    return pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _less(_: Call, left: Any, right: Any) -> Any:
    less = pc.less(left, right)
    if left.type != DOUBLE:
        return less
    return pc.or_(less, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def _unequal(call: Call, left: Any, right: Any) -> Any:
    return pc.invert(_equal(call, left, right))


def _greater(call: Call, left: Any, right: Any) -> Any:
    return _less(call, right, left)


def _not_greater(call: Call, left: Any, right: Any) -> Any:
    return pc.invert(_less(call, right, left))


def _not_less(call: Call, left: Any, right: Any) -> Any:
    return pc.invert(_less(call, left, right))


def _null_safe_equal(call: Call, left: Any, right: Any) -> Any:
    same = pc.coalesce(_equal(call, left, right), pa.scalar(False))
    return pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))


def _extreme(better: Callable[..., Any]) -> Callable[..., Any]:
    def compute(call: Call, *values: Any) -> Any:
        best = values[0]
        for value in values[1:]:
            wins = pc.coalesce(better(call, value, best), pc.is_null(best))
            best = pc.if_else(wins, value, best)
        return best

    return compute


# Text.


def _each(function: Callable[..., Any], kind: pa.DataType, *values: Any) -> Any:
    """One value at a time, where no column function does what Spark does; nulls stay nulls."""
    arrays = [each for each in values if isinstance(each, pa.Array)]
    count = len(arrays[0]) if arrays else 1
    lists = [_whole(each, count).to_pylist() for each in values]
    results = [
        None if any(each is None for each in row) else function(*row)
        for row in zip(*lists, strict=True)
    ]
    column = pa.array(results, type=kind, from_pandas=False)
    return column if arrays else column[0]


def _upper(_: Call, text: Any) -> Any:
    return pc.ascii_upper(text) if _is_ascii(text) else _each(str.upper, STRING, text)


def _lower(_: Call, text: Any) -> Any:
    return pc.ascii_lower(text) if _is_ascii(text) else _each(str.lower, STRING, text)


def _is_ascii(text: Any) -> bool:
    return (
        bool(pc.all(pc.string_is_ascii(text)).as_py() is not False)
        if isinstance(text, pa.Array)
        else False
    )


def _length(_: Call, text: Any) -> Any:
    count = pc.binary_length(text) if text.type == BINARY else pc.utf8_length(text)
    return count.cast(INT)


_TRIMS = {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}


def _trim(call: Call, text: Any) -> Any:
    return _TRIMS[call.option](text, characters=" ")


def _concat(_: Call, *texts: Any) -> Any:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _substring(_: Call, text: Any, start: Any, length: Any) -> Any:
    return _each(_part, STRING, text, start, length)


def _part(text: str, start: int, length: int) -> str:
    """Positions begin with 1, and below 0 count from the end."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = min(first + length, len(text))
    return text[max(first, 0) : max(last, 0)]


def _contains(_: Call, text: Any, part: Any) -> Any:
    return _each(str.__contains__, BOOLEAN, text, part)


def _starts(_: Call, text: Any, part: Any) -> Any:
    if isinstance(part, pa.Scalar) and part.is_valid:
        return pc.starts_with(text, part.as_py())
    return _each(str.startswith, BOOLEAN, text, part)


def _ends(_: Call, text: Any, part: Any) -> Any:
    if isinstance(part, pa.Scalar) and part.is_valid:
        return pc.ends_with(text, part.as_py())
    return _each(str.endswith, BOOLEAN, text, part)


def _like(call: Call, text: Any) -> Any:
    return pc.match_like(text, call.option)


def _replace(_: Call, text: Any, part: Any, new: Any) -> Any:
    return _each(lambda t, p, n: t.replace(p, n) if p else t, STRING, text, part, new)


# Casts.

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_FLOATING = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_NAMED = {
    "inf": "inf",
    "+inf": "inf",
    "infinity": "inf",
    "+infinity": "inf",
    "-inf": "-inf",
    "-infinity": "-inf",
    "nan": "nan",
}
# What Java takes for white space; Spark, where it reads whole numbers, for one more.
_BLANKS = "".join(map(chr, range(33)))


def _cast(call: Call, value: Any) -> Any:
    given, kind = value.type, call.type
    if given == STRING and kind in WHOLE:
        return _each(_text_to_whole(kind), kind, value)
    if given == STRING and kind == DOUBLE:
        return _each(_text_to_double, kind, value)
    if given == DOUBLE and kind in WHOLE:
        return _each(_double_to_whole(kind), kind, value)
    if given in WHOLE and kind in WHOLE:
        return value.cast(kind, safe=True)
    return value.cast(kind, safe=False)


def _text_to_whole(kind: pa.DataType) -> Callable[[str], int]:
    limit = 2 ** (kind.bit_width - 1)

    def read(text: str) -> int:
        stripped = text.strip(_BLANKS + "\x7f")
        if not _WHOLE_NUMBER.fullmatch(stripped) or not -limit <= int(stripped) < limit:
            raise ValueError(f"{text!r} is no whole number of {kind.bit_width} bits")
        return int(stripped)

    return read


def _text_to_double(text: str) -> float:
    stripped = text.strip(_BLANKS)
    if _FLOATING.fullmatch(stripped):
        return float(stripped.rstrip("dDfF"))
    if stripped.lower() not in _NAMED:
        raise ValueError(f"{text!r} is no number")
    return float(_NAMED[stripped.lower()])


def _double_to_whole(kind: pa.DataType) -> Callable[[float], int]:
    limit = 2.0 ** (kind.bit_width - 1)
    # Spark compares as doubles, and so lets 2^63 pass for the largest long.
    highest = limit if kind == LONG else limit - 1

    def read(number: float) -> int:
        if not (
            math.isfinite(number) and math.floor(number) <= highest and math.ceil(number) >= -limit
        ):
            raise OverflowError(f"{number} does not fit into {kind.bit_width} bits")
        return min(int(number), int(limit) - 1)

    return read


LAZY: dict[str, Callable[[Call, Rows], pa.Array]] = {
    "and": _and,
    "or": _or,
    "if": _if,
    "coalesce": _coalesce,
}
EAGER: dict[str, Callable[..., Any]] = {
    "add": _checked("add"),
    "sub": _checked("subtract"),
    "mul": _checked("multiply"),
    "neg": _checked("negate"),
    "abs": _checked("abs"),
    "div": _divide,
    "intdiv": _integral_divide,
    "mod": _remainder,
    "floor": _to_whole("floor"),
    "ceil": _to_whole("ceil"),
    "round": _round,
    "sqrt": _root,
    "isnan": _is_nan,
    "eq": _equal,
    "neq": _unequal,
    "lt": _less,
    "gt": _greater,
    "lte": _not_greater,
    "gte": _not_less,
    "nullsafeeq": _null_safe_equal,
    "greatest": _extreme(_greater),
    "least": _extreme(_less),
    "not": lambda _, value: pc.invert(value),
    "isnull": lambda _, value: pc.is_null(value),
    "upper": _upper,
    "lower": _lower,
    "length": _length,
    "trim": _trim,
    "concat": _concat,
    "substring": _substring,
    "contains": _contains,
    "startswith": _starts,
    "endswith": _ends,
    "like": _like,
    "replace": _replace,
    "cast": _cast,
}
