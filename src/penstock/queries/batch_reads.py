"""The values of many keys, asked for by `POST /v1/stores/{store}/query`, on a shorter way.

FastAPI takes a millisecond for each request, whatever is asked, and as long again to check what is
in it. Here a plain question for values is read by msgspec; whatever is out of the ordinary goes the
usual way, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from starlette.responses import Response

from penstock.queries.contract import LIMIT_MAX, Bound
from penstock.queries.gate import GRANTED, AsgiApp, AsgiScope, Message, Receive, Send
from penstock.queries.shapes import HOUR_MS, STORE_NAME_MAX, TIME_MAX
from penstock.queries.store_routes import StoreRoutes, media_of
from penstock.serdes.decoders import decoder

_BEFORE = "/v1/stores/"
_BEHIND = "/query"
_JSON = b"application/json"


class PlainBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Of `QueryBody` what a question for values has, and no more; where both take a body, they
    read the same of it.
    """

    kind: Literal["get"]
    keys: list[str | int]
    stale: bool = False
    max_lag: Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX)] | None = None
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=HOUR_MS)] = 5_000
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = 1_000
    # Clients name these too. What they choose, if they choose anything, is for the usual way.
    reverse: bool = False
    as_text: bool = False
    position: dict[str, int] = {}

    @property
    def bound(self) -> Bound:
        """Which copies may answer."""
        return Bound(stale=self.stale, max_lag=self.max_lag)


class BatchReads:
    """An ASGI application in front of the routes, behind the gate."""

    def __init__(
        self, app: AsgiApp, routes: StoreRoutes, failure: Callable[[Exception], Response]
    ) -> None:
        self._app = app
        self._routes = routes
        self._failure = failure

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a plain question for values; let all else through."""
        asked = _asked_store(scope)
        if asked is None:
            await self._app(scope, receive, send)
            return
        message = await receive()
        batch = None if message.get("more_body") else plain_batch(message.get("body", b""))
        if batch is None:
            await self._app(scope, _with_first(message, receive), send)
            return
        try:
            store, media = asked
            response = await self._routes.values(
                store, batch.keys, batch.bound, batch.timeout_ms, media
            )
        except Exception as error:  # noqa: BLE001 - told as the routes tell it
            response = self._failure(error)
        await response(scope, receive, send)


def _asked_store(scope: AsgiScope) -> tuple[str, str] | None:
    """The store of a question that may be a plain one, and how its answer is told."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
        return None
    path: str = scope["path"]
    if not path.startswith(_BEFORE) or not path.endswith(_BEHIND):
        return None
    store = path[len(_BEFORE) : -len(_BEHIND)]
    if not store or "/" in store or len(store) > STORE_NAME_MAX:
        return None
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    accepted = [value for name, value in scope["headers"] if name == b"accept"]
    wants_other = any(b"json" not in value for value in accepted)
    if types != [_JSON] or wants_other or len(accepted) > 1:
        return None
    if "read" not in scope.get(GRANTED, ()):
        return None
    return store, media_of(accepted[0].decode("latin-1") if accepted else "")


def plain_batch(body: bytes) -> PlainBatch | None:
    """The question in a body, if it is one for the values of keys now, and for nothing else.

    >>> plain_batch(b'{"kind": "get", "keys": ["a", 7]}').keys
    ['a', 7]
    >>> plain_batch(b'{"kind": "get", "keys": ["a"], "as_text": true}')
    """
    try:
        batch = decoder(PlainBatch).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_plain = not (batch.reverse or batch.as_text or batch.position)
    return batch if is_plain else None


def _with_first(message: Message, receive: Receive) -> Receive:
    first: list[Message] = [message]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again
