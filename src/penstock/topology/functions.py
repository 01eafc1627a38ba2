"""Three ways to write a function: per record, per batch of columns, or as an SQL expression."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import TopologyError


@dataclass(frozen=True)
class BatchFunction:
    """A function of columns, marked by `@batch`; it can be called as before."""

    function: Callable[..., Any]

    def __call__(self, *columns: Any) -> Any:
        """What the function makes of these columns."""
        return self.function(*columns)


def is_async(function: object) -> bool:
    """Whether a call of it gives something to be awaited instead of a result.

    >>> async def later(value): return value
    >>> is_async(later), is_async(functools.partial(later, 1)), is_async(str)
    (True, True, False)
    >>> is_async(functools.cache(later)), is_async(functools.cache(str))
    (True, False)
    """
    if isinstance(function, functools.partial):
        return is_async(function.func)
    if hasattr(function, "cache_info"):  # A cache would keep what is to be awaited.
        return is_async(getattr(function, "__wrapped__", None))
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(kind(function) for kind in kinds):
        return True
    # Of a class the call makes an object, whatever a call of that would be.
    called = None if inspect.isclass(function) else getattr(type(function), "__call__", None)  # noqa: B004
    return any(kind(called) for kind in kinds)


def batch(function: Callable[..., Any]) -> BatchFunction:
    """Mark a function that takes Arrow columns and returns one, instead of one record's values.

    It gets as many columns as the operator's per-record function gets values, and returns a column
    of as many rows: what it says of a row must depend on that row alone, because how many rows come
    together is not promised.

    >>> import pyarrow.compute as pc
    >>> from penstock.topology import StreamsBuilder
    >>> @batch
    ... def doubled(values):
    ...     return pc.multiply(values, 2)
    >>> numbers = StreamsBuilder().stream("numbers", key=str, value=int)
    >>> numbers.map_values(doubled, value=int).to("doubled")
    """
    if not callable(function):
        raise TopologyError(
            f"ps.batch is given {function!r}, which cannot be called",
            hint="Write a function of columns: @ps.batch above def name(values): ...",
        )
    if is_async(function):
        raise TopologyError(
            f"{getattr(function, '__name__', function)} is an async function, which nobody awaits",
            hint="Write it with def",
        )
    return BatchFunction(function)


@dataclass(frozen=True)
class Expression:
    """A Spark SQL expression over a record's columns `key`, `value` and `timestamp`."""

    text: str


def expr(text: str) -> Expression:
    """A Spark SQL expression, to stand where a function of one record may stand.

    Its columns are `key`, `value` (whose fields are `value.field`, or just `field`) and
    `timestamp`, in milliseconds since the epoch.

    >>> from penstock.topology import StreamsBuilder
    >>> numbers = StreamsBuilder().stream("numbers", key=str, value=int)
    >>> numbers.filter(expr("value % 2 = 0 AND key LIKE 'a%'")).to("even")
    """
    return Expression(text)


Columnar = BatchFunction | Expression
