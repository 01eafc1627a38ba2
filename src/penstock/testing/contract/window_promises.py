"""What stores promise besides: of windows, sessions and versions, and those that find by time."""

from __future__ import annotations

import struct

from penstock.serdes.windowed import session_key, window_key
from penstock.stores.contract import (
    GAP,
    NOTHING,
    Change,
    Entry,
    KeyValueStore,
    TimeIndexedStore,
    VersionedStore,
    WindowStore,
    version_key,
)
from penstock.testing.contract.case import Case, Promises, content, expect

_TIME = struct.Struct(">q")


def finds_a_keys_entries(case: Case) -> None:
    """`fetch` gives the entries of exactly that key with a time in first..last, by time."""
    store = _windows(case)
    like_a = b"a" + _TIME.pack(20)
    names = [(b"a", 30), (b"a", 10), (like_a, 20), (b"", 20), (b"ab", 20), (b"a", 20)]
    store.apply([(_key(case, name, time), case.value(time)) for name, time in names], offset=0)
    for name, first, last, wanted in (
        (b"a", 0, 99, [10, 20, 30]),
        (b"a", 10, 20, [10, 20]),
        (b"a", 11, 19, []),
        (b"a", 30, 10, []),
        (like_a, 0, 99, [20]),
        (b"", 0, 99, [20]),
        (b"b", 0, 99, []),
    ):
        found = list(store.fetch(name, first, last))
        expected = [(_key(case, name, time), case.value(time)) for time in wanted]
        expect(found == expected, f"of {name!r} from {first} to {last}: {found}")


def tells_entries_of_one_time_apart(case: Case) -> None:
    """Sessions that differ in their starts alone are two, as are windows in sequence numbers."""
    store, keeps = _windows(case), case.order.retention_ms
    # A session is as old as its end is.
    time = 10 * keeps
    keys = [
        window_key(b"a", time, n) if case.order.kind == "window" else session_key(b"a", n, time)
        for n in (0, 7, time - 1, time)
    ]
    entries = [(key, case.value(n)) for n, key in enumerate(keys)]
    store.apply(reversed(entries), offset=0)
    for _ in range(2):
        expect(store.get_many(keys) == [value for _, value in entries], "get_many mixes them up")
        expect(content(store) == entries, f"of {entries} range has {content(store)}")
        found = sorted(store.fetch(b"a", time, time))
        expect(found == entries, f"of {entries} fetch has {found}")
        if case.persistent:
            store.close()
            store = _windows(case)
    store.apply([(keys[1], None)], offset=1)
    expect(sorted(store.fetch(b"a", 0, time)) == [entries[0], *entries[2:]], "others are deleted")


def forgets_what_is_old(case: Case) -> None:
    """What is older than the latest time by the retention is not found, whatever is asked."""
    store, keeps = _windows(case), case.order.retention_ms
    alive, gone = 10 * keeps - keeps + 1, 5 * keeps
    changes = [(_key(case, b"a", time), case.value(1)) for time in (0, gone, alive, 10 * keeps)]
    store.apply(changes, offset=0)
    wanted = [(_key(case, b"a", time), case.value(1)) for time in (alive, 10 * keeps)]
    expect(list(store.fetch(b"a", 0, 20 * keeps)) == wanted, "fetch finds others")
    expect(content(store) == wanted, "range finds others")
    old = [_key(case, b"a", 0), _key(case, b"a", gone)]
    expect(store.get_many(old) == [None, None], "get_many finds what is old")
    store.apply([(old[0], case.value(2))], offset=1)
    expect(store.get_many(old) == [None, None], "what comes too late is found")
    expect(store.offset() == 1, "what comes too late does not move the offset")


def forgets_the_same_after_reopening(case: Case) -> None:
    """Opened again a store still knows the latest time."""
    if not case.persistent:
        return
    store, keeps = _windows(case), case.order.retention_ms
    store.apply([(_key(case, b"a", 10 * keeps), case.value(1))], offset=0)
    store.close()
    store = _windows(case)
    store.apply([(_key(case, b"a", 0), case.value(2))], offset=1)
    expect(store.get_many([_key(case, b"a", 0)]) == [None], "what comes too late is found")


