"""The HTTP service: an application's state, health and metrics, behind one gate.

Made by `service`, an ASGI application. Who answers is handed in, and may change meanwhile.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from penstock.errors import PenstockError, QueryAccessError, QueryError
from penstock.queries.access import Access, Scope
from penstock.queries.api_page import STYLE, api_page
from penstock.queries.batch_reads import BatchReads
from penstock.queries.failures import INTERNAL, error_body, status_of
from penstock.queries.gate import GRANTED, HEAD_TOO_LARGE, AsgiApp, Gate
from penstock.queries.json_values import encode_json
from penstock.queries.limits import Limits
from penstock.queries.loop_lines import LoopLines
from penstock.queries.point_reads import PointReads
from penstock.queries.probes import Controls, Probes
from penstock.queries.question_threads import QuestionThreads
from penstock.queries.served import ServedQueries
from penstock.queries.shapes import (
    Answered,
    HealthShape,
    InstancesShape,
    PauseShape,
    Refusal,
)
from penstock.queries.store_routes import ROWS, StoreRoutes
from penstock.queries.store_routes import json_answer as _json

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BEARER = "bearer"
InThread = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
"""Awaits what may take a moment; meanwhile others are answered."""
Extend = Callable[[FastAPI, InThread], object]
_UNPROCESSABLE = 422
_UNHEALTHY = 503
_log = logging.getLogger("penstock.queries")


def service(
    queries: ServedQueries,
    *,
    access: Access,
    probes: Probes,
    limits: Limits | None = None,
    metrics: Callable[[], bytes] | None = None,
    controls: Controls | None = None,
    extend: Extend | None = None,
    open_below: Sequence[str] = (),
    instances: Callable[[], Mapping[str, str]] | None = None,
) -> AsgiApp:
    """The service of one application; `metrics` gives Prometheus' text.

    `instances` says where those of its instances are that answer too, by name.
    `extend` adds further routes, such as a console's, each with `guarded(...)` as options unless
    its path is one of `open_below`, or below it.
    """
    limits = limits or Limits()
    app = FastAPI(
        title="Penstock",
        version="1",
        description="The state of a running application. docs/http.md says how keys are written.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.router.route_class = _Route
    app.add_exception_handler(HTTPException, _not_routed)
    asking = QuestionThreads(limits)
    lines = LoopLines(limits.at_once)
    routes = StoreRoutes(queries, asking, lines, limits)
    _add_store_routes(app, routes)
    _add_probes(app, probes)
    _add_instances(app, instances or dict, asking)
    if metrics is not None:
        _add_metrics(app, metrics, asking)
    if controls is not None:
        _add_controls(app, controls)
    if extend is not None:
        extend(app, asking.answer)
    _add_documents(app)
    batches = BatchReads(app, routes, _failure)
    reads = PointReads(batches, queries, asking, lines, limits)
    return Gate(reads, access=access, limits=limits, open_below=open_below, start=reads.start)


class _Route(APIRoute):
    """A route whose every failure is JSON, and never shows what the program looks like inside."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return _refused(_invalid(error), status=_UNPROCESSABLE)
            except HTTPException as error:
                return await _not_routed(request, error)
            except Exception as error:  # noqa: BLE001 - told by number; the log has it
                return _failure(error)

        return handled


def _failure(error: Exception) -> Response:
    """What is told of an error that is being handled; of one that is none of ours a number."""
    if isinstance(error, PenstockError):
        if status_of(error) == INTERNAL:
            _log.warning("A question could not be answered: %s", error)
        return _refused(error)
    number = secrets.token_hex(4)
    _log.exception("Answering a request failed; its number is %s", number)
    return _refused(_unexpected(number), status=INTERNAL)


def guarded(scope: Scope) -> dict[str, Any]:
    """The options of a route that only bearers of this scope may use."""
    return {
        "dependencies": [_needs(scope)],
        "openapi_extra": {"security": [{BEARER: [scope]}]},
    }


def _needs(scope: Scope) -> Any:

    async def check(request: Request) -> None:
        if scope not in request.scope.get(GRANTED, ()):
            raise QueryAccessError(
                f"The token has not the scope {scope!r}",
                hint="Use the one in http_admin_token_file, or the run's own in driver.json",
            )

    return Depends(check)


def _add_store_routes(app: FastAPI, routes: StoreRoutes) -> None:
    for path, endpoint, shape in routes.table():
        app.add_api_route(
            path,
            endpoint,
            methods=["POST" if path.endswith("/query") else "GET"],
            operation_id=endpoint.__name__,
            summary=(endpoint.__doc__ or "").strip().splitlines()[0],
            response_model=Answered[shape],  # type: ignore[valid-type]
            responses=_responses(ROWS if shape is routes.rows_shape else {}),
            tags=["state"],
            **guarded("read"),
        )


