"""Who is let in: every route and method without a token, with a wrong one, from elsewhere."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from typing import Any

import pytest
from fastapi import FastAPI, Response

from penstock.errors import ConfigError
from penstock.queries.access import Access
from penstock.queries.gate import OPEN_PATHS, SECURITY_HEADERS, AsgiApp
from penstock.queries.probes import Probes
from penstock.queries.service import guarded, service
from tests.unit.queries_in_memory import (
    ADMIN,
    READ,
    InMemoryQueries,
    made_instance_service,
    made_service,
    request,
)

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"]
NO_TOKEN_NEEDED = {"/health/live", "/health/ready", "/docs", "/docs/style.css", "/openapi.json"}


def routes(app: AsgiApp) -> list[Any]:
    inner: Any = app
    return list(inner._app._app._app.routes)


def paths(app: AsgiApp) -> list[str]:
    found = (route.path for route in routes(app))
    return [path.replace("{store}", "counts").replace("{key:path}", "a") for path in found]


APP = made_service()
PATHS = paths(APP)
ON_INSTANCES = made_instance_service()
EVERYWHERE = [
    pytest.param(app, path, id=f"{name} {path}")
    for name, app in (("driver", APP), ("instance", ON_INSTANCES))
    for path in paths(app)
]


def test_the_route_table_is_what_is_tested() -> None:
    assert len(PATHS) >= 19
    assert set(PATHS) >= NO_TOKEN_NEEDED
    assert OPEN_PATHS == NO_TOKEN_NEEDED
    # An instance answers the same, but for what concerns the whole application.
    assert set(PATHS) - set(paths(ON_INSTANCES)) == {"/v1/pause", "/v1/resume"}
    assert set(paths(ON_INSTANCES)) < set(PATHS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("app", "path"), EVERYWHERE)
def test_nothing_is_had_without_a_token_or_with_a_wrong_one(
    app: AsgiApp, path: str, method: str
) -> None:
    wrong = [f"Bearer {READ[:-1]}x", f"Bearer {READ}x", f"Basic {READ}", READ, "Bearer", "Bearer "]
    for header in wrong:
        reply = request(app, method, path, token=None, headers={"authorization": header})
        assert reply.status == 401, header
        assert reply.headers["www-authenticate"] == "Bearer"
    without = request(app, method, path, token=None)
    if path in NO_TOKEN_NEEDED:
        assert without.status == (200 if method == "GET" else 405)
    else:
        assert without.status == 401
        assert without.json["error"]["code"] == "query_access"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("app", "path"), EVERYWHERE)
def test_nothing_is_had_by_another_name_or_from_another_page(
    app: AsgiApp, path: str, method: str
) -> None:
    for header in (
        {"host": "evil.example"},
        {"host": ""},
        {"host": "localhost.evil.example:80"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:81"},
    ):
        reply = request(app, method, path, token=ADMIN, headers=header)
        assert reply.status == 403, header


def test_its_own_page_may_ask() -> None:
    own = {"origin": "http://localhost:80"}
    assert request(APP, "GET", "/v1/stores", headers=own).status == 200


def test_only_an_admin_changes_anything_and_never_by_get() -> None:
    acting = [route for route in routes(APP) if "admin" in str(getattr(route, "openapi_extra", ""))]
    assert {route.path for route in acting} == {"/v1/pause", "/v1/resume"}
    assert all(route.methods == {"POST"} for route in acting)
    for route in acting:
        assert request(APP, "POST", route.path, token=READ).status == 403
        assert request(APP, "POST", route.path, token=ADMIN).status == 200
        assert request(APP, "GET", route.path, token=ADMIN).status == 405


def test_every_route_says_which_scope_it_needs() -> None:
    for route in [*routes(APP), *routes(ON_INSTANCES)]:
        needs = list(getattr(route, "dependencies", ()))
        assert bool(needs) is (route.path not in NO_TOKEN_NEEDED), route.path


@pytest.mark.parametrize("path", [*PATHS, "/nothing"])
def test_every_answer_has_the_headers_that_protect_it(path: str) -> None:
    for token in (READ, None):
        headers = request(APP, "GET", path, token=token).headers
        for name, value in SECURITY_HEADERS:
            assert headers[name.decode()] == value.decode()
        assert "access-control-allow-origin" not in headers


def test_a_header_that_is_there_twice_fits_nothing() -> None:
    access = Access.of({READ: "read"})
    assert access.scopes_of(f"Bearer {READ}")
    assert not access.scopes_of("")
    assert not access.allows_host("")


@pytest.mark.parametrize("token", ["", "short", "with space " * 4, "zoë" * 12, "\n" * 40])
def test_a_token_that_is_too_easy_or_cannot_be_sent_is_refused(token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Access.of({token: "read"})
    assert not token.strip() or token not in str(caught.value)


def test_tokens_are_in_no_answer_log_or_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    queries = InMemoryQueries()
    app = made_service(queries)
    seen = [repr(Access.of({READ: "read", ADMIN: "admin"})), repr(app)]
    bodies: list[Any] = [None, {"kind": "get", "keys": [1]}, {"kind": READ}]
    for path in [*PATHS, "/nothing", f"/v1/stores/{'x' * 300}"]:
        for token, body in itertools.product((READ, ADMIN, f"{READ}x"), bodies):
            reply = request(app, "GET" if body is None else "POST", path, token=token, body=body)
            seen += [reply.body.decode(errors="replace"), json.dumps(reply.headers)]
    queries.raises = RuntimeError("unexpected")
    seen.append(request(app, "GET", "/v1/stores/counts/keys/a").body.decode())
    assert "unexpected" in caplog.text
    for text in (*seen, caplog.text):
        assert READ not in text
        assert ADMIN not in text


def test_routes_of_a_console_pass_the_same_gate() -> None:
    def extend(app: FastAPI, in_thread: Any) -> None:
        async def page() -> Response:
            return Response("page", headers={"content-security-policy": "script-src 'self'"})

        async def data() -> Response:
            return Response(await in_thread(lambda: "data"))

        app.add_api_route("/console", page)
        app.add_api_route("/console/{name}", page)
        app.add_api_route("/v1/console/data", data, **guarded("read"))

    queries = InMemoryQueries()
    app = service(
        queries.opened(),
        access=Access.of({READ: "read"}),
        probes=Probes(live=lambda: True, ready=lambda: True),
        extend=extend,
        open_below=["/console"],
    )
    for path in ("/console", "/console/app.js"):
        reply = request(app, "GET", path, token=None)
        assert (reply.status, reply.body) == (200, b"page")
        assert reply.headers["content-security-policy"] == "script-src 'self'"
        assert reply.headers["x-frame-options"] == "DENY"
    assert request(app, "GET", "/v1/console/data").body == b"data"
    for closed in ("/v1/console/data", "/consoles", "/v1/stores"):
        assert request(app, "GET", closed, token=None).status == 401


async def _closed(app: AsgiApp) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "websocket", "path": "/v1/stores", "headers": []}, receive, send)
    return sent


def test_web_sockets_are_closed() -> None:
    assert asyncio.run(_closed(APP)) == [{"type": "websocket.close", "code": 1008}]
