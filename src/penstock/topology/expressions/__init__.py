"""Spark SQL expressions over one record, evaluated without Spark.

Spark itself can compute an expression only where its rows are Spark's: before the first step that
Python runs. Behind that, and in the test driver, it is computed here, by Arrow's column functions.
What is known here gives what Spark 4 gives, to the bit; a test holds both to it. All else is
refused when the topology is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import TopologyError
from penstock.serdes import (
    BoolSerde,
    BytesSerde,
    DoubleSerde,
    LongSerde,
    Serde,
    StringSerde,
)
from penstock.serdes.columns import column_form
from penstock.topology.column_functions import Columns, Part, fits
from penstock.topology.draft import SerdeOrMissing
from penstock.topology.expressions.kernels import Rows, evaluate
from penstock.topology.expressions.tree import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    LONG,
    NULL,
    STRING,
    WHOLE,
    Path,
    Tree,
    sql_name,
)

_SERDES: dict[pa.DataType, Serde[Any]] = {
    BOOLEAN: BoolSerde(),
    DOUBLE: DoubleSerde(),
    STRING: StringSerde(),
    BINARY: BytesSerde(),
    **{kind: LongSerde() for kind in WHOLE},
}


@dataclass(frozen=True)
class Program:
    """An expression over columns of known types; `parts` are those that it looks at."""

    text: str
    tree: Tree
    parts: tuple[Part, ...]

    @property
    def type(self) -> pa.DataType:
        """The type of its values."""
        return self.tree.type

    def evaluate(self, columns: Columns, rows: int) -> pa.Array:
        """Its value for each row."""
        given: dict[str, pa.Array] = {part: columns[part] for part in self.parts}
        return evaluate(self.tree, Rows(given, rows))

    def serde(self) -> Serde[Any]:
        """The serde of its values, if nobody names another."""
        serde = _SERDES.get(self.type)
        if serde is None:
            raise TopologyError(
                f"The expression {self.text!r} has values of {sql_name(self.type)}, "
                "for which a serde must be named",
                hint="Name it by value= or key=",
            )
        return serde

    def check_boolean(self, step: str) -> None:
        """Raise `TopologyError` unless it is true or false."""
        if self.type not in (BOOLEAN, NULL):
            raise TopologyError(
                f"The expression of step {step} has values of {sql_name(self.type)}, "
                f"and should be BOOLEAN: {self.text!r}",
                hint="Compare with something",
            )

    def check_result(self, serde: Serde[Any], step: str) -> None:
        """Raise `TopologyError` unless its values can be those of the serde."""
        form = column_form(serde)
        if form is None or not fits(self.type, form.type):
            raise TopologyError(
                f"The expression of step {step} has values of {sql_name(self.type)}, which the "
                f"serde {serde.name!r} cannot take: {self.text!r}",
                hint="Use CAST, or name another serde by value= or key=",
            )


@dataclass(frozen=True)
class Programs:
    """One expression for each resulting column."""

    programs: tuple[Program, ...]

    def evaluate(self, columns: Columns, rows: int) -> tuple[pa.Array, ...]:
        """The resulting columns."""
        return tuple(program.evaluate(columns, rows) for program in self.programs)


def compile_program(text: str, step: str, key: SerdeOrMissing, value: SerdeOrMissing) -> Program:
    """The program of an expression where keys and values have these serdes.

    Raises `TopologyError` for an expression that could not be computed everywhere.
    """
    forms = {
        part: column_form(serde) if isinstance(serde, Serde) else None
        for part, serde in (("key", key), ("value", value))
    }
    columns = {part: form.type for part, form in forms.items() if form is not None}
    # The parser takes a while to load: only those wait for it who write an expression, and workers
    # never do.
    from penstock.topology.expressions.reading import Scope, read

    tree = read(text, Scope({**columns, "timestamp": LONG}), step)
    named = {path.part for path in _paths(tree)}
    every: tuple[Part, ...] = ("key", "value", "timestamp")
    return Program(text, tree, tuple(part for part in every if part in named))


def _paths(tree: Tree) -> Iterator[Path]:
    if isinstance(tree, Path):
        yield tree
    for argument in getattr(tree, "arguments", ()):
        yield from _paths(argument)
