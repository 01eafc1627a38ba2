"""`penstock dev`: an Apache Kafka for as long as the command runs."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.answers import print_answer, print_progress
from penstock.config import default_state_dir
from penstock.local.broker import EmbeddedKafka, KafkaOptions

_LOOK_SECONDS = 0.5


def dev(
    brokers: Annotated[int, typer.Option(min=1, max=3, help="How many brokers.")] = 1,
    directory: Annotated[
        Path | None, typer.Option(help="Where data is kept; a second start finds it again.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    # By number of brokers: a directory belongs to one cluster, which cannot change its size.
    place = directory or default_state_dir() / f"dev-kafka-{brokers}"
    options = KafkaOptions(directory=place, nodes=brokers, report=print_progress)
    # One way out for Ctrl-C and `kill`, from the first moment on: unwinding stops the brokers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print_progress("Starting Apache Kafka")
    try:
        with EmbeddedKafka(options) as kafka:
            address = kafka.bootstrap_servers
            print_answer(
                f"Kafka is ready: {address}\nIts data is in {place}. Ctrl-C stops it.",
                {"bootstrap_servers": address, "directory": str(place), "brokers": brokers},
                as_json=json,
            )
            while True:
                kafka.check()
                time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        print_progress("Kafka has stopped")
