"""Connections that take too long, or are too many, and those whose requests take the short way.

uvicorn closes connections that wait between requests, and has no deadline for a request that has
begun, nor for an answer that nobody reads: a few hundred of these would take every connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.errors import ServiceBusyError
from penstock.queries.gate import AsgiScope, Receive, Send, Start, send_error
from penstock.queries.limits import Limits
from penstock.queries.quick_requests import (
    Headers,
    QuickCycle,
    ReadUnderWay,
    json_reply,
    quick_request,
    quick_scope,
)

_log = logging.getLogger("penstock.queries")


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, where a request's head must be there in time.

    A clock starts with the connection or a first byte, and stops with the request. Another one
    looks whether anything goes out of an answer that waits for its reader.
    """

    limits: ClassVar[Limits]
    _clock: asyncio.TimerHandle | None = None
    _reader_clock: asyncio.TimerHandle | None = None
    _later: bytes = b""
    """What came while a request on the short way was being answered."""

    def connection_made(self, transport: Any) -> None:
        # uvicorn's own logger has no handler: what it says would stand between lines of JSON.
        self.logger = _log
        super().connection_made(transport)
        self._start()
        if len(self.connections) > 2 * self.limits.connections:
            transport.abort()
        elif len(self.connections) > self.limits.connections:
            self.app = _busy

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._stop_waiting()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._watch_reader()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        cycle: Any = self.cycle
        if isinstance(cycle, QuickCycle | ReadUnderWay) and not cycle.response_complete:
            self._later += data
            self.flow.pause_reading()
            return
        request = quick_request(data) if self._is_idle(data) else None
        if request is not None:
            self._stop()
            self._unset_keepalive_if_required()
            self._answer_quickly(*request)
            return
        self._start()
        super().data_received(data)
        if self._is_answering():
            self._stop()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What is too little to pause for is waited for by nobody else: not even a transport that is
        # closed goes before all of it was taken.
        self._watch_reader()
        later, self._later = self._later, b""
        if later and not self.transport.is_closing():
            self.data_received(later)

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for another protocol is answered in this one: that is no news for a log."""

    def _is_idle(self, data: bytes) -> bool:
        """Whether a request may begin with these bytes, and h11 has none of it."""
        conn = self.conn
        return (
            len(data) <= self.limits.header_bytes
            and conn.our_state is h11.IDLE
            and conn.their_state is h11.IDLE
            and not conn.trailing_data[0]
        )

    def _answer_quickly(self, target: bytes, headers: Headers) -> None:
        about = {
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "state": self.app_state.copy(),
        }
        scope = quick_scope(target, headers, about)
        if not self._start_read(scope):
            self._run(scope)

    def _start_read(self, scope: AsgiScope) -> bool:
        """Whether the request is a read that is answered without a task for it."""
        # One who does not read what was sent waits for that, in a task.
        start: Start | None = getattr(self.app, "start", None)
        if start is None or self.flow.write_paused:
            return False
        under_way = ReadUnderWay()

        def done(content: bytes | None, scope: AsgiScope) -> None:
            if under_way.disconnected:
                return
            if content is None:
                self._run(scope, keep_alive=under_way.keep_alive)
                return
            self.transport.write(json_reply(self.server_state.default_headers, content))
            under_way.response_complete = True
            if not under_way.keep_alive:
                self.transport.close()
            self.on_response_complete()

        if not start(scope, done):
            return False
        self.cycle = under_way  # type: ignore[assignment]
        return True

    def _run(self, scope: Any, *, keep_alive: bool = True) -> None:
        cycle = QuickCycle(
            scope=scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        cycle.more_body = False
        cycle.keep_alive = keep_alive
        cycle.message_event.set()
        self.cycle = cycle
        task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

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

    def _watch_reader(self) -> None:
        self._stop_waiting()
        if self.transport.get_write_buffer_size():
            self._wait_for_reader()

    def _wait_for_reader(self, before: int | None = None) -> None:
        """Give up one who has taken nothing for as long as an idle connection may be there."""
        unread = self.transport.get_write_buffer_size()
        if unread == before:
            if unread:
                self.transport.abort()
            return
        self._reader_clock = self.loop.call_later(
            self.limits.idle.total_seconds(), self._wait_for_reader, unread
        )

    def _stop_waiting(self) -> None:
        if self._reader_clock is not None:
            self._reader_clock.cancel()
            self._reader_clock = None

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
