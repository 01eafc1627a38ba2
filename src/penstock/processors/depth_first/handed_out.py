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
    was_put: bool = False


class LastPuts:
    """What was put last of each object, by any processor: one object may serve many entries."""

    def __init__(self) -> None:
        self._last: dict[int, _Given] = {}

    def note(self, given: _Given) -> None:
        """The object is put; what it was put for before is no longer its business."""
        # The entry holds the object, so that no other one gets its id.
        self._last[id(given.value)] = given

    def is_last(self, given: _Given) -> bool:
        """Whether the object was not put again since."""
        return self._last.get(id(given.value)) is given


class HandedOut:
    """What one processor was given, or put: during one call, and in the slice so far."""

    def __init__(self, step: str, puts: LastPuts) -> None:
        self._step = step
        self._puts = puts
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

    def take(
        self,
        store: str,
        key: Any,
        value: Any,
        stored: Stored,
        serde: Serde[Any],
        current: Callable[[], Stored | None],
    ) -> None:
        """The value was put, and the processor still has it: it is looked at again, too."""
        if not isinstance(value, _FROZEN):
            taken = _Given(store, key, value, serde, stored.value, stored, current, was_put=True)
            self._puts.note(taken)
            self._given.append(taken)

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
            if each.was_put and not self._puts.is_last(each):
                continue
            if each.current() == each.stored and _is_changed(each):
                raise ValueNotPutError(
                    f"The processor {self._step} changed a value of store {each.store!r} in place "
                    "and did not put it back: the store still holds the old one",
                    where={"store": each.store, "key": each.key, "step": self._step},
                    hint="Write store.put(key, value) after the change; or change a copy",
                )


def _is_changed(given: _Given) -> bool:
    """Whether the value has other bytes now. Of a serde that never gives the same nobody knows."""
    now = _bytes(given)
    return now != given.encoded and now == _bytes(given)


def _bytes(given: _Given) -> bytes | None:
    try:
        return given.serde.serialize(given.value)
    except Exception:  # noqa: BLE001 - whatever the serde says
        return None  # It was changed to something that the store could not hold.
