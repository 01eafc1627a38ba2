"""Values that a store gives back changed: a float of 4 bytes is rounded, a time comes in UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.serdes import DoubleSerde, Serde

Settle = Callable[[Any], Any]


def copying(serde: Serde[Any], *, needed: bool) -> Settle:
    """Makes copies of values that functions may change in place; gives others as they are.

    >>> from penstock.serdes import JsonSerde
    >>> value = [1]
    >>> copying(JsonSerde(list[int]), needed=True)(value) is value
    False
    """
    if serde.immutable or not needed:
        return _itself
    read, write = serde.deserialize, serde.serialize

    def copied(value: Any) -> Any:
        if value is None:
            return None
        try:
            return read(write(value))
        except Exception:  # noqa: BLE001 - An aggregation may begin with what no store can keep.
            return value

    return copied


def _itself(value: Any) -> Any:
    return value


def settling(serde: Serde[Any]) -> Settle | None:
    """Makes of a value what a store gives back of it; None where that is the value itself.

    Whoever is given a value is given that one: else results would depend on which records are in
    one slice, and on the record cache. Of values that can be changed in place nobody asks: where
    they are read again, they are read from bytes.

    >>> settle = settling(DoubleSerde())
    >>> settle(1), settle(1.5), settle(None)
    (1.0, 1.5, None)
    """
    if serde.exact or not serde.immutable:
        return None
    read, write = serde.deserialize, serde.serialize
    # A call for each record: most need not go through bytes.
    same = float if isinstance(serde, DoubleSerde) else None

    def settle(value: Any) -> Any:
        if value is None or type(value) is same:
            return value
        try:
            return read(write(value))
        except Exception:  # noqa: BLE001 - Where the value is written, the error has its place.
            return value

    return settle
