"""Whoever connects and says nothing, little by little, or does not listen, is given up in time."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Config
from penstock.instance import peers, question_socket
from penstock.instance.peers import PeerCopies, listener_for
from penstock.instance.question_socket import QuestionLine, QuestionSocket
from penstock.queries import Client
from penstock.queries.limits import Limits
from penstock.queries.listening import Listening
from penstock.queries.probes import Probes
from penstock.queries.server import HttpServer
from penstock.queries.service import service
from penstock.stores.directory import StateDirectory
from tests.certificates import Authority
from tests.harness import wait_until
from tests.unit.queries_in_memory import InMemoryQueries, Shelf

SOON = timedelta(milliseconds=200)
LONG = timedelta(minutes=5)
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
"""How a TLS client begins, cut off."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "ca")


@pytest.fixture(scope="module")
def listening(authority: Authority) -> Listening:
    shown = authority.issue("localhost")
    return Listening.of(
        Config(
            http_listen="127.0.0.1:0",
            http_tls_certificate_file=str(shown.certificate),
            http_tls_key_file=str(shown.key),
            http_hosts=("localhost",),
        )
    )


@contextlib.contextmanager
def served(
    listening: Listening, limits: Limits, queries: InMemoryQueries | None = None
) -> Iterator[HttpServer]:
    asked = queries or InMemoryQueries()
    probes = Probes(live=lambda: True, ready=lambda: True)

    def make() -> Any:
        return service(asked.opened(), access=listening.access, probes=probes, limits=limits)

    server = HttpServer(make, listening, limits)
    server.start()
    server.prepare()
    try:
        yield server
    finally:
        server.stop()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=180)


def port_of(server: HttpServer) -> int:
    return int(server.url.rpartition(":")[2])


