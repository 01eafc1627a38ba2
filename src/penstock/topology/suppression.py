"""When a table's updates are held back, and what bounds the buffer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from penstock.errors import TopologyError
from penstock.topology.spans import check_span

WhenFull = Literal["emit", "stop"]


@dataclass(frozen=True, kw_only=True)
class BufferLimits:
    """How much a buffer may hold, and what happens then: emit the oldest, or stop."""

    records: int | None = None
    size_bytes: int | None = None
    when_full: WhenFull = "emit"

    def __post_init__(self) -> None:
        for limit, what in ((self.records, "records"), (self.size_bytes, "bytes")):
            if limit is not None and limit < 0:
                raise TopologyError(
                    f"A buffer of suppress is to hold {limit} {what}",
                    hint="Let the limit be 0 or more; with 0 nothing waits",
                )

    def with_max_records(self, count: int) -> BufferLimits:
        """The same, for at most so many keys."""
        return dataclasses.replace(self, records=count)

    def with_max_bytes(self, size: int) -> BufferLimits:
        """The same, for at most so many bytes."""
        return dataclasses.replace(self, size_bytes=size)

    def emit_early_when_full(self) -> BufferLimits:
        """Emit the oldest update when there is no room for a new one."""
        return dataclasses.replace(self, when_full="emit")

    def shut_down_when_full(self) -> BufferLimits:
        """Stop the application when there is no room: no update is ever emitted early."""
        return dataclasses.replace(self, when_full="stop")

    @property
    def is_strict(self) -> bool:
        """Whether nothing leaves the buffer before its time."""
        bounded = self.records is not None or self.size_bytes is not None
        return not bounded or self.when_full == "stop"


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """What is held back, and until when; without a limit, until its window closes."""

    limit_ms: int | None
    buffer: BufferLimits


def unbounded() -> BufferLimits:
    """A buffer without limits."""
    return BufferLimits(when_full="stop")


def max_records(count: int) -> BufferLimits:
    """A buffer for at most so many keys."""
    return BufferLimits(records=count)


def max_bytes(size: int) -> BufferLimits:
    """A buffer of at most so many bytes."""
    return BufferLimits(size_bytes=size)


def until_window_closes(buffer: BufferLimits | None = None) -> Suppression:
    """One final result per window, when it can no longer change.

    >>> until_window_closes().limit_ms is None
    True

    Raises `TopologyError` for a buffer that would emit early: that result would not be final.
    """
    buffer = unbounded() if buffer is None else buffer
    _check_buffer(buffer, "until_window_closes")
    if not buffer.is_strict:
        raise TopologyError(
            "until_window_closes cannot emit early: the result would not be final",
            hint="Use unbounded(), or a limit with .shut_down_when_full()",
        )
    return Suppression(limit_ms=None, buffer=buffer)


def until_time_limit(limit: timedelta, buffer: BufferLimits) -> Suppression:
    """At most one update of a key per `limit` of event time.

    Raises `TopologyError` for a negative limit.
    """
    check_span(limit, "The limit of until_time_limit")
    if limit < timedelta(0):
        raise TopologyError(
            f"until_time_limit of suppress has a negative limit of {limit}",
            hint="Let it be 0 or more",
        )
    _check_buffer(buffer, "until_time_limit")
    return Suppression(limit_ms=int(limit / timedelta(milliseconds=1)), buffer=buffer)


def _check_buffer(buffer: object, what: str) -> None:
    if not isinstance(buffer, BufferLimits):
        raise TopologyError(
            f"The buffer of {what} is {buffer!r}",
            hint="Write max_records(1000), max_bytes(1_000_000) or unbounded()",
        )
