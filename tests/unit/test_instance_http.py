"""Instances that answer over HTTP: they know what the driver told them, and for how long."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3

import penstock as ps
from penstock.cli import main
from penstock.coordination.ids import TaskId
from penstock.driver.telling import PlacesTelling
from penstock.errors import (
    ConfigError,
    InstanceError,
    QueryAccessError,
    QuestionRefusedError,
    StoreElsewhereError,
    StoreUnavailableError,
    UnknownStoreError,
)
from penstock.instance import client, protocol
from penstock.instance.http_options import HttpOptions, HttpParts
from penstock.instance.process import TOKEN_VARIABLE
from penstock.instance.protocol import Hello, Message
from penstock.instance.query_messages import StoreAnswer, StoreQuestion
from penstock.instance.server import Server
from penstock.instance.told_messages import HttpTold, PlacesReply, PlacesRequest
from penstock.queries import Client
from penstock.queries.catalogue import Catalogue
from penstock.queries.contract import Bound, Question
from penstock.queries.freshness import EndsSeen, Log
from penstock.queries.instances import serve_http
from penstock.queries.routing import Holders
from penstock.queries.stores import ReadOnlyStore
from penstock.queries.told_places import ToldPlaces
from penstock.queries.told_stores import told_store
from penstock.serdes import serde
from penstock.topology import Topology
from tests.unit.test_query_asking import (
    PARTITIONS,
    STALE,
    TOKEN,
    World,
    active,
    standby,
    stocked,
    world,
)

__all__ = ["stocked", "world"]

HTTP_TOKEN = "run-canary-0b7e6a51c2d94f83a6e0d1f2"
PATIENT = timedelta(minutes=3)


def topology() -> Topology:
    app = ps.Application("asked")
    stream = app.stream("in", key=str, value=str)
    stream.group_by_key().count("counts")
    app.table("own", "own", key=str, value=serde(str.encode, bytes.decode))
    return app.build()


class Driver:
    """What a driver tells instances, of a world of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.urls_known: dict[str, str] = {}
        self.asked = 0
        self.is_open = True
        self.is_driver = True
        self._table: tuple[Any, Mapping[TaskId, Holders]] = ({}, {})
        telling = PlacesTelling(self)
        widths = {sub.name: PARTITIONS for sub in topology().sub_topologies}
        stores = Catalogue.of(topology(), "asked", widths).all()
        self.told = HttpTold(
            token=HTTP_TOKEN,
            driver_url="http://driver:1",
            stores=[told_store(each) for each in stores],
        )

        def places(body: bytes) -> Message:
            self.asked += 1
            if not self.is_open:
                raise InstanceError("It has ended")
            return telling.places(body)

        self.server = Server(
            f"grpc+unix://{world.directory}/driver.sock",
            token=TOKEN,
            actions={"http": self.tell, "places": places, "log_ends": telling.log_ends},
        )

    def tell(self, body: bytes) -> Message:
        protocol.decode(body, Hello)
        return self.told

    @property
    def ends_seen(self) -> EndsSeen:
        return self.world.ends_seen

    def may_tell(self) -> bool:
        return self.is_driver

    def all_holders(self) -> Mapping[TaskId, Holders]:
        # It is another one when something changed, and else the same.
        if self._table[0] != self.world.held:
            self._table = (dict(self.world.held), dict(self.world.held))
        return self._table[1]

    def locations(self) -> dict[str, str]:
        return {name: self.world.location(name) or "" for name in self.world.present()}

    def urls(self) -> dict[str, str]:
        return self.urls_known

    def ends(self) -> Mapping[Log, int]:
        return self.world.log_ends


@pytest.fixture
def driver(world: World) -> Iterator[Driver]:
    driver = Driver(world)
    yield driver
    driver.server.shutdown()


@pytest.fixture
def coordinator(driver: Driver) -> Iterator[client.Client]:
    made = client.Client(str(driver.server.location), token=TOKEN, timeout_seconds=10)
    yield made
    made.close()


def parts(coordinator: client.Client, *, ready: bool = True, **options: Any) -> HttpParts:
    return HttpParts(
        name="a",
        options=HttpOptions(**{"listen": "127.0.0.1:0", **options}),
        coordinator=coordinator,
        token=TOKEN,
        trust=None,
        is_ready=lambda: ready,
        metrics=lambda: b"penstock_instance_up 1\n",
    )


class Asker(Client):
    """A client that tells whom it asks."""

    @property
    def url(self) -> str:
        return self._url


@pytest.fixture
def served(coordinator: client.Client) -> Iterator[Asker]:
    with serve_http(parts(coordinator)) as url, Asker(url, token=HTTP_TOKEN) as asker:
        # However long it takes here to load what answers.
        urllib3.request("GET", f"{url}/health/live", timeout=180, retries=False)
        yield asker


