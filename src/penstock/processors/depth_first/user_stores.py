"""Stores in a processor's hands.

Many entries are handed out as the store holds them at the call, this slice's own changes included:
what the processor puts or deletes while it looks at them changes nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from penstock.errors import TopologyError
from penstock.processors.depth_first.handed_out import HandedOut
from penstock.processors.depth_first.record import Shared
from penstock.processors.depth_first.state import (
    FAR,
    KeyValueState,
    Stored,
    TimedEntry,
    TimedState,
    after_prefix,
)
from penstock.serdes import Serde, serde_of
from penstock.topology import StoreSpec, ValueAndTimestamp


class UserStore:
    """What all of them have in common: how keys and values are written and read."""

    def __init__(self, shared: Shared, spec: StoreSpec, handed: HandedOut | None) -> None:
        self._shared = shared
        self._spec = spec
        self._handed = handed
        self._keys: Serde[Any] = spec.key_serde
        self._values: Serde[Any] = spec.value_serde

    def key_bytes(self, key: Any) -> bytes:
        """A key's bytes."""
        data = self._shared.encode(self._spec.name, self._keys, key, "key")
        if data is None:
            raise TypeError(f"the store {self._spec.name!r} has no entry without a key")
        return data

    def _bound(self, key: Any) -> bytes | None:
        return None if key is None else self.key_bytes(key)

    def _written(self, value: Any) -> tuple[bytes | None, int]:
        """A value's bytes, and the time to write them with."""
        timestamp = self._shared.put_time
        if self._spec.timestamped and value is not None:
            if not isinstance(value, ValueAndTimestamp):
                raise TypeError(
                    f"the store {self._spec.name!r} keeps ValueAndTimestamp(value, timestamp), "
                    f"not {type(value).__name__}"
                )
            timestamp = timestamp if value.value is None else value.timestamp
            value = value.value
        return self._shared.encode(self._spec.name, self._values, value, "value"), timestamp

    def _watch(
        self,
        key: Any,
        value: Any,
        data: bytes | None,
        timestamp: int,
        current: Callable[[], Stored | None],
    ) -> None:
        """Look at a value that was put again later, if anybody watches."""
        if self._handed is None or data is None:
            return
        bare = value.value if self._spec.timestamped else value
        stored = Stored(data, timestamp)
        self._handed.take(self._spec.name, key, bare, stored, self._values, current)

    def _shown(self, value: Any, stored: Stored) -> Any:
        """A value as the processor sees it."""
        return ValueAndTimestamp(value, stored.timestamp) if self._spec.timestamped else value


