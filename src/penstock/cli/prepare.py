"""`penstock prepare`: everything that a first start would otherwise wait for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.answers import print_answer, print_progress
from penstock.local.broker import broker_archive
from penstock.local.class_archive import MAKING_VARIABLE, archive_directory
from penstock.local.jars import BROKER, SPARK_KAFKA, STREAMS, ensure
from penstock.local.java import find_java
from penstock.pipeline.session import driver_archive

_SECONDS_MAX = 240.0


def prepare(
    kafka_streams: Annotated[
        bool, typer.Option("--kafka-streams", help="Also fetch Kafka Streams, to compare with.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    made = _prepare(kafka_streams=kafka_streams)
    text = "Spark and Kafka start quickly now." if made else ""
    if json or made:
        print_answer(text, {"prepared": made}, as_json=json)


def _prepare(*, kafka_streams: bool) -> bool:
    """Fetch and archive what is missing; whether archives were made."""
    jars = ensure(SPARK_KAFKA, report=print_progress)
    broker_jars = ensure(BROKER, report=print_progress)
    if kafka_streams:
        ensure(STREAMS, report=print_progress)
    java = find_java().program
    wanted = {driver_archive(java, jars).file_name, broker_archive(java, broker_jars).file_name}
    directory = archive_directory()
    found = {path.name for path in directory.glob("*.jsa")}
    if wanted <= found or not _can_write(directory):
        return False
    for outdated in found - wanted:
        (directory / outdated).unlink()
    print_progress("Preparing Java's classes, for quick starts (once, about a minute)")
    with tempfile.TemporaryDirectory(dir=directory) as making:
        _run_once(Path(making))
        for archive in Path(making).glob("*.jsa"):
            # Whole or not at all: Java trusts what it finds.
            archive.replace(directory / archive.name)
    return True


def _can_write(directory: Path) -> bool:
    """Whether archives can be kept; an environment of the system's may not be ours to write to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _run_once(making: Path) -> None:
    """Run the demo's application shortly, and wait until its JVMs have written their archives.

    Nothing depends on it, so a failure is left to the first real start, which says it better.
    """
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "penstock.cli", "demo", "--seconds", "1"],
            env={**os.environ, MAKING_VARIABLE: str(making)},
            # Spark's JVM outlives its parent, with this pipe as its output: the end of the pipe is
            # the end of the JVM.
            stdout=subprocess.PIPE,
            timeout=_SECONDS_MAX,
            check=False,
        )
