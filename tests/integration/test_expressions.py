"""Expressions computed here and by Spark itself: the same values, and errors for the same rows."""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.serdes import serde_of
from penstock.serdes.columns import column_form
from penstock.topology.expressions import Program, compile_program

pytestmark = pytest.mark.usefixtures("spark")


@dataclass
class Reading:
    """A value with a field of each type."""

    big: int | None
    other: int | None
    real: float | None
    ratio: float | None
    text: str | None
    part: str | None
    flag: bool | None
    sign: bool | None


EXPRESSIONS = """
big + other
big - other
big * other
big + 1
-big
abs(big)
abs(real)
-real
big / other
real / ratio
big div other
big % other
big % 3
real % ratio
real + ratio * 2
real - big
big + 1.5D
real * 1e3
5 - 7 * 2
2147483647 + timestamp
CAST(big AS INT) + 1
CAST(big AS INT) * CAST(other AS INT)
big = other
big <> real
real = ratio
real < ratio
real <= ratio
real > ratio
real >= ratio
text < part
text >= part
flag = sign
flag < sign
big <=> other
real <=> ratio
text <=> NULL
big IS NULL
text IS NOT NULL
flag IS TRUE
flag IS NOT FALSE
big IS DISTINCT FROM other
flag AND sign
flag OR sign
NOT flag
flag AND big / other > 1
other = 0 OR big / other > 1
other <> 0 AND big div other > 1
big BETWEEN 0 AND other
big NOT BETWEEN other AND 10
big IN (1, 2, NULL)
big NOT IN (1, 2)
text IN ('a', 'abc', '12')
CASE WHEN other <> 0 THEN big / other END
CASE WHEN flag THEN 1 WHEN sign THEN 2L ELSE 3 END
CASE text WHEN 'a' THEN 1 WHEN '12' THEN 2 ELSE 0 END
if(flag, big, real)
if(flag, text, NULL)
coalesce(big, other, 0)
nvl(text, part)
ifnull(real, 1.5D)
nullif(big, 1)
nullif(text, 'a')
greatest(big, other, 0)
least(real, ratio)
greatest(text, part)
length(text)
char_length(text) + 1
length(CAST(text AS BINARY))
upper(text)
lower(text)
trim(text)
ltrim(text)
rtrim(text)
text || part
concat(text, '-', part, '!')
substring(text, 2, 3)
substring(text, 2)
substr(text, -2, 1)
substring(text, -5, 4)
substring(text, 0, 2)
substring(text, 1, -1)
substring(text, CAST(other AS INT), 2)
contains(text, part)
startswith(text, 'a')
startswith(text, part)
endswith(text, 'b')
endswith(text, part)
text LIKE 'a%'
text LIKE '%b_c%'
text NOT LIKE '_'
text LIKE '%a.b%'
replace(text, 'a', 'xy')
replace(text, 'a')
replace(text, part, '')
floor(real)
ceil(real)
floor(big)
round(real)
round(real, 2)
round(real, -1)
sqrt(real)
isnan(real)
CAST(big AS STRING)
CAST(big AS DOUBLE)
CAST(big AS BOOLEAN)
CAST(real AS BIGINT)
CAST(real AS INT)
CAST(text AS BIGINT)
CAST(text AS INT)
CAST(text AS DOUBLE)
CAST(flag AS STRING)
CAST(flag AS INT)
CAST(flag AS DOUBLE)
key || CAST(big AS STRING)
length(key) * 2 + value.big
timestamp div 1000
key = 'a' AND value.text IS NOT NULL
CAST(NULL AS STRING)
NULL IS NULL
NOT flag = sign
flag OR sign AND NOT flag
1 - 2 - big
-big % 3
2 + 3 * 4 div 5
""".strip().splitlines()

