"""`penstock produce-test-data`: an example's records, to any Kafka."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.cli.answers import counted, print_answer, print_progress
from penstock.cli.example import Name, pace_line
from penstock.cli.progress import Bar
from penstock.config import Config
from penstock.driver.setup import check_broker
from penstock.examples.catalogue import find_example
from penstock.examples.sending import Sender, create_missing_topics


def produce_test_data(
    name: Name,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="Where Kafka listens; else PENSTOCK_BOOTSTRAP_SERVERS says it."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="Records a second; else by the data's own times."),
    ] = None,
    records: Annotated[
        int | None, typer.Option(min=1, help="End after so many records; else with Ctrl-C.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    example = find_example(name)
    config = _config(bootstrap_servers)
    check_broker(config)
    created = create_missing_topics(example, config)
    if created:
        print_progress(f"Created topics: {', '.join(created)}")
    if rate is None and example.time_scale > 1:
        print_progress(pace_line(example))
    sender = Sender(example, config)
    with _signals_set(threading.Event()) as stop, Bar("Sending") as bar:
        # Said when it is so: who ends it at once is told how many were sent, too.
        print_progress(f"Sending to {', '.join(example.inputs)}; Ctrl-C ends")

        def should_stop() -> bool:
            bar.show(sender.sent, records)
            return stop.is_set()

        sender.run(should_stop, rate=rate, records_max=records)
    print_answer(
        f"{counted(sender.sent, 'record')} sent.",
        {"example": example.name, "sent": sender.sent, "created": created},
        as_json=json,
    )


@contextlib.contextmanager
def _signals_set(stop: threading.Event) -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM set the event: what was sent is then waited for and counted."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _config(bootstrap_servers: str | None) -> Config:
    environment = dict(os.environ)
    if bootstrap_servers is not None:
        # What is said on the command line is stronger than the environment.
        environment["PENSTOCK_BOOTSTRAP_SERVERS"] = bootstrap_servers
    return Config.build({}, environment)