class UserKeyValueStore(UserStore):
    """A key-value store in a processor's hands."""

    def __init__(
        self,
        shared: Shared,
        spec: StoreSpec,
        state: KeyValueState,
        handed: HandedOut | None = None,
    ) -> None:
        super().__init__(shared, spec, handed)
        self._state = state

    def get(self, key: Any) -> Any:
        """The value of a key."""
        name = self.key_bytes(key)
        stored = self._state.get(name)
        return None if stored is None else self._value(name, stored)

    def timestamp(self, key: Any) -> int | None:
        """The time of a key's value."""
        stored = self._state.get(self.key_bytes(key))
        return None if stored is None else stored.timestamp

    def put(self, key: Any, value: Any) -> None:
        """Set a key, or delete it with None."""
        name = self.key_bytes(key)
        data, timestamp = self._written(value)
        self._state.put(name, data, timestamp)
        self._state.log(name, data, timestamp)
        self._watch(key, value, data, timestamp, partial(self._state.peek, name))

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set many keys, in this order."""
        for key, value in entries:
            self.put(key, value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set a key that has no value; returns the one that it has."""
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return found

    def delete(self, key: Any) -> Any:
        """Delete a key; returns the value that it had."""
        found = self.get(key)
        self.put(key, None)
        return found

    def range(self, lower: Any, upper: Any) -> Iterator[tuple[Any, Any]]:
        """The entries from lower to upper, both included."""
        return self._shown_entries(self._between(lower, upper))

    def reverse_range(self, lower: Any, upper: Any) -> Iterator[tuple[Any, Any]]:
        """As `range`, from the last to the first."""
        return self._shown_entries(self._between(lower, upper)[::-1])

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Every entry."""
        return self.range(None, None)

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        """As `all`, from the last to the first."""
        return self.reverse_range(None, None)

    def prefix_scan(
        self, prefix: Any, serde: type[Any] | Serde[Any] = bytes
    ) -> Iterator[tuple[Any, Any]]:
        """The entries whose key's bytes begin with those of a prefix."""
        first = serde_of(serde).serialize(prefix)
        return self._shown_entries(list(self._state.range(first, after_prefix(first))))

    def approximate_num_entries(self) -> int:
        """How many entries there are; all of them are read for it."""
        return sum(1 for _ in self._state.range(None, None))

    def _between(self, lower: Any, upper: Any) -> list[tuple[bytes, Stored]]:
        first, last = self._bound(lower), self._bound(upper)
        return list(self._state.range(first, None if last is None else last + b"\x00"))

    def _shown_entries(self, found: list[tuple[bytes, Stored]]) -> Iterator[tuple[Any, Any]]:
        return ((self._keys.deserialize(key), self._value(key, stored)) for key, stored in found)

    def _value(self, name: bytes, stored: Stored) -> Any:
        if self._handed is None:
            return self._shown(self._values.deserialize(stored.value), stored)
        current = partial(self._state.peek, name)
        key = self._keys.deserialize(name)
        value = self._handed.give(self._spec.name, key, stored, self._values, current)
        return self._shown(value, stored)


class UserGlobalStore:
    """A global table's store in a processor's hands: to be looked into, and written by nobody."""

    def __init__(self, name: str, step: str, store: UserKeyValueStore) -> None:
        self._name = name
        self._step = step
        self.get = store.get
        self.timestamp = store.timestamp
        self.range = store.range
        self.reverse_range = store.reverse_range
        self.all = store.all
        self.reverse_all = store.reverse_all
        self.prefix_scan = store.prefix_scan
        self.approximate_num_entries = store.approximate_num_entries

    def put(self, key: Any, value: Any) -> None:
        """Refuse it: each instance would hold something else."""
        del key, value
        raise TopologyError(
            f"The processor of step {self._step} writes to the global store {self._name!r}",
            hint="Only its topic fills it: forward the record, and write it there with to(...); or "
            "keep it in a store of add_state_store(...)",
        )

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Refuse it, as `put`."""
        self.put(None, entries)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Refuse it, as `put`."""
        self.put(key, value)

    def delete(self, key: Any) -> Any:
        """Refuse it, as `put`."""
        self.put(key, None)


class UserTimedStore(UserStore):
    """A window or session store in a processor's hands."""

    def __init__(
        self,
        shared: Shared,
        spec: StoreSpec,
        state: TimedState,
        handed: HandedOut | None = None,
    ) -> None:
        super().__init__(shared, spec, handed)
        self._state = state
        state.stream_time = shared.recall(f"{spec.name}:time", -1)

    def finish(self) -> None:
        """Leave what the next slice needs."""
        self._shared.keep(f"{self._spec.name}:time", self._state.stream_time)

    def _value(self, name: bytes, first: int, second: int, stored: Stored) -> Any:
        if self._handed is None:
            return self._shown(self._values.deserialize(stored.value), stored)
        current = partial(self._state.get, name, first, second)
        key = self._keys.deserialize(name)
        value = self._handed.give(self._spec.name, key, stored, self._values, current)
        return self._shown(value, stored)

    def _put(self, key: Any, first: int, second: int, value: Any) -> None:
        if not self._set(key, first, second, value):
            self._shared.drop("expired")

    def _set(self, key: Any, first: int, second: int, value: Any) -> bool:
        """Write an entry; False if it comes too late."""
        name = self.key_bytes(key)
        data, timestamp = self._written(value)
        kept = self._state.put(name, first, second, data, timestamp)
        if kept:
            self._state.log(self._state.store_key(name, first, second), data, timestamp)
            current = partial(self._state.get, name, first, second)
            self._watch(key, value, data, timestamp, current)
        return kept


