"""`penstock query`: what it asks of a service on a real socket, and what it prints."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli import main
from penstock.config import Config
from penstock.driver.http_service import HttpOrder, http_service
from penstock.errors import ConfigError, StoreUnavailableError
from penstock.queries import Client, Question
from penstock.queries.driver_file import driver_path, read_driver_file
from penstock.queries.live import LiveQueries
from penstock.queries.probes import Probes
from tests.unit.queries_in_memory import InMemoryQueries, unavailable

QUERIES = InMemoryQueries()
PROBES = Probes(live=lambda: True, ready=lambda: True)


def nothing_open() -> LiveQueries:
    """Those of an application whose driver has yet to be the one."""
    return LiveQueries(state=lambda: ps.ApplicationState.RUNNING)


def wake(state_dir: Path, application_id: str = "app") -> None:
    """Have loaded what answers, however long it takes here: no test waits for that."""
    patience = timedelta(minutes=3)
    with Client.of_application(application_id, state_dir=state_dir, timeout=patience) as client:
        client.stores()


def order(state_dir: Path, live: LiveQueries, **options: Any) -> HttpOrder:
    config = Config(state_dir=state_dir, **options)
    return HttpOrder(application_id="app", config=config, queries=live, probes=PROBES)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory, live = tmp_path_factory.mktemp("state"), nothing_open()
    with http_service(order(directory, live)):
        live.open(QUERIES)
        wake(directory)
        yield directory
    assert not driver_path(directory, "app").exists()


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["query", *words])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def asked(capsys: pytest.CaptureFixture[str], state_dir: Path, *words: str) -> Any:
    place = ("--application", "app", "--state-dir", str(state_dir), "--json")
    status, out, _ = ran(capsys, *words, *place)
    assert status == 0, out
    return json.loads(out)["data"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["counts", "b"], [("b", 1)]),
        (["counts", "b", "zz"], [("b", 1), ("zz", None)]),
        (["numbers", "7"], [(7, "0x0001")]),
        (
            ["patients", '{"ward":"A","bed":1}'],
            [({"ward": "A", "bed": 1}, {"ward": "B", "bed": 2})],
        ),
        (["counts", "--from", "e"], [("e", 4), ("f", 5)]),
        (["counts", "--prefix", "c"], [("c", 2)]),
        (["counts", "--all", "--reverse", "--limit", "1"], [("f", 5)]),
        (["rates", "a", "--start", "1"], [("a", 61)]),
        (["rates", "a", "--start", "1970-01-01T00:00:00.001"], [("a", 61)]),
        (["rates", "--end", "0"], [("a", 60), ("b", 70)]),
        (["visits", "--all"], [("a", 1), ("a", 2)]),
        (["prices", "tea", "--as-of", "150"], [("tea", 3)]),
    ],
)
def test_what_is_asked_is_found(
    capsys: pytest.CaptureFixture[str], state_dir: Path, words: list[str], expected: list[Any]
) -> None:
    data = asked(capsys, state_dir, *words)
    assert [(row["key"], row["value"]) for row in data["rows"]] == expected
    assert data["sources"][0]["role"] == "active"


def test_people_are_told_in_lines(capsys: pytest.CaptureFixture[str], state_dir: Path) -> None:
    place = ("--application", "app", "--state-dir", str(state_dir))
    assert ran(capsys, "counts", "b", "zz", *place)[1].splitlines() == [
        "b = 1",
        "zz = nothing",
        "(partition 0: active on instance-0, position 41)",
    ]
    assert "rates  window, 1 partition, string to long" in ran(capsys, *place)[1]
    assert (
        "There is more: --page page-2" in ran(capsys, "counts", "--all", "--limit", "2", *place)[1]
    )


def test_exit_codes_say_what_kind_of_failure_it_was(
    capsys: pytest.CaptureFixture[str], state_dir: Path, tmp_path: Path
) -> None:
    place = ("--application", "app", "--state-dir", str(state_dir))
    assert ran(capsys, "none", "a", *place)[0] == 1
    assert ran(capsys, "numbers", "a", *place)[0] == 1
    assert ran(capsys, "counts", *place)[0] == 2
    assert ran(capsys, "counts", "a", "--all", *place)[0] == 2
    assert ran(capsys, "counts", "a")[0] == 2
    assert ran(capsys, "counts", "a", "--url", "http://localhost:1")[0] == 2
    nowhere = ("--application", "other", "--state-dir", str(tmp_path), "--json")
    status, out, _ = ran(capsys, "counts", "a", *nowhere)
    assert (status, json.loads(out)["error"]["code"]) == (3, "service_unreachable")
    QUERIES.raises = unavailable()
    try:
        assert ran(capsys, "counts", "a", *place)[0] == 3
    finally:
        QUERIES.raises = None


def test_failures_are_told_in_the_words_of_the_command(
    capsys: pytest.CaptureFixture[str], state_dir: Path
) -> None:
    QUERIES.raises = StoreUnavailableError(
        "Nobody did (instance-0: no answer; instance-1: it is restoring)",
        hint="Ask again, or let a standby answer: stale=True",
    )
    try:
        place = ("--application", "app", "--state-dir", str(state_dir))
        status, _, err = ran(capsys, "counts", "a", *place)
    finally:
        QUERIES.raises = None
    assert status == 3
    assert err == (
        "penstock: Nobody did (instance-0: no answer; instance-1: it is restoring). "
        "Ask again, or let a standby answer: --stale\n"
    )


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """An address where nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listens:
        yield f"http://127.0.0.1:{listens.getsockname()[1]}"


