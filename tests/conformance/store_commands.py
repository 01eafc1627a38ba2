"""What processors do with their stores, from seeds; Kafka Streams' stores say what is right.

A case is a store, and for each record a list of commands; all answers are compared. A record's
commands are done in one slice, so that later ones see what earlier ones wrote and nobody committed.
oracle/StoreCommands.java does the same in Java.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import penstock as ps
from penstock.testing import TopologyTestDriver

Command = list[Any]
KEYS = ("a", "ab", "a\x00", "b", "é", "日本", "")
KINDS = ("key_value", "window", "session")
# Longer than a segment of a minute, and shorter than the times that are drawn.
RETENTION_MS = 150_000
LAST_MS = 400_000
_SESSIONS_OF_A_KEY = ("find_sessions", "backward_find_sessions", "fetch", "backward_fetch")


@dataclass(frozen=True)
class StoreFacts:
    """The store of a case."""

    kind: str
    persistent: bool
    timestamped: bool
    retention: int = RETENTION_MS
    window: int = 1000

    @property
    def builder(self) -> Any:
        """What makes it."""
        common: dict[str, Any] = {"key": str, "value": str, "persistent": self.persistent}
        spans: dict[str, Any] = {"retention": _ms(self.retention)}
        if self.kind == "session":
            return ps.session_store("s", **common, **spans)
        if self.kind == "window":
            spans["window"] = _ms(self.window)
            make: Any = ps.timestamped_window_store if self.timestamped else ps.window_store
            return make("s", **common, **spans)
        make = ps.timestamped_key_value_store if self.timestamped else ps.key_value_store
        return make("s", **common)


@dataclass(frozen=True)
class StoreCase:
    """A store, and what is done with it: for each record its time and the commands."""

    seed: int
    store: StoreFacts
    commands: tuple[tuple[int, list[Command]], ...]

    def as_json(self) -> dict[str, Any]:
        """What the oracle reads."""
        commands = [[time, list(each)] for time, each in self.commands]
        return {"seed": self.seed, "store": asdict(self.store), "commands": commands}

    @staticmethod
    def from_json(data: dict[str, Any]) -> StoreCase:
        """The case that `as_json` wrote."""
        commands = tuple((time, each) for time, each in data["commands"])
        return StoreCase(data["seed"], StoreFacts(**data["store"]), commands)


def make_store_case(seed: int) -> StoreCase:
    """The case of a seed; the same one every time. Kinds take turns."""
    chance = random.Random(f"stores {seed}")
    kind = KINDS[seed % len(KINDS)]
    timed = kind != "session" and chance.random() < 0.5
    store = StoreFacts(kind, persistent=chance.random() < 0.7, timestamped=timed)
    if kind == "session" and not store.persistent:
        # There, Kafka Streams finds sessions that have expired until something is put.
        store = replace(store, retention=2 * LAST_MS)
    draw = {"key_value": _key_value, "window": _window, "session": _session}[kind]
    clock, commands = 0, []
    for _ in range(12):
        clock = min(LAST_MS, clock + chance.randint(0, 60_000))
        commands.append((clock, [draw(chance, store, clock) for _ in range(8)]))
    return StoreCase(seed, store, tuple(commands))


def run_store_case(case: StoreCase) -> dict[str, Any]:
    """What Penstock's stores answer, in the oracle's shape."""
    answers: list[list[Any]] = []
    todo, sessions = iter(case.commands), case.store.kind == "session"

    class Doing(ps.Processor[str, str, str, str]):
        def process(self, record: ps.Record[str, str]) -> None:
            store = self.context.store("s")
            answers.append([_answer(store, each, sessions=sessions) for each in next(todo)[1]])

    app = ps.Application("stores")
    app.add_state_store(case.store.builder)
    stream = app.stream("in", key=str, value=str)
    stream.process(Doing, stores=["s"], key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    for time, _ in case.commands:
        driver.input_topic("in", key=str, value=str).pipe("k", "v", timestamp=time)
    return {"answers": answers}


def _answer(store: Any, command: Command, *, sessions: bool) -> Any:
    name, *given = command
    if name == "put_all":
        store.put_all([(key, _given(value)) for key, value in given[0]])
        return None
    if name == "walk":
        return _walk(store)
    if name == "prefix_scan":
        return _rows(store.prefix_scan(given[0], str))
    method: Callable[..., Any] = getattr(store, name)
    found = method(*(_given(each) for each in given))
    if not hasattr(found, "__next__"):
        return _shown(found)
    # Kafka Streams says the key of each session, even where there is only one.
    said = [given[0]] if name in _SESSIONS_OF_A_KEY and sessions else []
    return [[*said, *row] for row in _rows(found)]


def _walk(store: Any) -> list[Any]:
    """Every entry, each of which is moved to another key meanwhile."""
    rows = []
    for key, value in store.all():
        rows.append([key, _shown(value)])
        store.delete(key)
        store.put(key + "~", value)
    return rows


def _given(value: Any) -> Any:
    return ps.ValueAndTimestamp(*value) if isinstance(value, list) else value


def _shown(value: Any) -> Any:
    return list(value) if isinstance(value, ps.ValueAndTimestamp) else value


def _rows(found: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [[*row[:-1], _shown(row[-1])] for row in found]


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


# Commands


def _value(chance: random.Random, store: StoreFacts, *, none: bool = True) -> Any:
    if none and chance.random() < 0.15:
        return None
    text = chance.choice("abcdefgh")
    return [text, chance.randint(0, LAST_MS)] if store.timestamped else text


def _bounds(chance: random.Random, store: StoreFacts) -> list[str | None]:
    # Up to a key that ends with a byte 0, Kafka Streams misses windows of the key without it.
    keys = KEYS if store.kind == "key_value" else [key for key in KEYS if key != "a\x00"]
    pair = sorted(chance.choices(keys, k=2), key=lambda key: key.encode())
    # In memory, sessions from a later key to an earlier one are an error in Kafka Streams.
    if chance.random() < 0.1 and (store.kind != "session" or store.persistent):
        pair.reverse()
    return [None if chance.random() < 0.15 else each for each in pair]


def _times(chance: random.Random, clock: int) -> list[int]:
    return sorted(max(0, clock - chance.randint(-20_000, 250_000)) for _ in range(2))


def _key_value(chance: random.Random, store: StoreFacts, clock: int) -> Command:
    del clock
    key = chance.choice(KEYS)
    puts: list[Command] = [
        ["put", key, _value(chance, store)],
        ["put", key, _value(chance, store)],
        ["put_if_absent", key, _value(chance, store, none=False)],
        ["put_all", [[chance.choice(KEYS), _value(chance, store)] for _ in range(3)]],
    ]
    asks: list[Command] = [
        ["get", key],
        ["delete", key],
        ["range", *_bounds(chance, store)],
        ["reverse_range", *_bounds(chance, store)],
        ["all"],
        ["reverse_all"],
        # One in memory fails on a prefix of no bytes.
        ["prefix_scan", chance.choice(["a", "" if store.persistent else "b", "é", "日"])],
    ]
    # In memory, Kafka Streams looks each value up as it goes, and finds none for what was deleted.
    asks += [["walk"]] if store.persistent and chance.random() < 0.2 else []
    return chance.choice(puts if chance.random() < 0.5 else asks)


def _window(chance: random.Random, store: StoreFacts, clock: int) -> Command:
    key, times = chance.choice(KEYS), _times(chance, clock)
    start = max(0, clock - chance.choice([0, 0, 1000, 40_000, 140_000, 200_000]))
    if chance.random() < 0.55:
        return ["put", key, _value(chance, store), start]
    asks: list[Command] = [
        ["fetch", key, start],
        ["fetch_range", key, *times],
        ["backward_fetch", key, *times],
        ["fetch_keys", *_bounds(chance, store), *times],
        ["backward_fetch_keys", *_bounds(chance, store), *times],
        ["fetch_all", *times],
        ["backward_fetch_all", *times],
        ["all"],
        ["backward_all"],
    ]
    return chance.choice(asks)


def _session(chance: random.Random, store: StoreFacts, clock: int) -> Command:
    key, times = chance.choice(KEYS), _times(chance, clock)
    end = max(0, clock - chance.choice([0, 0, 1000, 40_000, 140_000, 200_000]))
    start = max(0, end - chance.choice([0, 1000, 30_000]))
    if chance.random() < 0.55:
        return ["put", key, start, end, _value(chance, store)]
    asks: list[Command] = [
        ["remove", key, start, end],
        ["find_sessions", key, *times],
        ["backward_find_sessions", key, *times],
        ["find_sessions_of_keys", *_bounds(chance, store), *times],
        ["backward_find_sessions_of_keys", *_bounds(chance, store), *times],
        ["fetch", key],
        ["backward_fetch", key],
        ["fetch_keys", *_bounds(chance, store)],
        ["backward_fetch_keys", *_bounds(chance, store)],
        ["fetch_session", key, start, end],
    ]
    return chance.choice(asks)
