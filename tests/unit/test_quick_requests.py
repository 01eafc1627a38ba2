"""Plain reads that are taken off a connection quickly get the same bytes as by h11."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.config import Config
from penstock.queries.listening import Listening
from penstock.queries.quick_requests import quick_request
from penstock.queries.server import HttpServer
from tests.unit.queries_in_memory import InMemoryQueries, unavailable
from tests.unit.test_queries_server import served

SLOWLY = "X-Other: 1\r\n"
"""A header that the short way does not know."""
KEY = "/v1/stores/counts/keys/b"


@pytest.fixture(scope="module")
def listening() -> Listening:
    return Listening.of(Config(http_listen="127.0.0.1:0"))


@pytest.fixture(scope="module")
def server(listening: Listening) -> Iterator[HttpServer]:
    with served(InMemoryQueries(), listening) as made:
        yield made


class Talk:
    """A connection, and the answers that come on it."""

    def __init__(self, server: HttpServer, token: str) -> None:
        port = int(server.url.rpartition(":")[2])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.token = token
        self._received = b""

    def request(self, path: str = KEY, more: str = "") -> bytes:
        lines = f"Host: localhost\r\nAuthorization: Bearer {self.token}\r\n{more}"
        return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[bytes, bytes]:
        """The head of the next answer, but for the time that it tells, and its body."""
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        [length] = re.findall(rb"content-length: (\d+)", head)
        while len(self._received) < int(length):
            self._more()
        body, self._received = self._received[: int(length)], self._received[int(length) :]
        return re.sub(rb"date: [^\r]*\r\n", b"", head), body

    def is_over(self) -> bool:
        return not self._received and not self.socket.recv(1)

    def _more(self) -> None:
        part = self.socket.recv(65_536)
        assert part, "the connection ended before the answer"
        self._received += part


@pytest.fixture
def talk(server: HttpServer, listening: Listening) -> Iterator[Talk]:
    made = Talk(server, listening.token)
    yield made
    made.socket.close()


@pytest.mark.parametrize(
    "path",
    [
        KEY,
        "/v1/stores/counts/keys/none",
        "/v1/stores/counts/keys/a%2Fb%20c",
        "/v1/stores/numbers/keys/seven",
        "/v1/stores/nowhere/keys/b",
        "/v1/stores/rates/keys/a",
    ],
)
def test_both_ways_send_the_same_bytes_on_one_connection(talk: Talk, path: str) -> None:
    quick, slow = talk.request(path), talk.request(path, SLOWLY)
    assert quick_request(quick) is not None
    assert quick_request(slow) is None
    answers = []
    for each in (quick, slow, quick):
        talk.send(each)
        answers.append(talk.answer())
    assert answers[0] == answers[1] == answers[2]


def test_a_refusal_ends_the_connection_as_on_the_other_way(
    server: HttpServer, listening: Listening
) -> None:
    answers = []
    for more in ("", SLOWLY):
        talk = Talk(server, "wrong" * 10)
        talk.send(talk.request(more=more))
        answers.append(talk.answer())
        assert talk.is_over()
        talk.socket.close()
    assert answers[0] == answers[1]
    assert answers[0][0].startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("more", ["", SLOWLY])
def test_requests_that_do_not_wait_are_answered_in_their_order(talk: Talk, more: str) -> None:
    paths = [f"/v1/stores/counts/keys/{key}" for key in "abcdef"]
    talk.send(talk.request(paths[0]))
    talk.send(b"".join(talk.request(path, more) for path in paths[1:]))
    bodies = [talk.answer()[1] for _ in paths]
    assert [re.findall(rb'"key":"(.)"', body) for body in bodies] == [
        [k.encode()] for k in "abcdef"
    ]


def waiting_queries() -> tuple[InMemoryQueries, threading.Event, threading.Event]:
    """Queries that wait once they were asked; that they were, and that they may answer."""
    queries, began, may_answer = InMemoryQueries(), threading.Event(), threading.Event()
    ask = queries.ask

    def slow(*arguments: object, **options: object) -> object:
        began.set()
        may_answer.wait(60)
        return ask(*arguments, **options)  # type: ignore[arg-type]

    queries.ask = slow  # type: ignore[assignment, method-assign]
    return queries, began, may_answer


def test_what_comes_during_an_answer_waits_for_it(listening: Listening) -> None:
    queries, began, may_answer = waiting_queries()
    with served(queries, replace(listening, port=0)) as server:
        talk = Talk(server, listening.token)
        talk.send(talk.request())
        began.wait(60)
        talk.send(talk.request("/v1/stores/counts/keys/c"))
        may_answer.set()
        assert [re.findall(rb'"key":"(.)"', talk.answer()[1]) for _ in "bc"] == [[b"b"], [b"c"]]
        talk.socket.close()


def test_what_cannot_be_answered_quickly_gets_what_the_other_way_says(listening: Listening) -> None:
    queries = InMemoryQueries()
    queries.raises = unavailable()
    with served(queries, replace(listening, port=0)) as server:
        talk = Talk(server, listening.token)
        answers = []
        for more in ("", SLOWLY, ""):
            talk.send(talk.request(more=more))
            answers.append(talk.answer())
        talk.socket.close()
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0].startswith(b"HTTP/1.1 503 ")
    # Each once on the short way and once on the usual one.
    assert len(queries.asked) == 6


def test_who_goes_before_the_answer_leaves_the_others_theirs(listening: Listening) -> None:
    queries, began, may_answer = waiting_queries()
    with served(queries, replace(listening, port=0)) as server:
        gone, other = Talk(server, listening.token), Talk(server, listening.token)
        gone.send(gone.request())
        began.wait(60)
        gone.socket.close()
        other.send(other.request())
        may_answer.set()
        assert other.answer()[0].startswith(b"HTTP/1.1 200 ")
        other.send(other.request())
        assert other.answer()[0].startswith(b"HTTP/1.1 200 ")
        other.socket.close()


def test_a_request_in_pieces_is_put_together(talk: Talk) -> None:
    whole = talk.request()
    talk.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(0, len(whole), 20):
        talk.send(whole[at : at + 20])
    in_pieces = talk.answer()
    talk.send(whole)
    assert talk.answer() == in_pieces


HOST = b"Host: localhost\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/stores/a/keys/b HTTP/1.0\r\n" + HOST + b"\r\n",
        b"POST /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /v1/stores/a/keys/b?stale=true HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /v1/stores/a/all HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\nAccept: a\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST * 2 + b"\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"Accept : a\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"Accept: a\r\n b\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"Accept: \x00\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"Accept: a\n\r\n\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"\r\nbody",
        b"GET /v1/stores/a/keys/\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST,
        b"GET  /v1/stores/a/keys/b HTTP/1.1\r\n" + HOST + b"\r\n",
    ],
)
def test_whatever_is_out_of_the_ordinary_is_left_to_h11(data: bytes) -> None:
    assert quick_request(data) is None
