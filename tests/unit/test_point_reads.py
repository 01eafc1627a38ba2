"""The short way of point reads gives what the usual way gives, with fewer calls."""

from __future__ import annotations

import itertools
import threading
from datetime import timedelta
from typing import Any

import pytest

from penstock.errors import StoreUnavailableError
from penstock.queries import point_reads
from penstock.queries.contract import Answer, Question
from tests.unit.queries_in_memory import (
    ADMIN,
    InMemoryQueries,
    made_service,
    request,
    requests_at_once,
)

USUAL = "?timeout_ms=5000"
"""Says what is so anyway; a request with options goes the usual way."""


@pytest.mark.parametrize(
    "path",
    [
        "/v1/stores/counts/keys/b",
        "/v1/stores/counts/keys/not-there",
        "/v1/stores/counts/keys/a/b",
        "/v1/stores/counts/keys/",
        "/v1/stores/numbers/keys/7",
        "/v1/stores/numbers/keys/seven",
        "/v1/stores/windows/keys/b",
        "/v1/stores/nowhere/keys/b",
        "/v1/stores/counts/keys/" + "k" * 9_000,
    ],
)
def test_both_ways_say_the_same(path: str) -> None:
    app = made_service()
    short, usual = request(app, "GET", path), request(app, "GET", path + USUAL)
    assert short.status == usual.status
    assert short.json == usual.json
    assert short.headers["content-type"] == usual.headers["content-type"]
    assert short.headers["cache-control"] == usual.headers["cache-control"]


def test_reads_that_come_at_once_are_asked_together() -> None:
    queries = InMemoryQueries()
    app = made_service(queries)
    keys = ["a", "b", "not-there"] * 40
    replies = requests_at_once(app, [f"/v1/stores/counts/keys/{key}" for key in keys])
    alone = {key: request(app, "GET", f"/v1/stores/counts/keys/{key}{USUAL}") for key in set(keys)}
    assert [each.json for each in replies] == [alone[key].json for key in keys]
    together = [question for _, question, _, _ in queries.asked if len(question.keys) > 1]
    assert sum(len(question.keys) for question in together) >= len(keys) - 2
    assert len(together) <= 3


class _StuckOnce(InMemoryQueries):
    """Its first call ends when another one has."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()
        self._second_ended = threading.Event()

    def ask(self, store: str, question: Question, **options: Any) -> Answer:
        if next(self._numbers) == 0:
            assert self._second_ended.wait(30)
            return super().ask(store, question, **options)
        answer = super().ask(store, question, **options)
        self._second_ended.set()
        return answer


def test_a_few_do_not_wait_for_a_call_that_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    # One call has all but the last key, which alone are too few for a call beside it.
    keys = ["a", "b", "not-there", "b"]
    monkeypatch.setattr(point_reads, "_KEYS_MAX", 3)
    monkeypatch.setattr(point_reads, "_TIMEOUT", timedelta(seconds=60))
    queries = _StuckOnce()
    replies = requests_at_once(
        made_service(queries), [f"/v1/stores/counts/keys/{key}" for key in keys]
    )
    assert {each.status for each in replies} == {200}
    assert sorted(len(question.keys) for _, question, _, _ in queries.asked) == [1, 3]


def test_what_fails_is_told_on_the_usual_way() -> None:
    queries = InMemoryQueries()
    queries.raises = StoreUnavailableError("Nobody holds it")
    app = made_service(queries)
    replies = requests_at_once(app, ["/v1/stores/counts/keys/b"] * 3)
    assert {each.status for each in replies} == {503}
    assert {each.json["error"]["code"] for each in replies} == {"store_unavailable"}


def test_the_usual_way_has_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = InMemoryQueries()
    queries.raises = StoreUnavailableError("Nobody holds it")
    clock = iter(range(100, 1000))
    # Each look at the clock is a second after the last.
    monkeypatch.setattr(point_reads, "_now", lambda: float(next(clock)))
    request(made_service(queries), "GET", "/v1/stores/counts/keys/b")
    given = [timeout for _, _, _, timeout in queries.asked]
    assert given == [timedelta(seconds=1), timedelta(seconds=4)]


def test_arrow_and_other_scopes_go_the_usual_way() -> None:
    queries = InMemoryQueries()
    app = made_service(queries)
    arrow = {"accept": "application/vnd.apache.arrow.stream"}
    reply = request(app, "GET", "/v1/stores/counts/keys/b", headers=arrow)
    assert reply.headers["content-type"] == arrow["accept"]
    for token in (None, "wrong", ADMIN):
        short = request(app, "GET", "/v1/stores/counts/keys/b", token=token)
        usual = request(app, "GET", "/v1/stores/counts/keys/b" + USUAL, token=token)
        assert (short.status, short.json) == (usual.status, usual.json)
