"""What Schemathesis makes of the OpenAPI document: no request that it thinks of ends in a 5xx."""

from __future__ import annotations

from typing import Any

import hypothesis
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.unit.queries_in_memory import ADMIN, made_service, shelves

CASES = 1_000
APP = made_service(hosts=[asgi.HOST])
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SEEN: list[int] = []


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> Any:
    """Mostly stores that there are: others end in 404 before anything can go wrong."""
    del context
    if path_parameters and "store" in path_parameters:
        names = sorted(shelves())
        number = sum(str(path_parameters["store"]).encode("utf-8", "replace"))
        if number % 8:
            path_parameters["store"] = names[number % len(names)]
    return path_parameters


def test_no_request_ends_in_a_server_error() -> None:
    operations = [each.ok() for each in SCHEMA.get_all_operations()]
    # One without parameters has one case.
    shaped = [each for each in operations if each.path_parameters or each.query or each.body]
    each_gets = CASES // len(shaped) + 1
    with asgi.get_client(APP) as client:
        client.headers["authorization"] = f"Bearer {ADMIN}"
        for operation in operations:
            ask(operation, client, each_gets)
    assert len(SEEN) >= CASES
    assert {200, 400, 404} <= set(SEEN)


def ask(operation: Any, client: Any, cases: int) -> None:

    @hypothesis.settings(
        max_examples=cases,
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy())
    def check(case: Any) -> None:
        response = case.call(session=client)
        case.validate_response(response, checks=CHECKS)
        SEEN.append(response.status_code)

    check()
