"""The orders in which Java's hash tables and trees yield what they hold; `describe` prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_BUCKETS_MIN = 16


def grown_hash_order(names: Iterable[str]) -> list[str]:
    """The order of a `HashSet` or `HashMap` to which names were added one by one.

    >>> grown_hash_order(["orders", "payments", "refunds"])
    ['payments', 'orders', 'refunds']
    """
    names, buckets = list(names), _BUCKETS_MIN
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return _in_buckets(names, buckets)


def copied_hash_order(names: Iterable[str]) -> list[str]:
    """The order of `new HashSet<>(names)`, which makes room for one more than `HashSet` needs."""
    names, buckets = list(names), _BUCKETS_MIN
    while len(names) * 4 // 3 + 1 > buckets:
        buckets *= 2
    return _in_buckets(names, buckets)


def _in_buckets(names: list[str], buckets: int) -> list[str]:
    # Names of one bucket stay as they were added.
    return sorted(names, key=lambda name: _spread_hash(name) & (buckets - 1))


def _spread_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value ^ (value >> 16)


@dataclass(eq=False)
class _Place(Generic[T]):
    item: T
    parent: _Place[T] | None
    below: list[_Place[T] | None] = field(default_factory=lambda: [None, None])
    red: bool = True


class TreeSet(Generic[T]):
    """Java's `TreeSet`, to be filled with items whose ranks may change after they were added.

    An item's place then hangs on the shape that the tree has at that moment, so it is balanced as
    Java's is. Items must be distinct.
    """

    def __init__(self, rank: Callable[[T], Any]) -> None:
        self._rank = rank
        self._root: _Place[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(_in_order(self._root))

    def add(self, item: T) -> None:
        """Put an item where its rank belongs now."""
        parent, side, here = None, 0, self._root
        rank = self._rank(item)
        while here is not None:
            parent, side = here, int(rank > self._rank(here.item))
            here = here.below[side]
        place = _Place(item, parent)
        if parent is None:
            self._root = place
        else:
            parent.below[side] = place
        self._balance(place)

    def _balance(self, place: _Place[T]) -> None:
        while (parent := place.parent) is not None and parent.red:
            above = parent.parent
            assert above is not None, "the root is black"
            side = int(above.below[1] is parent)
            beside = above.below[1 - side]
            if beside is not None and beside.red:
                parent.red = beside.red = False
                above.red = True
                place = above
                continue
            if place is parent.below[1 - side]:
                self._rotate(parent, side)
                place, parent = parent, place
            parent.red, above.red = False, True
            self._rotate(above, 1 - side)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, place: _Place[T], side: int) -> None:
        """Move a place down to a side; what was below its other side takes its place."""
        up = place.below[1 - side]
        assert up is not None
        inner = up.below[side]
        place.below[1 - side] = inner
        if inner is not None:
            inner.parent = place
        up.parent = place.parent
        if place.parent is None:
            self._root = up
        else:
            place.parent.below[int(place.parent.below[1] is place)] = up
        up.below[side] = place
        place.parent = up


def _in_order(place: _Place[T] | None) -> Sequence[T]:
    if place is None:
        return ()
    return (*_in_order(place.below[0]), place.item, *_in_order(place.below[1]))
