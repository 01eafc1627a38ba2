"""Several stores that are told and asked the same: one run of a machine tries them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

Engine = Literal["memory", "rocksdb"]
ENGINES: tuple[Engine, ...] = ("memory", "rocksdb")


class Together:
    """Passes every call on to each store, and makes sure that they answer alike.

    >>> Together([[1], [1, 2]]).count(1)
    1
    >>> Together([[1], [1, 2]]).count(2)
    Traceback (most recent call last):
    AssertionError: count: [0, 1]
    """

    def __init__(self, stores: list[Any]) -> None:
        self._stores = stores

    def __getattr__(self, name: str) -> Any:
        found = [getattr(store, name) for store in self._stores]
        if not callable(found[0]):
            return _agreed(name, found)

        def ask(*given: Any, **options: Any) -> Any:
            arguments = [_whole(each) for each in given]
            answers = [_whole(method(*arguments, **options)) for method in found]
            # Estimates need not agree.
            return min(answers) if name.startswith("approximate") else _agreed(name, answers)

        return ask


def _whole(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def _agreed(name: str, answers: list[Any]) -> Any:
    assert all(each == answers[0] for each in answers), f"{name}: {answers}"
    return answers[0]
