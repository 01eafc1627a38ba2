"""Windows: spans of event time that records are brought together in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.errors import TopologyError
from penstock.topology.spans import check_span

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class TimeWindows:
    """Windows of one size that begin every `advance_ms`; the end does not belong to a window.

    The first one begins at `start_ms`; what is earlier is in none.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int
    start_ms: int = 0

    def starts(self, timestamp: int) -> range:
        """The starts of the windows that a time lies in, ascending.

        >>> list(hopping(timedelta(seconds=10), advance=timedelta(seconds=5),
        ...              grace=timedelta(0)).starts(12_000))
        [5000, 10000]
        """
        since = timestamp - self.start_ms - self.size_ms + self.advance_ms
        first = max(0, since) // self.advance_ms
        return range(self.start_ms + first * self.advance_ms, timestamp + 1, self.advance_ms)

    @property
    def has_end(self) -> bool:
        """Whether they ever close: an unlimited window does not."""
        return self.size_ms < LONG_MAX

    @property
    def retention_ms(self) -> int:
        """The least time for which a store must keep windows."""
        return self.size_ms + self.grace_ms


@dataclass(frozen=True, kw_only=True)
class SlidingWindows:
    """A window for each set of records that lie at most `difference_ms` apart; both ends belong."""

    difference_ms: int
    grace_ms: int

    @property
    def retention_ms(self) -> int:
        """The least time for which a store must keep windows: a right window may begin later."""
        return 2 * self.difference_ms + self.grace_ms


@dataclass(frozen=True, kw_only=True)
class SessionWindows:
    """A session ends where a key has no record for longer than `gap_ms`; both ends belong."""

    gap_ms: int
    grace_ms: int

    @property
    def retention_ms(self) -> int:
        """The least time for which a store must keep sessions."""
        return self.gap_ms + self.grace_ms


@dataclass(frozen=True, kw_only=True)
class JoinWindows:
    """Two records meet if the other is at most `before_ms` older and `after_ms` younger."""

    before_ms: int
    after_ms: int
    grace_ms: int

    @property
    def retention_ms(self) -> int:
        """The least time for which the stores of a join must keep records."""
        return self.before_ms + self.after_ms + self.grace_ms


Windows = TimeWindows | SlidingWindows | SessionWindows


def tumbling(size: timedelta, *, grace: timedelta) -> TimeWindows:
    """Windows that follow each other without a gap; a record is late after end and `grace`.

    >>> tumbling(timedelta(minutes=1), grace=timedelta(seconds=5)).size_ms
    60000
    """
    return hopping(size, advance=size, grace=grace)


def hopping(size: timedelta, *, advance: timedelta, grace: timedelta) -> TimeWindows:
    """Windows of one size, one beginning every `advance`, so that they overlap."""
    size_ms = _positive(size, "size")
    advance_ms = _positive(advance, "advance")
    if advance_ms > size_ms:
        raise TopologyError(
            f"Windows of {size} cannot begin every {advance}: time between them would be lost",
            hint="Choose an advance that is at most the size",
        )
    return TimeWindows(size_ms=size_ms, advance_ms=advance_ms, grace_ms=_grace(grace))


def sliding(difference: timedelta, *, grace: timedelta) -> SlidingWindows:
    """A window for each set of records that lie at most `difference` apart."""
    difference_ms = _milliseconds(difference, "difference")
    if difference_ms < 1:
        # Kafka Streams accepts it, and fails at the first record.
        raise TopologyError(
            "A sliding window's difference is less than a millisecond",
            hint="Let it be more; tumbling(...) of a millisecond counts equal times",
        )
    return SlidingWindows(difference_ms=difference_ms, grace_ms=_grace(grace))


def session(gap: timedelta, *, grace: timedelta) -> SessionWindows:
    """Sessions that end after `gap` without a record of their key."""
    return SessionWindows(gap_ms=_milliseconds(gap, "gap"), grace_ms=_grace(grace))


def unlimited(*, start: datetime | int = 0) -> TimeWindows:
    """One window without an end, from `start` on; records before that are in none.

    `start` is a time with a time zone, or milliseconds since the epoch.

    >>> from datetime import UTC, datetime
    >>> list(unlimited(start=datetime(1970, 1, 1, 0, 1, tzinfo=UTC)).starts(75_000))
    [60000]
    >>> list(unlimited(start=60_000).starts(59_999))
    []
    """
    return TimeWindows(
        size_ms=LONG_MAX, advance_ms=LONG_MAX, grace_ms=0, start_ms=_checked_start(start)
    )


def _checked_start(start: datetime | int) -> int:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise TopologyError(
                f"The unlimited window begins at {start}, of no time zone",
                hint="Say which: datetime(..., tzinfo=UTC)",
            )
        start = (start - _EPOCH) // _MILLISECOND
    if not 0 <= start < LONG_MAX:
        raise TopologyError(
            f"The unlimited window begins at {start} ms",
            hint="Times are counted from 1970; let start be 0 or more",
        )
    return start


def join_window(
    difference: timedelta | None = None,
    *,
    before: timedelta | None = None,
    after: timedelta | None = None,
    grace: timedelta,
) -> JoinWindows:
    """How far two records may lie apart to be joined, `before` and `after` this stream's record.

    >>> join_window(timedelta(seconds=5), grace=timedelta(0))
    JoinWindows(before_ms=5000, after_ms=5000, grace_ms=0)
    """
    sides = [difference if side is None else side for side in (before, after)]
    if None in sides:
        raise TopologyError(
            "A join window needs a time difference", hint="Give one, or both before= and after="
        )
    for side in sides:
        check_span(side, "How far the records of a join may lie apart")
    before_ms, after_ms = (int(side / _MILLISECOND) for side in sides if side is not None)
    if before_ms + after_ms < 0:
        raise TopologyError(
            "A join window ends before it begins", hint="Let before + after be 0 or more"
        )
    return JoinWindows(before_ms=before_ms, after_ms=after_ms, grace_ms=_grace(grace))


def _grace(grace: timedelta) -> int:
    return _milliseconds(grace, "grace")


def _positive(span: timedelta, what: str) -> int:
    check_span(span, f"A window's {what}")
    if span < _MILLISECOND:
        raise TopologyError(
            f"A window's {what} of {span} is less than a millisecond",
            hint="Times are in milliseconds; let it be one or more",
        )
    return _milliseconds(span, what)


def _milliseconds(span: timedelta, what: str) -> int:
    check_span(span, f"A window's {what}")
    if span < timedelta(0):
        raise TopologyError(
            f"A window's {what} cannot be negative, and is {span.total_seconds():g} s",
            hint="Let it be 0 or more",
        )
    return int(span / _MILLISECOND)


def check_windows(windows: object, step: str) -> None:
    """Raise `TopologyError` for what no aggregation can be divided into."""
    if not isinstance(windows, Windows):
        raise TopologyError(
            f"The records of step {step} cannot be divided by {type(windows).__name__}",
            hint="Use tumbling(...), hopping(...), sliding(...), session(...) or unlimited(); "
            "join_window(...) is for joins of streams",
        )
