"""Tables: stores of latest values, their changes, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import UserFunctionError
from penstock.processors.depth_first.cache import Held, RecordCache
from penstock.processors.depth_first.guarding import guarded
from penstock.processors.depth_first.record import Record, Shared
from penstock.processors.depth_first.state import KeyValueState, Stored
from penstock.processors.depth_first.steps import NO_TIME, Step, Value, View
from penstock.processors.depth_first.versioned import VersionedTable
from penstock.processors.settling import copying, settling
from penstock.serdes import Change, Serde
from penstock.topology import StoreSpec, TableSelectNode


class TableStore:
    """A table's store with its record cache; changes go on to the children of its step.

    Without a cache a change goes on at once, with one when the cache lets it through.
    """

    def __init__(
        self,
        step: Step,
        spec: StoreSpec,
        state: KeyValueState,
        *,
        cache_bytes: int,
        sends_old: bool,
        worked_as: Serde[Any] | None = None,
    ) -> None:
        """`worked_as` is what its own step is given and gives, where that is not the values."""
        self._step = step
        self._shared = step.shared
        self._name = spec.name
        self.key_serde: Serde[Any] = spec.key_serde
        self.value_serde: Serde[Any] = spec.value_serde
        self._work: Serde[Any] = spec.value_serde if worked_as is None else worked_as
        self._is_shown = self._work is spec.value_serde
        self._settle = settling(spec.value_serde)
        self.state = state
        self._sends_old = sends_old
        caches = spec.caching and cache_bytes > 0
        # What a row was before, to be asked for before a function may change that in place.
        self.before = copying(self._work, needed=sends_old and self._is_shown and not caches)
        handler = step.shared.on_processing_error
        self._pass_on = guarded(step.shared, step.name, self._tell, handler)
        self._cache = RecordCache(cache_bytes, self._let_through) if caches else None

    def key(self, key: Any) -> bytes:
        """A key's bytes."""
        return self._shared.written(self._step.name, self.key_serde, key, "key")

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        """The present row of a key, or the last that was passed on."""
        data = self.key(key)
        stored = self._read(data)
        held = self._cache.held(data) if sent and self._cache is not None else None
        return self._value(key, stored if held is None else held.below)

    def work(self, key: Any) -> Value | None:
        """The present row of a key, for its own step."""
        stored = self._read(self.key(key))
        if stored is None:
            return None
        return Value(self._decode(self._work, stored.value, key), stored.timestamp)

    def _read(self, key: bytes) -> Stored | None:
        stored = self.state.get(key)
        if self._cache is not None:
            self._cache.read(key, stored)
        return stored

    def put(self, record: Record, new: Any, timestamp: int, *, old: Any) -> None:
        """Write a row, and tell of it: `old` is what to say that there was before."""
        shared = self._shared
        key = self.key(record.key)
        value = shared.encode(self._step.name, self._work, new, "value")
        if self._cache is None:
            if not self._is_shown:
                new = self._shown(record.key, new)
                old = self._shown(record.key, old) if self._sends_old else None
            elif self._settle is not None:
                new, old = self._settle(new), self._settle(old)
            self.state.put(key, value, timestamp)
            self.state.log(key, value, record.timestamp if value is None else timestamp)
            change = Change(new, old if self._sends_old else None)
            self._step.forward(Record(record.key, change, timestamp, record.headers))
            return
        before = self.state.get(key)
        self.state.put(key, value, timestamp)
        self._cache.write(
            key,
            value,
            record.timestamp if value is None else timestamp,
            before=before,
            context=shared.context.at(record),
        )

    def flush(self) -> None:
        """Let through what the cache holds back."""
        if self._cache is not None:
            self._cache.flush()

    def _let_through(self, held: Held) -> None:
        self.state.log(held.key, held.value, held.timestamp)
        self._shared.within(held.context, self._pass_on, held)

    def _tell(self, held: Held) -> None:
        key, new = self._decode(self.key_serde, held.key, held.key), None
        if held.value is not None:
            new = self._decode(self.value_serde, held.value, key)
        below = self._value(key, held.below) if self._sends_old else None
        change = Change(new, None if below is None else below.value)
        self._step.forward(Record(key, change, held.timestamp, held.context.headers))

    def _shown(self, key: Any, worked: Any) -> Any:
        """A value that its step works on, as others know it."""
        if worked is None:
            return None
        return self._decode(self.value_serde, self._work.serialize(worked), key)

    def _value(self, key: Any, stored: Stored | None) -> Value | None:
        if stored is None:
            return None
        return Value(self._decode(self.value_serde, stored.value, key), stored.timestamp)

    def _decode(self, serde: Serde[Any], data: bytes, key: Any) -> Any:
        return self._shared.decode(self._step.name, self._name, serde, data, key)


Table = TableStore | VersionedTable


def row_as_of(table: Table, key: Any, time: int) -> Value | None:
    """The row that a table which keeps versions had at a time."""
    assert isinstance(table, VersionedTable)
    return table.get_as_of(key, time)


class StoredStep(Step):
    """A step with a table's store of its own, which `attach` gives it."""

    table: Table

    def attach(self, table: Table) -> None:
        """Give the step its store."""
        self.table = table

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        """The row of a key."""
        return self.table.get(key, sent=sent)

    def get_as_of(self, key: Any, time: int) -> Value | None:
        """The row that a key had at a time."""
        return row_as_of(self.table, key, time)


class Latest(StoredStep):
    """A table of a topic: the last value wins, and a record without one deletes."""

    def process(self, record: Record) -> None:
        if record.key is None:
            self.shared.drop("null_key")
            return
        before = self.table.get(record.key)
        old = None if before is None else before.value
        self.table.put(record, record.value, record.timestamp, old=old)


