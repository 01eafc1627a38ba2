"""Stores of versions, cut up and seen closely; tests/contract has the machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
