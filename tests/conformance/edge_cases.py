"""Cases at the edges, from seeds: those of cases.py with windows, times and values that are rare.

Windows of a millisecond and joins of none or of negative spans, records of one time, of ever
earlier ones or years apart, many without a key or a value, keys that begin as others end, and
stores that are kept in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.conformance.cases import Case, Record, Step, make_case

# Before and after, in milliseconds times the case's scale: none, one side alone, and negative ones.
_SPANS = [(0, 0), (0, 9), (9, 0), (6, -6), (-6, 6), (9, -4), (-4, 9), (2, -1), (-1, 2)]
_FAR = 2**53
_YEARS = 10**11
# What stands between a key and its window in a store, or after it, is in these keys itself.
_LIKE_WINDOWS = {
    "b": "a\0",
    "c": "a\0\0\0\0\0\0\0\x14",
    "d": "a\0\0\0\0\0\0\0\x14\0\0\0\0",
    "e": "\0",
    "é": "\0\0",
    "日本": "a\x7f",
    "𝄞": "\0\0\0\1a",
    "": "\uffff",
}


def make_edge_case(seed: int) -> Case:
    """The case of a seed; the same one every time."""
    chance, case = random.Random(f"edges {seed}"), make_case(seed)
    moved = _Windows(chance)
    steps = tuple(moved.step(step) for step in case.steps)
    memory = chance.random() < 0.4 and not any(_closes(step) for step in steps)
    if memory:
        steps = tuple(each for step in steps for each in _with_values(step))
    times = chance.choice(_TIMES)
    # What came later leaves all else as it was.
    later = random.Random(f"later edges {seed}")
    times = _years_apart if later.random() < 0.2 else times
    records = tuple(
        _emptied(chance, times(chance, number, record))
        for number, record in enumerate(case.records)
    )
    if later.random() < 0.25:
        records = tuple(_keyed_like_windows(record) for record in records)
    return replace(
        case,
        # With a cache Kafka Streams walks through all segments since 1970.
        cache=0 if times in (_far, _years_apart) else case.cache,
        steps=steps,
        records=records,
        memory=memory,
    )


def _closes(step: Step) -> bool:
    """Whether results come at the close of windows: in memory Kafka Streams may have forgotten them
    then (differences.md)."""
    return bool(step.get("window", {}).get("emit") == "close")


def _with_values(step: Step) -> Iterator[Step]:
    """The step; a join of streams is given values alone, whose stores are to be in memory.

    There a record without one moves the store's time in Kafka Streams: differences.md.
    """
    if "before" not in step.get("window", {}):
        yield step
        return
    for side in ("from", "with"):
        name = f"{step['id']}-{side}"
        yield {"id": name, "op": "filter", "from": step[side], "f": "has_value"}
        step = {**step, side: name}
    yield step


class _Windows:
    """Other windows, the same for all steps that have the same: their tables may meet."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._sizes: dict[tuple[str, int], int] = {}
        self._graces: dict[int, int] = {}

    def step(self, step: Step) -> Step:
        window = step.get("window")
        if window is None or window.get("kind") == "unlimited":
            return step
        if "before" in window:
            return {**step, "window": self._joined(window)}
        return _kept({**step, "window": self._divided(window)})

    def _joined(self, window: Step) -> Step:
        scale = max(1, (window["before"] + window["after"]) // 12)
        if self._chance.random() < 0.2:
            return window
        before, after = (each * scale for each in self._chance.choice(_SPANS))
        return {"before": before, "after": after, "grace": self._grace(window["grace"])}

    def _divided(self, window: Step) -> Step:
        kind, size = window["kind"], window["size"]
        known = self._sizes.get((kind, size))
        if known is None:
            known = self._chance.choice([size, 1, 1, 2])
            self._sizes[kind, size] = known
        changed = {**window, "size": known, "grace": self._grace(window["grace"])}
        if "advance" in window:
            changed["advance"] = min(window["advance"], known)
        return changed

    def _grace(self, grace: int) -> int:
        return self._graces.setdefault(grace, self._chance.choice([grace, 0, 1]))


def _kept(step: Step) -> Step:
    """The step; a store that is kept for as long as its windows last is so with other windows."""
    window = step["window"]
    least = (2 if window["kind"] == "sliding" else 1) * window["size"] + window["grace"]
    if (step.get("retention") or least) < least:
        return {**step, "retention": least}
    return step


def _as_they_are(_chance: random.Random, _number: int, record: Record) -> Record:
    return record


def _together(chance: random.Random, number: int, record: Record) -> Record:
    """Few times, each of many records."""
    return _at(record, number // 30 + chance.choice([0, 0, 0, 1]))


def _backwards(_chance: random.Random, number: int, record: Record) -> Record:
    return _at(record, max(0, 60 - number))


def _far(_chance: random.Random, _number: int, record: Record) -> Record:
    return _at(record, record[3] + _FAR)


def _years_apart(chance: random.Random, number: int, record: Record) -> Record:
    """Leaps over all that is kept, and some records of long ago."""
    leaps = number // 20 if chance.random() < 0.85 else 0
    return _at(record, record[3] + leaps * _YEARS)


_Times = Callable[[random.Random, int, Record], Record]
_TIMES: list[_Times] = [_as_they_are, _as_they_are, _together, _backwards, _far]


def _at(record: Record, time: int) -> Record:
    topic, key, value, _ = record
    return topic, key, value, time


def _keyed_like_windows(record: Record) -> Record:
    topic, key, value, time = record
    return topic, None if key is None else _LIKE_WINDOWS.get(key, key), value, time


def _emptied(chance: random.Random, record: Record) -> Record:
    topic, key, value, time = record
    drawn = chance.random()
    if drawn < 0.06:
        key = None
    elif drawn < 0.2:
        value = None
    return topic, key, value, time
