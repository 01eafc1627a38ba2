"""What the pages on HTTP and security say is what the service does."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from penstock import errors
from penstock.config import Config
from penstock.queries import json_values
from penstock.queries.gate import OPEN_PATHS
from penstock.queries.limits import Limits
from tests.unit.queries_in_memory import InMemoryQueries, Shelf, made_service, request

DOCS = Path(__file__).parents[2] / "docs"
HTTP = (DOCS / "http.md").read_text()
SECURITY = (DOCS / "security.md").read_text()


def test_the_page_has_every_route() -> None:
    document = request(made_service(), "GET", "/openapi.json", token=None).json
    there = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert set(re.findall(r"^\| `((?:GET|POST) [^`]+)`", HTTP, re.MULTILINE)) == there


def test_the_pages_have_every_option() -> None:
    there = {each.name for each in dataclasses.fields(Config) if each.name.startswith("http_")}
    assert set(re.findall(r"`(http_(?!\*)\w*[a-z])`", HTTP)) == there
    used = set(re.findall(r"PENSTOCK_(HTTP_\w+)", HTTP))
    assert {name.lower() for name in used} <= there


def test_the_rule_for_json_is_the_same_in_both_places() -> None:
    rows = [line for line in (json_values.__doc__ or "").splitlines() if line.startswith("|")]
    assert len(rows) > 8
    assert all(row in HTTP for row in rows)


def test_every_code_is_an_error() -> None:
    table = HTTP.split("## Errors")[1].split("## Limits")[0]
    codes = set(
        re.findall(r"`([a-z_]+)`[,| ]", re.sub(r"`(where|stale|penstock query)`", "", table))
    )
    kinds: list[Any] = [each for each in vars(errors).values() if isinstance(each, type)]
    known = {kind("").code for kind in kinds if issubclass(kind, errors.PenstockError)}
    assert {"unknown_store", "service_busy", "query_limit"} <= codes
    assert codes <= known


def test_the_limits_are_those_that_hold() -> None:
    limits, text = Limits(), HTTP.split("## Limits")[1].split("## Options")[0]
    for number in (
        f"{limits.body_bytes >> 20} MiB",
        f"{limits.response_bytes >> 20} MiB",
        f"{limits.rows:,} rows",
        f"{limits.keys:,} keys",
        f"{limits.timeout.total_seconds():.0f} s, whatever",
        f"{limits.at_once} are answered at once",
        f"{limits.waiting} wait",
        f"{limits.connections} connections",
        f"within {limits.receive.total_seconds():.0f} s",
        f"{limits.header_bytes >> 10} KiB",
        f"closed after {limits.idle.total_seconds():.0f} s",
    ):
        assert number in " ".join(text.split()), number


def test_the_open_paths_are_named() -> None:
    assert all(path.removesuffix("/style.css") in SECURITY for path in OPEN_PATHS)


def test_answers_and_errors_have_the_form_that_is_shown() -> None:
    shown = [json.loads(each) for each in re.findall(r"^```json\n(.*?)^```$", HTTP, re.M | re.S)]
    queries = InMemoryQueries()
    queries.shelves["pulse-counts"] = Shelf(
        kind="key_value", key=str, value=int, entries={("ann", None): 72}
    )
    app = made_service(queries)
    answer = request(app, "GET", "/v1/stores/pulse-counts/keys/ann").json
    error = request(app, "GET", "/v1/stores/x/keys/ann").json
    assert [names(each) for each in (answer, error)] == [names(each) for each in shown]
    assert error["error"]["code"] == shown[1]["error"]["code"]
    assert error["error"]["message"] == shown[1]["error"]["message"]


def names(found: Any) -> Any:
    """What an object has, without its values; of a list what the first has."""
    if isinstance(found, dict):
        return {name: names(each) for name, each in found.items() if name != "where"}
    return [names(each) for each in found[:1]] if isinstance(found, list) else None