LONGS = [None, 0, 1, -1, 2, 3, -7, 10, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
DOUBLES = [
    None, 0.0, -0.0, 1.0, 0.5, 1.5, 2.5, -2.5, 2.675, 1.005, -0.045, 12345.678, 1e22, 1e308,
    5e-324, -1e-9, 2147483647.5, 2147483648.0, -2147483648.9, 9.223372036854775807e18,
    -9.223372036854775808e18, 9.3e18, math.inf, -math.inf, math.nan,
]  # fmt: skip
TEXTS = [
    None, "", "a", "ab", "abc", "b", "aXb", "12", " 12 ", "+5", "-7", "12.5", "1e3", "1d", "0x1F",
    "nan", "-Infinity", "\t8\n", "2147483648", "9223372036854775808", " a b ", "\u00a0x",
    "straße", "ΟΔΟΣ", "İ", "ŉ", "日本語", "😀x", "a%b_c", "a.b", "a\nb", "A", "\x7f1", "\u20037",
]  # fmt: skip
TRUTHS = [None, True, False]
FORM = column_form(serde_of(Reading))


def _rows(count: int, seed: int) -> tuple[list[str | None], list[Reading | None], list[int]]:
    choose = random.Random(seed).choice
    values: list[Reading | None] = [
        None if choose(range(40)) == 0 else Reading(
            choose(LONGS), choose(LONGS), choose(DOUBLES), choose(DOUBLES),
            choose(TEXTS), choose(TEXTS), choose(TRUTHS), choose(TRUTHS),
        )
        for _ in range(count)
    ]  # fmt: skip
    # Every edge occurs, whatever the seed.
    values += [Reading(n, 2, 0.5, r, t, "a", True, None) for n, r, t in _edges()]
    values += [Reading(5, n, r, 0.5, t, "b", False, True) for n, r, t in _edges()]
    return (
        [choose(["a", "bc", "", None]) for _ in values],
        values,
        [choose([0, 1, 1_700_000_000_000]) for _ in values],
    )


@cache
def _table() -> pa.Table:
    keys, values, times = _rows(150, seed=7)
    assert FORM is not None
    return pa.table(
        {"key": pa.array(keys), "value": FORM.column(values), "timestamp": pa.array(times)}
    )


def _edges() -> list[tuple[Any, Any, Any]]:
    longest = max(len(LONGS), len(DOUBLES), len(TEXTS))
    return [
        (LONGS[i % len(LONGS)], DOUBLES[i % len(DOUBLES)], TEXTS[i % len(TEXTS)])
        for i in range(longest)
    ]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        # To the bit, so that -0.0 is not 0.0; all NaNs are one.
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or struct.pack(">d", one) == struct.pack(">d", other)
    return type(one) is type(other) and bool(one == other)


@dataclass(frozen=True)
class Answer:
    """What an expression has for each row alone: whether there is a value, and which."""

    text: str
    program: Program
    rows: tuple[tuple[bool, Any], ...]

    def bad_rows(self) -> list[int]:
        return [number for number, (fine, _) in enumerate(self.rows) if not fine]


@cache
def _answers() -> list[Answer]:
    table = _table()
    alone = [_columns(table.slice(row, 1)) for row in range(len(table))]
    programs = [compile_program(t, "step", serde_of(str), serde_of(Reading)) for t in EXPRESSIONS]
    return [
        Answer(text, program, tuple(_here(program, row) for row in alone))
        for text, program in zip(EXPRESSIONS, programs, strict=True)
    ]


def _here(program: Program, row: dict[str, Any]) -> tuple[bool, Any]:
    try:
        return True, program.evaluate(row, 1)[0].as_py()
    except (ArithmeticError, ValueError):
        return False, None


def _columns(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].combine_chunks() for name in table.column_names}


def _in_spark(table: pa.Table, expressions: list[str]) -> list[Any]:
    frame = SparkSession.builder.getOrCreate().createDataFrame(table)  # type: ignore[type-var]
    # Bare fields are a short form of ours.
    named = (f"({text}) AS result_{number}" for number, text in enumerate(expressions))
    return frame.selectExpr("*", "value.*").selectExpr(*named).collect()


def test_the_same_values_as_spark() -> None:
    guarded = _table()
    # Spark does not look at rows that have no value here.
    for number, answer in enumerate(_answers()):
        good = pa.array([fine for fine, _ in answer.rows])
        guarded = guarded.append_column(f"good_{number}", good)
    texts = [f"CASE WHEN good_{n} THEN ({text}) END" for n, text in enumerate(EXPRESSIONS)]
    found = _in_spark(guarded, texts)
    different = [
        (answer.text, _table().slice(row, 1).to_pylist(), value, found[row][number])
        for number, answer in enumerate(_answers())
        for row, (fine, value) in enumerate(answer.rows)
        if fine and not _same(value, found[row][number])
    ]
    assert not different, (len(different), different[:3])


def test_all_rows_at_once_have_the_values_that_each_has_alone() -> None:
    for answer in _answers():
        good = _table().take([row for row, (fine, _) in enumerate(answer.rows) if fine])
        together = answer.program.evaluate(_columns(good), len(good)).to_pylist()
        alone = [value for fine, value in answer.rows if fine]
        assert all(map(_same, together, alone)), answer.text


def test_spark_raises_where_nothing_is_computed_here() -> None:
    failing = [answer for answer in _answers() if answer.bad_rows()]
    assert len(failing) > 20
    for answer in failing:
        # One row each: a query of Spark's takes its time to compile.
        row = random.Random(answer.text).choice(answer.bad_rows())
        with pytest.raises(PySparkException):
            _in_spark(_table().take([row]), [answer.text])
