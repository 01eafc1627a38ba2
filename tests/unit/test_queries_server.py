"""The service on a real socket, and its client: addresses, TLS, tokens, slow and many clients."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest
import trustme
import urllib3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config import Config
from penstock.errors import (
    ClientCertificateError,
    ConfigError,
    PageRefusedError,
    QueryAccessError,
    QueryError,
    QuestionRefusedError,
    ServiceBusyError,
    ServiceUnreachableError,
    StateDirectoryError,
    StoreUnavailableError,
    TopologyError,
    UnknownStoreError,
)
from penstock.queries import AsyncClient, Bound, Client, Queries, Question
from penstock.queries.contract import LIMIT_MAX, QuestionKind
from penstock.queries.driver_file import (
    DriverFile,
    read_driver_file,
    remove_driver_file,
    write_driver_file,
)
from penstock.queries.limits import Limits
from penstock.queries.listening import Listening
from penstock.queries.probes import Probes
from penstock.queries.server import HttpServer
from penstock.queries.service import service
from tests.certificates import Authority
from tests.unit.queries_in_memory import InMemoryQueries, Patient, unavailable

TOKEN = "file-canary-0b7e6a51c2d94f83a6e0d1f2"


@contextmanager
def served(
    queries: InMemoryQueries, listening: Listening, limits: Limits | None = None
) -> Iterator[HttpServer]:
    limits = limits or Limits()

    def make() -> Any:
        return service(
            queries.opened(),
            access=listening.access,
            probes=Probes(live=lambda: True, ready=lambda: True),
            limits=limits,
        )

    server = HttpServer(make, listening, limits)
    server.start()
    if listening.tls is None:
        # However long it takes here to make what answers: no test waits for that.
        once = {"connection": "close"}
        urllib3.request(
            "GET", f"{server.url}/health/live", headers=once, timeout=180, retries=False
        )
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def queries() -> InMemoryQueries:
    return InMemoryQueries()


@pytest.fixture(scope="module")
def listening() -> Listening:
    return Listening.of(Config(http_listen="127.0.0.1:0"))


@pytest.fixture(scope="module")
def server(queries: InMemoryQueries, listening: Listening) -> Iterator[HttpServer]:
    with served(queries, listening) as made:
        yield made


@pytest.fixture
def client(server: HttpServer, listening: Listening) -> Iterator[Client]:
    with Client(server.url, token=listening.token) as made:
        yield made


def test_the_client_asks_what_queries_can_be_asked(
    client: Client, queries: InMemoryQueries
) -> None:
    same: Queries = client
    assert same.stores() == queries.stores()
    assert same.lags() == queries.lags()
    stale = Bound(stale=True, max_lag=2)
    assert same.approximate_count("counts", bound=stale, timeout=timedelta(seconds=7)) == 6
    assert queries.counted[-1] == ("counts", stale, timedelta(seconds=7))
    assert same.key_metadata("counts", "a/../b?") == queries.key_metadata("counts", "a/../b?")
    question = Question(kind="range", lower="b", upper="c")
    assert same.ask("counts", question) == queries.ask("counts", question)


TIMES = st.none() | st.integers(0, 2**63 - 1)
QUESTIONS = st.builds(
    Question,
    kind=st.sampled_from(get_args(QuestionKind)),
    keys=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3).map(tuple),
    lower=st.none() | st.just("b"),
    upper=st.none() | st.just("c"),
    prefix=st.none() | st.just("d"),
    start=TIMES,
    end=TIMES,
    as_of=TIMES,
    reverse=st.booleans(),
    partition=st.none() | st.integers(0, 7),
    limit=st.integers(1, LIMIT_MAX),
    page=st.none() | st.just("page-3"),
)
BOUNDS = st.builds(
    Bound,
    stale=st.booleans(),
    max_lag=st.none() | st.integers(0, 9),
    position=st.dictionaries(st.integers(0, 3), st.integers(0, 99), max_size=2),
)
ONCE = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@ONCE
@given(question=QUESTIONS, bound=BOUNDS, milliseconds=st.integers(25_000, 30_000))
def test_all_of_a_question_arrives(
    server: HttpServer,
    listening: Listening,
    queries: InMemoryQueries,
    question: Question,
    bound: Bound,
    milliseconds: int,
) -> None:
    asked = ("counts", question, bound, timedelta(milliseconds=milliseconds))

    async def ask() -> None:
        async with AsyncClient(server.url, token=listening.token) as other:
            await other.ask(*asked[:2], bound=bound, timeout=asked[3])

    with Client(server.url, token=listening.token) as client:
        for way in (
            lambda: client.ask(*asked[:2], bound=bound, timeout=asked[3]),
            lambda: client.table(*asked[:2], bound=bound, timeout=asked[3]),
            lambda: asyncio.run(ask()),
        ):
            queries.asked.clear()
            # The store need not answer it.
            with suppress(QuestionRefusedError):
                way()
            # What asks for keys alone has a short way, which has no limit of rows.
            plain = ("counts", Question(kind="get", keys=question.keys), *asked[2:])
            assert queries.asked[-1] in ([asked, plain] if question.kind == "get" else [asked])


def test_a_count_is_not_asked_for_with_less_than_was_said(client: Client) -> None:
    with pytest.raises(QuestionRefusedError, match="position"):
        client.approximate_count("counts", bound=Bound(stale=True, position={0: 41}))


@pytest.mark.parametrize("key", ["a", "..", "a/b", "", "%2F", "é\n", "0x61", "?", "7"])
def test_every_text_arrives_as_it_is(client: Client, queries: InMemoryQueries, key: str) -> None:
    assert client.get("counts", key) == (0 if key == "a" else None)
    assert queries.asked[-1][1].keys == (key,)


@pytest.mark.parametrize(
    ("store", "key", "value"),
    [
        ("numbers", 7, "0x0001"),
        ("odd", b"\xff/", "Infinity"),
        ("odd", b"a", "NaN"),
        ("patients", Patient("A", 1), {"ward": "B", "bed": 2}),
        ("ids", UUID(int=1), "2026-01-01T00:00:00Z"),
    ],
)
def test_keys_of_every_type_arrive_as_what_they_are(
    client: Client, queries: InMemoryQueries, store: str, key: Any, value: Any
) -> None:
    assert client.get(store, key) == value
    assert queries.asked[-1][1].keys == (key,)


def test_many_keys_are_one_request(client: Client, queries: InMemoryQueries) -> None:
    before = len(queries.asked)
    assert client.get_many("counts", ["c", "zz", "a"]) == [2, None, 0]
    assert len(queries.asked) == before + 1


def test_pages_are_followed(client: Client) -> None:
    found = client.rows("counts", Question(kind="all", limit=4))
    assert [row.key for row in found] == list("abcdef")


def test_rows_come_as_arrow_too(client: Client) -> None:
    answer = client.table("counts", Question(kind="all", limit=2, partition=0))
    assert answer.table["key"].to_pylist() == [b"a", b"b"]
    assert (answer.next_page, answer.sources[0].position) == ("page-2", 41)


def test_errors_have_the_classes_that_they_had(client: Client, queries: InMemoryQueries) -> None:
    with pytest.raises(UnknownStoreError, match="no store 'none'"):
        client.get("none", "a")
    with pytest.raises(QuestionRefusedError):
        client.get("numbers", "a")
    with pytest.raises(QuestionRefusedError):
        client.ask("counts", Question(kind="all", page="x"))
    queries.raises = unavailable()
    try:
        with pytest.raises(StoreUnavailableError) as caught:
            client.get("counts", "a")
        queries.raises = PageRefusedError("no page")
        with pytest.raises(PageRefusedError):
            client.get("counts", "a")
    finally:
        queries.raises = None
    assert (caught.value.where, caught.value.hint) == ({"store": "counts"}, "Wait")


def test_a_wrong_token_is_refused(server: HttpServer) -> None:
    with Client(server.url, token="x" * 40) as other, pytest.raises(QueryAccessError):
        other.stores()


def test_coroutines_ask_many_at_once(server: HttpServer, listening: Listening) -> None:
    async def asked() -> list[Any]:
        async with AsyncClient(server.url, token=listening.token, connections=4) as client:
            assert (await client.stores())[0].name == "counts"
            return await asyncio.gather(*(client.get("counts", key) for key in "abcdef" * 4))

    assert asyncio.run(asked()) == [0, 1, 2, 3, 4, 5] * 4


def test_coroutines_have_all_that_others_have(server: HttpServer, listening: Listening) -> None:
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert public <= set(vars(AsyncClient))

    async def read() -> list[Any]:
        async with AsyncClient(server.url, token=listening.token) as client:
            question = Question(kind="all", limit=2)
            return [row.value async for row in client.rows("counts", question)]

    assert asyncio.run(read()) == [0, 1, 2, 3, 4, 5]


def test_nothing_there_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with Client(url, token="x" * 40) as client, pytest.raises(ServiceUnreachableError):
            client.stores()


@pytest.mark.parametrize(
    "url", ["http://10.0.0.7:80", "ftp://localhost", "localhost:80", "http://["]
)
def test_a_token_does_not_go_in_the_clear(url: str) -> None:
    with pytest.raises(ConfigError):
        Client(url, token="x" * 40)


def talk(server: HttpServer, sent: bytes) -> bytes:
    """What comes back until the service closes the connection."""
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(sent)
        received = b""
        while part := connection.recv(65_536):
            received += part
    return received


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost:", b"\x16\x03\x01", b"nonsense\r\n\r\n"])
def test_half_a_request_or_none_ends_the_connection(
    queries: InMemoryQueries, listening: Listening, sent: bytes
) -> None:
    with served(queries, listening, Limits(receive=timedelta(milliseconds=200))) as server:
        assert b" 200 " not in talk(server, sent)


def test_what_is_no_request_is_told_in_our_own_log(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    # A log of JSON has no lines of uvicorn's between.
    with caplog.at_level("WARNING"):
        talk(server, b"nonsense\r\n\r\n")
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("penstock.queries", "Invalid HTTP request received.")
    ]


def test_a_body_that_does_not_come_is_not_waited_for(
    queries: InMemoryQueries, listening: Listening
) -> None:
    head = (
        "POST /v1/stores/counts/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
        f"Authorization: Bearer {listening.token}\r\n\r\n{{"
    )
    with served(queries, listening, Limits(receive=timedelta(milliseconds=200))) as server:
        assert talk(server, head.encode()).startswith(b"HTTP/1.1 408 ")


def test_headers_that_are_too_long_are_refused(server: HttpServer) -> None:
    head = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000
    assert talk(server, head).startswith(b"HTTP/1.1 400 ")
    # Also where all of it comes at once.
    long = [b"X: " + b"x" * 40_000, *(b"X%d: x" % number for number in range(4_000))]
    for lines in (long[:1], long[1:]):
        head = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n".join(lines)
        assert talk(server, head + b"\r\n\r\n").startswith(b"HTTP/1.1 431 ")
    head = b"GET /health/live?page=" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert talk(server, head).startswith(b"HTTP/1.1 431 ")


def test_a_request_that_says_twice_where_it_ends_is_the_last_one(
    server: HttpServer, listening: Listening
) -> None:
    asked = (
        f"Host: localhost\r\nAuthorization: Bearer {listening.token}\r\n"
        "Content-Type: application/json\r\n"
    )
    body = b'{"kind": "get", "keys": ["b"]}'
    answer = talk(
        server,
        f"POST /v1/stores/counts/query HTTP/1.1\r\n{asked}Content-Length: {len(body)}\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode()
        + body
        + f"\r\n0\r\n\r\nGET /v1/stores HTTP/1.1\r\n{asked}\r\n".encode(),
    )
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 400 ") == 1


def test_who_wants_another_protocol_is_answered_in_this_one(
    server: HttpServer, listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    head = (
        "GET /v1/stores/counts/keys/b HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nAuthorization: Bearer {listening.token}\r\n\r\n"
    )
    with caplog.at_level("WARNING"):
        again = head.replace("Upgrade: websocket\r\nConnection: Upgrade", "Connection: close")
        answer = talk(server, head.encode() + again.encode())
    assert answer.count(b"HTTP/1.1 200 ") >= 1
    assert not caplog.records


def test_one_connection_too_many_is_told_so(queries: InMemoryQueries, listening: Listening) -> None:
    with served(queries, listening, Limits(connections=1)) as server:
        first = Client(server.url, token=listening.token)
        second = Client(server.url, token=listening.token)
        with first, second:
            first.stores()  # Its connection stays open.
            with pytest.raises(ServiceBusyError):
                second.stores()


def test_it_answers_after_a_start_that_loaded_nothing_and_leaves_signals_alone(
    queries: InMemoryQueries, listening: Listening
) -> None:
    made = threading.Event()

    def make() -> Any:
        made.set()
        return service(
            queries.opened(),
            access=listening.access,
            probes=Probes(live=lambda: True, ready=lambda: True),
        )

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    server = HttpServer(make, listening, Limits())
    server.start()
    assert not made.is_set()
    with Client(server.url, token=listening.token, timeout=timedelta(minutes=3)) as client:
        assert client.get("counts", "a") == 0
    assert made.is_set()
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    server.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert sum(name == "penstock-http" for name in names) <= 1  # That of the module's server.


def test_it_makes_what_answers_before_somebody_asks(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.queries.server._PREPARE_SECONDS", 0.0)
    made = threading.Event()

    def make() -> Any:
        made.set()
        return lambda *_: None

    server = HttpServer(make, listening, Limits())
    server.start()
    assert not made.is_set()
    server.prepare()
    assert made.wait(60)
    # With every change of state to running, for as long as the application lives.
    again = threading.Thread(target=lambda: [server.prepare() for _ in range(5_000)], daemon=True)
    again.start()
    again.join(60)
    assert not again.is_alive()
    server.stop()
    server.prepare()  # Too late, and no harm.


@pytest.mark.parametrize("failures", [2, 3])
def test_one_that_cannot_be_made_is_tried_again_and_then_refuses(
    queries: InMemoryQueries,
    listening: Listening,
    failures: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("penstock.queries.server._TRY_AGAIN_SECONDS", 0.0)
    left = iter(range(failures))

    def make() -> Any:
        if next(left, None) is not None:
            raise RuntimeError("dictionary changed size during iteration")
        return service(
            queries.opened(),
            access=listening.access,
            probes=Probes(live=lambda: True, ready=lambda: True),
        )

    server = HttpServer(make, listening, Limits())
    server.start()
    with Client(server.url, token=listening.token, timeout=timedelta(minutes=3)) as client:
        if failures == 2:
            assert client.get("counts", "a") == 0
        else:
            for _ in range(2):  # Whoever waits is let go, whoever comes later not let in.
                with pytest.raises(ServiceUnreachableError):
                    client.get("counts", "a")
    assert ("goes on without it" in caplog.text) == (failures == 3)
    assert server.url
    server.stop()


def test_one_that_nobody_asked_stops_too(listening: Listening) -> None:
    server = HttpServer(lambda: pytest.fail("made"), listening, Limits())
    server.start()
    server.stop()
    unstarted = HttpServer(lambda: pytest.fail("made"), listening, Limits())
    unstarted.stop()


def test_nothing_of_http_is_imported_with_penstock() -> None:
    import subprocess

    program = (
        "import sys, penstock, penstock.queries.server, penstock.queries.listening;"
        "print([m for m in ('fastapi', 'uvicorn', 'urllib3') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of a service's certificate, its key, its CA, and of a client's."""
    directory = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(directory / "other.pem"))
    issued = ca.issue_cert("localhost", "127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(directory / "certificate.pem"))
    issued.private_key_pem.write_to_path(str(directory / "key.pem"))
    (directory / "token").write_text(f"{TOKEN}\n")
    return {path.stem: str(path) for path in directory.iterdir()}


def wide(certificates: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "http_listen": "0.0.0.0:0",
        "http_tls_certificate_file": certificates["certificate"],
        "http_tls_key_file": certificates["key"],
        "http_token_file": certificates["token"],
        "http_hosts": ("localhost",),
        **more,
    }


def test_over_tls_by_a_token_from_a_file(
    queries: InMemoryQueries, certificates: dict[str, str]
) -> None:
    listening = Listening.of(Config(**wide(certificates)))
    with served(queries, listening) as server:
        assert server.url.startswith("https://localhost:")
        for trusted in ("ca", "certificate"):
            ca_file = certificates[trusted]
            patient = timedelta(minutes=3)
            with Client(server.url, token=TOKEN, ca_file=ca_file, timeout=patient) as client:
                assert client.get("counts", "b") == 1
        for ca_file in (certificates["other"], None):
            stranger = Client(server.url, token=TOKEN, ca_file=ca_file)
            with stranger, pytest.raises(ServiceUnreachableError, match="certificate"):
                stranger.stores()


def test_clients_are_known_by_certificates_if_that_is_wanted(
    queries: InMemoryQueries, certificates: dict[str, str], tmp_path: Path
) -> None:
    clients, others = Authority(tmp_path, "clients"), Authority(tmp_path, "others")
    config = Config(**wide(certificates, http_tls_client_ca_file=str(clients.certificate)))
    listening = Listening.of(config)
    trusted: dict[str, Any] = {"token": TOKEN, "ca_file": certificates["ca"]}
    with served(queries, listening) as server:
        shown = clients.issue("asker")
        with Client(
            server.url,
            certificate_file=shown.certificate,
            key_file=shown.key,
            timeout=timedelta(minutes=3),
            **trusted,
        ) as client:
            assert client.get("counts", "b") == 1
        with (
            Client(
                server.url,
                certificate_file=shown.certificate,
                key_file=shown.key,
                **trusted | {"token": "x" * 40},
            ) as client,
            pytest.raises(QueryAccessError, match="token"),
        ):
            client.stores()
        for wrong in (None, others.issue("wrong"), clients.issue("late", expired=True)):
            files = {} if wrong is None else {"certificate_file": wrong.certificate}
            key = {} if wrong is None else {"key_file": wrong.key}
            with (
                Client(server.url, **trusted, **files, **key) as client,
                pytest.raises(ClientCertificateError, match="certificate"),
            ):
                client.stores()


def test_client_certificates_that_cannot_be_used_are_told(
    certificates: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="CA of clients"):
        Listening.of(Config(**wide(certificates, http_tls_client_ca_file=certificates["token"])))
    # It would be no use without TLS, and must not be taken for it.
    with pytest.raises(ConfigError, match="http_tls_certificate_file"):
        Listening.of(Config(http_tls_client_ca_file=certificates["ca"]))
    with pytest.raises(ConfigError, match="certificate and its key cannot be used"):
        Client(
            "https://localhost",
            token=TOKEN,
            certificate_file=certificates["certificate"],
            key_file=certificates["ca"],
        )


def test_who_may_read_is_never_let_in_as_an_admin(tmp_path: Path) -> None:
    for name, token in (("reader", TOKEN), ("admin", TOKEN), ("other", f"{TOKEN}-other")):
        (tmp_path / name).write_text(f"{token}\n")
    reader, admin, other = (str(tmp_path / name) for name in ("reader", "admin", "other"))
    with pytest.raises(ConfigError, match="the same token") as caught:
        Listening.of(Config(http_token_file=reader, http_admin_token_file=admin))
    assert TOKEN not in str(caught.value)
    access = Listening.of(Config(http_token_file=reader, http_admin_token_file=other)).access
    assert access.scopes_of(f"Bearer {TOKEN}") == {"read"}
    assert access.scopes_of(f"Bearer {TOKEN}-other") == {"read", "admin"}


@pytest.mark.parametrize(
    "missing", ["http_tls_certificate_file", "http_tls_key_file", "http_token_file"]
)
@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "10.0.0.7:80", "example.org:80"])
def test_beyond_this_machine_nothing_listens_without_tls_and_a_token(
    certificates: dict[str, str], listen: str, missing: str
) -> None:
    with pytest.raises(ConfigError):
        Listening.of(Config(**wide(certificates, http_listen=listen, **{missing: ""})))


