"""`penstock demo`: patient monitoring on a real Kafka and Spark, and its results as they arrive."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from penstock.cli.answers import print_answer
from penstock.cli.demo_queries import DemoQueries
from penstock.cli.example import SECONDS_WITHOUT_TERMINAL, run_on_own_kafka
from penstock.coordination.states import ApplicationState
from penstock.examples.catalogue import find_example
from penstock.examples.data import InputRecord
from penstock.examples.patient_monitoring import Alert
from penstock.examples.running import Listeners
from penstock.examples.watching import Result
from penstock.serdes import Windowed

SECONDS_BETWEEN_LINES = 5.0
_SHOW_SECONDS = 0.25
_MINUTE_MS = 60_000
_GRACE_MS = 5_000
_SECONDS_FOR_ANSWERS = 60.0


@dataclass
class _View:
    """What is on the screen; `sent` and `rates` are beats by patient and minute."""

    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    rates: dict[tuple[str, int], int] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    state: str = ApplicationState.CREATED
    has_run: bool = False
    alert_count: int = 0

    def add_sent(self, record: InputRecord, timestamp: int) -> None:
        if record.topic == "pulse-events" and record.key is not None:
            self.sent[record.key, timestamp // _MINUTE_MS * _MINUTE_MS] += 1
            self.latest[record.key] = max(timestamp, self.latest.get(record.key, 0))

    def add_result(self, result: Result) -> None:
        if isinstance(result.key, Windowed):
            self.rates[result.key.key, result.key.start] = result.value
        else:
            self.alerts[result.key] = result.value
            self.alert_count += 1

    @property
    def closed(self) -> set[tuple[str, int]]:
        """The minutes that must have closed: a later beat of the same patient says so."""
        grown = _MINUTE_MS + _GRACE_MS
        return {each for each in self.sent.copy() if each[1] + grown <= self.latest[each[0]]}

    def wrong(self, *, settled: bool) -> int:
        """How many minutes have another number of beats than were sent or, at last, are missing."""
        wanted = set(self.rates) | (self.closed if settled else set())
        return sum(self.rates.get(each) != self.sent[each] for each in wanted)


def demo(
    seconds: Annotated[
        float | None, typer.Option(min=0, help="End by itself so long after the first result.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    # Without a terminal, lines are not broken at a width that nobody has.
    console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False, stderr=json)
    if seconds is None and (json or not console.is_terminal):
        seconds = SECONDS_WITHOUT_TERMINAL
    view = _View()
    step = iter(range(1, 100))

    asking: list[DemoQueries] = []
    questions: list[threading.Thread] = []

    def report(text: str) -> None:
        # Addresses and commands are copied from here: the terminal breaks them, and not a line end.
        console.print(f"[bold]{next(step)}[/] {escape(text)}", soft_wrap=True)

    def hear(state: str) -> None:
        view.state = state
        if state == ApplicationState.RUNNING and not view.has_run:
            view.has_run = True
            report("Records flow: Kafka → Spark → RocksDB → changelog → Kafka")
            asking[0].show_console()

    def hear_result(result: Result) -> None:
        is_first = not view.rates
        view.add_result(result)
        if is_first and view.rates:
            patient = next(iter(view.rates))[0]
            questions.append(threading.Thread(target=asking[0].ask, args=(patient,), daemon=True))
            questions[0].start()

    def wait_for_answers() -> None:
        # On a busy machine the demo's time may be up before all three were given.
        for each in questions:
            each.join(_SECONDS_FOR_ANSWERS)

    listeners = Listeners(
        on_settled=wait_for_answers,
        on_state=hear,
        on_sent=view.add_sent,
        on_result=hear_result,
        on_place=lambda id_, state_dir: asking.append(DemoQueries(id_, state_dir, report)),
    )
    with _Display(console, view):
        summary = run_on_own_kafka(
            find_example("patient-monitoring"), seconds=seconds, listeners=listeners, report=report
        )
    wrong = view.wrong(settled=summary.settled)
    report(_last_line(view, wrong))
    if json:
        minutes = {"closed": len(view.rates), "wrong": wrong, "alerts": view.alert_count}
        print_answer("", {**vars(summary), **minutes}, as_json=True)
    if wrong:
        sys.exit(1)


def _last_line(view: _View, wrong: int) -> str:
    beats = sum(view.rates.values())
    done = f"Done: {len(view.rates)} patient-minutes closed, {view.alert_count} alerts; "
    if wrong:
        return f"{done}{wrong} minutes are not what was sent."
    return f"{done}each of the {beats} beats in them counted exactly once."


class LinePace:
    """When a line is due: now and then, and once after the end.

    >>> pace = LinePace(0.0)
    >>> [pace.is_due(state, at) for state, at in [("running", 1), ("running", 6), ("running", 7)]]
    [False, True, False]
    >>> [pace.is_due("not_running", at) for at in (12, 18)]
    [True, False]
    """

    def __init__(self, start: float) -> None:
        self._last = start
        self._ended = False

    def is_due(self, state: str, now: float) -> bool:
        if self._ended or now - self._last < SECONDS_BETWEEN_LINES:
            return False
        self._last = now
        self._ended = state == ApplicationState.NOT_RUNNING
        return True


class _Display:
    """A live table where there is a terminal, else a line now and then."""

    def __init__(self, console: Console, view: _View) -> None:
        self._console = console
        self._view = view
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._show)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._live is not None:
            self._live.update(_table(self._view))
            self._live.stop()

    def _show(self) -> None:
        pace = LinePace(time.monotonic())
        while not self._ends.wait(_SHOW_SECONDS):
            state = self._view.state
            if self._live is not None:
                self._live.update(_table(self._view))
            elif self._view.rates and pace.is_due(state, time.monotonic()):
                self._console.print(_line(self._view, state))


def _table(view: _View) -> Table:
    table = Table(title=f"patients ({view.state}; Ctrl-C ends)")
    table.add_column("patient")
    for name in ("minutes closed", "latest heart rate", "alert: heart rate", "°F"):
        table.add_column(name, justify="right")
    rates = dict(sorted(view.rates.copy().items(), key=lambda each: each[0][1]))
    latest = {patient: rate for (patient, _), rate in rates.items()}
    minutes = Counter(patient for patient, _ in rates)
    for patient, rate in sorted(latest.items()):
        alert = view.alerts.get(patient)
        told = ("", "") if alert is None else (str(alert.heart_rate), str(alert.temperature))
        style = None if alert is None else "red"
        table.add_row(patient, str(minutes[patient]), str(rate), *told, style=style)
    return table


def _line(view: _View, state: str) -> str:
    alerts = ", ".join(
        f"{patient} {alert.heart_rate} bpm {alert.temperature} °F"
        for patient, alert in sorted(view.alerts.copy().items())
    )
    sent = f"{sum(view.sent.copy().values())} beats sent"
    closed = f"{len(view.rates)} patient-minutes closed"
    return f"  {state}: {sent}, {closed}; alerts: {alerts or 'none yet'}"
