"""Topologies for the whole pipeline that chance does not give: each kind of window, wait and join.

Their records come out of order, some too late, and some without a value. A key's answers depend on
the clock of its partition, of which the driver has one: so the records of each partition are a case
of their own, in the order in which a task takes them, and what all of them give is the answer.

Between the tasks of a join by foreign key the records of several meet, and whose come first is left
to chance. So it is one case, of which the last results count.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.processors import partitions_of
from tests.conformance.cases import Case, Record, Step

PARTITIONS = 2
# Above the seeds of the other cases of the pipeline, whose numbers are in names of topics, too.
FIRST_SEED = 1000
_KEYS = ("a", "b", "c", "d", "e", "é", "日本", "")
_LETTERS = "aabbccddx1"
_RECORDS = 90
# Times of different inputs never meet: records with equal times have no promised order.
_TICK_MS = 4
_LATE_TICKS_MAX = 20
_ROUNDS = (100, 300)

_TUMBLING = {"kind": "tumbling", "size": 24, "grace": 8}
_HOPPING = {"kind": "hopping", "size": 40, "advance": 20, "grace": 12}
_SLIDING = {"kind": "sliding", "size": 20, "grace": 12}
_SESSION = {"kind": "session", "size": 12, "grace": 12}
_JOINED = {"before": 16, "after": 12, "grace": 20}
_KINDS = ("inner", "left", "outer")


def program_cases() -> Iterator[Case]:
    """The cases; those of one topology have one seed, and follow each other."""
    for place, (name, steps) in enumerate(PROGRAMS.items()):
        chance = random.Random(name)
        topics = sorted({topic for step in steps for topic in _topics(step)})
        kept = _by_topic(chance, topics)
        parts = [kept] if name in _MIXED else [_of_partition(kept, p) for p in range(PARTITIONS)]
        for part in parts:
            yield Case(FIRST_SEED + place, 0, steps, tuple(_as_taken(part)), (name,))


def _topics(step: Step) -> list[str]:
    if step["op"] == "stream":
        topics: list[str] = step["topics"]
        return topics
    return [step["topic"]] if step["op"] == "table" else []


def _by_topic(chance: random.Random, topics: list[str]) -> dict[str, list[Record]]:
    """Records of each topic in their order there; at the end every key comes again, twice."""
    rows: dict[str, list[Record]] = {topic: [] for topic in topics}
    clocks = dict.fromkeys(topics, 20)
    for _ in range(_RECORDS):
        topic = chance.choice(topics)
        clocks[topic] += chance.choice([0, 1, 1, 2, 3])
        late = chance.randint(1, _LATE_TICKS_MAX) if chance.random() < 0.3 else 0
        value = "".join(chance.choice(_LETTERS) for _ in range(chance.choice([1, 1, 2, 3])))
        _append(rows, topic, chance.choice(_KEYS), value, clocks[topic] - late)
        if chance.random() < 0.08:
            _append(rows, topic, chance.choice(_KEYS), None, clocks[topic])
    clock = max(clocks.values())
    for later in _ROUNDS:
        for topic in topics:
            for number, key in enumerate(_KEYS):
                _append(rows, topic, key, "abcd"[number % 4], clock + later + number)
    return rows


def _append(
    rows: dict[str, list[Record]], topic: str, key: str, value: str | None, tick: int
) -> None:
    place = list(rows).index(topic)
    rows[topic].append((topic, key, value, max(0, tick) * _TICK_MS + place))


def _of_partition(rows: dict[str, list[Record]], partition: int) -> dict[str, list[Record]]:
    keys = pa.array([key.encode() for key in _KEYS], pa.binary())
    places = dict(zip(_KEYS, partitions_of(keys, PARTITIONS).tolist(), strict=True))
    return {
        topic: [row for row in kept if row[1] is not None and places[row[1]] == partition]
        for topic, kept in rows.items()
    }


def _as_taken(rows: dict[str, list[Record]]) -> Iterator[Record]:
    """Of the next record of each topic, the one with the lowest time, as a task takes them."""
    waiting = {topic: list(reversed(kept)) for topic, kept in rows.items() if kept}
    while waiting:
        first = min(waiting, key=lambda topic: waiting[topic][-1][3])
        yield waiting[first].pop()
        if not waiting[first]:
            del waiting[first]


def _program(sources: Iterable[Step], *chains: Iterable[Step]) -> tuple[Step, ...]:
    """Sources, and chains of steps behind the last of them, each to a topic of its own."""
    made = list(sources)
    behind = made[-1]["id"]
    for place, chain in enumerate(chains):
        last = behind
        for number, step in enumerate(chain):
            made.append({"id": f"s{place}-{number}", "from": last, **step})
            last = made[-1]["id"]
        made.append({"id": f"end{place}", "op": "to", "from": last, "topic": f"out{place}"})
    return tuple(made)


def _stream(topic: str) -> Step:
    return {"id": topic, "op": "stream", "topics": [topic]}


def _table(topic: str, **options: int) -> Step:
    return {"id": topic, "op": "table", "topic": topic, "store": f"{topic}-rows", **options}


def _windowed(window: Step) -> tuple[Step, ...]:
    """Windows as they change, as they are when they close, and when it was waited for that."""
    grouped = {"id": "grouped", "op": "group_by_key", "from": "left"}
    closes = {**window, "emit": "close"}
    return _program(
        [_stream("left"), grouped],
        [{"op": "reduce", "f": "add", "window": window, "store": "all"}, _TO_STREAM],
        [{"op": "count", "window": window, "store": "held"}, _CLOSES, _TO_STREAM],
        [{"op": "aggregate", "f": "add", "window": closes, "store": "last"}, _TO_STREAM],
    )


def _joined(left: Step, right: Step, *kinds: str, **options: object) -> tuple[Step, ...]:
    more = [_TO_STREAM] if left["op"] == "table" else []
    join = {"op": "join", "from": left["id"], "with": right["id"], "f": "pair", **options}
    chains = ([{**join, "kind": kind, "name": f"meet-{kind}"}, *more] for kind in kinds)
    return _program([left, right], *chains)


def _cogrouped() -> tuple[Step, ...]:
    groups = [
        {"id": f"{side}-group", "op": "group_by_key", "from": side, "name": f"{side}-group"}
        for side in ("left", "right")
    ]
    fold = {"op": "cogroup", "f": ["add", "times"], "from": [group["id"] for group in groups]}
    return _program(
        [_stream("left"), _stream("right"), *groups],
        [{**fold, "store": "hops", "window": _HOPPING}, _TO_STREAM],
        [{**fold, "store": "sessions", "window": _SESSION}, _CLOSES, _TO_STREAM],
    )


_TO_STREAM: Step = {"op": "to_stream"}
_CLOSES: Step = {"op": "suppress", "until": "window_closes", "name": "calm"}
_FEW: Step = {
    "op": "suppress",
    "until": "time_limit",
    "limit": 4_000,
    "name": "few",
    "buffer": {"max_records": 2, "full": "emit"},
}

PROGRAMS: dict[str, tuple[Step, ...]] = {
    "tumbling": _windowed(_TUMBLING),
    "hopping": _windowed(_HOPPING),
    "sliding": _windowed(_SLIDING),
    "session": _windowed(_SESSION),
    "through a topic": _program(
        [
            _stream("left"),
            {"id": "again", "op": "group_by", "from": "left", "f": "same", "name": "again"},
        ],
        [{"op": "count", "window": _TUMBLING, "store": "held"}, _CLOSES, _TO_STREAM],
        [{"op": "count", "window": _TUMBLING, "store": "told"}, _FEW, _TO_STREAM],
    ),
    "cogroup": _cogrouped(),
    "streams": _joined(_stream("left"), _stream("right"), *_KINDS, window=_JOINED),
    "stream and table": _joined(_stream("left"), _table("right"), "inner", "left"),
    "stream and versions": _joined(
        _stream("left"), _table("right", versioned=200), "left", grace=40
    ),
    "tables": _joined(_table("left"), _table("right"), *_KINDS),
    "versions": _joined(_table("left", versioned=60), _table("right", versioned=60), "outer"),
    "foreign key": _joined(
        _table("left"), _table("right"), "inner", foreign_key="first", store="rows"
    ),
}
"""By what each is about."""

_MIXED = ("foreign key",)
"""Those whose tasks get records of several others."""
