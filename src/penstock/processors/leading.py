"""Which expressions Spark can compute before the rows come to Python.

Those that look at nothing but the source's columns, and at each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.processors.choice import runs_in_columns
from penstock.serdes import BoolSerde, BytesSerde, LongSerde, Serde, StringSerde
from penstock.serdes.columns import column_form
from penstock.topology import (
    ColumnFunction,
    DropNullKeyNode,
    FilterNode,
    MapNode,
    MapValuesNode,
    Node,
    SelectKeyNode,
    SourceNode,
    SubTopology,
)
from penstock.topology.expressions import Programs
from penstock.topology.expressions.tree import BOOLEAN, KNOWN, sql_name

READABLE = (BoolSerde, BytesSerde, LongSerde, StringSerde)
"""Serdes whose bytes Spark's SQL can read without a doubt."""


@dataclass(frozen=True)
class Leading:
    """An expression, its place among a step's results, and where its columns come from.

    `key` and `value` are numbers of other such expressions, or None for the source's own. It counts
    for the rows of which the expressions `passed` are as they should be.
    """

    step: str
    result: int
    text: str
    sql_type: str
    key: int | None
    value: int | None
    passed: tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class _Stand:
    """Where a record stands between steps."""

    key: int | None = None
    value: int | None = None
    passed: tuple[tuple[int, bool], ...] = ()


@dataclass
class _Search:
    sub_topology: SubTopology
    source: SourceNode
    found: list[Leading] = field(default_factory=list)

    def below(self, node: Node, stand: _Stand) -> None:
        """Find the expressions behind a step."""
        for child in (self.sub_topology.by_name[name] for name in node.children):
            if isinstance(child, DropNullKeyNode):
                self.below(child, stand)
                continue
            after = self._through(child, stand)
            if after is not None:
                self.below(child, after)

    def _through(self, node: Node, stand: _Stand) -> _Stand | None:
        first = len(self.found)
        match node:
            case FilterNode() if self._computes(node.name, node.predicate, stand):
                return _Stand(stand.key, stand.value, (*stand.passed, (first, not node.negate)))
            case MapValuesNode() if self._computes(node.name, node.mapper, stand):
                return _Stand(stand.key, first, stand.passed)
            case SelectKeyNode() if self._computes(node.name, node.selector, stand):
                return _Stand(first, stand.value, stand.passed)
            case MapNode() if self._computes(node.name, node.mapper, stand):
                return _Stand(first, first + 1, stand.passed)
        return None

    def _computes(self, step: str, function: object, stand: _Stand) -> bool:
        """Whether Spark can compute a step's function; then it is among what was found."""
        if not isinstance(function, ColumnFunction):
            return False
        programs = function.evaluator
        if not isinstance(programs, Programs):
            return False
        for part, _ in function.inputs:
            if not self._can_read(part, stand):
                return False
        types = [
            BOOLEAN if result.truths else _type_of(result.serde) for result in function.results
        ]
        if any(kind not in KNOWN for kind in types):
            return False
        for number, (program, kind) in enumerate(zip(programs.programs, types, strict=True)):
            self.found.append(
                Leading(
                    step=step,
                    result=number,
                    text=program.text,
                    sql_type=sql_name(kind),
                    key=stand.key,
                    value=stand.value,
                    passed=stand.passed,
                )
            )
        return True

    def _can_read(self, part: str, stand: _Stand) -> bool:
        if part == "key":
            return stand.key is not None or isinstance(self.source.key_serde, READABLE)
        if part == "value":
            return stand.value is not None or isinstance(self.source.value_serde, READABLE)
        return True


def leading_expressions(sub_topology: SubTopology) -> tuple[Leading, ...]:
    """The expressions that Spark can compute, each behind those that it needs."""
    sources = sub_topology.sources
    if len(sources) != 1 or sources[0].timestamp is not None or not runs_in_columns(sub_topology):
        return ()
    search = _Search(sub_topology, sources[0])
    search.below(sources[0], _Stand())
    return tuple(search.found)


def _type_of(serde: Serde[object] | None) -> object:
    form = None if serde is None else column_form(serde)
    return None if form is None else form.type
