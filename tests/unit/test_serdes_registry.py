"""Goal: Avro, JSON Schema and Protobuf in the registry's wire format, in every process anew.

They run with confluent-kafka's own serializers and client, which talk HTTP to a server here.
"""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.errors import SchemaRegistryError, TopologyError
from penstock.serdes import (
    AvroSerde,
    JsonSchemaSerde,
    ListSerde,
    ProtobufSerde,
    SchemaRegistry,
    Serde,
    WindowedSerde,
)
from penstock.serdes.windowed import Windowed
from tests.schema_registry import Beat, Registry, serving


@dataclass(frozen=True)
class Pulse:
    bpm: int
    at: datetime


PULSE = Pulse(72, datetime(2024, 1, 1, tzinfo=UTC))
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Pulse",
        "fields": [
            {"name": "bpm", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
JSON_SCHEMA = json.dumps(
    {
        "title": "Pulse",
        "type": "object",
        "properties": {"bpm": {"type": "integer"}, "at": {"type": "string"}},
        "required": ["bpm", "at"],
    }
)


@pytest.fixture
def registry() -> Iterator[tuple[Registry, str]]:
    with serving() as held:
        yield held


CASES: list[tuple[str, Any, bytes]] = [
    ("avro", PULSE, b"\x90\x01\x80\xd0\x8f\xa5\x98c"),
    ("json", PULSE, b'{"bpm":72,"at":"2024-01-01T00:00:00Z"}'),
    # The 0 says: the first message of its file.
    ("protobuf", Beat(where="ward"), b"\x00\n\x04ward"),
]


def made(kind: str, where: str | SchemaRegistry, **options: Any) -> Serde[Any]:
    match kind:
        case "avro":
            return AvroSerde(AVRO, Pulse, registry=where, **options)
        case "json":
            return JsonSchemaSerde(JSON_SCHEMA, Pulse, registry=where, **options)
    return ProtobufSerde(Beat, registry=where, **options)


@pytest.mark.parametrize(("kind", "value", "payload"), CASES, ids=[case[0] for case in CASES])
def test_the_wire_format(
    kind: str, value: Any, payload: bytes, registry: tuple[Registry, str]
) -> None:
    held, url = registry
    # Another one first, so that numbers are not all 1.
    held.register("other", {"schema": '"string"'})
    serde = made(kind, url).for_topic("beats", "value")
    data = serde.serialize(value)
    assert data == b"\x00\x00\x00\x00\x02" + payload
    assert serde.deserialize(data) == value
    assert held.subjects["beats-value"] == [2]
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert again.serialize(value) == data
    # Read without a topic and without having written: the number alone leads to the schema.
    reader = made(kind, SchemaRegistry(url, {"max.retries": 0}))
    assert reader.deserialize(data) == value
    assert held.asked[-1] == "GET /schemas/ids/2"
    assert "subject" not in held.queries[-1]


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_each_process_asks_once(kind: str, registry: tuple[Registry, str]) -> None:
    held, url = registry
    value = next(case[1] for case in CASES if case[0] == kind)
    serde = made(kind, url).for_topic("beats", "key")
    column = serde.serialize_column([value, None, value])
    assert column.null_count == 1
    assert serde.deserialize_column(column) == [value, None, value]
    equal = pickle.loads(pickle.dumps(serde))
    assert equal.deserialize_column(equal.serialize_column([value])) == [value]
    assert len(held.asked) == len(set(held.asked))
    assert held.asked[0] == "POST /subjects/beats-key/versions"


def test_dicts_are_values_too(registry: tuple[Registry, str]) -> None:
    _, url = registry
    value = {"bpm": 72, "at": datetime(2024, 1, 1, tzinfo=UTC)}
    serde: Serde[Any] = AvroSerde(AVRO, registry=url).for_topic("beats", "value")
    assert serde.deserialize(serde.serialize(value)) == value


def test_an_older_schema_is_read_by_the_newer_one(registry: tuple[Registry, str]) -> None:
    _, url = registry
    newer = json.loads(AVRO)
    newer["fields"].append({"name": "where", "type": "string", "default": "ward"})
    old = AvroSerde(AVRO, Pulse, registry=url).for_topic("beats", "value").serialize(PULSE)
    reader = AvroSerde(json.dumps(newer), registry=url).for_topic("beats", "value")
    assert reader.deserialize(old)["where"] == "ward"


def test_a_subject_may_be_named(registry: tuple[Registry, str]) -> None:
    held, url = registry
    made("avro", url, subject="all-pulses").for_topic("beats", "value").serialize(PULSE)
    made("avro", url, subject="all-pulses").serialize(PULSE)
    by_record = {"subject.name.strategy.type": "RECORD"}
    made("avro", url, write_options=by_record).serialize(PULSE)
    assert list(held.subjects) == ["all-pulses", "Pulse"]


def test_the_latest_schema_is_used_on_request(registry: tuple[Registry, str]) -> None:
    held, url = registry
    held.register("other", {"schema": '"string"'})
    held.register("beats-value", {"schema": AVRO})
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    serde = made("avro", url, write_options=latest).for_topic("beats", "value")
    assert serde.serialize(PULSE)[:5] == b"\x00\x00\x00\x00\x02"
    assert not [asked for asked in held.asked if asked.startswith("POST")]


def test_inner_serdes_are_told_their_topic(registry: tuple[Registry, str]) -> None:
    held, url = registry
    windows = WindowedSerde(made("avro", url), 60_000).for_topic("counts", "key")
    window = Windowed(PULSE, 0, 60_000)
    assert windows.deserialize(windows.serialize(window)) == window
    lists = ListSerde(made("avro", url)).for_topic("lists", "value")
    assert lists.deserialize(lists.serialize([PULSE, None])) == [PULSE, None]
    assert list(held.subjects) == ["counts-key", "lists-value"]


def test_writing_needs_a_topic_or_a_subject() -> None:
    with pytest.raises(TopologyError, match="for which topic"):
        made("avro", "mock://nowhere").serialize(PULSE)


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
@pytest.mark.parametrize(
    "bad", [b"", b"\x00\x00", b"\x01\x00\x00\x00\x01abc", b"\x00" * 3 + b"\xff"]
)
def test_bytes_of_another_format_are_refused(kind: str, bad: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        made(kind, "mock://refused").for_topic("beats", "value").deserialize(bad)


def test_an_unknown_schema_makes_a_record_undecodable(registry: tuple[Registry, str]) -> None:
    _, url = registry
    with pytest.raises(ValueError, match="not in the registry"):
        made("avro", url).deserialize(b"\x00\x00\x00\x00\x63abc")


@pytest.mark.parametrize("status", [401, 409, 422])
def test_a_registry_that_refuses_is_not_the_records_fault(
    status: int, registry: tuple[Registry, str]
) -> None:
    held, url = registry
    held.refuses = status
    serde = made("avro", url).for_topic("beats", "value")
    with pytest.raises(SchemaRegistryError, match=r"refused.*registry http.*topic beats"):
        serde.serialize(PULSE)
    with pytest.raises(SchemaRegistryError, match="refused"):
        serde.deserialize(b"\x00\x00\x00\x00\x01abc")


def test_a_registry_that_is_away_is_not_the_records_fault() -> None:
    with socket.socket() as silent:
        # Bound and not listening: nobody else can have the port, and nobody answers.
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        serde = made("json", SchemaRegistry(url, {"max.retries": 0})).for_topic("beats", "value")
        with pytest.raises(SchemaRegistryError, match=url):
            serde.serialize(PULSE)
        with pytest.raises(SchemaRegistryError, match=url):
            serde.deserialize(b"\x00\x00\x00\x00\x01{}")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("avro", Pulse("fast", PULSE.at)),  # type: ignore[arg-type]
        ("json", Pulse("fast", PULSE.at)),  # type: ignore[arg-type]
        ("protobuf", "text"),
    ],
)
def test_a_value_that_the_schema_forbids_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        made(kind, "mock://forbids").for_topic("beats", "value").serialize(value)


def test_what_is_no_schema_is_refused_when_the_topology_is_built() -> None:
    with pytest.raises(TopologyError, match="schema of serde 'avro'"):
        AvroSerde('{"type": "rekord"}', registry="mock://x")
    with pytest.raises(TopologyError, match="schema of serde 'json-schema'"):
        JsonSchemaSerde('{"type": 1}', registry="mock://x")
    with pytest.raises(TopologyError, match="no Protobuf message"):
        ProtobufSerde(Pulse, registry="mock://x")


def test_an_unknown_option_is_no_bad_record() -> None:
    serde = made("avro", "mock://x", read_options={"no.such": 1})
    with pytest.raises(TopologyError, match=r"no\.such"):
        serde.deserialize(b"\x00\x00\x00\x00\x01abc")


def test_passwords_are_not_shown() -> None:
    secret = SchemaRegistry("http://x", {"basic.auth.user.info": "me:secret"})
    assert "secret" not in repr(made("avro", secret))


FORKS = """
import os, sys
from penstock.serdes import AvroSerde

serde = AvroSerde('"long"', int, registry=sys.argv[1]).for_topic("beats", "value")
assert serde.serialize(1) == b"\\0\\0\\0\\0\\1\\2"
child = os.fork()
if child == 0:
    os._exit(0 if serde.deserialize(serde.serialize(1)) == 1 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_a_connection_of_its_own(registry: tuple[Registry, str]) -> None:
    held, url = registry
    assert subprocess.run([sys.executable, "-c", FORKS, url], timeout=60).returncode == 0
    assert len(held.ports) == 2
    assert held.asked.count("POST /subjects/beats-value/versions") == 2
