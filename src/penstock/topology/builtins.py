"""Aggregations that need no function of the user's: known ones can be computed by the column."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypedDict

from penstock.serdes import Mean
from penstock.topology.changelogs import Logging, RecoverFrom
from penstock.topology.external import PostgreSQL

BuiltinName = Literal["sum", "min", "max"]


class StoreOptions(TypedDict, total=False):
    """What can be said of a store."""

    caching: bool
    logging: Logging
    recover_from: RecoverFrom
    persistent: bool | None
    supplier: str | None
    max_entries: int | None
    kept_in: PostgreSQL | None


class WindowOptions(TypedDict, total=False):
    """What can be said of a store of windows."""

    caching: bool
    logging: Logging
    recover_from: RecoverFrom
    persistent: bool | None
    supplier: str | None
    retention: timedelta | None


@dataclass(frozen=True)
class Builtin:
    """A reducer that is known by its name.

    >>> Builtin("max")(3, 5)
    5
    """

    name: BuiltinName

    def __call__(self, aggregate: Any, value: Any) -> Any:
        """The two in one; a value that is null, in a window, changes nothing."""
        if value is None:
            return aggregate
        if self.name == "sum":
            return aggregate + value
        return min(aggregate, value) if self.name == "min" else max(aggregate, value)


def add_to_mean(_key: Any, value: Any, mean: Mean) -> Mean:
    """The mean with one more value."""
    return mean if value is None else Mean(mean.total + value, mean.count + 1)


def merge_means(_key: Any, left: Mean, right: Mean) -> Mean:
    """The mean of two sessions."""
    return Mean(left.total + right.total, left.count + right.count)


def mean_value(mean: Mean) -> float:
    """The average; 0 of nothing but nulls."""
    return mean.total / mean.count if mean.count else 0.0


def no_mean() -> Mean:
    """The mean of nothing."""
    return Mean(0.0, 0)


def collected(_key: Any, value: Any, values: list[Any]) -> list[Any]:
    """The list with one more value."""
    return values if value is None else [*values, value]


def merge_lists(_key: Any, left: list[Any], right: list[Any]) -> list[Any]:
    """The values of two sessions."""
    return [*left, *right]
