"""Plain reads of one key, taken off a connection without the parser that takes everything.

h11 works through every request in Python, step by step. Here a request is taken as it is if it
came whole, alone, and in the form that clients send; whatever else there is about it, it goes to
h11 byte for byte, and is judged there.

uvicorn's other parser, httptools, on uvloop, takes about as long for such a request as this (within
a tenth of the driver's processor time), and knows no limit to the size of a head.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from penstock.queries.gate import SECURITY_HEADERS, AsgiScope, Message

_REQUEST = re.compile(
    rb"GET (/v1/stores/[!-~]+) HTTP/1\.1\r\n"
    rb"((?:[A-Za-z-]+: ?[!-~](?:[ -~]*[!-~])?\r\n)+)"
    rb"\r\n"
)
_KEYS = b"/keys/"
_KNOWN = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-type",
        b"host",
        b"user-agent",
    }
)
"""Headers that say nothing about where the request ends or what the connection becomes."""
_CLOSE = (b"connection", b"close")
_OK = b"HTTP/1.1 200 OK\r\n"
_JSON_TAIL = b"".join(
    name + b": " + value + b"\r\n"
    for name, value in [(b"content-type", b"application/json"), *SECURITY_HEADERS]
)

Headers = list[tuple[bytes, bytes]]


def quick_request(data: bytes) -> tuple[bytes, Headers] | None:
    """The target and the headers of a plain read that is all there; None if it is anything else.

    >>> quick_request(b"GET /v1/stores/counts/keys/a HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    (b'/v1/stores/counts/keys/a', [(b'host', b'localhost')])
    >>> quick_request(b"GET /v1/stores/counts/keys/a HTTP/1.1\\r\\nContent-Length: 1\\r\\n\\r\\n")
    """
    matched = _REQUEST.fullmatch(data)
    if matched is None:
        return None
    target, head = matched.groups()
    if _KEYS not in target or b"?" in target or b"#" in target:
        return None
    headers: Headers = []
    for line in head.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        headers.append((name.lower(), value.lstrip(b" ")))
    names = {name for name, _ in headers}
    if len(names) != len(headers) or b"host" not in names or not names <= _KNOWN:
        return None
    kept = all(name != b"connection" or value.lower() == b"keep-alive" for name, value in headers)
    return (target, headers) if kept else None


def quick_scope(target: bytes, headers: Headers, about: AsgiScope) -> AsgiScope:
    """What uvicorn would say of such a request; `about` is what it says of the connection."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "root_path": "",
        "path": unquote(target.decode("ascii")),
        "raw_path": target,
        "query_string": b"",
        "headers": headers,
        **about,
    }


def json_reply(default_headers: Headers, content: bytes) -> bytes:
    """The answer to a read, with the headers that the gate gives to all answers.

    >>> json_reply([], b"{}").splitlines()[:3]
    [b'HTTP/1.1 200 OK', b'content-length: 2', b'content-type: application/json']
    """
    defaults = b"".join(name + b": " + value + b"\r\n" for name, value in default_headers)
    length = b"content-length: %d\r\n" % len(content)
    return b"".join((_OK, defaults, length, _JSON_TAIL, b"\r\n", content))


class ReadUnderWay:
    """Of a read that is answered without a coroutine what uvicorn wants to know of a request."""

    message_event = asyncio.Event()
    """Nobody waits for it."""

    def __init__(self) -> None:
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True


class QuickCycle(RequestResponseCycle):
    """A request without a body and its answer, which is written in one piece where it is one."""

    _head = b""
    _closes = False

    async def send(self, message: Any) -> None:
        """Write a part of the answer; its head goes with the first part of its body."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self.response_started = True
            self._start(message)
            return
        self.transport.write(self._head + message.get("body", b""))
        self._head = b""
        if not message.get("more_body", False):
            self.response_complete = True
            self.message_event.set()
            if self._closes or not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _start(self, message: Message) -> None:
        headers: Headers = [*self.default_headers, *message.get("headers", ())]
        names = {name.lower() for name, _ in headers}
        if b"content-length" not in names and b"connection" not in names:
            # Nothing else says where the answer ends.
            headers.append(_CLOSE)
        self._closes = any(
            name.lower() == b"connection" and value.lower() == b"close" for name, value in headers
        )
        status = HTTPStatus(message["status"])
        lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
        lines += [name + b": " + value for name, value in headers]
        self._head = b"\r\n".join([*lines, b"", b""])
