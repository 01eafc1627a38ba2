"""What moves between steps, and where it came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from penstock.errors import PenstockError, UserFunctionError
from penstock.processors.meter import SliceMeter
from penstock.processors.records import OnError
from penstock.processors.user_faults import function_error, refused_error, stored_error
from penstock.serdes import Serde

_T = TypeVar("_T")
Headers = tuple[tuple[str, bytes | None], ...]


def headers_of(array: pa.ListArray | None, count: int) -> list[Headers]:
    """Each row's headers, of a column of them."""
    if array is None:
        return [()] * count
    return [
        () if not row else tuple((each["key"], each["value"]) for each in row)
        for row in array.to_pylist()
    ]


class Record:
    """A record between two steps; a table's value is a `Change`. Never changed once made."""

    __slots__ = ("headers", "key", "timestamp", "value")

    def __init__(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = headers

    def with_value(self, value: Any) -> Record:
        """The same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)


Pair = tuple[bytes | None, bytes | None]
"""A record's key and value."""


class Context:
    """The input record that is being processed: for errors, caches and users' processors.

    `raw` is the record itself, where it may have come with an earlier slice than this one.
    """

    __slots__ = ("headers", "offset", "partition", "raw", "timestamp", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        headers: Headers,
        raw: Pair | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.headers = headers
        self.raw = raw

    def at(self, record: Record) -> Context:
        """The same for what steps made of the input record: a time and headers of its own."""
        return Context(
            self.topic, self.partition, self.offset, record.timestamp, record.headers, self.raw
        )

    def where(self, step: str) -> dict[str, object]:
        """The record's coordinates, for an error."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "step": step,
        }


class Origin(NamedTuple):
    """Where an output comes from: the input record, and the step that writes it."""

    context: Context
    step: str


NOWHERE = Context("", -1, -1, -1, ())


class DeadLetter(NamedTuple):
    """Why a record goes to the dead letters: the exception's name, its message and its trace."""

    exception: str
    message: str
    stacktrace: str


class DeadLetters(Protocol):
    """Where records go that cannot be processed."""

    takes_dropped: bool

    def raw(self, context: Context) -> Pair | None:
        """The input record, byte for byte; None if there is none, or it is not known."""

    def send(self, context: Context, letter: DeadLetter, *, raw: Pair | None = None) -> None:
        """Write the input record, or what is given for it, to the dead-letter topic."""


Answers = Mapping[tuple[str, int], Mapping[int, Any]]
"""By step and function: the answer for each record, by its offset."""
NOT_ASKED = object()


class Shared:
    """What all steps of a run share.

    `metadata` is what steps left for the next slice, and what they leave now; `now_ms` is the wall
    clock, and `stream_time` the latest timestamp that the task has seen. `on_processing_error` is
    for what fails where no record enters a step: rows that caches and buffers let go. `reads_again`
    is that of `Limits`.
    """

    def __init__(
        self,
        metadata: Mapping[str, str],
        *,
        now_ms: int,
        meter: SliceMeter | None = None,
        on_processing_error: OnError = "fail",
        reads_again: bool = False,
    ) -> None:
        self.context = NOWHERE
        self.reads_again = reads_again
        self.on_processing_error = on_processing_error
        self.now_ms = now_ms
        self.stream_time = -1
        self.dead_letters: DeadLetters | None = None
        self.decided: Exception | None = None
        """The failure of which it was said that nothing goes on after it."""
        self.unwritable: Exception | None = None
        """The failure to write a record, which is for the handler of production."""
        self.given_time: int | None = None
        """The time of the record that a user's processor is given; None where a timer calls it."""
        self.dropped: Counter[str] = Counter()
        self.meter = meter or SliceMeter()
        self.metadata = dict(metadata)
        self.ahead: dict[tuple[str, int], Answers] = {}
        """What functions of columns answered to each input's records at once."""

    @property
    def put_time(self) -> int:
        """The time of what users' code puts: its record's, which a step before may have made."""
        return self.context.timestamp if self.given_time is None else self.given_time

    def answer_ahead(self, step: str, function: object) -> Any:
        """What a function answers to the present record, if it was asked ahead."""
        context = self.context
        answers = self.ahead.get((context.topic, context.partition), {}).get((step, id(function)))
        return NOT_ASKED if answers is None else answers.get(context.offset, NOT_ASKED)

    def drop(self, reason: str) -> None:
        """Count a record that goes no further, and send it to the dead letters if they want it."""
        self.dropped[reason] += 1
        if self.dead_letters is not None and self.dead_letters.takes_dropped:
            self.dead_letters.send(self.context, DeadLetter("dropped", reason, ""))

    def waiting(self, record: Record) -> Context:
        """The present context, for a record that will wait beyond this slice.

        As in Kafka Streams the input record waits with it, if it may become a dead letter.
        """
        now, letters = self.context, self.dead_letters
        raw = None if letters is None else letters.raw(now)
        return Context(now.topic, now.partition, now.offset, record.timestamp, record.headers, raw)

    def recall(self, name: str, default: int) -> int:
        """A number that a step left in an earlier slice."""
        return int(self.metadata.get(name, default))

    def keep(self, name: str, number: int) -> None:
        """Leave a number for the next slice."""
        self.metadata[name] = str(number)

    def within(self, context: Context, call: Callable[[_T], None], given: _T) -> None:
        """Call for a record that waited, as if it came now."""
        before, self.context = self.context, context
        try:
            call(given)
        finally:
            self.context = before

    def failed(self, step: str, error: Exception) -> UserFunctionError:
        """The error of a user's function, with the record's coordinates."""
        return function_error(step, error, self.context.where(step))

    def encode(self, step: str, serde: Serde[Any], value: Any, what: str) -> bytes | None:
        """A value's bytes, if there is one; raises as `written` does."""
        return None if value is None else self.written(step, serde, value, what)

    def written(self, step: str, serde: Serde[Any], value: Any, what: str) -> bytes:
        """The bytes of a key or value; `UserFunctionError` if the serde refuses it."""
        try:
            return serde.serialize(value)
        except (PenstockError, OSError):
            raise
        except Exception as error:
            raise self.refused(step, serde, what, error) from error

    def decode(self, step: str, store: str, serde: Serde[Any], data: bytes, key: object) -> Any:
        """What a store's bytes mean; `UserFunctionError` if the serde cannot read them."""
        try:
            return serde.deserialize(data)
        except (PenstockError, OSError):
            raise
        except Exception as error:
            where = self.context.where(step)
            raise stored_error(step, store, serde, error, where, key) from error

    def refused(
        self, step: str, serde: Serde[Any], what: str, error: Exception
    ) -> UserFunctionError:
        """The error of a key or value that its serde refuses."""
        return refused_error(step, serde, what, error, self.context.where(step))
