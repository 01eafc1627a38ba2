"""Goal: whatever a step writes with a registry's serde, the serde knows for which topic.

Each topology is written twice, with the serde named at a step, so that no topic is known there, and
with plain JSON: both give the same records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.testing import TopologyTestDriver
from tests.schema_registry import PulseMessage, Registry, serving


@dataclass(frozen=True)
class Ward:
    """A key."""

    id: str


@dataclass(frozen=True)
class Pulse:
    """A value."""

    ward: str
    bpm: int


def _avro(name: str, **fields: str) -> str:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def _json(title: str, **fields: str) -> str:
    kinds = {field: {"type": kind} for field, kind in fields.items()}
    return json.dumps({"title": title, "type": "object", "properties": kinds})


@dataclass(frozen=True)
class Types:
    """The types of a topology's keys and values, and how to make them."""

    key: Any
    value: Any
    ward: Callable[[str], Any]
    pulse: Callable[[str, int], Any]

    def sum(self, one: Any, other: Any) -> Any:
        return self.pulse(one.ward, one.bpm + (other.bpm if other else 0))

    def more(self, pulse: Any) -> Any:
        return self.pulse(pulse.ward, pulse.bpm + 1)


PLAIN = Types(Ward, Pulse, Ward, Pulse)


def types_of(kind: str, url: str) -> Types:
    if kind == "avro":
        keys = ps.AvroSerde(_avro("Ward", id="string"), Ward, registry=url)
        pulses = _avro("Pulse", ward="string", bpm="long")
        return Types(keys, ps.AvroSerde(pulses, Pulse, registry=url), Ward, Pulse)
    if kind == "json":
        wards = ps.JsonSchemaSerde(_json("Ward", id="string"), Ward, registry=url)
        pulses = _json("Pulse", ward="string", bpm="integer")
        return Types(wards, ps.JsonSchemaSerde(pulses, Pulse, registry=url), Ward, Pulse)
    # A message cannot be hashed, so it is no key.
    message = ps.ProtobufSerde(PulseMessage, registry=url)
    return Types(Ward, message, Ward, lambda ward, bpm: PulseMessage(ward=ward, bpm=bpm))


SECOND = timedelta(seconds=1)
TUMBLING = ps.tumbling(SECOND, grace=timedelta(0))
WITHIN = ps.join_window(timedelta(milliseconds=300), grace=timedelta(0))


def stream(app: ps.Application, types: Types, topic: str = "left") -> Any:
    """A stream whose serde was named behind the source."""
    read = app.stream(topic, key=types.key, value=types.value)
    return read.map(lambda key, value: (key, types.more(value)), key=types.key, value=types.value)


def table(app: ps.Application, types: Types, topic: str = "left") -> Any:
    read = app.table(topic, key=types.key, value=types.value)
    return read.map_values(types.more, value=types.value)


def aggregated(app: ps.Application, types: Types) -> Any:
    return stream(app, types).group_by_key().reduce(types.sum, "sums")


def windows(app: ps.Application, types: Types) -> Any:
    return stream(app, types).group_by_key().windowed_by(TUMBLING).reduce(types.sum, "sums")


def final_windows(app: ps.Application, types: Types) -> Any:
    return windows(app, types).suppress(ps.until_window_closes())


def grouped_table(app: ps.Application, types: Types) -> Any:
    grouped = table(app, types).group_by(
        lambda key, value: (types.ward(value.ward), value), key=types.key, value=types.value
    )
    return grouped.reduce(
        types.sum, lambda total, old: types.pulse(total.ward, total.bpm - old.bpm), "t"
    )


def held_back(app: ps.Application, types: Types) -> Any:
    limit = ps.until_time_limit(SECOND, ps.max_records(1).emit_early_when_full())
    return table(app, types).suppress(limit)


def outer_joined(app: ps.Application, types: Types) -> Any:
    return stream(app, types).outer_join(
        stream(app, types, "right"),
        lambda one, other: types.sum(one or types.pulse("none", 0), other),
        WITHIN,
        value=types.value,
    )


