"""An example on a real Kafka and Spark: test data in, results out, and a clean end."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.application import Application
from penstock.config import Config
from penstock.coordination.states import ApplicationState
from penstock.driver.events import Event, StateChanged
from penstock.errors import PenstockError
from penstock.examples.catalogue import Example
from penstock.examples.data import InputRecord
from penstock.examples.sending import Sender, create_missing_topics
from penstock.examples.watching import Result, Watcher, lag

SECONDS_TO_SETTLE = 30.0
SECONDS_TO_FIRST_RESULT = 60.0
_LOOK_SECONDS = 0.25


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Who is told what happens; each is called from a thread of its own."""

    on_state: Callable[[str], None] = _nothing
    on_sent: Callable[[InputRecord, int], None] = _nothing
    on_result: Callable[[Result], None] = _nothing
    on_place: Callable[[str, Path], None] = _nothing
    """Before the start: the application's id and its state directory."""
    on_settled: Callable[[], None] = _nothing
    """When all that was sent is committed, and the application is about to be stopped."""


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    sent: int
    results: int
    settled: bool
    """Whether everything that was sent was committed before the end."""


@dataclass
class ExampleRun:
    """One run of an example on a Kafka that is there.

    Data is sent once the application runs, until so many `records` were, or for `seconds` from the
    first result on: when its own times say, or `rate` records a second. The run ends when all that
    was sent is committed and its results were read.
    """

    example: Example
    bootstrap_servers: str
    state_dir: Path
    seconds: float | None = None
    records: int | None = None
    rate: float | None = None
    listeners: Listeners = field(default_factory=Listeners)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._app = self.example.application(**self.options)
        # Not as an option: whatever the environment says of another Kafka, this run is on this one.
        self._config: Config = dataclasses.replace(
            self._app.config,
            bootstrap_servers=self.bootstrap_servers,
            state_dir=self.state_dir,
            kafka={},
        )
        self._app.config = self._config
        self._started = threading.Event()
        self._sending_ends = threading.Event()
        self._ends = threading.Event()
        self._results = 0
        self._settled = False
        self._failure: BaseException | None = None

    def run(self) -> Summary:
        """Run to the end, or to Ctrl-C. Raises what ends the application otherwise."""
        create_missing_topics(self.example, self._config)
        self.listeners.on_place(self._app.application_id, self.state_dir)
        sender = Sender(self.example, self._config)
        watcher = Watcher(self.example.outputs, self._config, f"{self._app.application_id}-viewer")

        def hear(event: Event) -> None:
            if isinstance(event, StateChanged):
                self.listeners.on_state(event.new)
                if event.new is ApplicationState.RUNNING:
                    self._started.set()
                elif event.new is not ApplicationState.REBALANCING:
                    self._sending_ends.set()
                    self._started.set()

        self._app.on_event(hear)

        def send() -> None:
            self._started.wait()
            sender.run(
                self._sending_ends.is_set,
                rate=self.rate,
                records_max=self.records,
                on_sent=self.listeners.on_sent,
            )

        def watch() -> None:
            watcher.run(self._ends.is_set, self._result)

        threads = [threading.Thread(target=self._guarded, args=(each,)) for each in (send, watch)]
        threads.append(threading.Thread(target=self._guarded, args=(self._watch_end, threads[0])))
        for thread in threads:
            thread.start()
        try:
            self._app.run()
        except PenstockError:
            # A thread that failed at once has stopped the application before it ran.
            if self._failure is None:
                raise
        finally:
            self._sending_ends.set()
            self._started.set()
            self._ends.set()
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure
        return Summary(sender.sent, self._results, self._settled)

    def _result(self, result: Result) -> None:
        self._results += 1
        self.listeners.on_result(result)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        """Work in a thread; its failure is the run's."""
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._failure = error
            self._app.stop()

    def _watch_end(self, sending: threading.Thread) -> None:
        """Stop everything when enough was sent, and what came of it is committed."""
        if self.records is None:
            if self.seconds is None:
                return
            self._wait_first_result()
            self._ends.wait(self.seconds)
            self._sending_ends.set()
        sending.join()
        self._settle()
        self.listeners.on_settled()
        self._app.stop()

    def _wait_first_result(self) -> None:
        self._started.wait()
        deadline = time.monotonic() + SECONDS_TO_FIRST_RESULT
        while not self._results and not self._ends.wait(_LOOK_SECONDS):
            if time.monotonic() > deadline:
                raise PenstockError(
                    f"The application has run for {SECONDS_TO_FIRST_RESULT:g} s without a result",
                    where={"example": self.example.name},
                    hint="Make sure that the machine is not too busy, and try again",
                )

    def _settle(self) -> None:
        inputs = _inputs(self._app)
        deadline = time.monotonic() + SECONDS_TO_SETTLE
        while not self._settled and time.monotonic() < deadline and not self._ends.is_set():
            time.sleep(_LOOK_SECONDS)
            self._settled = lag(self._config, self._app.application_id, inputs) == 0


def _inputs(app: Application) -> list[str]:
    subs = app.build().sub_topologies
    return [topic for sub in subs for topic in sub.input_topics(app.application_id)]
