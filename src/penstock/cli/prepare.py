"""`penstock prepare`: everything that a first start would otherwise wait for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.answers import counted, print_answer, print_progress
from penstock.cli.progress import Bar
from penstock.local.broker import broker_archive
from penstock.local.class_archive import MAKING_VARIABLE, archive_directory
from penstock.local.jars import BROKER, SPARK_KAFKA, STREAMS, JarSet, ensure
from penstock.local.java import find_java
from penstock.pipeline.session import driver_archive

_SECONDS_MAX = 480.0


def prepare(
    kafka_streams: Annotated[
        bool, typer.Option("--kafka-streams", help="Also fetch Kafka Streams, to compare with.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    done = prepared(kafka_streams=kafka_streams)
    facts = {"prepared": done.made, "missing": sorted(done.missing)}
    print_answer(done.text, facts, as_json=json)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Whether archives were made, and which could not be."""

    made: bool = False
    missing: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """What whoever asked is told."""
        if self.missing:
            return (
                f"{counted(len(self.missing), 'archive')} of Java's classes could not be kept in "
                f"{archive_directory()}: everything works, and starts take longer. If that can be "
                "written to, the machine may be too busy: `penstock prepare` tries again."
            )
        return "Spark and Kafka start quickly now." if self.made else "All is prepared already."


def prepared(*, kafka_streams: bool) -> Prepared:
    """Fetch and archive what is missing."""
    jars = _fetched(SPARK_KAFKA)
    broker_jars = _fetched(BROKER)
    if kafka_streams:
        _fetched(STREAMS)
    java = find_java().program
    wanted = {driver_archive(java, jars).file_name, broker_archive(java, broker_jars).file_name}
    directory = archive_directory()
    found = archives_in(directory)
    if wanted <= found:
        return Prepared()
    if not _can_write(directory):
        return Prepared(missing=frozenset(wanted - found))
    with _alone_in(directory):
        # Somebody else may have made them while this one waited.
        found = archives_in(directory)
        if wanted <= found:
            return Prepared()
        print_progress("Preparing Java's classes, for quick starts (once, about a minute)")
        with (
            tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as making,
            Bar("Preparing") as bar,
        ):
            bar.show(0)
            if _run_once(Path(making)):
                _keep(Path(making), directory)
        missing = frozenset(wanted - archives_in(directory))
        if not missing:
            for outdated in found - wanted:
                (directory / outdated).unlink(missing_ok=True)
    return Prepared(made=not missing, missing=missing)


def _fetched(jar_set: JarSet) -> tuple[Path, ...]:
    with Bar("Fetching") as bar:
        return ensure(jar_set, report=print_progress, progress=bar.show)


def archives_in(directory: Path) -> set[str]:
    """The names of the archives that are there."""
    return {path.name for path in directory.glob("*.jsa")}


def _keep(making: Path, directory: Path) -> None:
    for archive in making.glob("*.jsa"):
        # Whole or not at all: Java trusts what it finds.
        archive.replace(directory / archive.name)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Hold the directory: two who prepare side by side would take twice as long."""
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _can_write(directory: Path) -> bool:
    """Whether archives can be kept; an environment of the system's may not be ours to write to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _run_once(making: Path) -> bool:
    """Run the demo's application shortly, and wait until its JVMs have written their archives.

    Whether all went well: else one may have been stopped in the midst of writing. Nothing depends
    on it, so a failure is left to the first real start, which says it better.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", "demo", "--seconds", "1"],
            env={**os.environ, MAKING_VARIABLE: str(making)},
            # Spark's JVM outlives its parent, with this pipe as its output: the end of the pipe is
            # the end of the JVM.
            stdout=subprocess.PIPE,
            timeout=_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
