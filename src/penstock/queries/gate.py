"""What every request passes before it reaches a route: host, origin, token, size, time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from penstock.errors import PenstockError, QueryAccessError, QueryError, QueryLimitError
from penstock.queries.access import Access
from penstock.queries.failures import error_body, status_of
from penstock.queries.json_values import encode_json
from penstock.queries.limits import Limits

AsgiScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
Done = Callable[[bytes | None, AsgiScope], None]
"""Gets the JSON of a read's answer, which is 200; or None, and the request as it goes on."""
Start = Callable[[AsgiScope, Done], bool]
"""Whether a request is a read that is answered without a coroutine: if so, `Done` is called soon,
in the event loop's thread; if not, it goes through the application as others do.
"""

OPEN_PATHS = frozenset(
    {"/health/live", "/health/ready", "/docs", "/docs/style.css", "/openapi.json"}
)
"""What needs no token: it tells nothing about the application but whether it is up."""
GRANTED = "penstock.scopes"
"""Where in the scope of a request it stands what its bearer may do."""
UNAUTHORIZED = 401
REQUEST_TIMEOUT = 408
HEAD_TOO_LARGE = 431
_LENGTH_DIGITS = 15

_CONTENT_POLICY = (
    b"default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _CONTENT_POLICY),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]


class Gate:
    """An ASGI application in front of another one, which sees only what may pass."""

    def __init__(
        self,
        app: AsgiApp,
        *,
        access: Access,
        limits: Limits,
        open_below: Sequence[str] = (),
        start: Start | None = None,
    ) -> None:
        self._app = app
        self._start = start
        self._access = access
        self._limits = limits
        self._open_below = tuple(f"{path}/" for path in open_below)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer the request, or let it through."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        guarded = _with_headers(send)
        try:
            self._check_head(scope)
            self._check(scope)
            if scope["method"] == "POST":
                receive = await self._whole_body(scope, receive)
        except _RefusedError as refused:
            await refused.answer(guarded)
            return
        await self._app(scope, receive, guarded)

    def start(self, scope: AsgiScope, done: Done) -> bool:
        """As `Start` says; what may not pass does not start, and is told so by the other way."""
        if self._start is None:
            return False
        try:
            self._check(scope)
        except _RefusedError:
            return False
        return self._start(scope, done)

    def _check_head(self, scope: AsgiScope) -> None:
        """The parser looks at the size of a head only as long as that is not all there."""
        most = self._limits.header_bytes
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        if size > most:
            raise _RefusedError(
                QueryLimitError(
                    f"The address and the headers have more than {most} bytes",
                    hint="Say a long page in the body of POST /v1/stores/{store}/query",
                ),
                status=HEAD_TOO_LARGE,
            )
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # Whoever stands in between may see another end of it, and so another next request.
            raise _RefusedError(
                QueryError("The request says twice where it ends", hint="Send one of both headers")
            )

    def _check(self, scope: AsgiScope) -> None:
        host, origin = _only(scope, b"host"), _only(scope, b"origin")
        if not self._access.allows_host(host):
            raise _RefusedError(
                QueryAccessError(
                    "The service is not called by that name",
                    hint="Use its address, localhost, or a name in http_hosts",
                )
            )
        if not self._access.allows_origin(origin, host):
            raise _RefusedError(
                QueryAccessError(
                    "A page of another origin may not ask",
                    hint="Have the server of that page ask, with a token of its own",
                )
            )
        authorization = _only(scope, b"authorization")
        scopes = self._access.scopes_of(authorization)
        if not scopes and (authorization is not None or not self._is_open(scope["path"])):
            raise _RefusedError(
                QueryAccessError(
                    "The token is wrong" if authorization else "A token is needed",
                    hint="Send `Authorization: Bearer TOKEN`; that of a run is in driver.json",
                ),
                status=UNAUTHORIZED,
                headers={"www-authenticate": "Bearer"},
            )
        scope[GRANTED] = scopes

    def _is_open(self, path: str) -> bool:
        if path == "/":
            # It leads to the page that is open, if there is one.
            return bool(self._open_below)
        return path in OPEN_PATHS or f"{path}/".startswith(self._open_below)

    async def _whole_body(self, scope: AsgiScope, receive: Receive) -> Receive:
        """Read the body, up to its limit and before its deadline, and give it out again."""
        most = self._limits.body_bytes
        announced = _only(scope, b"content-length") or "0"
        # A number of thousands of digits is refused by Python with an error of its own.
        if len(announced) > _LENGTH_DIGITS or (announced.isdecimal() and int(announced) > most):
            raise _RefusedError(_too_large(most))
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.receive.total_seconds()):
                while True:
                    message = await receive()
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise _RefusedError(_too_large(most))
                    if message["type"] != "http.request" or not message.get("more_body"):
                        break
        except TimeoutError:
            raise _RefusedError(
                QueryError("The request did not arrive in time"), status=REQUEST_TIMEOUT
            ) from None
        return _replay(bytes(body), receive)


class _RefusedError(Exception):
    """A request that goes no further, with what it is told."""

    def __init__(
        self,
        error: PenstockError,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(error)
        self._error = error
        self._status = status
        self._headers = headers

    async def answer(self, send: Send) -> None:
        """Send it."""
        await send_error(send, self._error, status=self._status, headers=self._headers)


async def send_error(
    send: Send,
    error: PenstockError,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send an error as JSON, and close: what is left of the request is not read."""
    body = encode_json(error_body(error))
    fields = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **(headers or {}),
    }
    start = {
        "type": "http.response.start",
        "status": status or status_of(error),
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _too_large(most: int) -> QueryLimitError:
    return QueryLimitError(f"The request has more than {most} bytes", hint="Ask for fewer keys")


def _only(scope: AsgiScope, name: bytes) -> str | None:
    """A header's value; one that is there several times counts as one that fits nothing."""
    found = [value for each, value in scope["headers"] if each == name]
    if not found:
        return None
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            # A page may need more than nothing, and says so itself.
            own = list(message.get("headers", ()))
            said = {name.lower() for name, _ in own}
            more = [header for header in SECURITY_HEADERS if header[0] not in said]
            message = {**message, "headers": own + more}
        await send(message)

    return guarded


def _replay(body: bytes, receive: Receive) -> Receive:
    whole: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replayed() -> Message:
        message = next(whole, None)
        return await receive() if message is None else message

    return replayed
