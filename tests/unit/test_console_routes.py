"""What the console's routes answer, behind the gate of the HTTP service."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changelog.topics import commits_name
from penstock.config import Config
from penstock.console.history import SECONDS_MAX, History
from penstock.console.routes import add_data, add_page
from penstock.driver.kafka_view import KafkaView
from penstock.driver.sampling import sampling
from penstock.queries.access import Access
from penstock.queries.gate import AsgiApp
from penstock.queries.probes import Probes
from penstock.queries.service import guarded, service
from tests.browser.watched import FakeApplication
from tests.unit.queries_in_memory import READ, InMemoryQueries, made_service, request
from tests.unit.test_queries_access import METHODS, routes


@pytest.fixture(scope="module")
def app() -> AsgiApp:
    def extend(routes: Any, in_thread: Any) -> None:
        add_page(routes)
        add_data(
            routes,
            FakeApplication(),
            History(now_ms=lambda: 0),
            in_thread=in_thread,
            options=guarded("read"),
        )

    return service(
        InMemoryQueries().opened(),
        access=Access.of({READ: "read"}),
        probes=Probes(live=lambda: True, ready=lambda: True),
        extend=extend,
        open_below=("/console",),
    )


def test_topics_of_commits_and_dead_letters_are_none_of_the_outputs() -> None:
    prepared: Any = SimpleNamespace(
        application_id="clinic",
        layout=SimpleNamespace(changelogs={}, repartitions={}),
        global_tables=(),
        inputs=[("pulses", 0)],
        config=Config(errors_dead_letter_queue_topic_name="refused"),
    )
    logs: Any = None
    view = KafkaView(prepared, logs, lambda topics: {}, describe=lambda names: {})
    names = ("pulses", "alerts", "refused", commits_name("clinic"))
    roles = [view._role(name) for name in names]
    assert roles == ["input", "output", "dead letters", "commits"]


class Driver:
    """A driver that is open; the first time its lag is not known, the second time it fails."""

    def __init__(self) -> None:
        self.asked = 0

    def lag(self) -> int | None:
        self.asked += 1
        if self.asked == 2:
            raise RuntimeError("gone")
        return None if self.asked == 1 else self.asked

    def processes(self) -> list[tuple[str, int]]:
        return [(socket.gethostname(), os.getpid()), ("elsewhere", os.getpid())]


def test_lag_and_memory_are_kept_whether_or_not_somebody_looks() -> None:
    history, driver, done = History(now_ms=lambda: 5), Driver(), threading.Event()

    def wait(stopping: threading.Event) -> bool:
        if driver.asked == SECONDS_MAX + 3:
            done.set()
            return True
        return False

    with sampling(history, driver, wait=wait):
        assert done.wait(60)
    samples = history.since(0).samples
    assert len(samples) == SECONDS_MAX
    assert samples[-1].lag == SECONDS_MAX + 3
    assert samples[-1].memory_bytes > 2**20
    assert history.since(samples[-2].number).samples == samples[-1:]


def test_the_root_leads_to_the_console(app: AsgiApp) -> None:
    reply = request(app, "GET", "/", token=None)
    assert (reply.status, reply.headers["location"]) == (307, "/console")
    assert request(app, "GET", reply.headers["location"], token=None).status == 200


def test_what_the_page_asks_for_needs_a_token_by_whatever_method(app: AsgiApp) -> None:
    table = {route.path.replace("{topic}", "beats") for route in routes(app)}
    asked = sorted(path for path in table if path.startswith("/v1/console/"))
    assert len(asked) == 6
    wrong = {"authorization": f"Bearer {READ}x"}
    for path, method in itertools.product(asked, METHODS):
        assert request(app, method, path, token=None).status == 401, (method, path)
        assert request(app, method, path, token=None, headers=wrong).status == 401, (method, path)
        if method != "GET":
            assert request(app, method, path).status == 405, (method, path)


def test_programs_are_told_of_what_is_theirs_alone(app: AsgiApp) -> None:
    told = [request(each, "GET", "/openapi.json").json["paths"] for each in (app, made_service())]
    assert set(told[0]) == set(told[1]) - {"/metrics", "/v1/pause", "/v1/resume"}


def test_a_root_that_leads_nowhere_opens_nothing(app: AsgiApp) -> None:
    assert request(made_service(), "GET", "/", token=None).status == 401
    for path in ("//", "/.", "/v1/stores", "/v1/console/topics"):
        assert request(app, "GET", path, token=None).status == 401, path
    wrong = {"authorization": "Bearer wrong"}
    assert request(app, "GET", "/", token=None, headers=wrong).status == 401
    assert request(app, "GET", "/", token=None, headers={"host": "evil.example"}).status == 403