def test_without_options_it_is_the_loopback() -> None:
    listening = Listening.of(Config())
    with listening.bind() as bound:
        assert bound.getsockname()[0] == "127.0.0.1"


def test_files_that_cannot_be_used_are_named(certificates: dict[str, str], tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("short-canary")
    for option, value in {
        "http_token_file": str(short),
        "http_admin_token_file": str(tmp_path / "none"),
        "http_tls_key_file": certificates["ca"],
        "http_tls_certificate_file": certificates["token"],
    }.items():
        with pytest.raises(ConfigError) as caught:
            Listening.of(Config(**wide(certificates, **{option: value})))
        assert "short-canary" not in str(caught.value)


def test_an_address_that_is_taken_is_told(listening: Listening) -> None:
    with listening.bind() as bound:
        taken = Config(http_listen=f"127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(ConfigError, match="http_listen"):
            Listening.of(taken).bind()


FACTS = DriverFile(application_id="app", process=7, url="http://127.0.0.1:1", token=TOKEN)


def test_the_drivers_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = write_driver_file(tmp_path, FACTS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_driver_file(tmp_path, "app") == FACTS
    assert TOKEN not in repr(FACTS)
    newer = DriverFile(application_id="app", process=8, url="http://127.0.0.1:2", token=TOKEN)
    write_driver_file(tmp_path, newer)
    remove_driver_file(tmp_path, FACTS)
    assert read_driver_file(tmp_path, "app") == newer
    remove_driver_file(tmp_path, newer)
    with pytest.raises(ServiceUnreachableError):
        read_driver_file(tmp_path, "app")
    assert list(path.parent.iterdir()) == []


def test_the_drivers_file_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    for name in ("..", "../x", "a/b", "", "/etc"):
        with pytest.raises(TopologyError):
            read_driver_file(tmp_path, name)
    path = write_driver_file(tmp_path, FACTS)
    path.write_bytes(b"{}")
    with pytest.raises(ConfigError):
        read_driver_file(tmp_path, "app")
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(StateDirectoryError):
        read_driver_file(tmp_path, "app")


def test_the_client_finds_an_application_by_its_id(
    server: HttpServer, listening: Listening, tmp_path: Path
) -> None:
    facts = DriverFile(application_id="app", process=1, url=server.url, token=listening.token)
    write_driver_file(tmp_path, facts)
    with Client.of_application("app", state_dir=tmp_path) as client:
        assert client.get("counts", "b") == 1


def test_tokens_are_in_no_log_error_or_repr(
    client: Client,
    server: HttpServer,
    listening: Listening,
    certificates: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    told = [
        repr(client),
        str(client),
        repr(listening),
        repr(server),
        repr(Config(**wide(certificates))),
    ]
    client.stores()
    with Client(server.url, token=TOKEN) as other, pytest.raises(QueryError) as refused:
        other.stores()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with Client(url, token=TOKEN) as nobody, pytest.raises(QueryError) as unreachable:
            nobody.stores()
    for error in (refused.value, unreachable.value):
        told += [str(error), repr(error), repr(error.where)]
    for text in (*told, caplog.text):
        assert TOKEN not in text
        assert listening.token not in text


def test_a_moment_is_written_with_its_zone(client: Client) -> None:
    assert client.get("ids", UUID(int=2)) is None
    with pytest.raises(QuestionRefusedError):
        client.get("ids", datetime(2026, 1, 1, tzinfo=UTC))