class UserWindowStore(UserTimedStore):
    """A window store in a processor's hands."""

    def put(self, key: Any, value: Any, start_ms: int) -> None:
        """Set the value of a key's window, or delete it with None."""
        self._put(key, start_ms, 0, value)

    def fetch(self, key: Any, start_ms: int) -> Any:
        """The value of a key's window."""
        name = self.key_bytes(key)
        stored = self._state.get(name, start_ms, 0)
        return None if stored is None else self._value(name, start_ms, 0, stored)

    def timestamp(self, key: Any, start_ms: int) -> int | None:
        """The time of a window's value."""
        stored = self._state.get(self.key_bytes(key), start_ms, 0)
        return None if stored is None else stored.timestamp

    def fetch_range(self, key: Any, first_ms: int, last_ms: int) -> Iterator[tuple[int, Any]]:
        """A key's windows that start in first..last."""
        name = self.key_bytes(key)
        return self._starts(name, self._state.entries(name, first_ms, last_ms))

    def backward_fetch(self, key: Any, first_ms: int, last_ms: int) -> Iterator[tuple[int, Any]]:
        """As `fetch_range`, from the last to the first."""
        name = self.key_bytes(key)
        return self._starts(name, self._state.entries(name, first_ms, last_ms)[::-1])

    def fetch_keys(
        self, lower: Any, upper: Any, first_ms: int, last_ms: int
    ) -> Iterator[tuple[Any, int, Any]]:
        """The windows of keys from lower to upper that start in first..last: key, start, value."""
        return self._windows(self._scan(lower, upper, first_ms, last_ms))

    def backward_fetch_keys(
        self, lower: Any, upper: Any, first_ms: int, last_ms: int
    ) -> Iterator[tuple[Any, int, Any]]:
        """As `fetch_keys`, from the last to the first."""
        return self._windows(self._scan(lower, upper, first_ms, last_ms)[::-1])

    def fetch_all(self, first_ms: int, last_ms: int) -> Iterator[tuple[Any, int, Any]]:
        """All keys' windows that start in first..last: key, start, value."""
        return self.fetch_keys(None, None, first_ms, last_ms)

    def backward_fetch_all(self, first_ms: int, last_ms: int) -> Iterator[tuple[Any, int, Any]]:
        """As `fetch_all`, from the last to the first."""
        return self.backward_fetch_keys(None, None, first_ms, last_ms)

    def all(self) -> Iterator[tuple[Any, int, Any]]:
        """All windows that have not expired: key, start, value."""
        return self.fetch_all(0, FAR)

    def backward_all(self) -> Iterator[tuple[Any, int, Any]]:
        """As `all`, from the last to the first."""
        return self.backward_fetch_all(0, FAR)

    def _scan(self, lower: Any, upper: Any, first: int, last: int) -> list[TimedEntry]:
        return self._state.scan(first, last, self._bound(lower), self._bound(upper))

    def question(self, key: Any, first_ms: int, last_ms: int) -> tuple[bytes, int, int]:
        """What is to be read for a key's windows that start in first..last."""
        return self.key_bytes(key), first_ms, last_ms

    def _starts(
        self, name: bytes, found: list[tuple[tuple[int, int], Stored]]
    ) -> Iterator[tuple[int, Any]]:
        return (
            (start, self._value(name, start, second, stored)) for (start, second), stored in found
        )

    def _windows(self, found: list[TimedEntry]) -> Iterator[tuple[Any, int, Any]]:
        return (
            (self._keys.deserialize(name), start, self._value(name, start, second, stored))
            for name, start, second, stored in found
        )


