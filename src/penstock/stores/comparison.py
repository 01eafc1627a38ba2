"""How the entries of two stores differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from penstock.stores.contract import GAP, NOTHING, KeyValueStore, split_version_key
from penstock.stores.versioned import VersionsStore

Place = tuple[bytes, int, int]
"""A key, a version's time (-1 without versions), and which of those of the same time it is."""


@dataclass(frozen=True)
class Difference:
    """A key that only one of two stores has, or that has another value or time in the other.

    Of a store of versions it is one version, which begins at `time`.
    """

    key: bytes
    kind: Literal["missing", "extra", "different"]
    time: int | None = None


def history_start(*stores: KeyValueStore) -> int:
    """Since when what any of these stores knows of its versions is to be compared."""
    return min((each.oldest for each in stores if isinstance(each, VersionsStore)), default=0)


def entries_of(store: KeyValueStore, since: int) -> Iterator[tuple[Place, bytes]]:
    """All that is to be the same in a store and in its copy, by place.

    Of versions that is the history since a time. What began before it and is over, or deletes, may
    be known to one alone: changelogs need not keep it.
    """
    if not isinstance(store, VersionsStore):
        yield from (((key, -1, 0), value) for key, value in store.all())
        return
    for key, versions in store.history(since):
        last = len(versions) - 1
        times = [split_version_key(name)[1] for name, _ in versions]
        for time, same in groupby(range(len(versions)), times.__getitem__):
            for number, at in enumerate(same):
                value = versions[at][1]
                is_now = at == last and value not in (NOTHING, GAP)
                if is_now or time >= since:
                    yield (key, time, number), value


def compare(
    found: Iterable[tuple[Place, bytes]], expected: Iterable[tuple[Place, bytes]]
) -> Iterator[Difference]:
    """What differs, by place; both sides come in the order of their places.

    >>> a, b, c = ((key, -1, 0) for key in (b"a", b"b", b"c"))
    >>> for each in compare([(a, b"1"), (b, b"2")], [(b, b"3"), (c, b"4")]):
    ...     print(each.key, each.kind)
    b'a' extra
    b'b' different
    b'c' missing
    """
    left, right = iter(found), iter(expected)
    ours, theirs = next(left, None), next(right, None)
    while ours is not None or theirs is not None:
        if theirs is None or (ours is not None and ours[0] < theirs[0]):
            assert ours is not None
            yield _difference(ours[0], "extra")
            ours = next(left, None)
        elif ours is None or theirs[0] < ours[0]:
            yield _difference(theirs[0], "missing")
            theirs = next(right, None)
        else:
            if ours[1] != theirs[1]:
                yield _difference(ours[0], "different")
            ours, theirs = next(left, None), next(right, None)


def _difference(place: Place, kind: Literal["missing", "extra", "different"]) -> Difference:
    key, time, _ = place
    return Difference(key, kind, None if time < 0 else time)
