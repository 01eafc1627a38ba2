"""What an instance's process loads, and what it says while it waits for its application."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import InstanceUnreachableError, PenstockError, StateDiskFullError
from penstock.instance import process
from penstock.instance.client import Client
from penstock.instance.flushing import Flushing
from penstock.instance.process import _why_waiting
from penstock.instance.protocol import BeatReply, Hello, Settings
from penstock.instance.server import Server
from penstock.instance.task import OpenTask

_PROGRAM = """
import sys
import pyarrow as pa
from penstock.instance.process import keep_pandas_out

keep_pandas_out()
assert pa.array([1]).to_numpy().tolist() == [1]
assert "pandas" not in sys.modules
import pandas
assert pa.table({"a": [1]}).to_pandas().shape == (1, 1)
"""


def test_arrow_does_not_load_pandas_in_the_first_commit() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True)


def refused(location: str) -> str:
    """Why an instance waits that comes with the token `mine`."""
    client = Client(location, token="mine", timeout_seconds=60)
    with pytest.raises(InstanceUnreachableError) as refusal:
        client.call("hello", Hello(instance="ward"), Settings)
    client.close()
    return _why_waiting(refusal.value, location)


def test_a_process_that_was_stopped_while_it_was_answered_has_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(process, "time", clock)
    lease, stop = process.Lease(10.0), threading.Event()

    def call(action: str, message: object, reply: object) -> BeatReply:
        # The answer is there, and is read much later.
        clock.monotonic = lambda: 60.0
        stop.set()
        return BeatReply(known=True)

    coordinator: Any = SimpleNamespace(call=call)
    holder: Any = SimpleNamespace(flush=list)
    options = process.InstanceOptions(name="a", coordinator="c", token="t")
    process._beat(options, coordinator, lease, stop, holder, timedelta())
    assert not lease.holds()


def beats(known: list[bool], lease: process.Lease) -> tuple[Any, list[tuple[str, bool]]]:
    """A coordinator that answers so, and each call with whether the lease held by then."""
    called: list[tuple[str, bool]] = []

    def call(action: str, message: object, reply: object) -> BeatReply:
        called.append((action, lease.holds()))
        return BeatReply(known=known.pop(0) if known else False)

    return SimpleNamespace(call=call), called


def test_one_whose_tasks_went_to_others_serves_nothing_while_it_closes() -> None:
    lease = process.Lease(60.0)
    coordinator, called = beats([True, False], lease)
    holder: Any = SimpleNamespace(flush=list)
    options = process.InstanceOptions(name="a", coordinator="c", token="t")
    ended = process._beat(options, coordinator, lease, threading.Event(), holder, timedelta())
    assert ended is process.Ending.GIVEN_UP
    assert called == [("beat", True)] * 2
    assert not lease.holds()


def test_one_that_says_goodbye_serves_nothing_from_before_on() -> None:
    lease, stop = process.Lease(60.0), threading.Event()
    coordinator, called = beats([], lease)
    stop.set()
    options = process.InstanceOptions(name="a", coordinator="c", token="t")
    holder: Any = SimpleNamespace(flush=list)
    ended = process._beat(options, coordinator, lease, stop, holder, timedelta())
    assert ended is process.Ending.ASKED
    assert called == [("leave", False)]


def test_a_disk_that_takes_long_to_flush_costs_no_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    flushing, beaten, stop = threading.Event(), threading.Event(), threading.Event()
    flushed: list[bool] = []
    since = 0

    def call(action: str, message: object, reply: object) -> BeatReply:
        nonlocal since
        since += flushing.is_set()
        if since == 3:
            beaten.set()
            stop.set()
        return BeatReply(known=True)

    def flush() -> list[OpenTask]:
        flushing.set()
        flushed.append(beaten.wait(60))
        return []

    monkeypatch.setattr(process, "Flushing", partial(Flushing, interval_seconds=-1.0))
    coordinator: Any = SimpleNamespace(call=call)
    holder: Any = SimpleNamespace(flush=flush)
    options = process.InstanceOptions(name="a", coordinator="c", token="t")
    ended = process._beat(options, coordinator, process.Lease(60.0), stop, holder, timedelta())
    assert ended is process.Ending.ASKED
    assert flushed[0], "it was beaten while the disk was busy"


def test_what_a_flush_raises_ends_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    def flush() -> list[OpenTask]:
        raise StateDiskFullError("no room")

    monkeypatch.setattr(process, "Flushing", partial(Flushing, interval_seconds=-1.0))
    coordinator: Any = SimpleNamespace(call=lambda *_: BeatReply(known=True))
    holder: Any = SimpleNamespace(flush=flush)
    options = process.InstanceOptions(name="a", coordinator="c", token="t")
    with pytest.raises(StateDiskFullError):
        process._beat(
            options, coordinator, process.Lease(60.0), threading.Event(), holder, timedelta()
        )


def test_tasks_that_were_busy_are_flushed_when_they_are_not() -> None:
    answers, done = [False, True], threading.Event()

    def flush_one() -> bool:
        answer = answers.pop(0)
        if answer:
            done.set()
        return answer

    busy: Any = SimpleNamespace(flush=flush_one)
    rounds = iter([[busy]])
    # Once at first, and never again: that the clock runs on makes no difference.
    with Flushing(lambda: next(rounds), look_seconds=0.0, interval_seconds=1e9) as flushing:
        flushing._flushed = -2e9
        assert done.wait(60)
    assert answers == []


def test_an_instance_whose_disk_takes_no_task_says_goodbye_before_it_closes_the_rest() -> None:
    called: list[str] = []

    def call(action: str, message: object, reply: object) -> BeatReply:
        called.append(action)
        return BeatReply(known=True)

    class Failing:
        """The driver may have the task taken again at any moment, and then nothing has failed."""

        failures = iter([None, StateDiskFullError("no room"), None])

        @property
        def disk_failure(self) -> PenstockError | None:
            return next(self.failures)

        def flush(self) -> list[object]:
            return []

    coordinator: Any = SimpleNamespace(call=call)
    holder: Any = Failing()
    options = process.InstanceOptions(name="a", coordinator="c", token="t", is_patient=True)
    with pytest.raises(StateDiskFullError):
        process._beat(
            options, coordinator, process.Lease(10.0), threading.Event(), holder, timedelta()
        )
    assert called == ["beat", "beat", "leave"]


def test_whoever_waits_says_what_for_in_words_of_the_command_line() -> None:
    server = Server("grpc+tcp://127.0.0.1:0", token="another", actions={})
    try:
        address = f"127.0.0.1:{server.port}"
        assert refused(f"grpc+tcp://{address}") == (
            f"Who listens at {address} has another token; PENSTOCK_TOKEN is to be the same"
        )
    finally:
        server.shutdown()
    assert refused(f"grpc+tcp://{address}") == f"Nobody listens at {address}"
    unknown = InstanceUnreachableError("No answer: address lookup failed for ward-7:7600")
    assert _why_waiting(unknown, "grpc+tcp://ward-7:7600") == (
        "There is no host of the name in ward-7:7600"
    )
