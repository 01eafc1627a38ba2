"""Rows of global tables, whose bytes are those of a topic: what cannot be decoded is found here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import DeserializationError
from penstock.processors.depth_first.dead_letters import letter_of
from penstock.processors.depth_first.record import Context, Shared
from penstock.processors.depth_first.state import KeyValueState, Stored
from penstock.processors.depth_first.user_stores import UserKeyValueStore
from penstock.processors.records import Handler
from penstock.serdes import Serde
from penstock.topology import StoreSpec

_SKIPPED = object()


class GlobalRows:
    """Decodes the rows of one global table for a slice.

    One that cannot be decoded is as the handler says: it ends the slice, or it counts as not there
    and is counted once, however often it is met.
    """

    def __init__(
        self, shared: Shared, spec: StoreSpec, state: KeyValueState, handler: Handler
    ) -> None:
        self.spec = spec
        self.state = state
        self._shared = shared
        self._handler = handler
        self._bad: set[bytes] = set()

    def get(self, step: str, name: bytes) -> tuple[Any, Stored] | None:
        """The value of a key, given by its bytes, and what is stored; None if it has no row."""
        stored = self.state.get(name)
        if stored is None:
            return None
        value = self._decoded(step, self.spec.value_serde, "value", name, stored)
        return None if value is _SKIPPED else (value, stored)

    def entries(
        self, step: str, found: list[tuple[bytes, Stored]]
    ) -> Iterator[tuple[Any, Any, Stored]]:
        """Key, value and what is stored, of those rows that can be decoded."""
        for name, stored in found:
            key = self._decoded(step, self.spec.key_serde, "key", name, stored)
            if key is _SKIPPED:
                continue
            value = self._decoded(step, self.spec.value_serde, "value", name, stored)
            if value is not _SKIPPED:
                yield key, value, stored

    def _decoded(self, step: str, serde: Serde[Any], what: str, name: bytes, stored: Stored) -> Any:
        try:
            return serde.deserialize(name if what == "key" else stored.value)
        except ValueError as error:
            if self._handler == "fail":
                raise self._undecodable(step, serde, what, name, error) from error
            self._skip(name, stored, error)
            return _SKIPPED

    def _skip(self, name: bytes, stored: Stored, error: ValueError) -> None:
        if name in self._bad:
            return
        self._bad.add(name)
        self._shared.dropped["undecodable"] += 1
        letters = self._shared.dead_letters
        if self._handler == "dead_letter" and letters is not None:
            # A store knows neither the partition nor the offset that a row came from.
            context = Context(self.spec.topic, -1, -1, stored.timestamp, ())
            letters.send(context, letter_of(error), raw=(name, stored.value))

    def _undecodable(
        self, step: str, serde: Serde[Any], what: str, name: bytes, error: ValueError
    ) -> DeserializationError:
        where = {
            "topic": self.spec.topic,
            "step": step,
            "store": self.spec.name,
            "key": _shown(self.spec.key_serde, name),
        }
        return DeserializationError(
            f"The {what} of a row of global table {self.spec.name!r} cannot be decoded as "
            f"{serde.name}: {error}",
            where=where,
            hint="Name the right type where the table is made, write the key to its topic again, "
            'or set deserialization_exception_handler="continue" to skip and count such rows',
        )


class GlobalLookups:
    """All global tables that a slice looks into; steps share each, and so its counts."""

    def __init__(
        self, shared: Shared, handler: Handler, state: Callable[[str], KeyValueState]
    ) -> None:
        self._shared = shared
        self._handler = handler
        self._state = state
        self._rows: dict[str, GlobalRows] = {}

    def rows(self, spec: StoreSpec) -> GlobalRows:
        """The rows of a table."""
        if spec.name not in self._rows:
            state = self._state(spec.name)
            self._rows[spec.name] = GlobalRows(self._shared, spec, state, self._handler)
        return self._rows[spec.name]


class UserGlobalRows(UserKeyValueStore):
    """A global table's rows for a processor, without those that cannot be decoded."""

    def __init__(self, shared: Shared, step: str, rows: GlobalRows) -> None:
        super().__init__(shared, rows.spec, rows.state)
        self._step = step
        self._rows = rows

    def get(self, key: Any) -> Any:
        """The value of a key."""
        row = self._rows.get(self._step, self.key_bytes(key))
        return None if row is None else self._shown(*row)

    def timestamp(self, key: Any) -> int | None:
        """The time of a key's value."""
        row = self._rows.get(self._step, self.key_bytes(key))
        return None if row is None else row[1].timestamp

    def _shown_entries(self, found: list[tuple[bytes, Stored]]) -> Iterator[tuple[Any, Any]]:
        return (
            (key, self._shown(value, stored))
            for key, value, stored in self._rows.entries(self._step, found)
        )


def _shown(serde: Serde[Any], name: bytes) -> str:
    try:
        return repr(serde.deserialize(name))
    except ValueError:
        return f"0x{name.hex()}"
