"""Goal: Avro, JSON Schema and Protobuf in the registry's wire format, in every process anew.

A server in this process speaks as much of a registry's REST API as the serializers use.
"""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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

# confluent-kafka 2.16.1 asks for a certifi that no longer trusts a CA whose keys were stolen. Where
# requirements.lock was made that one could not be had, and an older pair must not be the way out.
REASON = "needs penstock[registry], which is not in requirements.lock: it needs certifi 2026.10.19"
for package in ("fastavro", "jsonschema", "google.protobuf", "httpx2", "authlib", "cachetools"):
    pytest.importorskip(package, reason=REASON)

from google.protobuf import (  # noqa: E402
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)


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


def _message_class() -> Any:
    """What protoc makes of `message Beat { string where = 1; }`."""
    file = descriptor_pb2.FileDescriptorProto(name="beat.proto", package="ward", syntax="proto3")
    text = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    file.message_type.add(name="Beat").field.add(name="where", number=1, type=text, label=optional)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("ward.Beat"))
    # So that it is found by its name when it is unpickled.
    made.__module__, made.__qualname__ = __name__, "Beat"
    return made


Beat = _message_class()


class Registry:
    """Schemas by subject and by number, and who asked for what."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.queries: list[str] = []
        self.ports: set[int] = set()
        self.refuses = 0

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        path, _, query = path.partition("?")
        self.queries.append(query)
        self.asked.append(f"{method} {path}")
        if self.refuses:
            return self.refuses, {"error_code": self.refuses, "message": "refused"}
        match path.strip("/").split("/"):
            case ["subjects", subject, "versions"]:
                return 200, self.register(subject, body)
            case ["subjects", subject, "versions", "latest"] if subject in self.subjects:
                return 200, self.described(subject, self.subjects[subject][-1])
            case ["schemas", "ids", number] if int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 40401, "message": "Subject not found"}

    def register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        schema = {key: body[key] for key in ("schema", "schemaType") if key in body}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return self.described(subject, number)

    def described(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {**self.schemas[number - 1], "id": number, "subject": subject, "version": version}


@pytest.fixture
def registry() -> Iterator[tuple[Registry, str]]:
    held = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            held.ports.add(self.client_address[1])
            status, answer = held.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815 - the name is the library's

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield held, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


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
