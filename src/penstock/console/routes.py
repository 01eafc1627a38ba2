"""The console's routes: the page, which holds nothing, and what it asks for, which needs a token.

News come as server-sent events. The page reads them by `fetch`: an `EventSource` cannot send a
token, and one in an address ends up in logs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from importlib import resources
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from penstock.console.history import KEPT, History
from penstock.console.model import RECORDS_MAX, Watched
from penstock.errors import PenstockError

TICK_SECONDS = 1.0
_FOUND_ELSEWHERE = 307
ASSETS = {
    "index.html": "text/html; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "live-views.js": "text/javascript; charset=utf-8",
    "state-views.js": "text/javascript; charset=utf-8",
}
# Nothing from elsewhere, nothing inline, in nobody's frame.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def add_page(app: FastAPI) -> None:
    """Serve the page and its parts, which anybody may have."""

    async def page() -> Response:
        return _asset("index.html")

    async def part(name: Annotated[str, Path(max_length=40)]) -> Response:
        return _asset(name) if name in ASSETS else Response(status_code=404)

    async def root() -> Response:
        return Response(status_code=_FOUND_ELSEWHERE, headers={"location": "/console", **HEADERS})

    app.add_api_route("/", root, include_in_schema=False)
    app.add_api_route("/console", page, include_in_schema=False)
    app.add_api_route("/console/{name}", part, include_in_schema=False)


def add_data(
    app: FastAPI,
    watched: Watched,
    history: History,
    *,
    in_thread: Callable[[Callable[[], Any]], Any],
    options: dict[str, Any],
) -> None:
    """Serve what the page shows; `options` of a route see to its token.

    `in_thread` awaits what may take a moment: the loop answers health checks meanwhile.
    """

    async def topology() -> Response:
        svg = await in_thread(watched.topology_svg)
        return Response(svg, headers={"content-type": "image/svg+xml", **HEADERS})

    async def configuration() -> Response:
        return _json(await in_thread(watched.options))

    async def topics() -> Response:
        return _json(await in_thread(watched.topics))

    async def records(
        topic: Annotated[str, Path(max_length=249)],
        partition: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=RECORDS_MAX)] = 20,
    ) -> Response:
        return _json(await in_thread(lambda: watched.records(topic, partition, limit)))

    async def groups() -> Response:
        return _json(await in_thread(watched.groups))

    async def events(request: Request) -> Response:
        return StreamingResponse(
            _events(request, watched, history, in_thread),
            headers={"content-type": "text/event-stream", **HEADERS},
        )

    for path, endpoint in (
        ("topology.svg", topology),
        ("configuration", configuration),
        ("topics", topics),
        ("topics/{topic}/records", records),
        ("groups", groups),
        ("events", events),
    ):
        # The page's own: programs are told of what stays as it is.
        app.add_api_route(f"/v1/console/{path}", endpoint, include_in_schema=False, **options)


async def _events(
    request: Request,
    watched: Watched,
    history: History,
    in_thread: Callable[[Callable[[], Any]], Any],
) -> AsyncIterator[bytes]:
    """How things stand, once a second, with what happened since the last time."""
    seen = 0
    while not await request.is_disconnected():
        state, rates, why = None, None, ""
        try:
            state, rates = await in_thread(watched.overview), await in_thread(watched.rates)
        except PenstockError as error:
            # It is starting, opens anew or ends: the page says so, and asks again.
            why = error.message
        news = history.since(seen)
        seen = news.latest
        told = {
            "now": history.now_ms(),
            "kept": KEPT,
            "overview": state,
            "rates": rates,
            "why": why,
        }
        yield _event({**told, "news": dataclasses.asdict(news)})
        if why:
            return
        await asyncio.sleep(TICK_SECONDS)


def _event(data: Any) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def _json(data: Any) -> Response:
    body = json.dumps({"ok": True, "data": data}).encode()
    return Response(body, headers={"content-type": "application/json", **HEADERS})


def _asset(name: str) -> Response:
    data = resources.files("penstock.console").joinpath("static", name).read_bytes()
    return Response(data, headers={"content-type": ASSETS[name], **HEADERS})
