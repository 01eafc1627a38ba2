"""The HTTP service: what its routes ask, and what they answer."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote, unquote

import pytest

from penstock.errors import DeserializationError
from penstock.queries.arrow_rows import ARROW_STREAM, decode_rows
from penstock.queries.contract import Bound, Question
from penstock.queries.json_values import VALUES_JSON
from penstock.queries.limits import Limits
from tests.unit.queries_in_memory import (
    ADMIN,
    WINDOW_MS,
    InMemoryQueries,
    Paused,
    made_service,
    request,
    unavailable,
)

SHARED = made_service()
"""Made once: describing its routes takes a while."""


def rows(path: str) -> list[dict[str, Any]]:
    reply = request(SHARED, "GET", path)
    assert reply.status == 200, reply.body
    found: list[dict[str, Any]] = reply.json["data"]["rows"]
    return found


def pairs(path: str) -> list[tuple[Any, Any]]:
    return [(row["key"], row["value"]) for row in rows(path)]


def test_a_value_comes_with_who_gave_it_and_how_fresh() -> None:
    reply = request(SHARED, "GET", "/v1/stores/counts/keys/b")
    assert reply.json == {
        "ok": True,
        "data": {
            "rows": [{"key": "b", "value": 1, "timestamp": 17, "start": None, "end": None}],
            "sources": [
                {
                    "partition": 0,
                    "instance": "instance-0",
                    "role": "active",
                    "position": 41,
                    "age_ms": 0,
                }
            ],
            "next_page": None,
        },
    }


def test_a_key_without_a_value_has_null() -> None:
    assert pairs("/v1/stores/counts/keys/zz") == [("zz", None)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("numbers/keys/7", [(7, "0x0001")]),
        ("odd/keys/0xff2f", [("0xff2f", "Infinity")]),
        ("odd/keys/a", [("0x61", "NaN")]),
        (f"ids/keys/{'0' * 8}-0000-0000-0000-{'0' * 11}1", None),
        ("patients/keys/" + quote('{"ward":"A","bed":1}'), None),
        ("prices/keys/tea", [("tea", 4)]),
        ("prices/keys/tea?as_of=150", [("tea", 3)]),
        ("prices/keys/tea?as_of=50", [("tea", None)]),
        ("counts/range?lower=b&upper=d", [("b", 1), ("c", 2), ("d", 3)]),
        ("counts/range?prefix=c", [("c", 2)]),
        ("counts/range?lower=e&reverse=true", [("f", 5), ("e", 4)]),
        ("rates/windows/a", [("a", 60), ("a", 61)]),
        ("rates/windows/a?start=1", [("a", 61)]),
        ("rates/windows?end=0", [("a", 60), ("b", 70)]),
        ("visits/windows/a?start=100", [("a", 2)]),
        ("visits/all", [("a", 1), ("a", 2)]),
        ("counts/all?partition=1", []),
    ],
)
def test_what_each_route_finds(path: str, expected: list[tuple[Any, Any]] | None) -> None:
    # The path as a server hands it on: decoded.
    bare, mark, query = path.partition("?")
    found = pairs(f"/v1/stores/{unquote(bare)}{mark}{query}")
    if expected is None:
        [(key, value)] = found
        assert value is not None
        assert key in ({"ward": "A", "bed": 1}, "00000000-0000-0000-0000-000000000001")
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("windows/a?start=1&end=2&", Question(kind="fetch", keys=("a",), start=1, end=2)),
        (
            "windows?lower=a&upper=b&start=1&end=2&",
            Question(kind="fetch_range", lower="a", upper="b", start=1, end=2),
        ),
        ("range?lower=a&upper=b&", Question(kind="range", lower="a", upper="b")),
        ("range?prefix=a&", Question(kind="prefix", prefix="a")),
        ("all?", Question(kind="all")),
    ],
)
def test_all_that_an_address_says_arrives(path: str, question: Question) -> None:
    queries = InMemoryQueries()
    more = "reverse=true&partition=0&limit=7&page=page-1&stale=true&max_lag=3&timeout_ms=70"
    request(made_service(queries), "GET", f"/v1/stores/rates/{path}{more}")
    expected = replace(question, reverse=True, partition=0, limit=7, page="page-1")
    bound = Bound(stale=True, max_lag=3)
    assert queries.asked == [("rates", expected, bound, timedelta(milliseconds=70))]


def test_windows_have_their_bounds() -> None:
    [row] = rows("/v1/stores/rates/windows/b")
    assert (row["start"], row["end"]) == (0, WINDOW_MS)


def test_a_batch_is_answered_in_its_order() -> None:
    body = {"kind": "get", "keys": ["c", "zz", "a"]}
    reply = request(SHARED, "POST", "/v1/stores/counts/query", body=body)
    assert [row["value"] for row in reply.json["data"]["rows"]] == [2, None, 0]


def test_keys_are_json_by_their_type_or_texts_if_it_says_so() -> None:
    app = SHARED
    typed = request(app, "POST", "/v1/stores/numbers/query", body={"kind": "get", "keys": [7]})
    text = {"kind": "get", "keys": ["7"], "as_text": True}
    assert request(app, "POST", "/v1/stores/numbers/query", body=text).json == typed.json
    wrong = request(app, "POST", "/v1/stores/numbers/query", body={"kind": "get", "keys": ["7"]})
    assert wrong.status == 400
    assert wrong.json["error"]["code"] == "question_refused"


def test_pages_lead_through_all_rows() -> None:
    app, page, found = SHARED, "", []
    while page is not None:
        more = f"&page={page}" if page else ""
        data = request(app, "GET", f"/v1/stores/counts/all?limit=4{more}").json["data"]
        found += [row["key"] for row in data["rows"]]
        page = data["next_page"]
    assert found == list("abcdef")


def test_bounds_and_deadlines_reach_whoever_answers() -> None:
    queries = InMemoryQueries()
    body = {
        "kind": "get",
        "keys": ["a"],
        "stale": True,
        "max_lag": 3,
        "position": {"0": 12},
        "timeout_ms": 3_600_000,
    }
    app = made_service(queries)
    request(app, "POST", "/v1/stores/counts/query", body=body)
    [(_, _, bound, timeout)] = queries.asked
    assert bound == Bound(stale=True, max_lag=3, position={0: 12})
    assert timeout == Limits().timeout
    request(app, "GET", "/v1/stores/counts/count?max_lag=3&timeout_ms=12000")
    assert queries.counted == [("counts", Bound(max_lag=3), timedelta(seconds=12))]


def test_what_there_is_to_ask() -> None:
    app = SHARED
    stores = request(app, "GET", "/v1/stores").json["data"]["stores"]
    assert {each["name"]: each["kind"] for each in stores}["rates"] == "window"
    assert request(app, "GET", "/v1/stores/rates").json["data"]["key"] == "string"
    assert request(app, "GET", "/v1/stores/rates/count").json["data"]["approximate_count"] == 3
    where = request(app, "GET", "/v1/stores/counts/metadata/a").json["data"]
    assert (where["active"], where["standbys"]) == ("instance-0", ["instance-1"])
    [lag] = request(app, "GET", "/v1/lags").json["data"]["lags"]
    assert lag["lag"] == 5


@pytest.mark.parametrize(
    ("method", "path", "body", "values"),
    [
        ("GET", "/v1/stores/counts/keys/b", None, [1]),
        ("GET", "/v1/stores/rates/all?limit=2", None, [60, 61]),
        (
            "POST",
            "/v1/stores/counts/query",
            {"kind": "get", "keys": ["f", "no", "a"]},
            [5, None, 0],
        ),
        (
            "POST",
            "/v1/stores/odd/query",
            {"kind": "get", "keys": ["a", "0xff2f"]},
            ["NaN", "Infinity"],
        ),
    ],
)
def test_who_wants_no_more_gets_the_values_alone(
    method: str, path: str, body: Any, values: list[Any]
) -> None:
    plain = request(SHARED, method, path, body=body)
    reply = request(SHARED, method, path, body=body, headers={"accept": VALUES_JSON})
    assert reply.headers["content-type"] == VALUES_JSON
    assert reply.json["data"].pop("values") == values
    assert [row["value"] for row in plain.json["data"].pop("rows")] == values
    assert reply.json["data"]["sources"] == plain.json["data"]["sources"]
    assert reply.json["data"]["next_page"] == plain.json["data"]["next_page"]


def test_rows_come_as_an_arrow_stream_of_their_bytes() -> None:
    reply = request(
        SHARED,
        "GET",
        "/v1/stores/rates/all?partition=0&limit=2",
        headers={"accept": ARROW_STREAM},
    )
    assert reply.headers["content-type"] == ARROW_STREAM
    table, facts = decode_rows(reply.body)
    assert table.to_pydict() == {
        "key": [b"a", b"a"],
        "value": [(60).to_bytes(8, "big"), (61).to_bytes(8, "big")],
        "timestamp": [17, 17],
        "start": [0, WINDOW_MS],
        "end": [WINDOW_MS, 2 * WINDOW_MS],
    }
    assert facts["sources"][0]["role"] == "active"
    assert (facts["next_page"], facts["key"], facts["value"]) == ("page-2", "string", "long")


def test_health_says_yes_and_no() -> None:
    assert request(SHARED, "GET", "/health/live", token=None).status == 200
    starting = made_service(ready=lambda: False)
    assert request(starting, "GET", "/health/live", token=None).status == 200
    assert request(starting, "GET", "/health/ready", token=None).status == 503


def test_metrics_are_prometheus_text() -> None:
    reply = request(SHARED, "GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert reply.body == b"penstock_up 1\n"


def test_an_admin_pauses_and_resumes() -> None:
    paused = Paused()
    app = made_service(paused=paused)
    assert request(app, "POST", "/v1/pause", token=ADMIN).json["data"] == {"paused": True}
    assert paused.is_paused
    assert request(app, "POST", "/v1/resume", token=ADMIN).json["data"] == {"paused": False}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/stores/none/keys/a", 404, "unknown_store"),
        ("GET", "/v1/stores/none", 404, "unknown_store"),
        ("GET", "/v1/nothing", 404, "query"),
        ("DELETE", "/v1/stores", 405, "query"),
        ("GET", "/v1/stores/rates/keys/a", 400, "question_refused"),
        ("GET", "/v1/stores/numbers/keys/a", 400, "question_refused"),
        ("GET", "/v1/stores/counts/all?page=x", 400, "question_refused"),
        ("GET", "/v1/stores/counts/range?lower=a&prefix=b", 400, "question_refused"),
        ("GET", "/v1/stores/counts/all?limit=0", 422, "query"),
        ("GET", "/v1/stores/counts/all?limitt=5", 422, "query"),
        ("GET", "/v1/stores/counts/all?limit=10001", 422, "query"),
    ],
)
def test_a_bad_question_is_told_what_is_wrong(
    method: str, path: str, status: int, code: str
) -> None:
    reply = request(SHARED, method, path)
    assert reply.status == status
    assert reply.json["ok"] is False
    assert reply.json["error"]["code"] == code
    assert set(reply.json["error"]) == {"code", "message", "where", "hint"}


@pytest.mark.parametrize(
    "raw",
    [b"{", b"\xff", b"[" * 100_000, b'{"kind": "get", "keys": ["\\ud800"]}', b'{"kind": 1}', b""],
)
def test_a_body_that_is_no_question_is_refused(raw: bytes) -> None:
    reply = request(SHARED, "POST", "/v1/stores/counts/query", raw=raw)
    assert reply.status in (400, 422), reply.body
    assert reply.json["ok"] is False


def test_nobody_to_answer_is_told_as_such() -> None:
    queries = InMemoryQueries()
    queries.raises = unavailable()
    reply = request(made_service(queries), "GET", "/v1/stores/counts/keys/a")
    assert (reply.status, reply.json["error"]["code"]) == (503, "store_unavailable")
    assert reply.json["error"]["where"] == {"store": "counts"}


@pytest.mark.parametrize("error", [RuntimeError("inside-canary"), StopIteration("inside-canary")])
def test_what_nobody_expected_is_told_by_a_number_alone(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    queries = InMemoryQueries()
    queries.raises = error
    reply = request(made_service(queries), "GET", "/v1/stores/counts/keys/a")
    assert reply.status == 500
    assert b"inside-canary" not in reply.body
    assert b"Traceback" not in reply.body
    assert reply.json["error"]["where"]["number"] in caplog.text
    assert "inside-canary" in caplog.text


def test_a_value_that_cannot_be_read_is_ours_to_mend() -> None:
    queries = InMemoryQueries()
    queries.raises = DeserializationError("0x00 cannot be decoded")
    reply = request(made_service(queries), "GET", "/v1/stores/counts/keys/a")
    assert (reply.status, reply.json["error"]["code"]) == (500, "deserialization")


def test_an_answer_that_is_too_large_is_refused() -> None:
    app = made_service(limits=Limits(response_bytes=200))
    reply = request(app, "GET", "/v1/stores/counts/all")
    assert (reply.status, reply.json["error"]["code"]) == (413, "query_limit")


def test_a_request_that_is_too_large_is_refused_before_it_is_read() -> None:
    app = made_service(limits=Limits(body_bytes=100, keys=2))
    path = "/v1/stores/counts/query"
    assert request(app, "POST", path, body={"kind": "get", "keys": ["a"] * 100}).status == 413
    for announced in ("1000000", "9" * 5_000):
        header = {"content-length": announced}
        assert request(app, "POST", path, raw=b"{}", headers=header).status == 413
    assert request(app, "POST", path, body={"kind": "get", "keys": ["a"] * 3}).status == 413


def test_a_late_answer_is_given_up_and_still_counts_as_under_way() -> None:
    release, queries = threading.Event(), InMemoryQueries()
    queries.stores = lambda: release.wait() and []  # type: ignore[method-assign,assignment]
    app = made_service(
        queries, limits=Limits(timeout=timedelta(milliseconds=1), at_once=1, waiting=0)
    )
    try:
        late = request(app, "GET", "/v1/stores")
        busy = request(app, "GET", "/v1/stores")
    finally:
        release.set()
    assert (late.status, late.json["error"]["code"]) == (503, "store_unavailable")
    assert (busy.status, busy.json["error"]["code"]) == (503, "service_busy")


def test_the_page_needs_nothing_from_elsewhere() -> None:
    app = SHARED
    page = request(app, "GET", "/docs", token=None).body.decode()
    linked = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert linked == ["/docs/style.css", "/openapi.json"]
    assert "<script" not in page
    assert "POST /v1/stores/{store}/query" in page
    assert request(app, "GET", "/docs/style.css", token=None).status == 200
    document = json.loads(request(app, "GET", "/openapi.json", token=None).body)
    assert all(path in page for path in document["paths"])
