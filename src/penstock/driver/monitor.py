"""What the driver counts, and what it puts together with the instances' counts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from penstock.config import Config
from penstock.coordination.states import ApplicationState
from penstock.coordination.tasks import TaskBook
from penstock.driver.events import CopiesChanged, Event, Rebalanced, StateChanged, Waiting
from penstock.observability import groups
from penstock.observability.health import Health, Pulse, health
from penstock.observability.json_logs import log_as_json, secrets_of
from penstock.observability.readings import Reading, Snapshot
from penstock.observability.recorder import Recorder
from penstock.observability.tallies import Tally

if TYPE_CHECKING:
    from penstock.pipeline.orders import Outcome

_log = logging.getLogger("penstock.driver")

_KAFKA_STATES = tuple(ApplicationState)
"""In the order of Kafka Streams' numbers."""
_PROGRAMS_OWN = frozenset({groups.JOB, groups.EDGE})
"""Told by sub-topology, whichever task and instance it was."""
_WATCHED = (
    (groups.COORDINATOR, "rebalance"),
    (groups.DRIVER, "failed-jobs"),
    (groups.DRIVER, "skipped-slices"),
)
"""What is counted here from 0 on: an alert on its growth misses the first step of one that was not
there before."""

Ends = Mapping[tuple[str, int], int]


