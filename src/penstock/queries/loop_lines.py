"""Questions that an event loop asks by itself, on the sockets of this machine's instances.

A thread that waits instead is woken by the loop, and wakes it: on a machine without an idle core
that takes longer than the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.instance.question_socket import LENGTH, MESSAGE_BYTES_MAX, framed
from penstock.queries.contract import Answer
from penstock.queries.prepared import Prepared

_PIECE_BYTES = 256 * 1024


class LoopLines:
    """Connections to instances, as many as are in use at once. Belongs to the loop's thread."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._under_way = 0
        self._idle: dict[Path, list[socket.socket]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether as many questions are under way as may be."""
        return self._under_way >= self._at_once

    async def answer(self, prepared: Prepared, timeout: timedelta) -> Answer | None:
        """The answer, if it came in time and will do."""
        self._under_way += 1
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                if len(prepared.calls) == 1:
                    told = [await self._ask(*prepared.calls[0], prepared.token)]
                else:
                    told = await _gathered(
                        self._ask(*call, prepared.token) for call in prepared.calls
                    )
        except OSError:
            return None
        finally:
            self._under_way -= 1
        return prepared.finish(told) if all(told) else None

    async def _ask(self, path: Path, body: bytes, token: str) -> bytes:
        loop = asyncio.get_running_loop()
        idle = self._idle.get(path)
        connection = idle.pop() if idle else None
        if connection is None:
            self._forget_the_gone()
            connection = await _connected(loop, path, token)
        with contextlib.ExitStack() as failed:
            # What comes later would be taken for the answer to another question.
            failed.callback(connection.close)
            await loop.sock_sendall(connection, framed(body))
            answer = await _received(loop, connection)
            failed.pop_all()
        self._idle.setdefault(path, []).append(connection)
        return answer

    def _forget_the_gone(self) -> None:
        """Close what leads to instances that have ended."""
        for path in [path for path, idle in self._idle.items() if any(map(_is_over, idle))]:
            for connection in self._idle.pop(path):
                connection.close()


def _is_over(connection: socket.socket) -> bool:
    """Whether the other side has hung up."""
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def _gathered(asked: Iterable[Coroutine[Any, Any, bytes]]) -> list[bytes]:
    """All answers; if there is none of one, the others are waited for no more."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _connected(loop: asyncio.AbstractEventLoop, path: Path, token: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(path))
        await loop.sock_sendall(connection, token.encode())
    except BaseException:
        connection.close()
        raise
    return connection


async def _received(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    """One message. Raises `OSError` if there is none, or one that is too large."""
    data, missing = bytearray(), LENGTH.size
    while missing > 0:
        piece = await loop.sock_recv(connection, _PIECE_BYTES)
        if not piece:
            raise ConnectionResetError("it hung up")
        data += piece
        if len(data) >= LENGTH.size:
            length = LENGTH.unpack_from(data)[0]
            if length > MESSAGE_BYTES_MAX:
                raise ConnectionAbortedError("the message is too large")
            missing = LENGTH.size + length - len(data)
    return bytes(memoryview(data)[LENGTH.size :])