def referring(app: ps.Application, types: Types) -> Any:
    return table(app, types).left_join(
        table(app, types, "right"),
        types.sum,
        foreign_key=lambda value: types.ward(value.ward),
        value=types.value,
        store="joined",
    )


def waiting_for_a_table(app: ps.Application, types: Types) -> Any:
    kept = ps.versioned_store("versions", history_retention=SECOND * 60)
    versions = app.table("right", kept, key=types.key, value=types.value)
    joined = stream(app, types).repartition(name="again")
    return joined.left_join(versions, types.sum, grace=SECOND, value=types.value)


def lists(app: ps.Application, types: Types) -> Any:
    return stream(app, types).group_by_key().collect("lists")


STEPS: list[Callable[..., Any]] = [
    aggregated,
    windows,
    final_windows,
    grouped_table,
    held_back,
    outer_joined,
    referring,
    waiting_for_a_table,
    lists,
]


@pytest.fixture
def registry() -> Iterator[tuple[Registry, str]]:
    with serving() as held:
        yield held


def shown(thing: Any) -> str:
    """A key or value, whatever its type, as that of the plain topology is shown."""
    if isinstance(thing, list):
        return str([shown(each) for each in thing])
    if isinstance(thing, PulseMessage):
        return repr(Pulse(thing.ward, thing.bpm))
    return repr(thing)


def results(step: Callable[..., Any], types: Types) -> list[Any]:
    """What comes out of a topology, and when."""
    app = ps.Application("registry-steps")
    made = step(app, types)
    made = made.to_stream() if isinstance(made, ps.KTable) else made
    made.map(lambda key, value: (shown(key), shown(value)), key=str, value=str).to("out")
    driver = TopologyTestDriver(app)
    topics = [topic for topic in ("right", "left") if f"[{topic}]" in app.describe()]
    inputs = [driver.input_topic(each, key=types.key, value=types.value) for each in topics]
    for number, name in enumerate("abcabacb"):
        for each in inputs:
            each.pipe(
                types.ward(name), types.pulse("abc"[number % 3], number), timestamp=700 * number
            )
    return driver.output_topic("out", key=str, value=str).read_all()


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_every_step_tells_its_serdes_a_topic(
    step: Callable[..., Any], kind: str, registry: tuple[Registry, str]
) -> None:
    held, url = registry
    expected = results(step, PLAIN)
    assert len(expected) > 5
    assert results(step, types_of(kind, url)) == expected
    # Two schemas under one subject are refused by a registry that looks whether they agree.
    assert {len(versions) for versions in held.subjects.values()} == {1}


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_a_topic_that_a_function_names_is_told_too(
    kind: str, registry: tuple[Registry, str]
) -> None:
    held, url = registry
    types = types_of(kind, url)
    app = ps.Application("named-topics")
    pulses = app.stream("left", key=str, value=str)
    pulses.map_values(lambda text: types.pulse(text, 1), value=types.value).to(
        lambda key, value: f"ward-{value.ward}"
    )
    driver = TopologyTestDriver(app)
    driver.input_topic("left", key=str, value=str).pipe_all([("x", "a"), ("x", "b"), ("x", "a")])
    written = driver.output_topic("ward-a", key=str, value=types.value).read_pairs()
    assert written == [("x", types.pulse("a", 1))] * 2
    assert sorted(held.subjects) == ["ward-a-value", "ward-b-value"]


def test_a_record_of_an_older_schema_is_the_same_key(registry: tuple[Registry, str]) -> None:
    held, url = registry
    newer = _avro("Ward", id="string").replace('"id"', '"id", "doc": "number"')
    keys = {
        doc: ps.AvroSerde(schema, Ward, registry=url).for_topic("left", "key")
        for doc, schema in (("old", _avro("Ward", id="string")), ("new", newer))
    }
    app = ps.Application("two-schemas")
    app.stream("left", key=keys["new"], value=str).group_by_key().count("counts")
    driver = TopologyTestDriver(app)
    for doc in ("old", "new", "old"):
        driver.input_topic("left", key=keys[doc], value=str).pipe(Ward("a"), "x")
    assert len(held.subjects["left-key"]) == 2
    assert dict(driver.store("counts")) == {Ward("a"): 3}
