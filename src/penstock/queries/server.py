"""The service on a socket, in a thread of the driver's process.

The address is there at once. What answers is imported when the first request comes, or a moment
after the application runs: FastAPI takes a second to load, on a busy machine many; neither the
application nor its first reader should wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.observability.promptness import answer_promptly
from penstock.queries.gate import AsgiApp
from penstock.queries.limits import Limits
from penstock.queries.listening import Listening

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger("penstock.queries")
_STOP_SECONDS = 2.0
_TRIES = 3
_TRY_AGAIN_SECONDS = 1.0
"""To load what answers may fail for once beside other threads that load something."""
_PREPARE_SECONDS = 2.0
"""How long after `prepare` the service is made: what runs first has its first batches to do."""


class HttpServer:
    """Serves until `stop`; `make_service` is called once, before the first answer."""

    def __init__(
        self, make_service: Callable[[], AsgiApp], listening: Listening, limits: Limits
    ) -> None:
        self._make_service = make_service
        self._listening = listening
        self._limits = limits
        self._socket = listening.bind()
        self._port = self._socket.getsockname()[1]
        self._awake, self._wake = socket.socketpair()
        # Nobody reads it any more once the service is made: who wakes it must never wait.
        self._wake.setblocking(False)
        self._server: uvicorn.Server | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-http", daemon=True)

    @property
    def url(self) -> str:
        """Where it can be asked."""
        return self._listening.url(self._port)

    @property
    def local_url(self) -> str:
        """Where it can be asked on this machine, whatever its name is."""
        return self._listening.local_url(self._socket.getsockname()[1])

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def prepare(self) -> None:
        """Make soon what answers, whether or not somebody asks."""
        with contextlib.suppress(OSError):  # It has stopped, or was woken many times before.
            self._wake.send(b"x")

    def stop(self) -> None:
        """End, after answers that are under way have had a moment."""
        self._stopping.set()
        self.prepare()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS * 2)
        for each in (self._awake, self._wake, self._socket):
            with contextlib.suppress(OSError):
                each.close()

    def _run(self) -> None:
        try:
            self._wait_for_the_first()
            self._server = self._made()
            answer_promptly()
            # In a thread uvicorn leaves signals alone: they are the application's.
            if self._server is not None and not self._stopping.is_set():
                asyncio.run(self._server.serve(sockets=[self._socket]))
        except Exception:  # noqa: BLE001 - the application goes on
            _log.exception("The HTTP service ended; the application goes on without it")
        finally:
            # Whoever connects now is refused, and does not wait for what never comes.
            self._socket.close()

    def _wait_for_the_first(self) -> None:
        """Until someone connects, who waits in the socket's queue until uvicorn takes them out.

        Or until somebody might, soon.
        """
        seconds: float | None = None
        with selectors.DefaultSelector() as selector:
            for each in (self._socket, self._awake):
                selector.register(each, selectors.EVENT_READ)
            while not self._stopping.is_set():
                woken = [key.fileobj for key, _ in selector.select(seconds)]
                if not woken or self._socket in woken:
                    return
                self._awake.recv(1)
                seconds = _PREPARE_SECONDS

    def _made(self) -> uvicorn.Server | None:
        """What answers; None if it is to stop before that is made."""
        for left in reversed(range(_TRIES)):
            if self._stopping.is_set():
                break
            try:
                return self._make()
            except Exception:
                if not left:
                    raise
                _log.warning("The HTTP service could not be made: once more", exc_info=True)
                self._stopping.wait(_TRY_AGAIN_SECONDS)
        return None

    def _make(self) -> uvicorn.Server:
        import uvicorn

        from penstock.queries.handshakes import secured
        from penstock.queries.slow_requests import limited_protocol

        limits, tls = self._limits, self._listening.tls
        # uvicorn takes whatever makes a protocol; its types ask for a class.
        protocol: Any = limited_protocol(limits)
        if tls is not None:
            protocol = secured(protocol, tls, limits)
        config = uvicorn.Config(
            self._make_service(),
            http=protocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(limits.idle.total_seconds()),
            timeout_graceful_shutdown=int(_STOP_SECONDS),
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        return uvicorn.Server(config)
