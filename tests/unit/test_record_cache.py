"""Goal: the record cache lets writes through when, and in the order in which, Kafka Streams' does.

Method: data/thread_cache.txt holds, for random writes, what Kafka Streams 4.1.1's own cache flushed
(data/ThreadCacheOracle.java wrote it). Each case also runs in two parts, since a slice may come in
several batches.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.processors.full_cache import FullCache
from penstock.processors.record_cache import CONTEXT_BYTES, ENTRY_BYTES, CacheState, EvictingCache

DATA = Path(__file__).parent / "data" / "thread_cache.txt"
LINES = DATA.read_text().splitlines()
CASES = list(zip(LINES[::2], LINES[1::2], strict=True))


def _run(case: str, cut: int) -> list[str]:
    limit, *parts = case.split("|")
    keys, texts = zip(*(part.split(" ") for part in parts), strict=True)
    distinct = list(dict.fromkeys(keys))
    slots = [distinct.index(key) for key in keys]
    lengths = [int(text) for text in texts]
    topic = len("in")
    sizes = [
        len(key) + ENTRY_BYTES + CONTEXT_BYTES + topic + max(length, 0)
        for key, length in zip(keys, lengths, strict=True)
    ]
    state = CacheState(int(limit))
    state.grow(np.array([len(key) for key in distinct]), np.full(len(distinct), -1))
    last: dict[int, int] = {}
    seen: list[str] = []
    for begin, end in ((0, cut), (cut, len(slots))):
        carried = [last[slot] for slot in state.dirty_slots().tolist()]
        cache = EvictingCache(state, [slots[row] for row in carried], [lengths[r] for r in carried])
        flushed, causes = cache.write(slots[begin:end], sizes[begin:end], lengths[begin:end])
        numbers = [*carried, *range(begin, end)]
        seen += [f"{begin + at}:{numbers[n]}" for n, at in zip(flushed, causes, strict=True)]
        cache.leave(np.array(slots[begin:end], dtype=np.int64), begin)
        last.update((slot, begin + i) for i, slot in enumerate(slots[begin:end]))
    for slot in state.dirty_slots().tolist():
        if lengths[last[slot]] >= 0 or state.stored[slot] >= 0:
            seen.append(f"-1:{last[slot]}")
    return seen


@pytest.mark.parametrize("number", range(len(CASES)))
def test_flushes_are_kafka_streams(number: int) -> None:
    case, expected = CASES[number]
    for cut in (0, 4, 17):
        assert _run(case, min(cut, case.count("|"))) == expected.split()


def test_writes_that_fit_are_told_apart_from_those_that_may_not() -> None:
    state = CacheState(100)
    state.grow(np.array([1, 1]), np.array([-1, 90]))
    slot = np.array([0, 0])
    assert state.fits(slot, np.array([60, 100]))
    assert not state.fits(slot, np.array([101, 60]))
    # Reading the long old value of the second key would push the first one out.
    assert not state.fits(np.array([1]), np.array([50]))


def test_what_is_looked_up_stays_longer() -> None:
    """Two entries fit. A look between the writes makes the first the younger one of them."""

    def flushed(looks: list[list[int]]) -> tuple[list[int], list[int]]:
        size = 1 + ENTRY_BYTES + CONTEXT_BYTES + 10
        state = CacheState(2 * size)
        # A fourth key is stored, and is in nobody's cache until it is looked up.
        state.grow(np.array([1, 1, 1, 1]), np.array([-1, -1, -1, 10]))
        cache = EvictingCache(state, [], [])
        return cache.write([0, 1, 2], [size] * 3, [10] * 3, looks=looks)

    assert flushed([]) == ([0, 1, 2], [2, 2, 2])
    assert flushed([[], [], [0], []]) == ([1, 0, 2], [2, 2, 2])
    # What is not there takes no room; what is stored does, and the last write is not the eldest.
    assert flushed([[], [2], [], []]) == ([0, 1, 2], [2, 2, 2])
    assert flushed([[], [], [3], []]) == ([0, 1], [2, 2])
    assert flushed([[], [], [], [1]]) == ([0, 1, 2], [2, 2, 2])


def test_looks_of_others_need_room_too() -> None:
    state = CacheState(100)
    state.grow(np.array([1]), np.array([-1]))
    assert state.fits(np.array([0]), np.array([60]), more_bytes=40)
    assert not state.fits(np.array([0]), np.array([60]), more_bytes=41)


@pytest.mark.parametrize("known", [False, True])
@settings(max_examples=200, deadline=None)
@given(
    slots=st.lists(st.integers(0, 9), min_size=1, max_size=120),
    keys=st.lists(st.integers(1, 3), min_size=10, max_size=10),
    limit=st.integers(80, 500),
    cut=st.integers(0, 120),
)
def test_even_sizes_need_no_step_per_write(
    slots: list[int], keys: list[int], limit: int, cut: int, known: bool
) -> None:
    value_bytes, topic = 16, 2
    stored = np.where(np.arange(10) % 2 == 0, value_bytes, -1) if known else np.full(10, -1)
    key_bytes = np.array(keys)
    one, two = CacheState(limit), CacheState(limit)
    for state in (one, two):
        state.grow(key_bytes, stored.copy())
    cut = min(cut, len(slots))
    for begin, end in ((0, cut), (cut, len(slots))):
        if begin == end:
            continue
        part = np.array(slots[begin:end], dtype=np.int64)
        sizes = key_bytes[part] + ENTRY_BYTES + CONTEXT_BYTES + topic + value_bytes
        carried = one.dirty_slots().tolist()
        slow = EvictingCache(one, carried, [value_bytes] * len(carried))
        expected = slow.write(part.tolist(), sizes.tolist(), [value_bytes] * len(part))
        slow.leave(part, begin)
        fast = FullCache(two, part, sizes, first=begin, value_bytes=value_bytes)
        assert fast.flushes(topic) == expected
        assert two.total == one.total
        for name in ("size", "dirty", "stored", "last_write"):
            assert getattr(two, name).tolist() == getattr(one, name).tolist(), name