def finds_entries_by_time(case: Case) -> None:
    """`fetch_times` gives the entries with a time in first..last, by time and then by key."""
    store = case.open()
    expect(isinstance(store, TimeIndexedStore), "it has no fetch_times")
    assert isinstance(store, TimeIndexedStore)
    entries = [_timed(case, name, time) for name, time in ((b"b", 10), (b"a", 20), (b"c", 10))]
    store.apply(reversed(entries), offset=0)
    b, a, c = entries
    expect(
        list(store.fetch_times(0, 99)) == [b, c, a], f"it gives {list(store.fetch_times(0, 99))}"
    )
    expect(list(store.fetch_times(11, 20)) == [a], "bounds are not kept")
    expect(list(store.fetch_times(20, 10)) == [], "from late to early it finds something")
    changes: list[Change] = [(b[0], None), _timed(case, b"c", 10)]
    if case.order.kind == "key_value":
        changes.append((a[0], _timed(case, b"a", 5)[1]))
        a = (a[0], changes[-1][1] or b"")
    store.apply(changes, offset=1)
    wanted = [a, c] if case.order.kind == "key_value" else [c, a]
    expect(list(store.fetch_times(0, 99)) == wanted, "after a deletion it is out of date")


def knows_what_was(case: Case) -> None:
    """`versions` gives what a key was between two times, in whatever order that was told."""
    store = _versions(case)
    store.apply([case.put(1, 30), case.put(1, 10), case.put(2, 15), case.drop(1, 20)], offset=0)
    expect(store.get_many([case.key(1)]) == [case.value(30)], "the latest is not the latest")
    for time, wanted in ((5, []), (10, [case.value(10)]), (19, [case.value(10)]), (25, [])):
        found = [value for _, value in store.versions(case.key(1), time, time)]
        found = [value for value in found if value not in (NOTHING, GAP)]
        expect(found == wanted, f"at {time} it was {found}")
    keys = [key for key, _ in store.versions(case.key(1), 10, 30)]
    expect(keys == [version_key(case.key(1), time) for time in (10, 20, 30)], f"it has {keys}")
    expect(list(store.versions(case.key(3), 0, 99)) == [], "an unknown key has versions")


def refuses_what_is_past_its_history(case: Case) -> None:
    """What is older than the latest time by more than the history is not taken in."""
    store, keeps = _versions(case), case.order.retention_ms
    store.apply([case.put(1, 3 * keeps), case.put(2, 3 * keeps - keeps)], offset=0)
    store.apply([case.put(3, keeps), case.drop(2, keeps)], offset=1)
    found = store.get_many([case.key(n) for n in (1, 2, 3)])
    wanted = [case.value(3 * keeps), case.value(2 * keeps), None]
    expect(found == wanted, f"the latest are {found}")
    expect(store.offset() == 1, "what comes too late does not move the offset")


def _versions(case: Case) -> VersionedStore:
    store: KeyValueStore = case.open()
    expect(isinstance(store, VersionedStore), "it has no versions")
    assert isinstance(store, VersionedStore)
    return store


def _windows(case: Case) -> WindowStore:
    store: KeyValueStore = case.open()
    expect(isinstance(store, WindowStore), "it has no fetch")
    assert isinstance(store, WindowStore)
    return store


def _key(case: Case, name: bytes, time: int) -> bytes:
    return window_key(name, time) if case.order.kind == "window" else session_key(name, 0, time)


def _timed(case: Case, name: bytes, time: int) -> Entry:
    key = name if case.order.kind == "key_value" else _key(case, name, time)
    return key, b"12345678" + _TIME.pack(time)


WINDOWS: Promises = {
    (each.__doc__ or "").strip(): each
    for each in (
        finds_a_keys_entries,
        tells_entries_of_one_time_apart,
        forgets_what_is_old,
        forgets_the_same_after_reopening,
    )
}
BY_TIME: Promises = {(finds_entries_by_time.__doc__ or "").strip(): finds_entries_by_time}
VERSIONS: Promises = {
    (each.__doc__ or "").strip(): each
    for each in (knows_what_was, refuses_what_is_past_its_history)
}
