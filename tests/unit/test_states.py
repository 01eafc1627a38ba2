"""The states of an application: which can follow which, and who hears of it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock import ApplicationState as State
from penstock.coordination.states import TRANSITIONS, check_transition, end_of, ending_of
from penstock.driver import opening
from penstock.driver.events import Event, StateChanged
from penstock.driver.watch import InputsChangedError
from penstock.errors import ConfigError, KafkaError, StateTransitionError
from penstock.queries.catalogue import Catalogue

ALLOWED = {
    ("created", "rebalancing"),
    ("created", "pending_shutdown"),
    ("rebalancing", "running"),
    ("rebalancing", "pending_shutdown"),
    ("rebalancing", "pending_error"),
    ("running", "rebalancing"),
    ("running", "running"),
    ("running", "pending_shutdown"),
    ("running", "pending_error"),
    ("pending_shutdown", "not_running"),
    ("pending_error", "error"),
}


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_every_pair_of_states(old: State, new: State) -> None:
    if (old, new) in ALLOWED:
        check_transition(old, new)
        return
    with pytest.raises(StateTransitionError, match=f"is {old} cannot become {new}") as refused:
        check_transition(old, new)
    if not TRANSITIONS[old]:
        assert "make a new Application" in refused.value.hint


def test_there_are_49_pairs() -> None:
    assert len(State) ** 2 == 49


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("failed", [False, True])
def test_every_way_to_the_end_is_one_that_there_is(state: State, failed: bool) -> None:
    if state in (State.CREATED, State.NOT_RUNNING, State.ERROR):
        return
    last = ending_of(state, failed=failed) or state
    if last is not state:
        check_transition(state, last)
    check_transition(last, end_of(last))


# An application, with a driver that is none.


class Script:
    """A driver that does what it is told: a word to `hear_settled`, or an error."""

    def __init__(self, *steps: bool | Exception | Callable[[], object]) -> None:
        self.steps = steps
        self.queries = SimpleNamespace(catalogue=Catalogue(()))
        self.places = SimpleNamespace(urls=dict)

    def run(self, should_stop: Callable[[], bool], *, hear_settled: Callable[[bool], None]) -> None:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, bool):
                hear_settled(step)
            else:
                step()
        if not any(isinstance(step, Exception) for step in self.steps):
            while not should_stop():
                threading.Event().wait(0.01)


class Watched:
    """An application whose drivers are these, one after the other."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *drivers: Script | Exception | None,
        close_error: Exception | None = None,
    ) -> None:
        waiting = list(drivers)

        def close() -> None:
            self.closed_in.append(self.app.state)
            if close_error is not None:
                raise close_error

        def open_driver(order: Any, *, stack: Any) -> Script | None:
            driver = waiting.pop(0)
            if isinstance(driver, Exception):
                raise driver
            stack.callback(close)
            return driver

        monkeypatch.setattr(opening, "open_driver", open_driver)
        self.app = ps.Application("states")
        self.app.stream("in", key=str, value=str).to("out")
        self.closed_in: list[State] = []
        self.heard: list[tuple[State, State]] = []
        self.threads: set[int] = set()
        self.app.on_state_change(self.hear)

    def hear(self, old: State, new: State) -> None:
        self.heard.append((old, new))
        self.threads.add(threading.get_ident())

    def wait_for(self, changes: int) -> None:
        while len(self.heard) < changes:
            threading.Event().wait(0.01)

    @property
    def states(self) -> list[str]:
        """The states in order; that each change begins where the last ended is checked."""
        assert all(before[1] is after[0] for before, after in pairwise(self.heard))
        assert len(self.threads) <= 1
        return [old for old, _ in self.heard[:1]] + [new for _, new in self.heard]


def test_start_a_lost_instance_and_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, Script(False, True, True, False, False, True))
    with watched.app as app:
        watched.wait_for(4)
        assert app.state is State.RUNNING
    assert watched.states == [
        "created",
        "rebalancing",
        "running",
        "rebalancing",
        "running",
        "pending_shutdown",
        "not_running",
    ]
    assert watched.closed_in == [State.PENDING_SHUTDOWN]


