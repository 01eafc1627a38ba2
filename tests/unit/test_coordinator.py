"""What instances and the coordinator say to each other when one joins, leaves or is refused."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.cli import main
from penstock.config import Config
from penstock.driver.coordinator import Coordinator
from penstock.errors import InstanceUnreachableError, MemberRefusedError, StateLockedError
from penstock.instance import process
from penstock.instance.client import Client
from penstock.instance.process import TOKEN_VARIABLE, InstanceOptions, run_instance
from penstock.instance.protocol import (
    Beat,
    BeatReply,
    Failure,
    Registration,
    RegistrationReply,
    Settings,
    StatusReply,
    error_of,
    fault_of,
)
from penstock.stores.directory import StateDirectory

TOKEN = "t"


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    """One whose members beat so seldom that no test takes long enough for silence to matter."""
    config = Config(
        state_dir=tmp_path,
        heartbeat_interval=timedelta(hours=1),
        session_timeout=timedelta(hours=9),
    )
    settings = Settings.of("app", config, over_tcp=False, global_tables=[])
    coordinator = Coordinator(settings, token=TOKEN)
    yield coordinator
    coordinator.close(1.0)


@pytest.fixture
def client(coordinator: Coordinator) -> Iterator[Client]:
    client = Client(coordinator.location, token=TOKEN, timeout_seconds=30)
    yield client
    client.close()


class Process:
    """A child's process, until it ends."""

    pid = 1

    def __init__(self) -> None:
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9

    terminate = kill

    def wait(self, timeout: float | None = None) -> None: ...


@pytest.mark.parametrize("static", ["", "mine"])
def test_another_child_is_started_when_those_who_take_over_have_had_their_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, static: str
) -> None:
    started: list[Process] = []

    def start(*_: object, **__: object) -> Process:
        started.append(Process())
        return started[-1]

    monkeypatch.setattr("penstock.driver.coordinator.start_instance", start)
    settings = Settings.of("app", Config(state_dir=tmp_path), over_tcp=False, global_tables=[])
    coordinator = Coordinator(settings, token=TOKEN, group_instance_id=static)
    monkeypatch.setattr("penstock.driver.coordinator._TAKE_OVER_SECONDS", 1e9)
    coordinator.start_child("a")
    started[0].kill()
    coordinator.changes()
    coordinator.restart_children(others_take_over=True)
    # Nobody takes over from a static one.
    assert len(started) == (2 if static else 1)
    coordinator.restart_children(others_take_over=False)
    assert len(started) == 2
    started[1].kill()
    coordinator.changes()
    monkeypatch.setattr("penstock.driver.coordinator._TAKE_OVER_SECONDS", 0.0)
    coordinator.restart_children(others_take_over=True)
    assert len(started) == 3
    coordinator.close(1.0)


class Undying(Process):
    """Waits for its disk: a signal is heard only then."""

    def kill(self) -> None: ...

    terminate = kill

    def wait(self, timeout: float | None = None) -> None:
        if timeout is None:
            raise AssertionError("it never ends")
        if self.returncode is None:
            raise subprocess.TimeoutExpired("instance", timeout)


def test_nobody_waits_for_a_child_that_cannot_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Undying] = []

    def start(*_: object, **__: object) -> Undying:
        started.append(Undying())
        return started[-1]

    monkeypatch.setattr("penstock.driver.coordinator.start_instance", start)
    config = Config(
        state_dir=tmp_path,
        heartbeat_interval=timedelta(milliseconds=1),
        session_timeout=timedelta(milliseconds=3),
    )
    settings = Settings.of("app", config, over_tcp=False, global_tables=[])
    coordinator = Coordinator(settings, token=TOKEN)
    name = coordinator.start_child("a")
    client = Client(coordinator.location, token=TOKEN, timeout_seconds=30)
    register(client, name, Process.pid, is_static=False)
    client.close()
    told: list[tuple[str, str]] = []
    while ("lost", name) not in told:
        told += changes(coordinator)
    coordinator.restart_children()
    # What is on its disk it still holds.
    assert len(started) == 1
    assert coordinator.awaits_children()
    started[0].returncode = -9
    coordinator.changes()
    coordinator.restart_children()
    assert len(started) == 2
    coordinator.close(0.0)


def register(client: Client, name: str, pid: int, *, is_static: bool) -> RegistrationReply:
    message = Registration(
        instance=name, host=f"host-{pid}", pid=pid, member_id=f"id-{pid}", is_static=is_static
    )
    return client.call("register", message, RegistrationReply)


def say(client: Client, what: str, name: str, pid: int) -> bool:
    return client.call(what, Beat(instance=name, member_id=f"id-{pid}"), BeatReply).known


def changes(coordinator: Coordinator) -> list[tuple[str, str]]:
    return [(change.kind, change.name) for change in coordinator.changes()]


def test_an_instance_that_says_goodbye_has_left(coordinator: Coordinator, client: Client) -> None:
    register(client, "a", 1, is_static=False)
    assert say(client, "beat", "a", 1)
    say(client, "leave", "a", 1)
    assert changes(coordinator) == [("joined", "a"), ("left", "a")]
    assert not say(client, "beat", "a", 1)
    with pytest.raises(InstanceUnreachableError, match="no such instance"):
        coordinator.call("a", "status", StatusReply(tasks=[]), StatusReply)