class UserSessionStore(UserTimedStore):
    """A session store in a processor's hands."""

    def put(self, key: Any, start_ms: int, end_ms: int, value: Any) -> None:
        """Set the value of a session, or delete it with None."""
        self._put(key, end_ms, start_ms, value)

    def remove(self, key: Any, start_ms: int, end_ms: int) -> None:
        """Delete a session."""
        # What has expired is gone already: unlike a late put, that loses nothing.
        self._set(key, end_ms, start_ms, None)

    def find_sessions(
        self, key: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[int, int, Any]]:
        """A key's sessions that end not before and start not after."""
        name = self.key_bytes(key)
        return self._sessions(name, self._found(name, earliest_end_ms, latest_start_ms))

    def backward_find_sessions(
        self, key: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[int, int, Any]]:
        """As `find_sessions`, from the last to the first."""
        name = self.key_bytes(key)
        return self._sessions(name, self._found(name, earliest_end_ms, latest_start_ms)[::-1])

    def find_sessions_of_keys(
        self, lower: Any, upper: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Any, int, int, Any]]:
        """The same of keys from lower to upper: key, start, end, value."""
        return self._keyed(self._scan(lower, upper, earliest_end_ms, latest_start_ms))

    def backward_find_sessions_of_keys(
        self, lower: Any, upper: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Any, int, int, Any]]:
        """As `find_sessions_of_keys`, from the last to the first."""
        return self._keyed(self._scan(lower, upper, earliest_end_ms, latest_start_ms)[::-1])

    def fetch(self, key: Any) -> Iterator[tuple[int, int, Any]]:
        """All sessions of a key."""
        return self.find_sessions(key, 0, FAR)

    def backward_fetch(self, key: Any) -> Iterator[tuple[int, int, Any]]:
        """As `fetch`, from the last to the first."""
        return self.backward_find_sessions(key, 0, FAR)

    def fetch_keys(self, lower: Any, upper: Any) -> Iterator[tuple[Any, int, int, Any]]:
        """All sessions of keys from lower to upper: key, start, end, value."""
        return self.find_sessions_of_keys(lower, upper, 0, FAR)

    def backward_fetch_keys(self, lower: Any, upper: Any) -> Iterator[tuple[Any, int, int, Any]]:
        """As `fetch_keys`, from the last to the first."""
        return self.backward_find_sessions_of_keys(lower, upper, 0, FAR)

    def fetch_session(self, key: Any, start_ms: int, end_ms: int) -> Any:
        """The value of exactly that session."""
        name = self.key_bytes(key)
        stored = self._state.get(name, end_ms, start_ms)
        return None if stored is None else self._value(name, end_ms, start_ms, stored)

    def question(self, key: Any, earliest_end_ms: int = 0) -> tuple[bytes, int, int]:
        """What is to be read for a key's sessions that end not before."""
        return self.key_bytes(key), earliest_end_ms, FAR

    def _found(
        self, name: bytes, earliest_end: int, latest_start: int
    ) -> list[tuple[tuple[int, int], Stored]]:
        state = self._state
        found = [e for e in state.entries(name, earliest_end, FAR) if e[0][1] <= latest_start]
        if state.in_memory:
            found.sort(key=lambda each: state.memory_place(name, *each[0]))
        return found

    def _scan(
        self, lower: Any, upper: Any, earliest_end: int, latest_start: int
    ) -> list[TimedEntry]:
        found = self._state.scan(earliest_end, FAR, self._bound(lower), self._bound(upper))
        return [each for each in found if each[2] <= latest_start]

    def _sessions(
        self, name: bytes, found: list[tuple[tuple[int, int], Stored]]
    ) -> Iterator[tuple[int, int, Any]]:
        return (
            (start, end, self._value(name, end, start, stored)) for (end, start), stored in found
        )

    def _keyed(self, found: list[TimedEntry]) -> Iterator[tuple[Any, int, int, Any]]:
        return (
            (self._keys.deserialize(name), start, end, self._value(name, end, start, stored))
            for name, end, start, stored in found
        )
