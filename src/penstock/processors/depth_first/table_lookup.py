"""Joins of a stream with a table: with its present row, or with that of the record's time."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable

from penstock.processors.depth_first.guarding import guarded
from penstock.processors.depth_first.record import Record, Shared
from penstock.processors.depth_first.state import KeyValueState
from penstock.processors.depth_first.steps import Step, View
from penstock.processors.depth_first.suppress import Buffered, read_buffered
from penstock.processors.depth_first.versioned import VersionedState
from penstock.topology import StreamTableJoinNode

_NAME = struct.Struct(">bq")
_SEQUENCE = struct.Struct(">i")
_SEQUENCE_MAX = 0x7FFFFFFF


class StreamTableJoin(Step):
    """Joins a record with the table's present row; of a versioned table, with that of its time."""

    def __init__(self, shared: Shared, node: StreamTableJoinNode, table: View) -> None:
        super().__init__(node.name, shared)
        self._node = node
        self._table = table
        self._joiner = node.joiner
        self._left = node.left

    def process(self, record: Record) -> None:
        if record.value is None or (record.key is None and not self._left):
            self.shared.drop("null_key" if record.key is None else "null_value")
            return
        self.join(record)

    def join(self, record: Record) -> None:
        """Look the row up and pass on what is made of both."""
        row = None
        if record.key is not None:
            if self._node.versioned:
                row = self._table.get_as_of(record.key, record.timestamp)
            else:
                row = self._table.get(record.key)
        if row is None and not self._left:
            return
        right = None if row is None else row.value
        given = (record.key, record.value) if self._node.with_key else (record.value,)
        self.forward(record.with_value(self.call(self._joiner, *given, right)))


class WaitingJoin(StreamTableJoin):
    """As `StreamTableJoin`, but a record waits until the stream's time is its own and the grace.

    The stream's time is that of the records that waited: one that comes too late to wait is joined
    at once.
    """

    def __init__(
        self, shared: Shared, node: StreamTableJoinNode, table: View, waiting: Waiting
    ) -> None:
        super().__init__(shared, node, table)
        self._waiting = waiting

    def join(self, record: Record) -> None:
        # Kafka Streams fails on a record without a key; it would meet nothing, however long.
        if record.key is None or not self._waiting.add(self.name, record):
            super().join(record)
        else:
            self._waiting.release(super().join)


class Waiting:
    """The records that wait, by time and key. What comes and goes in one slice is never stored.

    A changelog that is written again may have it all the same: from there it is deleted.
    In the store's keys, which are Kafka Streams', stand a byte 0, the time, the key and a number
    that tells equal ones apart; a value is as in the buffer of `suppress`.
    """

    def __init__(
        self,
        shared: Shared,
        node: StreamTableJoinNode,
        state: KeyValueState,
        versions: VersionedState,
    ) -> None:
        assert node.key_serde is not None
        assert node.value_serde is not None
        self._shared = shared
        self._step = node.name
        self._pass_on = guarded(shared, node.name, self._tell, shared.on_processing_error)
        self._keys = node.key_serde
        self._values = node.value_serde
        self._grace = node.grace_ms
        self._state = state
        self._versions = versions
        self._time = shared.recall(f"{state.store}:time", -1)
        self._sequence = shared.recall(f"{state.store}:sequence", 0)
        self._order: list[bytes] = []
        self._entries: dict[bytes, Buffered] = {}
        self._new: set[bytes] = set()
        self._gone: list[bytes] = []
        self._read_until = -1
        self.latest = -1
        """The latest time of the slice's records: what waits until then is read at once."""

    def add(self, step: str, record: Record) -> bool:
        """Let a record wait; False if it is too late for that."""
        if self._time - self._grace > record.timestamp:
            return False
        self._time = max(self._time, record.timestamp)
        self._sequence = (self._sequence + 1) & _SEQUENCE_MAX
        key = self._shared.encode(step, self._keys, record.key, "key")
        assert key is not None
        name = _NAME.pack(0, record.timestamp) + key + _SEQUENCE.pack(self._sequence)
        value = self._shared.encode(step, self._values, record.value, "value")
        self._entries[name] = Buffered(0, None, None, value, self._shared.waiting(record))
        self._new.add(name)
        heapq.heappush(self._order, name)
        return True

    def release(self, join: Callable[[Record], None]) -> None:
        """Give all to `join` that has waited long enough."""
        shared = self._shared
        join = guarded(shared, self._step, join, shared.on_processing_error)
        due = self._time - self._grace
        if due > self._read_until:
            self._read(max(due, self.latest - self._grace))
        while self._order and _time_of(self._order[0]) <= due:
            name = heapq.heappop(self._order)
            entry = self._entries.pop(name)
            shared.within(entry.context, self._pass_on, (name, entry, join))
            was_stored = name not in self._new
            self._new.discard(name)
            if was_stored or shared.reads_again:
                self._gone.append(name)

    def finish(self) -> None:
        """Write what came and stays, and what was there and went."""
        for name in sorted(self._new):
            entry = self._entries[name]
            self._state.log(name, entry.serialize(), entry.context.timestamp)
        for name in self._gone:
            self._state.log(name, None, _time_of(name))
        self._shared.keep(f"{self._state.store}:time", self._time)
        self._shared.keep(f"{self._state.store}:sequence", self._sequence)

    def _tell(self, held: tuple[bytes, Buffered, Callable[[Record], None]]) -> None:
        name, entry, join = held
        assert entry.new is not None
        decode, store, context = self._shared.decode, self._state.store, entry.context
        key = decode(self._step, store, self._keys, _key_of(name), name)
        value = decode(self._step, store, self._values, entry.new, key)
        join(Record(key, value, context.timestamp, context.headers))

    def _read(self, until: int) -> None:
        """Know what waited before this slice and is due by then, and the rows that it will meet."""
        lower, upper = _NAME.pack(0, self._read_until + 1), _NAME.pack(0, until + 1)
        found = list(self._state.range(lower, upper))
        for name, stored in found:
            self._entries[name] = read_buffered(stored.value)
            heapq.heappush(self._order, name)
        self._versions.prefetch((_key_of(name), _time_of(name)) for name, _ in found)
        self._read_until = until


def _time_of(name: bytes) -> int:
    time: int = _NAME.unpack_from(name)[1]
    return time


def _key_of(name: bytes) -> bytes:
    return name[_NAME.size : -_SEQUENCE.size]
