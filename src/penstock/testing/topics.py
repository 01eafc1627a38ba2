"""A driver's topics, with keys and values instead of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from penstock.errors import PenstockError
from penstock.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class RawRecord:
    """A record in bytes."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


@dataclass(frozen=True)
class TestRecord(Generic[K, V]):
    """A record: key, value, time in milliseconds since the epoch, headers."""

    __test__ = False

    key: K | None
    value: V | None
    timestamp: int = 0
    headers: Headers = ()


class InputTopic(Generic[K, V]):
    """Where a test puts records in; each runs through the whole topology at once."""

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        *,
        pipe: Callable[[RawRecord], None],
        start_ms: int,
        advance: timedelta,
    ) -> None:
        self.name = name
        self._key = key
        self._value = value
        self._pipe = pipe
        self._next_ms = start_ms
        self._advance_ms = round(advance.total_seconds() * 1000)

    def pipe(
        self,
        key: K | None,
        value: V | None,
        *,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Put a record in; without a timestamp it has the topic's own clock's."""
        if timestamp is None:
            timestamp = self._next_ms
            self._next_ms += self._advance_ms
        self._pipe(
            RawRecord(
                self.name, _bytes(self._key, key), _bytes(self._value, value), timestamp, headers
            )
        )

    def pipe_all(self, pairs: Iterable[tuple[K | None, V | None]]) -> None:
        """Put several records in, one after the other."""
        for key, value in pairs:
            self.pipe(key, value)


class OutputTopic(Generic[K, V]):
    """Where a test takes results out, in the order in which they were written."""

    def __init__(
        self, name: str, key: Serde[K], value: Serde[V], *, written: deque[RawRecord]
    ) -> None:
        self.name = name
        self._key = key
        self._value = value
        self._written = written

    def __len__(self) -> int:
        """How many records are waiting."""
        return len(self._written)

    def read(self) -> TestRecord[K, V]:
        """Take the next record out. Raises `PenstockError` if there is none."""
        if not self._written:
            raise PenstockError(
                "Nothing more was written to the topic",
                where={"topic": self.name},
                hint="Ask len(topic) first, or take all with read_all()",
            )
        raw = self._written.popleft()
        key, value = _value(self._key, raw.key), _value(self._value, raw.value)
        return TestRecord(key, value, raw.timestamp, raw.headers)

    def read_all(self) -> list[TestRecord[K, V]]:
        """Take all records out."""
        return [self.read() for _ in range(len(self))]

    def read_pairs(self) -> list[tuple[K | None, V | None]]:
        """Take all records out, as (key, value)."""
        return [(record.key, record.value) for record in self.read_all()]


def _bytes(serde: Serde[Any], value: Any) -> bytes | None:
    return None if value is None else serde.serialize(value)


def _value(serde: Serde[Any], data: bytes | None) -> Any:
    return None if data is None else serde.deserialize(data)
