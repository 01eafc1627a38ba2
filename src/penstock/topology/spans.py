"""Spans of time that a user writes."""

from __future__ import annotations

from datetime import timedelta

from penstock.errors import TopologyError


def check_span(span: object, what: str) -> None:
    """Raise `TopologyError` for what is no `timedelta`: a bare number says no unit.

    >>> check_span(timedelta(seconds=1), "A window's size")
    """
    if isinstance(span, timedelta):
        return
    number = span if isinstance(span, int | float) else 5
    raise TopologyError(
        f"{what} is {span!r}, which is no span of time",
        hint=f"Say it as a timedelta: timedelta(seconds={number}), for example",
    )
