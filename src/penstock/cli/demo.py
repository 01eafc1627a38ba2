"""`penstock demo`: a real Kafka, a real Spark, test data, and the results as they arrive."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

import typer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.application import Application
from penstock.driver.events import Event, StateChanged
from penstock.local.broker import EmbeddedKafka, KafkaOptions

SOURCE, RESULTS = "pulse-events", "pulse-totals"
PARTITIONS = 4
PATIENTS = 12
BEATS_PER_SECOND = 200
SECONDS_WITHOUT_TERMINAL = 30.0
SECONDS_BETWEEN_LINES = 5.0
SECONDS_TO_SETTLE = 30.0
_SHOW_SECONDS = 0.25


@dataclass
class _View:
    """What is on the screen."""

    totals: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    state: str = "starting"
    results: int = 0
    sending: bool = True

    @property
    def counted(self) -> int:
        """How many beats the results speak of."""
        return sum(self.totals.values())


def demo(
    seconds: Annotated[
        float | None, typer.Option(help="End by itself so long after the first result.")
    ] = None,
) -> None:
    # Without a terminal, lines are not broken at a width that nobody has.
    console = Console(soft_wrap=not sys.stdout.isatty())
    if seconds is None and not console.is_terminal:
        seconds = SECONDS_WITHOUT_TERMINAL
    view = _View()
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        console.print("[bold]1[/] Starting a real Apache Kafka ...")
        options = KafkaOptions(directory=Path(directory) / "kafka", report=console.print)
        with EmbeddedKafka(options) as kafka:
            bootstrap = kafka.bootstrap_servers
            _create_topics(bootstrap)
            console.print(f"[bold]2[/] Kafka listens at {bootstrap}; starting Spark ...")
            app = _application(bootstrap, Path(directory) / "state", view, console)
            threads = [
                threading.Thread(target=_send, args=(bootstrap, view, stop)),
                threading.Thread(target=_receive, args=(bootstrap, view, stop)),
                threading.Thread(target=_watch, args=(console, view, app, stop, seconds)),
            ]
            for thread in threads:
                thread.start()
            try:
                app.run()
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
    console.print(f"[bold]4[/] Done: {view.sent} beats sent, {view.counted} counted, exactly once.")


def _application(bootstrap: str, state: Path, view: _View, console: Console) -> Application:
    app = Application("pulse-monitor", bootstrap_servers=bootstrap, state_dir=state)
    (
        app.stream(SOURCE, key=str, value=int)
        .filter(lambda patient, bpm: bpm > 0)
        .group_by_key()
        .count("pulse-counts")
        .to_stream()
        .to(RESULTS)
    )

    @app.on_event
    def show(event: Event) -> None:
        if isinstance(event, StateChanged):
            view.state = event.new
            if event.new == "running":
                path = "Kafka → Spark → RocksDB → changelog → Kafka"
                console.print(f"[bold]3[/] Records flow: {path}")

    return app


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (SOURCE, RESULTS)]
    for future in admin.create_topics(topics).values():
        future.result()


def _send(bootstrap: str, view: _View, stop: threading.Event) -> None:
    """Beats of patients at random, until everything stops."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    chance = random.Random(7)
    while not stop.wait(0.1) and view.sending and view.state not in ("stopping", "failed"):
        for _ in range(BEATS_PER_SECOND // 10):
            patient = f"patient-{chance.randrange(PATIENTS):02}"
            bpm = chance.randrange(50, 130).to_bytes(8, "big", signed=True)
            producer.produce(SOURCE, bpm, patient)
            view.sent += 1
        producer.poll(0)
    producer.flush()


def _receive(bootstrap: str, view: _View, stop: threading.Event) -> None:
    """Read the results as any other application would: committed ones only."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo-viewer",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([RESULTS])
    while not stop.is_set():
        for message in consumer.consume(1000, 0.1):
            key, value = message.key(), message.value()
            if message.error() is None and key is not None and value is not None:
                view.totals[key.decode()] = int.from_bytes(value, "big", signed=True)
                view.results += 1
    consumer.close()


def _watch(
    console: Console, view: _View, app: Application, stop: threading.Event, seconds: float | None
) -> None:
    """Show what arrives; with `seconds`, end so long after the first result."""
    with _Display(console) as display:
        ends: float | None = None
        while not stop.wait(_SHOW_SECONDS):
            display.show(view)
            now = time.monotonic()
            if view.results and ends is None and seconds is not None:
                ends = now + seconds
            if ends is not None and now >= ends:
                view.sending = False
                if view.counted == view.sent or now >= ends + SECONDS_TO_SETTLE:
                    app.stop()
                    return


class _Display:
    """A live table where there is a terminal, else a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._shown = time.monotonic()

    def show(self, view: _View) -> None:
        """Show what there is now."""
        if self._live is not None:
            self._live.update(_table(view))
        elif time.monotonic() - self._shown >= SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            self._console.print(_line(view))

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def _table(view: _View) -> Table:
    table = Table(title=f"beats per patient ({view.state}; Ctrl-C ends)")
    table.add_column("patient")
    table.add_column("beats", justify="right")
    for patient, beats in sorted(view.totals.items()):
        table.add_row(patient, str(beats))
    table.add_section()
    table.add_row("counted", str(view.counted))
    table.add_row("sent", str(view.sent))
    return table


def _line(view: _View) -> str:
    top = sorted(view.totals.items(), key=lambda each: -each[1])[:3]
    names = ", ".join(f"{patient}={beats}" for patient, beats in top)
    beats = f"{view.sent} beats sent, {view.counted} counted"
    return f"  {view.state}: {beats}; {names or 'no results yet'}"