def _add_probes(app: FastAPI, probes: Probes) -> None:
    for name, is_so, what in (
        ("live", probes.live, "Whether the application works at all."),
        ("ready", probes.ready, "Whether every task is served."),
    ):
        app.add_api_route(
            f"/health/{name}",
            _probe_endpoint(is_so),
            operation_id=f"health_{name}",
            summary=what,
            response_model=Answered[HealthShape],
            responses={_UNHEALTHY: {"model": Refusal, "description": "No."}},
            tags=["health"],
        )


def _probe_endpoint(is_so: Callable[[], bool]) -> Callable[[], Coroutine[Any, Any, Response]]:
    async def endpoint() -> Response:
        if is_so():
            return _json({"healthy": True})
        return _refused(QueryError("Not now"), status=_UNHEALTHY)

    return endpoint


def _add_instances(
    app: FastAPI, instances: Callable[[], Mapping[str, str]], asking: QuestionThreads
) -> None:
    async def endpoint() -> Response:
        urls = await asking.answer(instances)
        return _json({"instances": [{"name": n, "url": url} for n, url in sorted(urls.items())]})

    app.add_api_route(
        "/v1/instances",
        endpoint,
        operation_id="instances",
        summary="The instances that answer over HTTP, and where.",
        response_model=Answered[InstancesShape],
        responses=_responses({}),
        tags=["state"],
        **guarded("read"),
    )


def _add_metrics(app: FastAPI, metrics: Callable[[], bytes], asking: QuestionThreads) -> None:
    async def endpoint() -> Response:
        return Response(await asking.answer(metrics), headers={"content-type": METRICS_TYPE})

    app.add_api_route(
        "/metrics",
        endpoint,
        operation_id="metrics",
        summary="Metrics, for Prometheus.",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **_responses({})},
        tags=["health"],
        **guarded("read"),
    )


def _add_controls(app: FastAPI, controls: Controls) -> None:
    for name, act, what in (
        ("pause", controls.pause, "Read nothing further until it is resumed."),
        ("resume", controls.resume, "Go on after a pause."),
    ):
        app.add_api_route(
            f"/v1/{name}",
            _control_endpoint(act, controls.is_paused),
            methods=["POST"],
            operation_id=name,
            summary=what,
            response_model=Answered[PauseShape],
            responses=_responses({}),
            tags=["control"],
            **guarded("admin"),
        )


def _control_endpoint(
    act: Callable[[], object], is_paused: Callable[[], bool]
) -> Callable[[], Coroutine[Any, Any, Response]]:
    async def endpoint() -> Response:
        act()
        return _json({"paused": is_paused()})

    return endpoint


def _add_documents(app: FastAPI) -> None:
    """The OpenAPI document, and a page of it that needs nothing from elsewhere."""
    document = app.openapi()
    document["components"]["securitySchemes"] = {BEARER: {"type": "http", "scheme": "bearer"}}
    files = {
        "/openapi.json": (encode_json(document), "application/json"),
        "/docs": (api_page(document).encode(), "text/html; charset=utf-8"),
        "/docs/style.css": (STYLE.encode(), "text/css; charset=utf-8"),
    }
    for path, (content, kind) in files.items():
        app.add_api_route(path, _file_endpoint(content, kind), include_in_schema=False)


def _file_endpoint(content: bytes, kind: str) -> Callable[[], Coroutine[Any, Any, Response]]:
    async def endpoint() -> Response:
        return Response(content, headers={"content-type": kind})

    return endpoint


def _responses(more: Mapping[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    told = {
        400: "The question cannot be answered as it is.",
        401: "The token is missing or wrong.",
        403: "The token may not do this, or the request comes from elsewhere.",
        404: "There is no such store.",
        408: "The request did not arrive in time.",
        413: "The question or its answer is too large.",
        421: "Only the driver can read the store; an instance was asked.",
        _UNPROCESSABLE: "The request has not the form of a question.",
        HEAD_TOO_LARGE: "The address and the headers are too long.",
        503: "Nobody who may answer did before the deadline, or too many ask.",
    }
    refusals: dict[int | str, dict[str, Any]]
    refusals = {status: {"model": Refusal, "description": text} for status, text in told.items()}
    return {**refusals, **more}


def _refused(
    error: PenstockError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        encode_json(error_body(error)),
        status_code=status or status_of(error),
        media_type="application/json",
        headers=headers,
    )


async def _not_routed(request: Request, error: Exception) -> Response:
    """No such path, a method that it does not have, a body that is no JSON."""
    del request
    assert isinstance(error, HTTPException)
    return _refused(
        QueryError(str(error.detail), hint="/docs lists what there is"),
        status=error.status_code,
        headers=error.headers,
    )


def _invalid(error: RequestValidationError) -> QueryError:
    # What was given is left out: it may be large, or not be a text at all.
    problems = [
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
        for each in error.errors()[:5]
    ]
    return QueryError(
        f"The request has not the form of a question: {'; '.join(problems)}",
        hint="/docs says what it takes",
    )


def _unexpected(number: str) -> QueryError:
    return QueryError(
        "The question could not be answered",
        where={"number": number},
        hint="The application's log has the reason, by this number",
    )
