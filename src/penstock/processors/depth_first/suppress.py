"""Suppress: a table's changes wait in a buffer, ordered by time."""

from __future__ import annotations

import struct
from bisect import insort
from typing import Any, NamedTuple

from penstock.errors import BufferFullError
from penstock.processors.depth_first.guarding import guarded
from penstock.processors.depth_first.record import Context, Headers, Pair, Record, Shared
from penstock.processors.depth_first.state import KeyValueState
from penstock.processors.depth_first.steps import NO_TIME, Step, Value, View
from penstock.serdes import Change
from penstock.topology import SuppressNode

_CONTEXT = struct.Struct(">qqi")
_INT = struct.Struct(">i")
_TIME = struct.Struct(">q")
_NULL, _AS_PRIOR = -1, -2


class Buffered(NamedTuple):
    """A change that waits: the row before all of it, the last change, and the record it is from."""

    time: int
    prior: bytes | None
    old: bytes | None
    new: bytes | None
    context: Context

    def size(self, key: bytes) -> int:
        """What the buffer counts for it."""
        context = self.context
        headers = sum(len(name) + len(data or b"") for name, data in context.headers)
        old = 0 if self.old is None or self.old == self.prior else len(self.old)
        size = 8 + len(key) + len(self.prior or b"") + old + len(self.new or b"")
        return size + 8 + 8 + len(context.topic) + 4 + headers

    def serialize(self) -> bytes:
        """Kafka Streams' bytes of it, for the changelog.

        If the input record waits with it that follows, which Java does not look at, and the time
        again: stores find it at the end.
        """
        context = self.context
        topic = context.topic.encode()
        parts = [
            _CONTEXT.pack(context.timestamp, context.offset, len(topic)),
            topic,
            _INT.pack(context.partition),
            _INT.pack(len(context.headers)),
        ]
        for name, data in context.headers:
            parts += [_sized(name.encode()), _sized(data)]
        same = self.old is not None and self.old == self.prior
        parts += [_sized(self.prior), _INT.pack(_AS_PRIOR) if same else _sized(self.old)]
        parts += [_sized(self.new), _TIME.pack(self.time)]
        if context.raw is not None:
            parts += [*map(_sized, context.raw), _TIME.pack(self.time)]
        return b"".join(parts)


def read_buffered(data: bytes) -> Buffered:
    """The change of these bytes."""
    timestamp, offset, length = _CONTEXT.unpack_from(data)
    at = _CONTEXT.size
    topic = data[at : at + length].decode()
    at += length
    partition, count = struct.unpack_from(">ii", data, at)
    at += 8
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_sized(data, at)
        value, at = _read_sized(data, at)
        assert name is not None
        headers.append((name.decode(), value))
    prior, at = _read_sized(data, at)
    if _INT.unpack_from(data, at)[0] == _AS_PRIOR:
        old, at = prior, at + _INT.size
    else:
        old, at = _read_sized(data, at)
    new, at = _read_sized(data, at)
    (time,) = _TIME.unpack_from(data, at)
    raw = _read_raw(data, at + _TIME.size)
    found: Headers = tuple(headers)
    context = Context(topic, partition, offset, timestamp, found, raw)
    return Buffered(time, prior, old, new, context)


def _read_raw(data: bytes, at: int) -> Pair | None:
    if at == len(data):
        return None
    key, at = _read_sized(data, at)
    value, _ = _read_sized(data, at)
    return key, value


def _sized(data: bytes | None) -> bytes:
    return _INT.pack(_NULL) if data is None else _INT.pack(len(data)) + data


def _read_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(data, at)
    at += _INT.size
    if length == _NULL:
        return None, at
    return data[at : at + length], at + length


class Buffer:
    """The waiting changes by time and key, read from the store when they are first asked for."""

    def __init__(self, state: KeyValueState, *, reads_again: bool = False) -> None:
        self._state = state
        self._reads_again = reads_again
        self._entries: dict[bytes, Buffered | None] = {}
        self._order: list[tuple[int, bytes]] = []
        self._stored: set[bytes] = set()
        self._dirty: dict[bytes, None] = {}
        self.count = 0
        self.size = 0
        self._loaded = False

    def get(self, key: bytes) -> Buffered | None:
        """What waits under a key."""
        if not self._loaded:
            self._load()
        return self._entries.get(key)

    def put(self, key: bytes, entry: Buffered) -> None:
        """Let a change wait, or replace the one that does: it keeps its place."""
        before = self.get(key)
        if before is None:
            self.count += 1
            insort(self._order, (entry.time, key))
        else:
            self.size -= before.size(key)
        self.size += entry.size(key)
        self._entries[key] = entry
        self._dirty[key] = None

    def oldest(self) -> tuple[int, bytes] | None:
        """The time and key of the change that waits longest."""
        if not self._loaded:
            self._load()
        return self._order[0] if self._order else None

    def first(self) -> tuple[bytes, Buffered]:
        """The change that waits longest, with its key."""
        key = self._order[0][1]
        entry = self._entries[key]
        assert entry is not None
        return key, entry

    def pop(self) -> None:
        """Take the oldest out."""
        key, entry = self.first()
        del self._order[0]
        self._entries[key] = None
        self._dirty[key] = None
        self.count -= 1
        self.size -= entry.size(key)

    def finish(self) -> None:
        """Write what changed; what came and went within the slice was never stored.

        But a changelog that is written again may have it.
        """
        for key in self._dirty:
            entry = self._entries[key]
            if entry is None and key not in self._stored and not self._reads_again:
                continue
            value = None if entry is None else entry.serialize()
            timestamp = 0 if entry is None else entry.context.timestamp
            self._state.put(key, value, timestamp)
            self._state.log(key, value, timestamp)

    def _load(self) -> None:
        """Read the whole buffer: its limits are for all that waits."""
        for key, stored in self._state.range(None, None):
            found = read_buffered(stored.value)
            self._entries[key] = found
            self._stored.add(key)
            self._order.append((found.time, key))
            self.count += 1
            self.size += found.size(key)
        self._order.sort()
        self._loaded = True