@pytest.mark.parametrize(("seconds", "lost"), [(8 * 3600, []), (9 * 3600, ["b"])])
def test_a_driver_that_stood_still_does_not_take_its_instances_for_silent(
    coordinator: Coordinator,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    seconds: int,
    lost: list[str],
) -> None:
    for pid, name in enumerate("ab"):
        register(client, name, pid, is_static=False)
    changes(coordinator)
    stopped = time.monotonic() + seconds
    clock = SimpleNamespace(monotonic=lambda: stopped)  # As if all of that had been at once.
    monkeypatch.setattr("penstock.driver.coordinator.time", clock)
    # A beat that waited to be read says nothing of those whose beats come later.
    assert say(client, "beat", "a", 0)
    assert coordinator.is_silent("b") == bool(lost)
    coordinator.doubt("b", InstanceUnreachableError("It misses its beats"))
    clock.monotonic = lambda: stopped + 1
    assert changes(coordinator) == [("lost", name) for name in lost]
    monkeypatch.undo()
    for pid, name in enumerate("ab"):
        say(client, "leave", name, pid)


def test_an_instance_that_is_gone_is_missed_though_the_driver_stands_still_again_and_again(
    coordinator: Coordinator, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(client, "a", 1, is_static=False)
    changes(coordinator)
    started, heard = time.monotonic(), list[tuple[str, str]]()
    for turn in range(1, 8):
        clock = SimpleNamespace(monotonic=lambda turn=turn: started + turn * 3 * 3600)
        monkeypatch.setattr("penstock.driver.coordinator.time", clock)
        heard += changes(coordinator)
    assert heard == [("lost", "a")]
    monkeypatch.undo()


def test_a_static_instance_that_says_goodbye_is_away_until_it_is_back(
    coordinator: Coordinator, client: Client
) -> None:
    register(client, "s", 1, is_static=True)
    register(client, "other", 2, is_static=False)
    assert len(coordinator.peers("other")) == 1
    say(client, "leave", "s", 1)
    assert coordinator.away() == {"s"}
    assert coordinator.peers("other") == []
    assert register(client, "s", 3, is_static=True).status == "joined"
    assert changes(coordinator) == [("joined", "s"), ("joined", "other"), ("returned", "s")]
    member = coordinator.member("s")
    assert member is not None
    assert member.pid == 3
    say(client, "leave", "s", 3)
    say(client, "leave", "other", 2)


def test_a_second_live_instance_with_one_id_is_refused_and_the_application_goes_on(
    coordinator: Coordinator, client: Client
) -> None:
    register(client, "s", 1, is_static=True)
    assert register(client, "s", 2, is_static=True).status == "wait"
    assert say(client, "beat", "s", 1)
    reply = register(client, "s", 2, is_static=True)
    assert reply.status == "refused"
    assert reply.fault is not None
    error = error_of(reply.fault)
    assert isinstance(error, MemberRefusedError)
    assert "on host-2, process 2, is refused: the one on host-1, process 1," in str(error)
    assert changes(coordinator) == [("joined", "s")]
    say(client, "leave", "s", 1)


def test_a_process_that_is_refused_ends_before_it_touches_the_directory(
    coordinator: Coordinator, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(client, "s", 1, is_static=True)

    class BeatsMeanwhile:
        """Instead of waiting, the one that is there beats."""

        def set(self) -> None: ...

        def wait(self, seconds: float) -> bool:
            assert say(client, "beat", "s", 1)
            return False

    monkeypatch.setattr(process, "threading", SimpleNamespace(Event=BeatsMeanwhile))
    leave_this_process_alone(monkeypatch)
    options = InstanceOptions(
        name="s", coordinator=coordinator.location, token=TOKEN, is_static=True
    )
    with pytest.raises(MemberRefusedError, match="process 1, has the same group_instance_id"):
        run_instance(options)
    assert list(tmp_path.iterdir()) == []
    assert changes(coordinator) == [("joined", "s")]
    say(client, "leave", "s", 1)


def leave_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.signal, "signal", lambda *_: None)
    monkeypatch.setattr(process.gc, "freeze", lambda: None)
    monkeypatch.setattr(process.gc, "set_threshold", lambda *_: None)


@pytest.mark.parametrize("by_operator", [True, False])
def test_an_operators_instance_that_cannot_start_is_its_own_affair(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_operator: bool
) -> None:
    leave_this_process_alone(monkeypatch)
    monkeypatch.setattr(process, "_LOCK_WAIT", timedelta())
    options = InstanceOptions(
        name="second", coordinator=coordinator.location, token=TOKEN, is_patient=by_operator
    )
    # Another one on the same host, without a slot of its own.
    with StateDirectory.open(tmp_path, "app"), pytest.raises(StateLockedError, match="is held by"):
        run_instance(options)
    if by_operator:
        assert changes(coordinator) == []
    else:
        with pytest.raises(StateLockedError):
            coordinator.changes()


def test_an_operators_instance_that_cannot_go_on_has_left(
    coordinator: Coordinator, client: Client
) -> None:
    register(client, "a", 1, is_static=False)
    failure = Failure(
        instance="a",
        fault=fault_of(StateLockedError("what happened")),
        member_id="id-1",
        ends_application=False,
    )
    client.call("failed", failure, BeatReply)
    assert changes(coordinator) == [("joined", "a"), ("left", "a")]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--group-instance-id", "a b"], "group_instance_id is 'a b'"),
        (["--group-instance-id", "a", "--name", "b"], "goes by its group_instance_id"),
    ],
)
def test_ids_that_cannot_be(
    options: list[str],
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with pytest.raises(SystemExit) as end:
        main(["instance", "--coordinator", "localhost:1", *options])
    assert end.value.code == 2
    assert word in capsys.readouterr().err
