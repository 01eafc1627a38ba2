"""A driver's stores, and how a test looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.processors.record_cache import TIMESTAMP_BYTES
from penstock.topology import StoreSpec

K = TypeVar("K")
V = TypeVar("V")


class DriverState:
    """The bytes of all stores, as an instance would hold them: 8 bytes of time, then the value."""

    def __init__(self) -> None:
        self._stores: dict[str, dict[bytes, bytes]] = {}

    def of(self, store: str) -> dict[bytes, bytes]:
        """One store's bytes."""
        return self._stores.setdefault(store, {})

    def get_many(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Each key's stored bytes, null if absent."""
        held = self.of(store)
        return pa.array([held.get(key) for key in keys.to_pylist()], pa.binary())

    def apply(self, changes: pa.RecordBatch) -> None:
        """Write what a slice changed."""
        for change in changes.to_pylist():
            held = self.of(change["store"])
            if change["value"] is None:
                held.pop(change["key"], None)
            else:
                time = change["timestamp"].to_bytes(TIMESTAMP_BYTES, "big", signed=True)
                held[change["key"]] = time + change["value"]


class StoreView(Mapping[K, V], Generic[K, V]):
    """A key-value store as a test sees it: a mapping, in the order of the keys' bytes."""

    def __init__(self, spec: StoreSpec, held: dict[bytes, bytes]) -> None:
        self._spec = spec
        self._held = held

    def __getitem__(self, key: K) -> V:
        """The value of a key; `KeyError` if it has none."""
        value: V = self._spec.value_serde.deserialize(self._stored(key)[TIMESTAMP_BYTES:])
        return value

    def __iter__(self) -> Iterator[K]:
        """The keys."""
        return (self._spec.key_serde.deserialize(key) for key in sorted(self._held))

    def __len__(self) -> int:
        """How many keys it holds."""
        return len(self._held)

    def timestamp(self, key: K) -> int:
        """The time of a key's value, in milliseconds since the epoch."""
        return int.from_bytes(self._stored(key)[:TIMESTAMP_BYTES], "big", signed=True)

    def _stored(self, key: Any) -> bytes:
        stored = self._held.get(self._spec.key_serde.serialize(key))
        if stored is None:
            raise KeyError(key)
        return stored
