"""Puts a user's function into its step: as it is, or bound to the types of the columns there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import TopologyError
from penstock.serdes import Serde
from penstock.topology.column_functions import (
    PAIR,
    TIMESTAMPS,
    VALUE,
    Called,
    ColumnFunction,
    Part,
    Result,
)
from penstock.topology.draft import SerdeOrMissing, needed, said_serde
from penstock.topology.expressions import Program, Programs, compile_program
from penstock.topology.flow import Flow, chosen_serde, pair_types, returned_type
from penstock.topology.functions import BatchFunction, Expression

TRUTHS = Result(truths=True)


def bound_predicate(
    flow: Flow, step: str, function: Any, *, on_table: bool = False
) -> Callable[..., bool]:
    """A predicate in its step."""
    if isinstance(function, BatchFunction):
        return _batch(flow, step, function, PAIR, TRUTHS)
    if isinstance(function, Expression):
        program = compile_program(function.text, step, flow.key, flow.value)
        program.check_boolean(step)
        return _expression(flow, step, (program,), (TRUTHS,), on_table=on_table)
    predicate: Callable[..., bool] = function
    return predicate


def bound_mapper(
    flow: Flow,
    step: str,
    function: Any,
    given: Any,
    *,
    operator: str,
    result: Part,
    on_table: bool = False,
    with_key: bool = False,
) -> tuple[Callable[..., Any], SerdeOrMissing]:
    """A function that makes a new value, or a new key; and the serde of that.

    One of values is given the key, too, if it asks `with_key`.
    """
    where = f"{operator} (step {step})"
    if isinstance(function, BatchFunction):
        serde = chosen_serde(given, None, where, result)
        takes = VALUE if result == "value" and not with_key else PAIR
        return _batch(flow, step, function, takes, _result(serde)), serde
    if isinstance(function, Expression):
        if with_key:
            raise TopologyError(
                f"The step {step} has an expression, and with_key=True",
                hint="Leave with_key out: an expression names the column key where it needs it",
            )
        program = compile_program(function.text, step, flow.key, flow.value)
        chosen = _expression_serde(program, given, step)
        bound = _expression(flow, step, (program,), (Result(chosen),), on_table=on_table)
        return bound, chosen
    mapper: Callable[..., Any] = function
    return mapper, chosen_serde(given, returned_type(function), where, result)


def bound_pairs(
    flow: Flow,
    step: str,
    function: Any,
    given: tuple[Any, Any],
    *,
    operator: str,
    on_table: bool = False,
) -> tuple[Callable[..., Any], SerdeOrMissing, SerdeOrMissing]:
    """A function that makes a new key and a new value; and the serdes of those."""
    where = f"{operator} (step {step})"
    if isinstance(function, tuple) and all(isinstance(each, Expression) for each in function):
        if len(function) != 2:
            raise TopologyError(
                f"The step {step} got {len(function)} expressions",
                hint="Give one for the key and one for the value",
            )
        programs = tuple(
            compile_program(each.text, step, flow.key, flow.value) for each in function
        )
        key, value = (
            _expression_serde(program, each, step)
            for program, each in zip(programs, given, strict=True)
        )
        results = (Result(key), Result(value))
        return _expression(flow, step, programs, results, on_table=on_table), key, value
    if isinstance(function, Expression):
        raise TopologyError(
            f"The step {step} got one expression, and makes a key and a value",
            hint='Give a pair: (ps.expr("..."), ps.expr("..."))',
        )
    kinds = (None, None)
    if not isinstance(function, BatchFunction):
        kinds = pair_types(returned_type(function))
    keys = chosen_serde(given[0], kinds[0], where, "key")
    values = chosen_serde(given[1], kinds[1], where, "value")
    if isinstance(function, BatchFunction):
        return _batch(flow, step, function, PAIR, _result(keys), _result(values)), keys, values
    return function, keys, values


def _batch(
    flow: Flow, step: str, function: BatchFunction, takes: tuple[Part, ...], *results: Result
) -> ColumnFunction:
    return ColumnFunction(
        Called(function.function, takes, len(results) == 2),
        tuple((part, _serde(flow, step, part)) for part in takes),
        results,
    )


def _expression(
    flow: Flow,
    step: str,
    programs: tuple[Program, ...],
    results: tuple[Result, ...],
    *,
    on_table: bool,
) -> ColumnFunction:
    parts = dict.fromkeys(part for program in programs for part in program.parts)
    if on_table and "timestamp" in parts:
        raise TopologyError(
            f"The expression of step {step} asks for the timestamp of a table's row",
            hint="Ask on the stream, before or behind the table",
        )
    inputs = tuple((part, _serde(flow, step, part)) for part in parts)
    return ColumnFunction(Programs(programs), inputs, results)


def _serde(flow: Flow, step: str, part: Part) -> Serde[Any]:
    if part == "timestamp":
        return TIMESTAMPS
    return needed(flow.key if part == "key" else flow.value, part, f"The step {step}")


def _expression_serde(program: Program, given: Any, step: str) -> Serde[Any]:
    serde = program.serde() if given is None else said_serde(given, "result", f"step {step}")
    program.check_result(serde, step)
    return serde


def _result(serde: SerdeOrMissing) -> Result:
    return Result(serde if isinstance(serde, Serde) else None)