class Monitor:
    """Hears what an application does, from any thread; answers probes and readers of metrics."""

    def __init__(self, application_id: str, config: Config) -> None:
        self.recorder = Recorder(config.metrics_recording_level)
        self.pulse = Pulse()
        self.waits_for = ""
        """What the application does before it runs; nothing while it does."""
        self._config = config
        self._client = (application_id,)
        self._state: ApplicationState = ApplicationState.CREATED
        self._ask_instances: Callable[[], Snapshot] | None = None
        self._lock = threading.Lock()
        self._unsettled: float | None = None
        self._lost = 0
        self._owners: dict[str, str] = {}
        self._inputs: tuple[TaskBook, Ends] | None = None
        for group, name in _WATCHED:
            self.recorder.begin(group, name, self._client)
        self._set_texts(application_id)

    # What happened.

    def begin(self, description: str) -> None:
        """The topology of that description is about to run."""
        self.log()
        self.recorder.set(groups.CLIENT, "topology-description", self._client, description)

    def log(self, *secrets: str) -> None:
        """Write the log as the config says, without these secrets and those in the config."""
        if self._config.log_format == "json":
            fields = {"application": self._client[0]}
            log_as_json(fields, secrets=secrets_of(self._config, *secrets))

    def failed(self, error: BaseException) -> None:
        """Tell the log, if somebody keeps one, with all that is known; others hear it raised."""
        if isinstance(error, Exception) and _log.hasHandlers():
            _log.error("The application ends: %s", error, exc_info=error)

    def hear(self, event: Event) -> None:
        """Take note of an event of the application."""
        match event:
            case StateChanged(old=old, new=new):
                self._state = new
                self.waits_for = ""
                if old is not new:
                    told = {"state": new, "old_state": old}
                    _log.info("The application is now %s", new, extra=told)
                self.recorder.set(groups.CLIENT, "state", self._client, str(new))
                number = _KAFKA_STATES.index(new)
                self.recorder.set(groups.CLIENT, "client-state", self._client, number)
            case Waiting(step=step):
                self.waits_for = step
                _log.info("Not running yet: %s", step)
            case Rebalanced():
                one = Tally.of(0.0)
                self.recorder.add(groups.COORDINATOR, "rebalance", self._client, one)
            case CopiesChanged(lags=lags):
                values = [
                    ((instance, str(task)), float(lag))
                    for instance, tasks in lags.items()
                    for task, lag in tasks.items()
                ]
                self.recorder.replace(groups.COPY, "lag", values)

    def settled(self, is_settled: bool) -> None:
        """Whether every task has an owner that serves it, in this turn of the loop."""
        if not is_settled:
            self._unsettled = self._unsettled or time.monotonic()
        elif self._unsettled is not None:
            took = Tally.of(time.monotonic() - self._unsettled)
            self.recorder.add(groups.COORDINATOR, "rebalance-latency", self._client, took)
            self._unsettled = None

    def instances(self, alive: int, *, lost: Sequence[str] = (), left: Sequence[str] = ()) -> None:
        """So many instances are there, and these were lost or have left."""
        self._lost += len(lost)
        self.recorder.set(groups.CLIENT, "alive-stream-threads", self._client, alive)
        self.recorder.set(groups.CLIENT, "failed-stream-threads", self._client, self._lost)
        for name in (*lost, *left):
            self.recorder.forget(name)

    def committed(self, owner: str, sub_topology: str, outcome: Outcome) -> None:
        """A slice was committed; its worker counted this. Its owner may be lost meanwhile."""
        before = self._owners.get(outcome.task, owner)
        if before != owner:
            self.recorder.forget(before, outcome.task)
        self._owners[outcome.task] = owner
        if owner:
            self.recorder.begin(groups.THREAD, "punctuate", (owner,))
            self.recorder.begin(groups.TASK, "dropped-records", (owner, outcome.task))
        for entry in outcome.metrics:
            first: tuple[str, ...] = (owner,)
            if entry.group in _PROGRAMS_OWN:
                first = (sub_topology,)
            elif not owner:
                continue
            elif entry.group in groups.OF_TASKS:
                first = (owner, outcome.task)
            self.recorder.add_all([entry], first=first)

    def job_ended(self, sub_topology: str, seconds: float, *, skipped: int) -> None:
        """A Spark job ended."""
        self.recorder.add(groups.JOB, "step", (sub_topology, "job"), Tally.of(seconds))
        if skipped:
            self._count("skipped-slices", skipped)

    def job_failed(self) -> None:
        """A Spark job failed."""
        self._count("failed-jobs", 1)

    def lags(self, book: TaskBook, ends: Ends) -> None:
        """Where the input partitions end, and how far their tasks are."""
        # The loop says this in every turn; what follows from it is computed when someone asks.
        self._inputs = (book, ends)

    def asks(self, instances: Callable[[], Snapshot] | None) -> None:
        """Have instances asked when someone reads metrics; None if there are none any more."""
        with self._lock:
            self._ask_instances = instances

    # What is asked.

    def health(self) -> Health:
        """Whether the application lives and is ready."""
        return health(self._state.value, self.pulse.age, silence=self.pulse.silence)

    def snapshot(self) -> Snapshot:
        """What all metrics show now, those of the instances among them."""
        age = self.pulse.age
        if age is not None:
            self.recorder.set(groups.DRIVER, "turn-age", self._client, age)
        self._set_process_ratios()
        self._set_lags()
        with self._lock:
            ask = self._ask_instances
        theirs: list[Reading] = [] if ask is None or not self.recorder.records("INFO") else ask()
        return self.recorder.snapshot() + theirs

    def _count(self, name: str, count: int) -> None:
        self.recorder.add(groups.DRIVER, name, self._client, Tally.many(count, 0.0))

    def _set_process_ratios(self) -> None:
        """Each task's part of the time that its instance's tasks took lately."""
        of_threads = self.recorder.work(groups.THREAD, "process")
        of_tasks = self.recorder.work(groups.TASK, "process")
        for (thread, task), seconds in of_tasks.items():
            whole = of_threads.get((thread,), 0.0)
            ratio = seconds / whole if whole else 0.0
            self.recorder.set(groups.TASK, "active-process-ratio", (thread, task), ratio)

    def _set_lags(self) -> None:
        if self._inputs is None:
            return
        book, ends = self._inputs
        values = [
            ((*self._client, topic, str(partition)), float(max(0, end - position)))
            for entry in list(book.entries.values())
            for topic, partitions in entry.position.items()
            for partition, position in partitions.items()
            if (end := ends.get((topic, partition))) is not None
        ]
        self.recorder.replace(groups.FETCH, "records-lag", values)

    def _set_texts(self, application_id: str) -> None:
        self.recorder.set(groups.CLIENT, "version", self._client, _own_version())
        self.recorder.set(groups.CLIENT, "application-id", self._client, application_id)
        self.hear(StateChanged(old=ApplicationState.CREATED, new=ApplicationState.CREATED))


def _own_version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"