def get(key: str) -> Question:
    return Question(kind="get", keys=(key,))


def test_any_instance_answers_what_the_owner_holds(stocked: World, served: Client) -> None:
    answer = served.ask("counts", get("k07"), timeout=PATIENT)
    assert [(row.key, row.value, row.timestamp) for row in answer.rows] == [("k07", 7, 5)]
    assert [(each.instance, each.role, each.age) for each in answer.sources] == [
        ("a", "active", timedelta())
    ]
    assert answer == stocked.queries(topology()).ask("counts", get("k07"))
    assert served.get_many("counts", ["k39", "none", "k00"]) == [39, None, 0]
    store = ReadOnlyStore[str, int](served, "counts")
    found = [row.key for row in store.range("k00", "k99")]
    assert sorted(found) == [f"k{i:02}" for i in range(40)]
    assert served.approximate_count("counts") == 40
    assert served.key_metadata("counts", "k07").active == "a"
    stocked.log_ends = {("asked-counts-changelog", 0): 9}
    assert [(lag.instance, lag.lag) for lag in served.lags()] == [("a", 0)]


def test_stores_that_only_the_program_reads_are_the_drivers(stocked: World, served: Client) -> None:
    assert [store.name for store in served.stores()] == ["counts", "own"]
    for ask in (
        lambda: served.get("own", "a"),
        lambda: served.approximate_count("own"),
        lambda: served.key_metadata("own", "a"),
    ):
        with pytest.raises(StoreElsewhereError, match="http://driver:1"):
            ask()
    with pytest.raises(UnknownStoreError):
        served.get("none", "a")
    with pytest.raises(QuestionRefusedError):
        served.ask("counts", Question(kind="fetch", keys=("a",)))


def test_the_runs_token_is_needed(stocked: World, served: Asker) -> None:
    # What lets driver and instances speak with one another lets nobody in here.
    for wrong in (HTTP_TOKEN[:-1] + "x", TOKEN * 32):
        with Client(served.url, token=wrong) as other, pytest.raises(QueryAccessError):
            other.stores()


def test_addresses_of_instances_are_told(driver: Driver, served: Asker) -> None:
    driver.urls_known = {"b": "http://b:1", "a": served.url}
    assert served.instances() == {"a": served.url, "b": "http://b:1"}


def test_an_active_answer_is_one_only_if_the_driver_says_so_afterwards(
    world: World, driver: Driver, served: Client
) -> None:
    def given_up(question: StoreQuestion) -> StoreAnswer:
        # Between its answer and the look at who holds the task another one got it.
        world.own("b", epoch=(2, 1))
        return active(question)

    world.add("a", active)
    world.own("a")
    assert served.ask("counts", get("x"), timeout=PATIENT).sources[0].role == "active"
    world.instances["a"].script = given_up
    later = world.add("b", lambda question: ps_active(question, epoch=(2, 1)))
    [source] = served.ask("counts", get("x"), timeout=PATIENT).sources
    assert (source.instance, source.role) == ("b", "active")
    assert later.asked == 1


def ps_active(question: StoreQuestion, *, epoch: tuple[int, int]) -> StoreAnswer:
    import msgspec

    return msgspec.structs.replace(active(question), epoch=epoch)


@pytest.mark.parametrize("what", ["is_open", "is_driver"])
def test_without_a_driver_stale_answers_say_how_old_they_may_be(
    world: World, driver: Driver, served: Client, what: str
) -> None:
    world.add("a", active)
    world.add("b", standby)
    world.own("a", "b")
    asked_at = time.monotonic()
    assert served.ask("counts", get("x"), timeout=PATIENT).sources[0].role == "active"
    setattr(driver, what, False)
    [source] = served.ask("counts", get("x"), bound=STALE, timeout=PATIENT).sources
    # Still the owner, for all that is known; but that was known a moment ago.
    assert (source.instance, source.role) == ("a", "standby")
    assert timedelta() < source.age <= timedelta(seconds=time.monotonic() - asked_at)
    with pytest.raises(StoreUnavailableError, match="the driver does not answer"):
        served.ask("counts", get("x"), timeout=timedelta(seconds=1))
    # And when it is there again, all is as before.
    setattr(driver, what, True)
    world.add("c", active)
    world.own("c")
    [source] = served.ask("counts", get("x"), timeout=PATIENT).sources
    assert (source.instance, source.role) == ("c", "active")


