"""Point reads over HTTP, one request after the other on each connection.

Written by hand: on a machine with two cores a client of the usual kind takes more than the service.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from urllib.parse import quote

from bench.errors import BenchError
from penstock.queries.driver_file import DriverFile
from penstock.queries.json_values import plain

_OK = b"HTTP/1.1 200"
_LENGTH = b"content-length: "
_NOTHING = b'"value":null'


@dataclass
class Reads:
    """What a while of asking gave."""

    milliseconds: list[float] = field(default_factory=list)
    missing: int = 0


def read_for(
    driver: DriverFile, store: str, keys: list[bytes], seconds: float, at_once: int
) -> Reads:
    """Ask for the keys in turn, over so many connections, for so long."""
    requests = [_request(driver, store, key) for key in keys]
    reads = Reads()

    async def run() -> None:
        end = time.monotonic() + seconds
        parts = [requests[number::at_once] for number in range(at_once)]
        await asyncio.gather(*(_ask(driver, part, end, reads) for part in parts))

    asyncio.run(run())
    return reads


async def _ask(driver: DriverFile, requests: list[bytes], end: float, reads: Reads) -> None:
    host, _, port = driver.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        number = 0
        while (begin := time.monotonic()) < end:
            writer.write(requests[number % len(requests)])
            body = await _body(reader)
            reads.milliseconds.append((time.monotonic() - begin) * 1000)
            reads.missing += _NOTHING in body
            number += 1
    finally:
        writer.close()


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(_OK):
        raise BenchError(f"the service answered {head[:200]!r}")
    at = head.lower().index(_LENGTH) + len(_LENGTH)
    return await reader.readexactly(int(head[at : head.index(b"\r", at)]))


def _request(driver: DriverFile, store: str, key: bytes) -> bytes:
    host = driver.url.removeprefix("http://")
    path = f"/v1/stores/{quote(store, safe='')}/keys/{quote(str(plain(key)), safe='')}"
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {driver.token}"]
    return "\r\n".join([*lines, "", ""]).encode()