@contextlib.contextmanager
def hanging_up() -> Iterator[str]:
    """An address where whoever asks is hung up on."""
    with socket.create_server(("127.0.0.1", 0)) as listens:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = listens.accept()[0]
                    connection.recv(65_536)
                    connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listens.getsockname()[1]}"
        finally:
            listens.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("service", "timeout_ms", "told"),
    [
        (nobody, 60_000, "No answer: Connection refused"),
        (silent, 1, "No answer in time"),
        (hanging_up, 60_000, "No answer: the connection broke off"),
    ],
)
def test_a_service_that_does_not_answer_is_no_matter_of_python(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, service: Any, timeout_ms: int, told: str
) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    hint = "Does the application run, and is the address right?"
    if service is hanging_up:
        hint = "Does it speak TLS? Then its address begins with https"
    with service() as url:
        words = ("--url", url, "--token-file", str(token), "--timeout-ms", str(timeout_ms))
        assert ran(capsys, "counts", "b", *words)[::2] == (
            3,
            f"penstock: {told} (url {url}). {hint}\n",
        )


def test_by_an_address_and_a_token_from_a_file(
    capsys: pytest.CaptureFixture[str], state_dir: Path, tmp_path: Path
) -> None:
    facts = read_driver_file(state_dir, "app")
    token = tmp_path / "token"
    token.write_text(f"{facts.token}\n")
    place = ("--url", facts.url, "--token-file", str(token))
    status, out, _ = ran(capsys, "counts", "b", *place)
    assert (status, out.splitlines()[0]) == (0, "b = 1")
    token.write_text("x" * 40)
    status, out, err = ran(capsys, "counts", "b", *place)
    assert status == 1
    assert facts.token not in out + err


def test_a_driver_that_never_was_the_one_leaves_the_file_of_the_other(state_dir: Path) -> None:
    before = read_driver_file(state_dir, "app")
    with http_service(order(state_dir, nothing_open())):
        assert read_driver_file(state_dir, "app") == before
    assert read_driver_file(state_dir, "app") == before


def test_between_two_drivers_nobody_answers_and_then_the_next(tmp_path: Path) -> None:
    live = nothing_open()
    with http_service(order(tmp_path, live)):
        live.open(QUERIES)
        wake(tmp_path)
        with Client.of_application("app", state_dir=tmp_path) as client:
            assert client.get("counts", "b") == 1
            live.close()
            with pytest.raises(StoreUnavailableError):
                client.ask("counts", Question(kind="all"))
            live.open(QUERIES)
            assert client.get("counts", "b") == 1


def test_nothing_listens_if_it_is_turned_off(tmp_path: Path) -> None:
    live = nothing_open()
    with http_service(order(tmp_path, live, http_listen="")) as url:
        live.open(QUERIES)
        assert url == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("driver", ["", "127.0.0.1:0"])
def test_instances_that_would_listen_to_others_without_tls_are_refused_at_once(
    tmp_path: Path, driver: str
) -> None:
    options = {"http_listen": driver, "instance_http_listen": "0.0.0.0:0"}
    with (
        pytest.raises(ConfigError, match=r"instance_http_listen.*http_tls_certificate_file"),
        http_service(order(tmp_path, nothing_open(), **options)),
    ):
        pass


def test_a_state_directory_that_cannot_be_written_does_not_stop_the_application(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    live = nothing_open()
    with http_service(order(tmp_path / "file", live)) as url:
        live.open(QUERIES)
        assert url.startswith("http://127.0.0.1:")
    assert "cannot be found by its id" in caplog.text
