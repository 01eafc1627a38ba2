"""Goal: the record cache lets writes through when, and in the order in which, Kafka Streams' does.

Method: data/thread_cache.txt holds, for random writes, what Kafka Streams 4.1.1's own cache flushed
(data/ThreadCacheOracle.java wrote it). Each case also runs in two parts, since a slice may come in
several batches.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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
