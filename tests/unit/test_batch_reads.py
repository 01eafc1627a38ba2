"""The short way of questions for many values gives what the usual way gives."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from penstock.errors import StoreUnavailableError
from penstock.queries.batch_reads import plain_batch
from penstock.queries.limits import Limits
from tests.unit.queries_in_memory import InMemoryQueries, made_service, request

USUAL = "?usual"
"""No route knows it; what comes with a query goes the usual way."""
KEYS = {"kind": "get", "keys": ["b", "none", "a"]}


def _counts(more: dict[str, Any]) -> tuple[str, bytes]:
    return "counts", json.dumps({**KEYS, **more}).encode()


@pytest.mark.parametrize(
    ("store", "body"),
    [
        _counts({}),
        _counts({"keys": []}),
        _counts({"stale": True, "max_lag": 7, "timeout_ms": 100, "limit": 1}),
        _counts({"reverse": True}),
        _counts({"as_text": True}),
        _counts({"position": {"0": 1}}),
        _counts({"partition": 0}),
        _counts({"page": "x"}),
        _counts({"keys": [7]}),
        _counts({"keys": [None]}),
        _counts({"keys": "b"}),
        _counts({"keys": ["\ud800"]}),
        _counts({"max_lag": -1}),
        _counts({"max_lag": 2**63}),
        _counts({"timeout_ms": 0}),
        _counts({"timeout_ms": "100"}),
        _counts({"limit": 0}),
        _counts({"kind": "all"}),
        _counts({"unknown": 1}),
        ("counts", b'{"kind":"get","keys":["a"],"keys":["b"]}'),
        ("counts", b'\xef\xbb\xbf{"kind":"get","keys":["a"]}'),
        ("counts", b'{"kind":"get","keys":["a"'),
        ("counts", b'{"kind":"get","keys":["\xff"]}'),
        ("counts", b'{"kind":"get","keys":[' + b"[" * 5_000),
        ("counts", b""),
        ("odd", b'{"kind":"get","keys":["a","0x61","0xFF2f","0xzz"]}'),
        ("odd", b'{"kind":"get","keys":["a","0x61","0xFF2f",""]}'),
        ("numbers", b'{"kind":"get","keys":[7,8,-0]}'),
        ("numbers", b'{"kind":"get","keys":[7,123456789012345678901234567890]}'),
        ("ids", b'{"kind":"get","keys":["00000000-0000-0000-0000-000000000001"]}'),
        ("prices", b'{"kind":"get","keys":["tea"]}'),
        ("rates", b'{"kind":"get","keys":["a"]}'),
        ("nowhere", b'{"kind":"get","keys":["a"]}'),
        ("n" * 300, b'{"kind":"get","keys":["a"]}'),
    ],
)
def test_both_ways_say_the_same(store: str, body: bytes) -> None:
    queries = InMemoryQueries()
    app, path = made_service(queries), f"/v1/stores/{store}/query"
    short = request(app, "POST", path, raw=body)
    usual = request(app, "POST", path + USUAL, raw=body)
    assert (short.status, short.body) == (usual.status, usual.body)
    assert short.headers == usual.headers
    asked = [(name, question.keys, *rest) for name, question, *rest in queries.asked]
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]


@pytest.mark.parametrize(
    "headers",
    [
        {"accept": "application/vnd.apache.arrow.stream"},
        {"accept": "application/vnd.penstock.values+json"},
        {"accept": "text/plain"},
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=utf-8"},
        {"host": "evil.example.org"},
        {"origin": "http://evil.example.org"},
        {"authorization": "Bearer wrong"},
    ],
)
def test_headers_mean_the_same_on_both_ways(headers: dict[str, str]) -> None:
    app, path = made_service(), "/v1/stores/counts/query"
    token = None if "authorization" in headers else "read-canary-5f0c1d3b7a924e68b1d2c3e4"
    short = request(app, "POST", path, body=KEYS, headers=headers, token=token)
    usual = request(app, "POST", path + USUAL, body=KEYS, headers=headers, token=token)
    assert (short.status, short.body, short.headers) == (usual.status, usual.body, usual.headers)


@pytest.mark.parametrize("raised", [StoreUnavailableError("Nobody holds it"), ZeroDivisionError()])
def test_a_failure_is_told_the_same_and_asked_for_once(raised: Exception) -> None:
    queries = InMemoryQueries()
    queries.raises = raised
    app, path = made_service(queries), "/v1/stores/counts/query"
    short = request(app, "POST", path, body=KEYS)
    assert len(queries.asked) == 1
    usual = request(app, "POST", path + USUAL, body=KEYS)
    assert short.status == usual.status
    assert short.json["error"]["code"] == usual.json["error"]["code"]
    assert "ZeroDivision" not in short.body.decode()


def test_limits_hold_on_both_ways() -> None:
    for limits in (Limits(keys=2), Limits(response_bytes=10)):
        app, path = made_service(limits=limits), "/v1/stores/counts/query"
        short, usual = (request(app, "POST", path + way, body=KEYS) for way in ("", USUAL))
        assert (short.status, short.body) == (usual.status, usual.body)
        assert short.status == 413
    queries = InMemoryQueries()
    app = made_service(queries, limits=Limits(timeout=timedelta(seconds=2)))
    request(app, "POST", "/v1/stores/counts/query", body=KEYS)
    assert [timeout for *_, timeout in queries.asked] == [timedelta(seconds=2)]


def test_what_the_client_sends_is_plain() -> None:
    from penstock.queries.client import _body
    from penstock.queries.contract import Bound, Question

    question = Question(kind="get", keys=(b"a", "b", 7))
    body = _body(question, Bound(stale=True), timedelta(seconds=5), as_text=False)
    batch = plain_batch(body)
    assert batch is not None
    assert (batch.keys, batch.bound, batch.timeout_ms) == (
        ["0x61", "b", 7],
        Bound(stale=True),
        5_000,
    )
