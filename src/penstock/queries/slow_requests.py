"""Connections that take too long, or are too many.

uvicorn closes connections that wait between requests, and has no deadline for a request that has
begun: a few hundred slow senders would take every connection.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.errors import ServiceBusyError
from penstock.queries.gate import AsgiScope, Receive, Send, send_error
from penstock.queries.limits import Limits


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, where a request's head must be there in time.

    A clock starts with the connection or a first byte, and stops with the request.
    """

    limits: ClassVar[Limits]
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start()
        if len(self.connections) > 2 * self.limits.connections:
            transport.abort()
        elif len(self.connections) > self.limits.connections:
            self.app = _busy

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._start()
        super().data_received(data)
        if self._is_answering():
            self._stop()

    def _start(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(self.limits.receive.total_seconds(), self._close)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _close(self) -> None:
        self._clock = None
        if not self._is_answering() and not self.transport.is_closing():
            self.transport.close()

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # None before the first request.
        return cycle is not None and not cycle.response_complete


def limited_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol with these limits; uvicorn makes one of it for each connection."""
    return type("Limited", (LimitedProtocol,), {"limits": limits})


async def _busy(scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Answer whoever comes when all connections are taken."""
    del scope, receive
    await send_error(send, ServiceBusyError("Too many are connected", hint="Ask again in a moment"))
