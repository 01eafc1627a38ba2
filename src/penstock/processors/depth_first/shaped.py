"""Stores with a shape of the user's own, over a slice's view of a store of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.errors import ConfigError, PenstockError, TopologyError
from penstock.option_values import imported
from penstock.processors.depth_first.record import Shared
from penstock.processors.depth_first.state import KeyValueState, Row
from penstock.processors.records import ScanReader
from penstock.topology import Shape, StoreSpec


class ShapedState(KeyValueState):
    """The bytes of such a store; its keys say nothing to anybody else."""


class SliceBytes:
    """What such a store is made of: `SliceStore`."""

    def __init__(self, shared: Shared, name: str, state: KeyValueState) -> None:
        self._shared = shared
        self._name = name
        self._state = state

    @property
    def name(self) -> str:
        """The store's name."""
        return self._name

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key."""
        self._state.prefetch(keys)
        found = map(self._state.get, keys)
        return [None if stored is None else stored.value for stored in found]

    def put(self, key: bytes, value: bytes, timestamp: int | None = None) -> None:
        """Set a key."""
        if not isinstance(value, bytes):
            raise TypeError(f"the store {self._name!r} keeps bytes, not {type(value).__name__}")
        self._write(key, value, timestamp)

    def delete(self, key: bytes, timestamp: int | None = None) -> None:
        """Delete a key."""
        self._write(key, None, timestamp)

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The entries with lower <= key < upper, by key."""
        for key, stored in list(self._state.range(lower, upper)):
            yield key, stored.value

    def _write(self, key: bytes, value: bytes | None, timestamp: int | None) -> None:
        if not isinstance(key, bytes):
            raise TypeError(f"the keys of the store {self._name!r} are bytes")
        # A flush at the end of a tick has no record; Kafka refuses a time before 1970.
        time = self._shared.put_time if timestamp is None else timestamp
        time = max(time, 0)
        self._state.put(key, value, time)
        self._state.log(key, value, time)


class Shapes:
    """The stores of a slice that have a shape of the user's own, each one for all processors.

    Raises `TopologyError` if a class cannot be had, `UserFunctionError` if it raises.
    """

    def __init__(
        self, shared: Shared, reader: ScanReader, rows: list[Row], states: dict[str, Any]
    ) -> None:
        self._shared = shared
        self._reader = reader
        self._rows = rows
        self._states = states
        self._made: dict[str, Any] = {}

    def store(self, spec: StoreSpec) -> Any:
        """What the user's class makes of a store's bytes."""
        name, shape = spec.name, spec.shape
        assert shape is not None
        if name not in self._made:
            state = self._states[name] = ShapedState(name, self._reader, self._rows)
            below = SliceBytes(self._shared, name, state)
            kind = shape_class(name, shape)
            self._made[name] = self._guarded(name, lambda: kind(below, **shape.options))
        return self._made[name]

    def flush(self) -> None:
        """Let them write what they held back, those that do such things."""
        for name, made in self._made.items():
            flush = getattr(made, "flush", None)
            if flush is not None:
                self._guarded(name, flush)

    def _guarded(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except PenstockError:
            raise
        except Exception as error:
            raise self._shared.failed(name, error) from error


def shape_class(name: str, shape: Shape) -> Callable[..., Any]:
    """The class of a store of the user's own shape. Raises `TopologyError` if it cannot be had."""
    if not isinstance(shape.made_of, str):
        return shape.made_of
    try:
        found: Callable[..., Any] = imported(shape.made_of, option="custom_store")
    except ConfigError as error:
        raise TopologyError(
            f"The custom store {name!r} is made of {shape.made_of!r}, which cannot be imported",
            where={"store": name},
            hint=error.hint,
        ) from error
    return found
