"""`penstock dev`: an Apache Kafka for as long as the command runs, or in the background."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.cli.answers import print_answer, print_progress
from penstock.config import default_state_dir
from penstock.driver.process_id import is_alive, process_start
from penstock.errors import BrokerStartError
from penstock.local.broker import EmbeddedKafka, KafkaOptions
from penstock.serdes.decoders import decoder

_LOOK_SECONDS = 0.5
_STOP_SECONDS = 30.0
_RUN_FILE = "background.json"
_LOG_FILE = "background.log"
_LINES = 40

Brokers = Annotated[int, typer.Option(min=1, max=3, help="How many brokers.")]
Directory = Annotated[
    Path | None, typer.Option(help="Where data is kept; a second start finds it again.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

dev = typer.Typer(invoke_without_command=True)


class _Background(msgspec.Struct, frozen=True):
    """A Kafka that was started in the background."""

    pid: int
    process_start: float
    bootstrap_servers: str

    @property
    def runs(self) -> bool:
        return is_alive(self.pid, self.process_start)


@dev.callback()
def dev_here(
    context: typer.Context, brokers: Brokers = 1, directory: Directory = None, json: Json = False
) -> None:
    if context.invoked_subcommand is not None:
        return
    place = _place(directory, brokers)
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


@dev.command(
    "start",
    help="Start it in the background, until `penstock dev stop`.",
    epilog="Example: penstock dev start --brokers 3",
)
def start(brokers: Brokers = 1, directory: Directory = None, json: Json = False) -> None:
    place = _place(directory, brokers)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = _read(place)
    if found is None or not found.runs:
        print_progress("Starting Apache Kafka")
        found = _start(place, brokers)
    print_answer(
        f"Kafka is ready: {found.bootstrap_servers}\nexport PENSTOCK_BOOTSTRAP_SERVERS="
        f"{found.bootstrap_servers}",
        {"bootstrap_servers": found.bootstrap_servers, "directory": str(place), "pid": found.pid},
        as_json=json,
    )


@dev.command(
    "stop",
    help="Stop the one in the background; its data stays.",
    epilog="Example: penstock dev stop",
)
def stop(brokers: Brokers = 1, directory: Directory = None, json: Json = False) -> None:
    place = _place(directory, brokers)
    found = _read(place)
    was_running = found is not None and found.runs
    if found is not None and was_running:
        os.kill(found.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while found.runs and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 5)
        if found.runs:
            raise BrokerStartError(
                f"Kafka, process {found.pid}, does not stop", hint=f"See {place / _LOG_FILE}"
            )
    (place / _RUN_FILE).unlink(missing_ok=True)
    text = "Kafka has stopped" if was_running else "No Kafka runs in the background"
    print_answer(text, {"stopped": was_running}, as_json=json)


@dev.command(
    "logs",
    help="Print what the brokers logged: warnings and worse.",
    epilog="Example: penstock dev logs -f",
)
def logs(
    brokers: Brokers = 1,
    directory: Directory = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and with -f one for each line.")
    ] = False,
) -> None:
    place = _place(directory, brokers)
    files = [place / _LOG_FILE, *sorted(place.glob("*/kafka.log"))]
    found = [line for file in files for line in _lines(file)][-_LINES:]
    if not found:
        print_progress(f"Nothing is logged in {place}")
    _print_lines(found, as_json=json)
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            for line in _new_lines(files):
                _print_lines([line], as_json=json)


def _print_lines(lines: list[str], *, as_json: bool) -> None:
    """Print them; for programs an object each time, whether they follow or not."""
    if lines or as_json:
        print_answer("\n".join(lines), {"lines": lines}, as_json=as_json)


def _place(directory: Path | None, brokers: int) -> Path:
    # By number of brokers: a directory belongs to one cluster, which cannot change its size.
    return directory or default_state_dir() / f"dev-kafka-{brokers}"


def _read(place: Path) -> _Background | None:
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return decoder(_Background).decode((place / _RUN_FILE).read_bytes())
    return None


def _start(place: Path, brokers: int) -> _Background:
    """Run this very command in a session of its own, and wait for its first line."""
    words = ["dev", "--json", "--brokers", str(brokers), "--directory", str(place)]
    with (place / _LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
    except BaseException:
        # Ctrl-C: it has a session of its own, does not hear of it, and nobody would know of it.
        process.terminate()
        raise
    answer = decoder(dict).decode(line) if line else {}
    if not answer.get("ok"):
        told = answer.get("error", {}).get("message") or "it ended without a word"
        raise BrokerStartError(f"Kafka did not start: {told}", hint=f"See {place / _LOG_FILE}")
    found = _Background(
        pid=process.pid,
        process_start=process_start(process.pid),
        bootstrap_servers=answer["data"]["bootstrap_servers"],
    )
    (place / _RUN_FILE).write_bytes(msgspec.json.encode(found))
    return found


def _lines(file: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return file.read_text(errors="replace").splitlines()
    return []


def _new_lines(files: list[Path]) -> Iterator[str]:
    """Lines as they are added; a file that was begun anew is read from its start."""
    seen = {file: file.stat().st_size if file.exists() else 0 for file in files}
    while True:
        time.sleep(_LOOK_SECONDS)
        for file in files:
            size = file.stat().st_size if file.exists() else 0
            start = seen[file] if size >= seen[file] else 0
            if size > start:
                with file.open("rb") as opened:
                    opened.seek(start)
                    yield from opened.read(size - start).decode(errors="replace").splitlines()
            seen[file] = size
