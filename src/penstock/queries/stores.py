"""A store as those see it who ask: read-only, and answered by whichever instance holds the key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from penstock.queries.contract import LIMIT_MAX, Answer, Bound, Queries, Question, Row
from penstock.topology import VersionedRecord

K = TypeVar("K")
V = TypeVar("V")
Time = int | datetime
"""Milliseconds since the epoch, or a point in time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Options(TypedDict, total=False):
    """How a question is asked.

    By default the active copy answers. `stale=True` lets a standby answer too, `max_lag` one that
    lacks at most so many changelog records, `position` one that holds at least those offsets (by
    partition, as in an answer's sources). `timeout` is how long a question may take.
    """

    stale: bool
    max_lag: int | None
    position: Mapping[int, int]
    timeout: timedelta


class ReadOnlyStore(Generic[K, V]):
    """One of an application's stores, whatever its kind; what that does not answer is refused.

    Rows come from one page after the other, each of which is as of one moment. Every method raises
    `QueryError`.
    """

    def __init__(self, queries: Queries, name: str) -> None:
        self._queries = queries
        self.name = name

    def answer(self, question: Question, **options: Unpack[Options]) -> Answer:
        """A question's answer with what it says of itself: role, position and age of the copies."""
        bound, arguments = _split(options)
        return self._queries.ask(self.name, question, bound=bound, **arguments)

    # Key-value stores, and versioned ones.

    def get(self, key: K, *, as_of: Time | None = None, **options: Unpack[Options]) -> V | None:
        """The value of a key, None if it has none; of a versioned store also `as_of` a time."""
        return self._looked_up([key], as_of, options)[0].value  # type: ignore[no-any-return]

    def get_many(
        self, keys: Iterable[K], *, as_of: Time | None = None, **options: Unpack[Options]
    ) -> list[V | None]:
        """The value of each key, in the same order."""
        return [row.value for row in self._looked_up(list(keys), as_of, options)]

    def version(
        self, key: K, *, as_of: Time | None = None, **options: Unpack[Options]
    ) -> VersionedRecord | None:
        """What a key of a versioned store is, or was at a time, and from when until when."""
        [row] = self._looked_up([key], as_of, options)
        if row.timestamp is None:
            return None
        return VersionedRecord(row.value, row.timestamp, row.end)

    def versions(
        self,
        key: K,
        start: Time | None = None,
        end: Time | None = None,
        *,
        reverse: bool = False,
        **options: Unpack[Options],
    ) -> Iterator[VersionedRecord]:
        """What a key of a versioned store was from `start` to `end`, by time, without deletions."""
        asked = Question(kind="fetch", keys=(key,), reverse=reverse, limit=LIMIT_MAX)
        for row in self._rows(_between(asked, start, end), options):
            assert row.timestamp is not None
            yield VersionedRecord(row.value, row.timestamp, row.end)

    def range(
        self,
        lower: K | None = None,
        upper: K | None = None,
        *,
        reverse: bool = False,
        **options: Unpack[Options],
    ) -> Iterator[Row]:
        """The rows of keys from `lower` up to and with `upper`, by the keys' bytes."""
        asked = Question(kind="range", lower=lower, upper=upper, reverse=reverse, limit=LIMIT_MAX)
        return self._rows(asked, options)

    def prefix(
        self, prefix: K, *, reverse: bool = False, **options: Unpack[Options]
    ) -> Iterator[Row]:
        """The rows of keys whose bytes begin with those of `prefix`."""
        asked = Question(kind="prefix", prefix=prefix, reverse=reverse, limit=LIMIT_MAX)
        return self._rows(asked, options)

    def all(self, *, reverse: bool = False, **options: Unpack[Options]) -> Iterator[Row]:
        """All rows; of a versioned store the latest."""
        return self._rows(Question(kind="all", reverse=reverse, limit=LIMIT_MAX), options)

    # Stores of windows and sessions.

    def fetch(
        self,
        key: K,
        start: Time | None = None,
        end: Time | None = None,
        *,
        reverse: bool = False,
        **options: Unpack[Options],
    ) -> Iterator[Row]:
        """A key's windows or sessions that begin from `start` to `end`, both included.

        Of a versioned store, its values that were valid then; see `versions`.
        """
        asked = Question(kind="fetch", keys=(key,), reverse=reverse, limit=LIMIT_MAX)
        return self._rows(_between(asked, start, end), options)

    def fetch_range(
        self,
        lower: K | None = None,
        upper: K | None = None,
        start: Time | None = None,
        end: Time | None = None,
        *,
        reverse: bool = False,
        **options: Unpack[Options],
    ) -> Iterator[Row]:
        """The same of all keys from `lower` up to and with `upper`."""
        asked = Question(
            kind="fetch_range", lower=lower, upper=upper, reverse=reverse, limit=LIMIT_MAX
        )
        return self._rows(_between(asked, start, end), options)

    def fetch_all(
        self,
        start: Time | None = None,
        end: Time | None = None,
        *,
        reverse: bool = False,
        **options: Unpack[Options],
    ) -> Iterator[Row]:
        """All windows that begin from `start` to `end`."""
        asked = Question(kind="fetch_all", reverse=reverse, limit=LIMIT_MAX)
        return self._rows(_between(asked, start, end), options)

    def approximate_count(self, **options: Unpack[Options]) -> int:
        """About how many entries there are in all partitions."""
        bound, arguments = _split(options)
        return self._queries.approximate_count(self.name, bound=bound, **arguments)

    def _looked_up(self, keys: Sequence[K], as_of: Time | None, options: Options) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < len(keys):
            wanted = tuple(keys[len(rows) : len(rows) + LIMIT_MAX])
            asked = Question(kind="get", keys=wanted)
            if as_of is not None:
                asked = Question(kind="as_of", keys=wanted, as_of=_ms(as_of))
            # What is too much for one answer is asked for next.
            rows += self.answer(asked, **options).rows
        return rows

    def _rows(self, question: Question, options: Options) -> Iterator[Row]:
        while True:
            answer = self.answer(question, **options)
            yield from answer.rows
            if answer.next_page is None:
                return
            question = replace(question, page=answer.next_page)


def _between(question: Question, start: Time | None, end: Time | None) -> Question:
    return replace(
        question,
        start=None if start is None else _ms(start),
        end=None if end is None else _ms(end),
    )


def _ms(time: Time) -> int:
    if isinstance(time, int):
        return time
    # One without a zone is of this machine's, as everywhere in Python.
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)


def _split(options: Options) -> tuple[Bound, dict[str, Any]]:
    bound = Bound(
        stale=options.get("stale", False),
        max_lag=options.get("max_lag"),
        position=dict(options.get("position", {})),
    )
    return bound, {"timeout": options["timeout"]} if "timeout" in options else {}