class Suppress(Step):
    """Holds changes back until their time, or until the buffer is full."""

    def __init__(
        self, shared: Shared, node: SuppressNode, *, parent: View, state: KeyValueState
    ) -> None:
        super().__init__(node.name, shared)
        self._node = node
        self._parent = parent
        self._buffer = Buffer(state, reads_again=shared.reads_again)
        self._stream_time = shared.recall(f"{node.store}:time", -1)
        self._emitted = 0
        self._pass_on = guarded(shared, self.name, self._tell, shared.on_processing_error)

    def process(self, record: Record) -> None:
        self._stream_time = max(self._stream_time, record.timestamp)
        self._put(record)
        self._emit_due()
        if self._is_over():
            self._relieve()

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        """The row of a key as those behind the buffer know it."""
        data = self.shared.encode(self.name, self._node.key_serde, key, "key")
        assert data is not None
        waiting = self._buffer.get(data)
        if waiting is None:
            return self._parent.get(key, sent=sent)
        if waiting.prior is None:
            return None
        return Value(self._decoded(waiting.prior, key), NO_TIME)

    def finish(self) -> None:
        """Leave what the next slice needs."""
        self._buffer.finish()
        self.shared.keep(f"{self._node.store}:time", self._stream_time)
        self.shared.meter.suppressed(self.name, self._emitted)

    def _put(self, record: Record) -> None:
        shared, node = self.shared, self._node
        change: Change = record.value
        key = shared.encode(self.name, node.key_serde, record.key, "key")
        assert key is not None
        new = shared.encode(self.name, node.value_serde, change.new, "value")
        old = shared.encode(self.name, node.value_serde, change.old, "value")
        waiting = self._buffer.get(key)
        time = record.key.end if node.final else record.timestamp
        self._buffer.put(
            key,
            Buffered(
                time=time if waiting is None else waiting.time,
                prior=old if waiting is None else waiting.prior,
                old=old,
                new=new,
                context=shared.waiting(record),
            ),
        )

    def _emit_due(self) -> None:
        due = self._stream_time - self._node.duration_ms
        while (oldest := self._buffer.oldest()) is not None and oldest[0] <= due:
            self._emit()

    def _is_over(self) -> bool:
        limits, buffer = self._node.buffer, self._buffer
        too_many = limits.records is not None and buffer.count > limits.records
        return too_many or (limits.size_bytes is not None and buffer.size > limits.size_bytes)

    def _relieve(self) -> None:
        limits, buffer = self._node.buffer, self._buffer
        if limits.when_full == "stop":
            allowed = " and ".join(
                f"{limit} {what}"
                for limit, what in ((limits.records, "records"), (limits.size_bytes, "bytes"))
                if limit is not None
            )
            raise BufferFullError(
                f"The buffer of step {self.name} holds {buffer.count} records in {buffer.size} "
                f"bytes, and may hold {allowed}",
                where=self.shared.context.where(self.name),
                hint="Give it more room, shorten the windows, or let it emit early",
            )
        while self._is_over() and buffer.oldest() is not None:
            self._emit()

    def _emit(self) -> None:
        # As in Kafka Streams who looks into the table meanwhile still finds the change waiting.
        key, entry = self._buffer.first()
        # Only a final result may be forgotten with its window: nobody downstream ever saw it.
        if entry.new is not None or not self._node.final:
            self._let_go(key, entry)
            self._emitted += 1
        self._buffer.pop()

    def _let_go(self, key: bytes, entry: Buffered) -> None:
        self.shared.within(entry.context, self._pass_on, (key, entry))

    def _tell(self, held: tuple[bytes, Buffered]) -> None:
        name, entry = held
        shared, node, context = self.shared, self._node, entry.context
        key = shared.decode(self.name, node.store, node.key_serde, name, name)
        change = Change(self._decoded(entry.new, key), self._decoded(entry.old, key))
        self.forward(Record(key, change, context.timestamp, context.headers))

    def _decoded(self, data: bytes | None, key: Any) -> Any:
        if data is None:
            return None
        return self.shared.decode(self.name, self._node.store, self._node.value_serde, data, key)
