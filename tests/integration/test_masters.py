"""Where an application can run: on several executors, by spark-submit, by `penstock run`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness import AppProcess, Scene, running, wait_until

PROGRAM = """
import penstock as ps
from penstock.driver.events import BatchEnded

app = ps.Application({application_id!r})
stream = app.stream({source!r}, key=bytes, value=bytes)
stream = stream.filter(lambda key, value: value != b"dropped")
stream.group_by_key().count("counts").to_stream().to({results!r})


@app.on_event
def end_when_done(event):
    if __name__ == "__main__" and isinstance(event, BatchEnded) and app.totals.records >= {count}:
        app.stop()


if __name__ == "__main__":
    app.run()
    print("state", app.state)
"""


def records(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (i * 7919 % 50), b"value") for i in range(count)]


def assert_exact(scene: Scene) -> None:
    expected = scene.expected()
    assert scene.counts(scene.changelog) == expected
    assert scene.sequences() == {key: list(range(1, n + 1)) for key, n in expected.items()}


@pytest.mark.crash
def test_several_executors_of_which_one_dies_with_an_instance(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=4).create_topics()
    total = scene.produce(records(1_200))
    with running(
        scene,
        master="local-cluster[3,1,1024]",
        statestore_cache_max_bytes=0,
        slice_records_max=100,
        heartbeat_interval=500,
        session_timeout=6_000,
    ) as app:
        app.wait_for(lambda: len(set(owners(app).values())) == 3, what="three instances had tasks")
        app.wait_for(lambda: scene.committed() > 0, what="it worked")
        kill_executor_with_instance(app, owners(app)["0_0"])
        assert scene.committed() < total, "the kills came too late to matter"
        total += scene.produce(records(400))
        app.wait_for(
            # A new executor has a Java and a Python to start before its first task.
            lambda: scene.committed() == total,
            what="all was committed",
            seconds=150,
        )
        assert "is lost, and with it" in app.text()
        # The lost instance has a successor, wherever the executors are now.
        app.wait_for(lambda: len(processes(app, "instance.process")) >= 3, what="three again")
        assert app.stop() == 0
    wait_until(lambda: not processes(app, ""), what="all its processes had ended")
    assert_exact(scene)


def owners(app: AppProcess) -> dict[str, str]:
    """The instance that each task was last given to."""
    found: dict[str, str] = {}
    for line in re.findall(r"^Rebalance .*?: (.*)", app.text(), re.MULTILINE):
        for piece in line.split("; "):
            tasks, _, instance = piece.rpartition(" to ")
            if " as " not in tasks:
                found.update(dict.fromkeys(tasks.partition(" from ")[0].split(", "), instance))
    return found


def kill_executor_with_instance(app: AppProcess, instance: str) -> None:
    """Kill the Java process of an executor and the instance that was started by its daemon."""
    [victim] = [
        each for each in processes(app, "instance.process") if instance in str(each.cmdline())
    ]
    # The daemon of the executor's Python workers started it; its name tells the daemon's number.
    daemon = psutil.Process(int(instance.rsplit("-", 2)[1]))
    executor = daemon.parent()
    assert executor is not None
    assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
    executor.kill()
    victim.kill()


def processes(app: AppProcess, kind: str) -> list[psutil.Process]:
    """What runs with the environment that the application was given."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("PENSTOCK_CRASH_DIR") == str(app.crash_dir)
            if ours and kind in " ".join(process.cmdline()) and running_still(process):
                found.append(process)
        except psutil.Error:  # it ended while it was looked at
            continue
    return found


def running_still(process: psutil.Process) -> bool:
    return bool(process.status() != psutil.STATUS_ZOMBIE)


def test_spark_submit_and_then_penstock_run(kafka: str, tmp_path: Path) -> None:
    scene = Scene(kafka, tmp_path, partitions=2).create_topics()
    total = scene.produce(records(500))
    program = tmp_path / "app.py"
    program.write_text(
        PROGRAM.format(
            application_id=scene.application_id,
            source=scene.source,
            results=scene.results,
            count=500,
        )
    )
    commands = Path(sys.executable).parent
    environment = {
        **os.environ,
        # As an activated virtual environment has it.
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_BOOTSTRAP_SERVERS": kafka,
        "PENSTOCK_STATE_DIR": str(scene.state_dir),
        "PENSTOCK_STATESTORE_CACHE_MAX_BYTES": "0",
    }
    submitted = subprocess.run(
        [commands / "spark-submit", "--master", "local-cluster[2,1,1024]", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr[-3000:]
    assert submitted.stdout.splitlines()[-1] == "state not_running"
    assert scene.committed() == total

    total += scene.produce(records(500))
    log = tmp_path / "run.log"
    with log.open("wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", "run", program], env=environment, stderr=output
        )
    try:
        wait_until(
            lambda: scene.committed() == total or run.poll() is not None, what="all was done"
        )
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0, log.read_text()
    finally:
        run.kill()
        run.wait()
    # Lines of several words tell how far the restore of a store is.
    states = [line for line in log.read_text().splitlines() if " " not in line]
    assert states == ["rebalancing", "running", "pending_shutdown", "not_running"]
    assert_exact(scene)
