"""TLS with a deadline: whoever connects is counted at once, and not only when TLS stands.

uvicorn would leave a handshake to asyncio, which waits for a minute and counts nobody: strangers
without a token, or a word, would take every file that the process may open.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.queries.limits import Limits


class Handshake(asyncio.Protocol):
    """A connection until TLS stands; then it is handed to the protocol behind."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        *,
        context: ssl.SSLContext,
        limits: Limits,
        under_way: set[Handshake],
        answered: Callable[[], int],
    ) -> None:
        self._make = make
        self._context = context
        self._limits = limits
        self._under_way = under_way
        self._answered = answered
        self._early = b""
        self._is_lost = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        # What comes is TLS's; nobody reads it before that is there.
        transport.pause_reading()
        if len(self._under_way) + self._answered() >= 2 * self._limits.connections:
            transport.abort()
            return
        self._under_way.add(self)
        self._task = asyncio.get_running_loop().create_task(self._secure(transport))

    def data_received(self, data: bytes) -> None:
        # It may come with the end of the handshake, before anybody knows of that.
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True

    async def _secure(self, plain: asyncio.Transport) -> None:
        seconds = self._limits.receive.total_seconds()
        try:
            transport = await asyncio.get_running_loop().start_tls(
                plain,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except OSError:
            return  # It hung up, is not to be known, or took too long: it was closed.
        finally:
            self._under_way.discard(self)
        if transport is None or self._is_lost:
            return
        protocol = self._make()
        protocol.connection_made(transport)
        transport.set_protocol(protocol)
        if self._early:
            protocol.data_received(self._early)


def secured(
    make: Callable[..., asyncio.Protocol], context: ssl.SSLContext, limits: Limits
) -> Callable[..., asyncio.Protocol]:
    """What makes the same protocol, behind TLS; uvicorn calls it for each connection."""
    under_way: set[Handshake] = set()

    def made(**about: Any) -> asyncio.Protocol:
        return Handshake(
            partial(make, **about),
            context=context,
            limits=limits,
            under_way=under_way,
            answered=lambda: len(about["server_state"].connections),
        )

    return made