def test_an_error_ends_in_error_and_what_is_held_is_let_go_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, Script(True, KafkaError("gone")))
    with pytest.raises(KafkaError, match="gone"):
        watched.app.run()
    assert watched.states == ["created", "rebalancing", "running", "pending_error", "error"]
    assert watched.closed_in == [State.PENDING_ERROR]
    with pytest.raises(ConfigError, match="The application is error"):
        watched.app.run()


def test_a_start_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, KafkaError("nobody there"))
    with pytest.raises(KafkaError, match="nobody there"):
        watched.app.start()
    assert watched.states == ["created", "rebalancing", "pending_error", "error"]


def test_a_stop_while_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, None)
    watched.app.run()
    assert watched.states == ["created", "rebalancing", "pending_shutdown", "not_running"]


def test_an_error_of_the_shutdown_is_raised_and_it_has_shut_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch, Script(True), close_error=KafkaError("in the last job"))
    watched.app.start()
    with pytest.raises(KafkaError, match="in the last job"):
        watched.app.stop()
    assert watched.states[-3:] == ["running", "pending_shutdown", "not_running"]


def test_inputs_that_change_are_a_rebalance(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(
        monkeypatch, Script(True, InputsChangedError("b is new")), Script(False, True)
    )
    with watched.app:
        watched.wait_for(4)
    assert watched.states[2:5] == ["running", "rebalancing", "running"]
    assert watched.closed_in == [State.RUNNING, State.PENDING_SHUTDOWN]


@pytest.mark.parametrize("in_background", [True, False])
def test_whoever_stops_it_is_told_whether_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, in_background: bool
) -> None:
    at_work, may_end = threading.Event(), threading.Event()
    told_itself: list[bool] = []

    def work() -> None:
        # As a listener may: it is not waited for by itself.
        told_itself.append(watched.app.stop(timedelta(minutes=1)))
        at_work.set()
        assert may_end.wait(60)

    watched = Watched(monkeypatch, Script(True, work))
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        stack.callback(may_end.set)
        ran = pool.submit(watched.app.start if in_background else watched.app.run)
        assert at_work.wait(60)
        assert not watched.app.stop(timedelta(milliseconds=1))
        assert watched.app.state is State.RUNNING
        may_end.set()
        assert watched.app.stop(timedelta(minutes=1))
        assert watched.app.state is State.NOT_RUNNING
        assert watched.app.stop(timedelta(0))
        ran.result(60)
    assert told_itself == [False]


def test_one_that_is_stopped_while_it_starts_has_ended_for_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_work = threading.Event()
    watched = Watched(monkeypatch, Script(at_work.set))  # Its tasks are never served.
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(watched.app.start)
        assert at_work.wait(60)
        assert watched.app.stop(timedelta(minutes=1))
        started.result(60)
    assert watched.states[-2:] == ["pending_shutdown", "not_running"]


def test_one_that_is_stopped_before_it_starts_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.app.stop()
    watched.app.stop()
    assert watched.states == ["created", "pending_shutdown", "not_running"]
    with pytest.raises(ConfigError, match="The application is not_running"):
        watched.app.start()


def test_a_listener_that_raises_is_logged_and_the_others_hear(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(monkeypatch, None)
    order: list[str] = []

    @watched.app.on_state_change
    def clumsy(old: State, new: State) -> None:
        order.append(f"clumsy {new}")
        raise RuntimeError("oops")

    def careful(old: State, new: State) -> None:
        order.append(f"careful {new}")

    assert watched.app.on_state_change(careful) is careful
    events: list[Event] = []
    watched.app.on_event(events.append)
    with caplog.at_level(logging.ERROR):
        watched.app.run()
    assert watched.app.state is State.NOT_RUNNING
    assert order == [
        f"{who} {state}"
        for state in ("rebalancing", "pending_shutdown", "not_running")
        for who in ("clumsy", "careful")
    ]
    assert [(each.old, each.new) for each in events if isinstance(each, StateChanged)] == (
        watched.heard
    )
    assert "A listener raised; the application goes on" in caplog.text
    assert callable(clumsy)
