"""Stores of versions, cut up and seen closely; tests/contract has the machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.comparison import Difference, compare, entries_of, history_start
from penstock.stores.memory import MemoryStore
from penstock.stores.versioned import VersionsStore
from tests.contract.versions import (
    KEYS,
    RETENTION,
    SEGMENT,
    TIMES,
    VALUES,
    Model,
    Put,
    as_of,
    change,
)


@given(puts=st.lists(st.tuples(KEYS, TIMES, VALUES), max_size=60), sizes=st.integers(1, 9))
def test_however_the_changelog_is_cut_the_restored_store_is_the_same(
    puts: list[Put], sizes: int
) -> None:
    model = Model()
    for put in puts:
        model.put(*put)
    store = VersionsStore(MemoryStore("versions"), retention_ms=RETENTION, segment_ms=SEGMENT)
    accepted, running = [], Model()
    for put in puts:
        if put[1] >= running.latest - RETENTION:
            accepted.append(put)
        running.put(*put)
    for start in range(0, len(accepted), sizes):
        store.apply(map(change, accepted[start : start + sizes]), offset=start)
    for key in model.versions:
        for time in range(model.oldest, model.latest + 1):
            assert as_of(store, key, time) == model.as_of(key, time)


@pytest.mark.parametrize("value", [b"", None])
def test_an_empty_value_is_not_a_deletion(value: bytes | None) -> None:
    store = VersionsStore(MemoryStore("versions"), retention_ms=RETENTION, segment_ms=SEGMENT)
    store.apply([change((b"a", 5, value)), change((b"a", 7, b"x"))], offset=1)
    assert as_of(store, b"a", 6) == (None if value is None else (5, b""))


def test_a_history_that_is_not_the_same_differs_though_the_latest_versions_are() -> None:
    def of(*times: int) -> VersionsStore:
        store = VersionsStore(MemoryStore("versions"), retention_ms=10_000, segment_ms=3_000)
        store.apply([change((b"k", time, b"v%d" % time)) for time in times], offset=9)
        return store

    def differ(left: VersionsStore, right: VersionsStore) -> list[Difference]:
        since = history_start(left, right)
        return list(compare(entries_of(left, since), entries_of(right, since)))

    whole = of(100, 200, 300)
    expected = [Difference(b"k", "extra", 100), Difference(b"k", "extra", 200)]
    assert differ(whole, of(300)) == expected
    assert not differ(whole, of(200, 100, 300))
    # At 20,000 the version of 9,000 is still valid in the history; a changelog need not have it.
    assert not differ(of(9_000, 20_000), of(20_000))


@given(puts=st.lists(st.tuples(KEYS, TIMES, VALUES), max_size=30))
def test_the_history_has_every_key_once_and_in_order(puts: list[Put]) -> None:
    store = VersionsStore(MemoryStore("versions"), retention_ms=RETENTION, segment_ms=SEGMENT)
    store.apply(map(change, puts), offset=1)
    keys = [key for key, _ in store.history(store.oldest)]
    assert keys == sorted(set(keys))
    places = [place for place, _ in entries_of(store, store.oldest)]
    assert places == sorted(set(places))
