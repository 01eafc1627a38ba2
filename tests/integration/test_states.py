"""The states of an application with real instances: a start, a kill, a stop."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from penstock import ApplicationState as State
from penstock.coordination.rebalances import Rebalance
from penstock.driver.events import Event, Rebalanced
from penstock.errors import DeserializationError
from tests.application_process import numbers
from tests.harness import Scene
from tests.in_process import Run, instances_here

pytestmark = pytest.mark.usefixtures("spark")


class Watched(Run):
    """A run of two instances that keeps what is told of states and rebalances."""

    def __init__(self, scene: Scene, **options: object) -> None:
        super().__init__(
            scene,
            num_instances=2,
            # Longer than the test takes: what is noticed is noticed by other means.
            session_timeout=timedelta(minutes=5),
            **options,
        )
        self.states: list[str] = []
        self.threads: set[int] = set()
        self.rebalances: list[Rebalance] = []
        self.app.on_state_change(self.hear_state)
        self.app.on_event(self.hear_rebalance)

    def hear_state(self, old: State, new: State) -> None:
        assert self.states[-1:] in ([], [old])
        self.states.append(new)
        self.threads.add(threading.get_ident())

    def hear_rebalance(self, event: Event) -> None:
        if isinstance(event, Rebalanced):
            self.rebalances.append(event.rebalance)

    def wait_for_both(self) -> None:
        """Wait until both instances hold the locks of their directories."""
        locks = [self.lock(f"instance-{number}") for number in (0, 1)]
        self.wait_for(lambda: all(lock.exists() for lock in locks), what="both are there")

    def lock(self, slot: str) -> Path:
        return self.scene.state_dir / slot / self.scene.application_id / ".lock"

    def kill_an_owner(self) -> str:
        """Kill the instance that has the first task; returns its name."""
        name = self.rebalances[-1].active_moves[0].target
        slot = next(f"instance-{n}" for n in (0, 1) if f"instance-{n}" in name)
        pid = json.loads(self.lock(slot).read_text())["pid"]
        assert psutil.Process(pid) in instances_here()
        os.kill(pid, signal.SIGKILL)
        return name


@pytest.fixture
def scene(kafka: str, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path, partitions=2).create_topics()


def records(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (i % 40), b"v") for i in range(count)]


def test_states_are_heard_in_order_over_start_kill_and_stop(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    total = scene.produce(records(400))
    with caplog.at_level(logging.INFO, "penstock.driver"), Watched(scene) as run:
        assert run.app.state is State.RUNNING
        run.wait_committed(total)
        run.wait_for_both()
        killed = run.kill_an_owner()
        run.wait_for(
            lambda: len(run.rebalances) == 3 and run.states[-1] == "running",
            what="its successor got a task",
        )
        total += scene.produce(records(100))
        run.wait_committed(total)
    assert run.states == [
        "rebalancing",
        "running",
        *["rebalancing", "running"] * ((len(run.states) - 4) // 2),
        "pending_shutdown",
        "not_running",
    ]
    assert len(run.threads) == 1
    assert scene.counts() == scene.expected()
    first, second, third = run.rebalances
    assert first.why == ("of the first start",)
    assert [str(move.task) for move in first.moves] == ["0_0", "0_1"]
    assert len({move.target for move in first.moves}) == 2
    assert second.why[0] == f"instance {killed} was lost"
    [move] = second.moves
    assert (move.source, move.why) == (killed, "unowned")
    assert move.target != killed
    [move] = third.moves
    assert (move.source, move.why) == (second.moves[0].target, "balance")
    assert third.why == (f"instance {move.target} joined",)
    assert run.app.totals.rebalances == 3
    assert [str(each) for each in run.rebalances] == [
        text for text in caplog.messages if text.startswith("Rebalance ")
    ]


def test_a_static_instance_that_is_killed_comes_back_without_a_rebalance(scene: Scene) -> None:
    total = scene.produce(records(400))
    with Watched(scene, group_instance_id="ward") as run:
        run.wait_committed(total)
        run.wait_for_both()
        killed = run.kill_an_owner()
        assert killed in ("ward-instance-0", "ward-instance-1")
        run.wait_for(
            lambda: any(f"Instance {killed} is back" in text for text in run.notices),
            what="it was back",
        )
        total += scene.produce(records(100))
        run.wait_committed(total)
        assert run.app.totals.rebalances == 1
    assert run.states == ["rebalancing", "running", "pending_shutdown", "not_running"]
    assert scene.counts() == scene.expected()


def test_a_paused_application_keeps_its_tasks_and_reads_nothing(scene: Scene) -> None:
    total = scene.produce(records(100))
    run = Run(scene)
    run.app.pause()
    with run:
        time.sleep(0.5)  # Long enough for a batch, if one were made.
        assert run.app.is_paused
        assert run.app.state is State.RUNNING
        assert scene.committed() == 0
        run.app.resume()
        run.wait_committed(total)
        # And one that has worked.
        run.app.pause()
        sent = scene.produce(records(100))
        time.sleep(0.5)
        assert run.app.state is State.RUNNING
        assert scene.committed() == total
        run.app.resume()
        run.wait_committed(total + sent)
        assert run.app.totals.rebalances == 1
        assert run.app.stop(timedelta(minutes=1))
    assert scene.counts() == scene.expected()


def test_an_error_is_heard_as_one(scene: Scene) -> None:
    run = Run(scene, numbers)
    states: list[str] = []
    run.app.on_state_change(lambda old, new: states.append(new))
    run.app.start()
    scene.produce(records(4))  # Their values are no numbers of eight bytes.
    with pytest.raises(DeserializationError):
        run.wait_end()
    assert states == ["rebalancing", "running", "pending_error", "error"]