class Unstored(Step):
    """A table of a topic that nobody looks into: it only says what each row has become."""

    def process(self, record: Record) -> None:
        if record.key is None:
            self.shared.drop("null_key")
        else:
            self.forward(record.with_value(Change(record.value, None)))


class Aggregate(StoredStep):
    """Folds a stream's values by key."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(name, shared)
        self._initializer = initializer
        self._aggregator = aggregator

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.shared.drop("null_key" if record.key is None else "null_value")
            return
        before = self.table.work(record.key)
        if before is None:
            old, timestamp = self.call(self._initializer), record.timestamp
        else:
            old, timestamp = before.value, max(record.timestamp, before.timestamp)
        told = self.table.before(old)
        new = self.call(self._aggregator, record.key, record.value, old)
        self.table.put(record, new, timestamp, old=told)


class TableAggregate(StoredStep):
    """Folds a table's rows by group: takes out what a row was before, then adds what it is."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(name, shared)
        self._initializer = initializer
        self._adder = adder
        self._subtractor = subtractor

    def process(self, record: Record) -> None:
        change: Change = record.value
        before = self.table.get(record.key)
        aggregate = None if before is None else before.value
        told, timestamp = self.table.before(aggregate), record.timestamp
        if change.old is not None and before is not None:
            aggregate = self.call(self._subtractor, record.key, change.old, aggregate)
            timestamp = max(timestamp, before.timestamp)
        if change.new is not None:
            if aggregate is None:
                aggregate = self.call(self._initializer)
            aggregate = self.call(self._adder, record.key, change.new, aggregate)
            if before is not None:
                timestamp = max(timestamp, before.timestamp)
        self.table.put(record, aggregate, timestamp, old=told)


class TableTransform(Step):
    """Turns a table's values into others, row by row; may keep the result in a store."""

    def __init__(
        self,
        name: str,
        shared: Shared,
        compute: Callable[[Any, Any], Any],
        *,
        parent: View,
        sends_old: bool,
        skips_nothing: bool,
    ) -> None:
        super().__init__(name, shared)
        self._compute = compute
        self._parent = parent
        self._sends_old = sends_old
        self._skips_nothing = skips_nothing
        self.table: Table | None = None

    def attach(self, table: Table) -> None:
        """Give the step a store."""
        self.table = table

    def get(self, key: Any, *, sent: bool = False) -> Value | None:
        """The row of a key: the stored one, or the parent's, transformed."""
        if self.table is not None:
            return self.table.get(key, sent=sent)
        return self._transformed(key, self._parent.get(key, sent=sent))

    def get_as_of(self, key: Any, time: int) -> Value | None:
        """The row that a key had at a time."""
        if self.table is not None:
            return row_as_of(self.table, key, time)
        return self._transformed(key, self._parent.get_as_of(key, time))

    def process(self, record: Record) -> None:
        change: Change = record.value
        new = self._apply(record.key, change.new)
        old = self._old(record.key, change)
        if self._skips_nothing and self._sends_old and new is None and old is None:
            return
        if self.table is not None:
            self.table.put(record, new, record.timestamp, old=old)
        else:
            self.forward(record.with_value(Change(new, old, change.latest)))

    def _transformed(self, key: Any, below: Value | None) -> Value | None:
        if below is None:
            return None
        value = self._apply(key, below.value)
        return None if value is None else Value(value, below.timestamp)

    def _old(self, key: Any, change: Change) -> Any:
        if not self._sends_old:
            return None
        if self.table is None:
            return self._apply(key, change.old)
        stored = self.table.get(key)
        return None if stored is None else stored.value

    def _apply(self, key: Any, value: Any) -> Any:
        return None if value is None else self.call(self._compute, key, value)


class TableTransformValues(TableTransform):
    """As `TableTransform`, and the user's code is shown deletions, and rows that are not there."""

    def process(self, record: Record) -> None:
        before, self.shared.given_time = self.shared.given_time, record.timestamp
        try:
            super().process(record)
        finally:
            self.shared.given_time = before

    def _transformed(self, key: Any, below: Value | None) -> Value | None:
        value = self._apply(key, None if below is None else below.value)
        if value is None:
            return None
        return Value(value, NO_TIME if below is None else below.timestamp)

    def _apply(self, key: Any, value: Any) -> Any:
        return self.call(self._compute, key, value)


class TableSelect(Step):
    """Turns rows into rows of another key; what a row was goes before what it is."""

    def __init__(self, shared: Shared, node: TableSelectNode) -> None:
        super().__init__(node.name, shared)
        self._mapper = node.mapper
        self._versioned = node.versioned

    def process(self, record: Record) -> None:
        if record.key is None:
            raise UserFunctionError(
                "A row without a key cannot be grouped",
                where=self.shared.context.where(self.name),
                hint="Filter such records out before they become a table",
            )
        change: Change = record.value
        if self._versioned and not change.latest:
            return
        old, new = self._row(record.key, change.old), self._row(record.key, change.new)
        if old is not None and new is not None and old[0] == new[0]:
            self._send(record, old[0], Change(new[1], old[1]))
            return
        if old is not None:
            self._send(record, old[0], Change(None, old[1]))
        if new is not None:
            self._send(record, new[0], Change(new[1], None))

    def _row(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        pair = None if value is None else self.call(self._mapper, key, value)
        if pair is None or pair[0] is None or pair[1] is None:
            return None
        return pair[0], pair[1]

    def _send(self, record: Record, key: Any, change: Change) -> None:
        self.forward(Record(key, change, record.timestamp, record.headers))
