"""Changelogs that forget what is old: whether one forgot more than it was to.

Kafka removes their records by time, so that they may begin anywhere. But it keeps what is younger
than the topic's `retention.ms`. So commits note, now and then, where the changelog ended and what
the latest time of the store's windows was: a changelog that begins behind such a place, though its
time is not that old, lost records by another way. Where a commit's own records will be, it does not
know when it is written; it notes their latest time, and whoever reads it knows the changelog's end.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.changelog.commit_record import Mark
from penstock.changelog.topics import LONG_MAX

_PARTS = 4
"""Of a store's retention: so often a place is noted in it."""
_MORE_MS = 86_400_000
"""Kafka Streams' `windowstore.changelog.additional.retention.ms`."""
_CLOCKS_MS = 300_000
"""By how much the clocks of brokers and instances may differ."""


def marked(marks: Iterable[Mark], *, end: int, latest: int, retention_ms: int) -> tuple[Mark, ...]:
    """The marks of a store that holds its changelog up to `end`, after those it had before.

    >>> first = marked((), end=7, latest=1_000, retention_ms=400)
    >>> second = marked(first, end=9, latest=1_050, retention_ms=400)
    >>> second == first
    True
    >>> marked(second, end=11, latest=1_100, retention_ms=400)
    (Mark(end=7, time=1000), Mark(end=11, time=1100))
    >>> marked(second, end=11, latest=1_400, retention_ms=400)
    (Mark(end=11, time=1400),)
    """
    live = tuple(mark for mark in marks if mark.time > latest - retention_ms)
    is_late = not live or latest - live[-1].time >= max(1, retention_ms // _PARTS)
    return (*live, Mark(end, latest)) if is_late and end >= 0 and latest >= 0 else live


def shorter(then_ms: int, now_ms: int) -> int:
    """The shorter of two times for which a topic keeps records, as `start_max` takes them.

    >>> shorter(-1, 500), shorter(300, 500), shorter(0, 500), shorter(-1, -1)
    (500, 300, 500, -1)
    """
    known = [each for each in (then_ms, now_ms) if each > 0]
    return min(known) if known else now_ms


def least_lasting(noted: tuple[int, int], lasting_ms: int, *, now_ms: int) -> tuple[int, int]:
    """For how long deletions lasted at the least, and until when that matters: 0 if it does now.

    A topic that keeps deletions for longer than it did does not bring back those that are gone. A
    store that was away since before that has outlived the longer time, too, once it has passed.

    >>> least_lasting((10, 0), 500, now_ms=1_000)
    (10, 1500)
    >>> least_lasting((10, 1_500), 500, now_ms=1_400), least_lasting((10, 1_500), 500, now_ms=1_500)
    ((10, 1500), (500, 0))
    >>> least_lasting((500, 0), 10, now_ms=0)
    (10, 0)
    """
    least_ms, until = noted
    until = until or now_ms + lasting_ms
    return (least_ms, until) if least_ms < lasting_ms and now_ms < until else (lasting_ms, 0)


def start_max(marks: Iterable[Mark], *, kept_ms: int, now_ms: int) -> int:
    """The highest offset at which a changelog may begin that keeps records for `kept_ms`.

    -1 is for ever, and 0 is not known: then it may begin anywhere.

    >>> marks = (Mark(7, 1_000_000), Mark(11, 2_000_000))
    >>> [start_max(marks, kept_ms=1_000_000, now_ms=now) for now in (1_500_000, 2_500_000)]
    [7, 11]
    >>> start_max(marks, kept_ms=1_000_000, now_ms=5_000_000) == LONG_MAX
    True
    """
    oldest = -LONG_MAX if kept_ms < 0 else now_ms - kept_ms + _CLOCKS_MS
    young = (mark.end for mark in marks if kept_ms and mark.time >= oldest)
    return min(young, default=LONG_MAX)


def marks_hold(*, kept_ms: int, retention_ms: int) -> bool:
    """Whether a changelog that keeps records for `kept_ms` surely begins before its marks.

    A mark's time is that of a record before it. If its key is written again, compaction removes
    that record, and what is left there may be older: all of it leaves when it is as old as
    `kept_ms`, though the mark is not. By then the mark is forgotten, being older than the store's
    retention, if the changelog keeps records for so much longer that no such pause lies between.

    >>> hour, day = 3_600_000, 86_400_000
    >>> [marks_hold(kept_ms=hour + more, retention_ms=hour) for more in (0, hour - 1, hour)]
    [False, False, True]
    >>> [marks_hold(kept_ms=kept, retention_ms=30 * day) for kept in (31 * day, -1)]
    [True, True]
    """
    return kept_ms < 0 or kept_ms - retention_ms >= min(retention_ms, _MORE_MS)