def test_how_much_a_standby_lacks_is_known_by_what_the_driver_saw(
    world: World, driver: Driver, served: Client
) -> None:
    world.add("b", standby)
    world.own("", "b")
    logs = [("asked-counts-changelog", partition) for partition in range(PARTITIONS)]
    world.ends_seen.note(time.monotonic(), dict.fromkeys(logs, 8))
    assert served.ask("counts", get("x"), bound=Bound(max_lag=3), timeout=PATIENT).rows
    with pytest.raises(StoreUnavailableError, match="lacks 3"):
        served.ask("counts", get("x"), bound=Bound(max_lag=2), timeout=timedelta(seconds=1))


def test_ready_is_whether_the_driver_counts_on_it(coordinator: client.Client) -> None:
    with serve_http(parts(coordinator, ready=False)) as url:
        live = urllib3.request("GET", f"{url}/health/live", timeout=180, retries=False)
        ready = urllib3.request("GET", f"{url}/health/ready", retries=False)
    assert (live.status, ready.status) == (200, 503)


def test_an_instances_metrics_are_for_those_who_may_read(served: Asker) -> None:
    def asked(headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        return urllib3.request("GET", f"{served.url}/metrics", headers=headers, retries=False)

    told = asked({"authorization": f"Bearer {HTTP_TOKEN}"})
    assert (told.status, told.data) == (200, b"penstock_instance_up 1\n")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert asked({}).status == 401


def test_what_is_open_to_others_and_not_safe_is_refused(
    coordinator: client.Client, tmp_path: Path
) -> None:
    for options in ({}, {"token_file": str(tmp_path / "none")}):
        with (
            pytest.raises(ConfigError, match="instance_http_listen"),
            serve_http(parts(coordinator, listen="0.0.0.0:0", **options)),
        ):
            pass


def test_an_address_that_is_taken_costs_no_state(
    coordinator: client.Client, caplog: pytest.LogCaptureFixture
) -> None:
    first = serve_http(parts(coordinator))
    with first as url, serve_http(parts(coordinator, listen=url.partition("://")[2])) as second:
        assert second == ""
    assert "instance_http_listen" in caplog.text


def test_tokens_are_in_no_log_or_repr(
    coordinator: client.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    order = parts(coordinator)
    with serve_http(order) as url:
        urllib3.request("GET", f"{url}/v1/stores", timeout=180, retries=False)
    for text in (repr(order), caplog.text):
        assert HTTP_TOKEN not in text
        assert f"'{TOKEN}'" not in text


class Coordinator:
    """Says what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked: list[PlacesRequest] = []

    def call(self, action: str, message: Any, reply: Any, *, within_seconds: float) -> Any:
        self.asked.append(message)
        if not self.may_answer.wait(within_seconds):
            raise InstanceError("too late")
        return PlacesReply(version=1, holders=None if message.version else {})


def test_a_driver_that_hangs_is_waited_for_once() -> None:
    scripted = Coordinator()
    places = ToldPlaces(scripted, token=TOKEN, trust=None)  # type: ignore[arg-type]
    try:
        assert places.present() == []
        scripted.may_answer.clear()
        seen = places.holders_since(TaskId(0, 0), time.monotonic()).seen_at
        assert seen is not None
        assert seen < time.monotonic() - 0.5
        # Nobody waits again: whether it is there is found out beside.
        before = time.monotonic()
        for _ in range(1000):
            places.holders_since(TaskId(0, 0), time.monotonic())
        assert time.monotonic() - before < 30
        assert len(scripted.asked) < 100
        scripted.may_answer.set()
        while (
            places.holders_since(TaskId(0, 0), moment := time.monotonic()).seen_at or 0
        ) < moment:
            time.sleep(0.01)
        assert scripted.asked[-1].version == 1
    finally:
        scripted.may_answer.set()
        places.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--http", "0.0.0.0:0"], "--http"),
        (["--http", "127.0.0.1:0", "--http-token-file", "/nowhere/token"], "http_token_file"),
        (["--tls-verify-clients"], "tls_certificate_file"),
    ],
)
def test_the_command_refuses_at_once_what_is_not_safe(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "x" * 32)
    with pytest.raises(SystemExit) as ended:
        main(["instance", "--coordinator", "127.0.0.1:1", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_fastapi_is_not_loaded_before_somebody_asks() -> None:
    code = (
        "import sys, penstock.queries.instances, penstock.pipeline.instances;"
        "sys.exit(any(n in sys.modules for n in ('fastapi', 'uvicorn', 'pydantic', 'pyspark')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    plain = (
        "import sys, penstock.instance.process;"
        "sys.exit(any(n in sys.modules for n in ('fastapi', 'penstock.queries.instances')))"
    )
    assert subprocess.run([sys.executable, "-c", plain], check=False).returncode == 0
