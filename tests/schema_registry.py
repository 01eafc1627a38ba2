"""A schema registry of a test's own: as much of its REST API as the serializers use."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def _message(name: str, **fields: int) -> Any:
    """What protoc makes of a message in a file of its own; found by its name when unpickled."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{name.lower()}.proto", package="ward", syntax="proto3"
    )
    message = file.message_type.add(name=name)
    optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    for number, (field, kind) in enumerate(fields.items(), start=1):
        message.field.add(name=field, number=number, type=kind, label=optional)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ward.{name}"))
    made.__module__, made.__qualname__ = __name__, name
    return made


_TEXT = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_NUMBER = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
Beat = _message("Beat", where=_TEXT)
PulseMessage = _message("PulseMessage", ward=_TEXT, bpm=_NUMBER)


class Registry:
    """Schemas by subject and by number, and who asked for what."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.queries: list[str] = []
        self.ports: set[int] = set()
        self.credentials: set[str] = set()
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


@contextmanager
def serving() -> Iterator[tuple[Registry, str]]:
    """A registry, and the address at which it answers."""
    held = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            held.ports.add(self.client_address[1])
            held.credentials.add(self.headers.get("Authorization") or "")
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
    try:
        yield held, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
