"""Cases for a real KafkaStreams: what a test driver of one partition and no cache cannot show.

They are about the record cache, the order between several inputs, and results that wait for the
clock. A case has phases: the records of one are written wholly before any of them is processed, and
the application commits when all of them have been.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.cases import CACHE_BYTES, Case, Step

Headers = tuple[tuple[str, str], ...]
Sent = tuple[str, str | None, str | None, int, Headers]
"""Topic, key, value, timestamp, headers."""

# Room for nothing, for one or two entries, for some, for most, for all.
CACHES = (0, 120, 300, 700, CACHE_BYTES)
NO_EVICTION = (0, CACHE_BYTES)
# Longer than a phase takes, shorter than the way to the next: see Streams.java.
EMIT_INTERVAL_MS = 10_000_000
IDLE_MS = 1000
# Times of different inputs never meet: records with equal times have no promised order.
_TICK_MS = 4
_KEYS = ("a", "b", "c", "d", "e", "é", "日本", "")
_LETTERS = "aabbccdde1x"


@dataclass(frozen=True)
class StreamsCase:
    """A topology as data, how it is run, and its records."""

    seed: int
    kind: str
    cache: int
    partitions: int
    emit_interval: int
    steps: tuple[Step, ...]
    phases: tuple[tuple[Sent, ...], ...]
    idle: int

    @property
    def id(self) -> str:
        """The application id, with which the names of its topics begin."""
        return f"ks{self.seed:04}"

    @property
    def topology(self) -> Case:
        """The topology alone."""
        return Case(self.seed, self.cache, self.steps, ())

    def as_json(self) -> dict[str, Any]:
        """What Streams.java reads."""
        return {
            "seed": self.seed,
            "kind": self.kind,
            "id": self.id,
            "cache": self.cache,
            "partitions": self.partitions,
            "emit_interval": self.emit_interval,
            "idle": self.idle,
            "steps": list(self.steps),
            "phases": [[list(record) for record in phase] for phase in self.phases],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> StreamsCase:
        """The case that `as_json` wrote."""
        phases = [tuple(map(_sent, phase)) for phase in data["phases"]]
        names = ("seed", "kind", "cache", "partitions", "emit_interval", "idle")
        given = {name: data[name] for name in names}
        return StreamsCase(**given, steps=tuple(data["steps"]), phases=tuple(phases))


def _sent(row: list[Any]) -> Sent:
    topic, key, value, time, headers = row
    return topic, key, value, time, tuple((name, text) for name, text in headers)


def make_streams_case(seed: int) -> StreamsCase:
    """The case of a seed; the same one every time."""
    chance = random.Random(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    draft = _Draft(chance, f"ks{seed:04}")
    KINDS[kind](draft)
    # Which task's write makes room in a cache that several share is a matter of luck.
    spread = draft.cache in NO_EVICTION and not draft.moves
    partitions = chance.choice([1, 2, 3]) if spread else 1
    phases = _phases(draft, null_keys=partitions == 1)
    return StreamsCase(
        seed=seed,
        kind=kind,
        cache=draft.cache,
        partitions=partitions,
        emit_interval=draft.emit_interval,
        steps=tuple(draft.steps),
        phases=tuple(phases),
        idle=chance.choice([0, IDLE_MS]),
    )


@dataclass
class _Draft:
    """The steps so far."""

    chance: random.Random
    id: str
    steps: list[Step] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    emit_interval: int = 0
    moves: bool = False  # whether records go through a repartition topic

    def __post_init__(self) -> None:
        self.cache = self.chance.choice(CACHES)

    def add(self, op: str, origin: str | None = None, **parameters: Any) -> str:
        step = f"s{len(self.steps)}"
        begin = {} if origin is None else {"from": origin}
        given = {name: value for name, value in parameters.items() if value is not None}
        self.steps.append({"id": step, "op": op, **begin, **given})
        return step

    def topic(self) -> str:
        self.topics.append(f"{self.id}-in{len(self.topics)}")
        return self.topics[-1]

    def stream(self, topics: int = 1) -> str:
        return self.add("stream", topics=[self.topic() for _ in range(topics)])

    def table(self, *, caching: bool = True) -> str:
        return self.add("table", topic=self.topic(), **self.store(caching=caching))

    def store(self, *, caching: bool = True) -> Step:
        named: Step = {"store": f"store{len(self.steps)}"}
        return named if caching else {**named, "caching": False}

    def end(self, table: str) -> None:
        self.add("to", self.add("to_stream", table), topic=f"{self.id}-out")

    def time(self, low: int, high: int) -> int:
        return self.chance.randint(low, high) * _TICK_MS

    def fold(self, grouped: str, window: Step | None = None) -> str:
        op = self.chance.choice(["count", "reduce", "aggregate"])
        word = None if op == "count" else self.chance.choice(["add", "add", "add_or_delete"])
        kept = None
        if window is not None:
            # Kafka Streams' cache finds windows that its store has forgotten: see differences.md.
            kept = 2 * window["size"] + window["grace"] + 2000 * _TICK_MS
        return self.add(op, grouped, f=word, window=window, retention=kept, **self.store())

    def window(self, *kinds: str, emit: str | None = None) -> Step:
        size = self.time(4, 16)
        grace = self.chance.choice([0, self.time(1, 12), self.time(1, 12)])
        window: Step = {"kind": self.chance.choice(kinds), "size": size, "grace": grace}
        if window["kind"] == "hopping":
            window["advance"] = size // self.chance.choice([2, 4])
        return window if emit is None else {**window, "emit": emit}


def _fold(draft: _Draft) -> None:
    draft.end(draft.fold(draft.add("group_by_key", draft.stream())))


def _to_table(draft: _Draft) -> None:
    table = draft.add("to_table", draft.stream(), name="latest", **draft.store())
    if draft.chance.random() < 0.5:
        word = draft.chance.choice(["has_a", "has_b_or_none"])
        table = draft.add("filter", table, f=word)
    draft.end(table)


def _windows(draft: _Draft) -> None:
    window = draft.window("tumbling", "hopping")
    draft.end(draft.fold(draft.add("group_by_key", draft.stream()), window))


def _sessions(draft: _Draft) -> None:
    draft.end(draft.fold(draft.add("group_by_key", draft.stream()), draft.window("session")))


def _table_join(draft: _Draft) -> None:
    left, right = draft.table(), draft.table()
    kind = draft.chance.choice(["inner", "left", "outer"])
    stored = draft.store() if draft.chance.random() < 0.5 else {}
    options = {"kind": kind, "f": "pair", "with": right, "name": "join", **stored}
    draft.end(draft.add("join", left, **options))


def _stream_join(draft: _Draft) -> None:
    left, right = draft.stream(), draft.stream()
    window = {
        "before": draft.time(0, 10),
        "after": draft.time(0, 10),
        "grace": draft.chance.choice([0, draft.time(1, 16)]),
    }
    kind = draft.chance.choice(["inner", "left", "outer"])
    options = {"kind": kind, "f": "pair", "with": right, "name": "join", "window": window}
    draft.add("to", draft.add("join", left, **options), topic=f"{draft.id}-out")


def _table_lookup(draft: _Draft) -> None:
    left, right = draft.stream(), draft.table()
    kind = draft.chance.choice(["inner", "left"])
    options = {"kind": kind, "f": "pair", "with": right, "name": "join"}
    joined = draft.add("join", left, **options)
    if draft.chance.random() < 0.5:
        draft.end(draft.fold(draft.add("group_by_key", joined)))
    else:
        draft.add("to", joined, topic=f"{draft.id}-out")


def _merged(draft: _Draft) -> None:
    if draft.chance.random() < 0.5:
        both = draft.stream(topics=draft.chance.choice([2, 3]))
    else:
        both = draft.add("merge", draft.stream(), **{"with": draft.stream()})
    draft.end(draft.fold(draft.add("group_by_key", both)))


def _cogroup(draft: _Draft) -> None:
    groups = [
        draft.add("group_by_key", draft.stream(), name=f"group{number}") for number in range(2)
    ]
    step = draft.add("cogroup", f=["add", "times"], **draft.store())
    draft.steps[-1]["from"] = groups
    draft.end(step)


def _on_close(draft: _Draft) -> None:
    window = draft.window("tumbling", "hopping", "sliding", "session", emit="close")
    draft.emit_interval = draft.chance.choice([0, EMIT_INTERVAL_MS])
    draft.end(draft.fold(draft.add("group_by_key", draft.stream()), window))


def _unmatched(draft: _Draft) -> None:
    _stream_join(draft)
    draft.steps[-2]["kind"] = draft.chance.choice(["left", "outer"])
    draft.emit_interval = EMIT_INTERVAL_MS


def _moved(draft: _Draft) -> None:
    draft.cache = draft.chance.choice(NO_EVICTION)
    first = draft.fold(draft.add("group_by_key", draft.stream()))
    texts = draft.add("map_values", draft.add("to_stream", first), f="text")
    again = draft.add("group_by", texts, f="length_of_value", name="again")
    draft.moves = True
    draft.end(draft.fold(again))


def _table_group(draft: _Draft) -> None:
    draft.cache = draft.chance.choice(NO_EVICTION)
    grouped = draft.add("group_by", draft.table(), f="first_of_value", name="by-first")
    draft.moves = True
    options = {"f": "add", "g": "subtract", **draft.store()}
    draft.end(draft.add("aggregate", grouped, **options))


def _suppress(draft: _Draft) -> None:
    table = draft.fold(draft.add("group_by_key", draft.stream()), draft.window("tumbling"))
    draft.end(draft.add("suppress", table, until="window_closes", name="calm"))


KINDS: dict[str, Callable[[_Draft], None]] = {
    "fold": _fold,
    "to_table": _to_table,
    "windows": _windows,
    "sessions": _sessions,
    "table_join": _table_join,
    "stream_join": _stream_join,
    "table_lookup": _table_lookup,
    "merged": _merged,
    "cogroup": _cogroup,
    "on_close": _on_close,
    "unmatched": _unmatched,
    "moved": _moved,
    "table_group": _table_group,
    "suppress": _suppress,
}


def _phases(draft: _Draft, *, null_keys: bool) -> list[tuple[Sent, ...]]:
    chance = draft.chance
    count = chance.choice([1, 2, 3])
    with_headers = chance.random() < 0.25
    keys = chance.sample(_KEYS, chance.randint(4, 7))
    # Each topic has a clock of its own, ahead of the others' or behind.
    clocks = {topic: 20 + chance.choice([0, 0, 5, 15]) for topic in draft.topics}
    phases = []
    for _ in range(count):
        records: list[Sent] = []
        for _ in range(chance.randint(20, 40)):
            topic = chance.choice(draft.topics)
            clocks[topic] += chance.choice([0, 0, 1, 1, 2, 3])
            late = chance.randint(0, 12) if chance.random() < 0.3 else 0
            time = max(0, clocks[topic] - late) * _TICK_MS + draft.topics.index(topic)
            key = None if null_keys and chance.random() < 0.05 else chance.choice(keys)
            headers = (
                (("h", chance.choice("xyz")),) if with_headers and chance.random() < 0.5 else ()
            )
            records.append((topic, key, _value(chance), time, headers))
        for topic in draft.topics:
            clocks[topic] += chance.choice([0, 10, 60])
        phases.append(tuple(records))
    if draft.emit_interval:
        # At the end the clock has gone on, and stream time too: whatever waited comes out.
        phases.append(_closing(draft, keys, max(clocks.values()) + 100))
    return phases


def _closing(draft: _Draft, keys: list[str], clock: int) -> tuple[Sent, ...]:
    """A record of each topic and key; one after the other they fill every partition."""
    return tuple(
        (topic, key, "z", (clock + number) * _TICK_MS + place, ())
        for place, topic in enumerate(draft.topics)
        for number, key in enumerate(keys)
    )


def _value(chance: random.Random) -> str | None:
    if chance.random() < 0.12:
        return None
    return "".join(chance.choice(_LETTERS) for _ in range(chance.choice([0, 1, 1, 2, 3])))