def is_hung_up_on(connection: socket.socket) -> bool:
    """Waits for it."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return True


@pytest.mark.parametrize("sent", [b"", HELLO])
def test_a_handshake_that_does_not_end_is_given_up(listening: Listening, sent: bytes) -> None:
    with (
        served(listening, Limits(receive=SOON)) as server,
        connected(port_of(server)) as stranger,
    ):
        stranger.sendall(sent)
        assert is_hung_up_on(stranger)


def test_what_is_no_handshake_ends_the_connection(listening: Listening) -> None:
    with (
        served(listening, Limits(receive=LONG)) as server,
        connected(port_of(server)) as stranger,
    ):
        stranger.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_hung_up_on(stranger)


def test_strangers_are_among_the_connections_that_are_counted(
    listening: Listening, authority: Authority
) -> None:
    with (
        served(listening, Limits(receive=LONG, connections=2)) as server,
        contextlib.ExitStack() as stack,
    ):
        port = port_of(server)
        strangers = [stack.enter_context(connected(port)) for _ in range(4)]
        # Twice as many as may be are there: whoever comes then is hung up on, in TLS or not.
        with connected(port) as one_too_many:
            assert is_hung_up_on(one_too_many)
        for each in strangers:
            each.close()
        ca_file = str(authority.certificate)

        def answers() -> bool:
            with (
                contextlib.suppress(Exception),
                Client(f"https://localhost:{port}", token=listening.token, ca_file=ca_file) as it,
            ):
                return bool(it.get("counts", "b") == 1)
            return False

        wait_until(answers, what="there is room again", seconds=60)


def test_what_is_sent_with_the_end_of_a_handshake_is_answered(
    listening: Listening, authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=authority.certificate)
    head = (
        "GET /v1/stores/counts/keys/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: Bearer {listening.token}\r\n\r\n"
    )
    with served(listening, Limits()) as server:
        for _ in range(20):
            # By hand, so that the request is in one packet with the client's last word.
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            with connected(port_of(server)) as plain:
                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        plain.sendall(outgoing.read())
                        incoming.write(plain.recv(65_536))
                tls.write(head.encode())
                plain.sendall(outgoing.read())
                answer = b""
                while not answer:
                    incoming.write(plain.recv(65_536))
                    with contextlib.suppress(ssl.SSLWantReadError):
                        answer = tls.read(65_536)
                assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("is_tls", [False, True])
def test_one_who_does_not_read_is_given_up(
    listening: Listening, authority: Authority, is_tls: bool
) -> None:
    queries = InMemoryQueries()
    size = 16_000_000
    queries.shelves["big"] = Shelf(
        kind="key_value", key=str, value=str, entries={("a", None): "x" * size}
    )
    plain = Listening.of(Config(http_listen="127.0.0.1:0"))
    chosen = listening if is_tls else plain
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            served(chosen, Limits(idle=timedelta(seconds=1), receive=timedelta(seconds=1)), queries)
        )
        connection: socket.socket = stack.enter_context(socket.socket())
        # What the kernel holds for it is much less than the answer.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(180)
        connection.connect(("127.0.0.1", port_of(server)))
        if is_tls:
            context = ssl.create_default_context(cafile=authority.certificate)
            connection = stack.enter_context(
                context.wrap_socket(
                    connection, server_hostname="localhost", suppress_ragged_eofs=True
                )
            )
        connection.sendall(
            b"GET /v1/stores/big/keys/a HTTP/1.1\r\nHost: localhost\r\n"
            + f"Authorization: Bearer {chosen.token}\r\n\r\n".encode()
        )
        received = len(connection.recv(1))
        uvicorn: Any = server._server
        wait_until(lambda: not uvicorn.server_state.connections, what="it was given up", seconds=60)
        with contextlib.suppress(OSError):
            while part := connection.recv(1 << 20):
                received += len(part)
        assert 0 < received < size


def test_one_who_does_not_read_little_is_given_up() -> None:
    queries = InMemoryQueries()
    size = 20_000
    queries.shelves["big"] = Shelf(
        kind="key_value", key=str, value=str, entries={("a", None): "x" * size}
    )
    plain = Listening.of(Config(http_listen="127.0.0.1:0"))
    limits = Limits(idle=timedelta(seconds=1), receive=timedelta(seconds=1))
    with served(plain, limits, queries) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(180)
        connection.connect(("127.0.0.1", port_of(server)))
        wait_until(lambda: server._server is not None, what="it is served", seconds=60)
        uvicorn: Any = server._server

        def unread() -> int:
            there = list(uvicorn.server_state.connections)
            return max((each.transport.get_write_buffer_size() for each in there), default=0)

        # What waits is too little for uvicorn to wait for its reader.
        answered = 0
        while not unread():
            connection.sendall(
                b"GET /v1/stores/big/keys/a HTTP/1.1\r\nHost: localhost\r\n"
                + f"Authorization: Bearer {plain.token}\r\n\r\n".encode()
            )
            answered += 1
            wait_until(
                lambda count=answered: uvicorn.server_state.total_requests == count,
                what="it is answered",
                seconds=60,
            )
        wait_until(lambda: not uvicorn.server_state.connections, what="it was given up", seconds=60)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[PeerCopies]:
    with StateDirectory.open(tmp_path / "state", "asked") as directory:
        listener = listener_for("127.0.0.1", tmp_path)
        made = PeerCopies(directory, None, lambda _: None, listener=listener)
        yield made
        made.close()


@pytest.mark.parametrize("sent", [b"", b"0" * 63])
def test_one_who_does_not_say_which_copy_is_given_up(
    copies: PeerCopies, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "KEY_SECONDS", 0.2)
    with connected(int(copies._address())) as stranger:
        stranger.sendall(sent)
        assert is_hung_up_on(stranger)


def test_a_key_that_comes_little_by_little_is_not_waited_for(
    copies: PeerCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "KEY_SECONDS", 0.5)
    monkeypatch.setattr(peers, "_KEY_BYTES", 500)
    with connected(int(copies._address())) as stranger:
        # Each byte comes before a silence would be too long.
        stranger.settimeout(0.1)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 1000:
                stranger.send(b"0")
                sent += 1
                with contextlib.suppress(TimeoutError):
                    if not stranger.recv(1):
                        break
        assert sent < 1000


def test_of_those_who_show_no_key_there_are_only_so_many(
    copies: PeerCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "STRANGERS_MAX", 2)
    port = int(copies._address())
    with connected(port), connected(port), connected(port) as one_too_many:
        assert is_hung_up_on(one_too_many)


def test_a_token_that_comes_little_by_little_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_socket, "_TOKEN_SECONDS", 0.5)
    token = "t" * 1000
    asked = QuestionSocket(tmp_path, token=token, answer=lambda body: body)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(tmp_path / "questions.sock"))
        stranger.settimeout(0.1)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < len(token):
                stranger.send(b"t")
                sent += 1
                with contextlib.suppress(TimeoutError):
                    if not stranger.recv(1):
                        break
        assert sent < len(token)
    assert QuestionLine(tmp_path / "questions.sock", token=token).ask(b"who", 60) == b"who"
    asked.close()
