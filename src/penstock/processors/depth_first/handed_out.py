"""Values that stores gave to a user's processor, watched for changes that nobody put back.

Only the test driver watches: it encodes every value twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import ValueNotPutError
from penstock.processors.depth_first.state import Stored
from penstock.serdes import Serde

_FROZEN = (str, bytes, int, float, bool, type(None))


class _Given(NamedTuple):
    store: str
    key: Any
    value: Any
    serde: Serde[Any]
    encoded: bytes
    stored: Stored
    current: Callable[[], Stored | None]


class HandedOut:
    """What one processor was given: during one call, and in the slice so far."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._given: list[_Given] = []
        self._before: list[_Given] = []

    def give(
        self,
        store: str,
        key: Any,
        stored: Stored,
        serde: Serde[Any],
        current: Callable[[], Stored | None],
    ) -> Any:
        """The stored value, to be looked at again; `current()` is what the store holds then."""
        value = serde.deserialize(stored.value)
        if not isinstance(value, _FROZEN):
            encoded = serde.serialize(value)
            self._given.append(_Given(store, key, value, serde, encoded, stored, current))
        return value

    def forget(self) -> None:
        """A new call begins; the one before may have failed, and was never checked."""
        self._given.clear()

    def check(self) -> None:
        """Raise `ValueNotPutError` for a value that was changed, and whose key was not written."""
        given, self._given = self._given, []
        self._look_at(given)
        # A later call may still change what this one kept.
        self._before += given

    def check_all(self) -> None:
        """As `check`, of all that was given since the processor was made: nothing comes later."""
        self.check()
        given, self._before = self._before, []
        self._look_at(given)

    def _look_at(self, given: list[_Given]) -> None:
        for each in given:
            if each.current() == each.stored and _bytes(each) != each.encoded:
                raise ValueNotPutError(
                    f"The processor {self._step} changed a value of store {each.store!r} in place "
                    "and did not put it back: the store still holds the old one",
                    where={"store": each.store, "key": each.key, "step": self._step},
                    hint="Write store.put(key, value) after the change; or change a copy",
                )


def _bytes(given: _Given) -> bytes | None:
    try:
        return given.serde.serialize(given.value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None  # It was changed to something that the store could not hold.
