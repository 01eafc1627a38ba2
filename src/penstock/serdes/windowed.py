"""Keys of windows and sessions, in Kafka Streams' bytes.

in a window store    key, 8 bytes of start, 4 bytes of sequence number
in a topic           key, 8 bytes of start
sessions, in both    key, 8 bytes of end, 8 bytes of start
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from penstock.serdes.contract import RecordPart, Serde

K = TypeVar("K")

_START = struct.Struct(">q")
_START_SEQUENCE = struct.Struct(">qi")
_END_START = struct.Struct(">qq")
TIME_BYTES = _START.size
WINDOW_TAIL_BYTES = _START_SEQUENCE.size
SESSION_TAIL_BYTES = _END_START.size

_LONG_MAX = 2**63 - 1


class Windowed(NamedTuple, Generic[K]):
    """A key in a window: `start` and `end` in milliseconds since the epoch.

    The end of a time window does not belong to it; the end of a session or sliding window does.

    >>> Windowed("a", 0, 60_000)
    Windowed(key='a', start=0, end=60000)
    """

    key: K
    start: int
    end: int


@dataclass(frozen=True)
class WindowedSerde(Serde[Windowed[Any]]):
    """A window's key as it stands in topics; the end is the start and the windows' size."""

    inner: Serde[Any]
    size_ms: int
    name: ClassVar[str] = "windowed"

    def serialize(self, value: Windowed[Any]) -> bytes:
        _check_times(value.start, value.end)
        return self.inner.serialize(value.key) + _START.pack(value.start)

    def deserialize(self, data: bytes) -> Windowed[Any]:
        _check_length(data, TIME_BYTES)
        (start,) = _START.unpack_from(data, len(data) - TIME_BYTES)
        end = window_end(start, self.size_ms)
        _check_times(start, end)
        return Windowed(self.inner.deserialize(data[:-TIME_BYTES]), start, end)

    def for_topic(self, topic: str, part: RecordPart) -> WindowedSerde:
        return replace(self, inner=self.inner.for_topic(topic, part))


@dataclass(frozen=True)
class SessionWindowedSerde(Serde[Windowed[Any]]):
    """A session's key, in stores and topics alike."""

    inner: Serde[Any]
    name: ClassVar[str] = "session-windowed"

    def serialize(self, value: Windowed[Any]) -> bytes:
        _check_times(value.start, value.end)
        return session_key(self.inner.serialize(value.key), value.start, value.end)

    def deserialize(self, data: bytes) -> Windowed[Any]:
        _check_length(data, SESSION_TAIL_BYTES)
        key, start, end = split_session_key(data)
        _check_times(start, end)
        return Windowed(self.inner.deserialize(key), start, end)

    def for_topic(self, topic: str, part: RecordPart) -> SessionWindowedSerde:
        return replace(self, inner=self.inner.for_topic(topic, part))


def window_tail(serde: Serde[Any]) -> int:
    """How many bytes at the end of a key are its window's times; 0 of a key without a window.

    >>> from penstock.serdes import StringSerde
    >>> window_tail(SessionWindowedSerde(WindowedSerde(StringSerde(), 10)))
    16
    """
    if isinstance(serde, WindowedSerde):
        return TIME_BYTES
    return SESSION_TAIL_BYTES if isinstance(serde, SessionWindowedSerde) else 0


def window_depth(serde: Serde[Any]) -> int:
    """How many windows a key is in, one within the other."""
    depth = 0
    while isinstance(serde, WindowedSerde | SessionWindowedSerde):
        serde, depth = serde.inner, depth + 1
    return depth


def is_canonical(serde: Serde[Any]) -> bool:
    """Whether no two spellings in bytes are read as one key, which may be in windows.

    >>> from penstock.serdes import StringSerde
    >>> is_canonical(WindowedSerde(StringSerde(), 10))
    True
    """
    while isinstance(serde, WindowedSerde | SessionWindowedSerde):
        serde = serde.inner
    return serde.canonical


def window_end(start: int, size_ms: int) -> int:
    """Where a window ends; windows near the end of time end with it, as Java's do."""
    return min(start + size_ms, _LONG_MAX)


def window_key(key: bytes, start: int, sequence: int = 0) -> bytes:
    """A key of a window store.

    >>> window_key(b"a", 1).hex()
    '61000000000000000100000000'
    """
    return key + _START_SEQUENCE.pack(start, sequence)


def split_window_key(data: bytes) -> tuple[bytes, int, int]:
    """Key, start and sequence number of a window store's key."""
    start, sequence = _START_SEQUENCE.unpack_from(data, len(data) - WINDOW_TAIL_BYTES)
    return data[:-WINDOW_TAIL_BYTES], start, sequence


def session_key(key: bytes, start: int, end: int) -> bytes:
    """A key of a session store: the end comes before the start."""
    return key + _END_START.pack(end, start)


def split_session_key(data: bytes) -> tuple[bytes, int, int]:
    """Key, start and end of a session store's key."""
    end, start = _END_START.unpack_from(data, len(data) - SESSION_TAIL_BYTES)
    return data[:-SESSION_TAIL_BYTES], start, end


def _check_length(data: bytes, tail: int) -> None:
    if len(data) < tail:
        raise ValueError(f"a windowed key has at least {tail} bytes, and this one {len(data)}")


def _check_times(start: int, end: int) -> None:
    # Java has no such windows: with them, bytes that are no windowed key at all would pass for one.
    if not 0 <= start <= end <= _LONG_MAX:
        raise ValueError(f"a window cannot begin at {start} and end at {end}")
