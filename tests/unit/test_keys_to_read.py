"""Goal: what a processor says it will read is read in bulk, and changes nothing but that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.processors import Limits, RecordRun
from penstock.testing.stores import DriverState
from tests.unit.slices import Row, changes, outputs, records

MINUTE = timedelta(minutes=1)
KINDS = {
    "key_value": ps.key_value_store("s", key=str, value=int),
    "versioned": ps.versioned_store("s", key=str, value=int, history_retention=MINUTE),
    "window": ps.window_store("s", key=str, value=int, retention=MINUTE, window=MINUTE),
    "session": ps.session_store("s", key=str, value=int, retention=MINUTE),
}


class Asked(DriverState):
    """Knows how often it was asked."""

    def __init__(self, store: ps.topology.StoreSpec) -> None:
        super().__init__({"s": store})
        self.calls = 0

    def get_many(self, store: str, keys: Any) -> Any:
        self.calls += 1
        return super().get_many(store, keys)

    def range_many(self, *given: Any) -> Any:
        self.calls += 1
        return super().range_many(*given)

    def fetch_many(self, *given: Any, **options: Any) -> Any:
        self.calls += 1
        return super().fetch_many(*given, **options)


class Counts(ps.Processor[str, str, str, int]):
    """Counts words that are made of key and value, in a store of whichever kind."""

    kind = "key_value"

    def process(self, record: ps.Record[str, str]) -> None:
        name, store = f"{record.key}/{record.value}", self.context.store("s")
        if self.kind == "key_value":
            count = (store.get(name) or 0) + 1
            store.put(name, count)
        elif self.kind == "versioned":
            held = store.get(name)
            count = 1 if held is None else held.value + 1
            store.put(name, count, record.timestamp)
        elif self.kind == "window":
            count = sum(value for _, value in store.fetch_range(name, 0, 100)) + 1
            store.put(name, count, record.timestamp)
        else:
            count = sum(value for _, _, value in store.find_sessions(name, 0, 100)) + 1
            store.put(name, record.timestamp, record.timestamp, count)
        self.context.forward(ps.Record(record.key, count, record.timestamp))


class Foreseeing(Counts):
    """The same, and says so."""

    def keys_to_read(self, key: str, value: str) -> dict[str, list[Any]]:
        name = f"{key}/{value}"
        return {"s": [{"window": (name, 0, 100), "session": (name, 0)}.get(self.kind, name)]}


Called = Counter[tuple[Any, ...]]
Way = Callable[[Any, Callable[[Any], Any]], Any]


def _negative(value: str) -> str:
    if value == "3":
        raise ValueError(value)
    return f"-{value}"


@ps.batch
def _upper(values: Any) -> Any:
    return pc.utf8_upper(values)


AHEAD: dict[str, Way] = {
    "source": lambda s, f: s,
    "filter": lambda s, f: s.filter(lambda k, v: v != "1"),
    "peek": lambda s, f: s.peek(lambda k, v: None),
    "map_values": lambda s, f: s.map_values(f(lambda v: v * 2), value=str),
    "with_key": lambda s, f: s.map_values(f(lambda k, v: v + k), with_key=True, value=str),
    "map": lambda s, f: s.map(f(lambda k, v: (v, k)), key=str, value=str),
    "select_key": lambda s, f: s.select_key(f(lambda k, v: v + k), key=str),
    "flat_map": lambda s, f: s.flat_map(f(lambda k, v: iter([(k, v), (v, k)])), key=str, value=str),
    "flat_map_values": lambda s, f: s.flat_map_values(f(lambda v: iter([v] * int(v))), value=str),
    "several": lambda s, f: (
        s.map_values(f(lambda v: v + "0"), value=str)
        .filter_not(f(lambda k, v: v == "20"))
        .select_key(f(lambda k, v: k + v), key=str)
        .flat_map_values(f(list), value=str)
        .peek(lambda k, v: None)
        .filter(lambda k, v: v != "1")
    ),
    "column": lambda s, f: s.map_values(_upper, value=str).select_key(f(lambda k, v: v), key=str),
    "failing": lambda s, f: s.map_values(_negative, value=str).map_values(
        f(lambda v: v * 2), value=str
    ),
}
IN_TURN: dict[str, Way] = {
    "flat_and_on": lambda s, f: s.flat_map_values(f(list), value=str).map_values(
        f(str.upper), value=str
    ),
    "peek_before": lambda s, f: s.peek(lambda k, v: None).map_values(f(str.upper), value=str),
    "fork": lambda s, f: (s.to("other"), s.map_values(f(str.upper), value=str))[1],
}


def _run(way: Way, made: type[Counts], kind: str, called: Called) -> tuple[list[Any], int]:
    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            called[id(function), given] += 1
            return function(*given)

        return call

    builder = ps.StreamsBuilder()
    builder.add_state_store(KINDS[kind])
    stream = way(builder.stream("in", key=str, value=str), counting)
    supplier = type("Made", (made,), {"kind": kind})
    stream.process(supplier, stores=["s"], key=str, value=int).to("out")
    [sub] = builder.build().sub_topologies
    state = Asked(sub.store("s"))
    answers = []
    for _ in range(2):
        run = RecordRun(
            sub,
            application_id="app",
            state=state,
            limits=Limits(
                cache_max_bytes=0,
                partition_counts={"out": 1, "other": 1},
                on_processing_error="continue",
            ),
        )
        run.process(records([Row(n, n, b"k%d" % (n % 3), b"%d" % (n % 5)) for n in range(30)]))
        result = run.finish()
        state.apply(result.changes)
        answers.append((outputs(result), changes(result), result.dropped))
    return answers, state.calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [*AHEAD, *IN_TURN])
def test_results_are_the_same_and_each_function_is_asked_once(way: str, kind: str) -> None:
    told: Called = Counter()
    plain: Called = Counter()
    steps = {**AHEAD, **IN_TURN}[way]
    ahead, calls = _run(steps, Foreseeing, kind, told)
    in_turn, more_calls = _run(steps, Counts, kind, plain)
    assert ahead == in_turn
    assert ahead[0][0]
    assert sorted(told.values()) == sorted(plain.values())
    if way in AHEAD:
        # Two slices, and in each at most one question for the records' own keys and one for these.
        assert calls <= 4 < more_calls
    else:
        assert calls == more_calls


def test_a_question_of_another_form_is_none() -> None:
    class Wrong(Counts):
        def keys_to_read(self, key: str, value: str) -> dict[str, list[Any]]:
            return {"s": [key], "unknown": [value]}

    called: Called = Counter()
    for kind in KINDS:
        assert (
            _run(AHEAD["map"], Wrong, kind, called)[0]
            == _run(AHEAD["map"], Counts, kind, called)[0]
        )
