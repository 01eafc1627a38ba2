"""An application inside the test's own process: quick to start, and its errors are at hand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import psutil

import penstock as ps
from penstock.driver.events import Event, Notice
from tests.application_process import count
from tests.harness import Scene, asked

Topology = Callable[[ps.Application, str, str], None]


class Run:
    """One run of an application on a scene's topics, from start to stop.

    Inside the block it is running. An error that ends it is raised by the next wait.
    """

    def __init__(self, scene: Scene, topology: Topology = count, **options: Any) -> None:
        self.scene = scene
        self.notices: list[str] = []
        defaults: dict[str, Any] = {
            "bootstrap_servers": scene.bootstrap,
            "state_dir": scene.state_dir,
            "heartbeat_interval": timedelta(milliseconds=500),
            "statestore_cache_max_bytes": 0,
        }
        self.app = ps.Application(scene.application_id, **{**defaults, **options})
        topology(self.app, scene.source, scene.results)
        self.app.on_event(self._hear)

    def __enter__(self) -> Self:
        self.app.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.app.state is not ps.ApplicationState.ERROR:
            self.app.stop()

    def wait_committed(self, total: int) -> Self:
        """Wait until the group's offsets on the source add up to this."""
        self.wait_for(lambda: self.scene.committed() >= total, what=f"{total} were committed")
        return self

    def wait_for(self, condition: Callable[[], bool], *, what: str, seconds: float = 150) -> None:
        """Wait until something is so; raise what ends the application before."""
        deadline = time.monotonic() + seconds
        for is_so in asked(condition):
            if is_so:
                return
            if self.app.state is ps.ApplicationState.ERROR:
                self.app.stop()
            assert time.monotonic() < deadline, f"Time is over before {what}: {self.notices}"

    def wait_end(self, *, seconds: float = 60) -> None:
        """Wait until the application ends by itself, and raise why."""
        self.wait_for(lambda: False, what="the application ended", seconds=seconds)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.notices.append(event.text)


def start_fails(scene: Scene, topology: Topology = count, **options: Any) -> ps.PenstockError:
    """The error with which the application refuses to start."""
    run = Run(scene, topology, **options)
    try:
        run.app.start()
    except ps.PenstockError as error:
        assert run.app.state is ps.ApplicationState.ERROR
        return error
    run.app.stop()
    raise AssertionError("The application started")


def instances_here() -> list[psutil.Process]:
    """The instances that this process has started and that still run."""
    modules = {"penstock.instance.process", "penstock.pipeline.instances"}
    found = []
    for child in psutil.Process().children():
        # One that was just killed has no command line any more.
        with contextlib.suppress(psutil.NoSuchProcess):
            if modules & set(child.cmdline()):
                found.append(child)
    return found
