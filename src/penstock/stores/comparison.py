"""How the entries of two stores differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.stores.contract import Entry


@dataclass(frozen=True)
class Difference:
    """A key that only one of two stores has, or that has another value or time in the other."""

    key: bytes
    kind: Literal["missing", "extra", "different"]


def compare(found: Iterable[Entry], expected: Iterable[Entry]) -> Iterator[Difference]:
    """What differs, by key; both sides come in the order of their keys.

    >>> list(compare([(b"a", b"1"), (b"b", b"2")], [(b"b", b"3"), (b"c", b"4")]))
    ... # doctest: +NORMALIZE_WHITESPACE
    [Difference(key=b'a', kind='extra'), Difference(key=b'b', kind='different'),
     Difference(key=b'c', kind='missing')]
    """
    left, right = iter(found), iter(expected)
    ours, theirs = next(left, None), next(right, None)
    while ours is not None or theirs is not None:
        if theirs is None or (ours is not None and ours[0] < theirs[0]):
            assert ours is not None
            yield Difference(ours[0], "extra")
            ours = next(left, None)
        elif ours is None or theirs[0] < ours[0]:
            yield Difference(theirs[0], "missing")
            theirs = next(right, None)
        else:
            if ours[1] != theirs[1]:
                yield Difference(ours[0], "different")
            ours, theirs = next(left, None), next(right, None)
