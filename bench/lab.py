"""Where the rows run: a broker, the systems, a directory for state and logs, and a display."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient

from bench import clients
from bench.load import PARTITIONS, create_topic, delete_topics
from bench.machine import busy_share, fill_memory, settle_disk
from bench.systems import Guarantee, Job, System
from bench.verify import Content, read_all

QUIET_SHARE = 0.1
QUIET_WAIT_SECONDS = 10.0
FREE_BYTES = 2**29
"""So much memory is left free: the kernel makes more when it is used."""


class Display(Protocol):
    """What a row tells while it runs."""

    def status(self, text: str) -> None:
        """Say what goes on at this moment."""

    def warning(self, text: str) -> None:
        """Say what makes a figure doubtful."""

    def failure(self, row: str, text: str) -> None:
        """Say why a row has no figure."""

    def figure(self, row: str, system: str, guarantee: str, text: str) -> None:
        """Say what one run gave."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured; the defaults are the benchmark, anything less is a quick look."""

    rounds: int = 3
    records: int = 4_000_000
    seconds: int = 30
    systems: tuple[str, ...] = ("penstock", "kafka_streams", "quix_streams")
    quix_processes: int = 1
    stories: tuple[str, ...] = ()
    """Of row failover, by name; all if none is named."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A broker that is up, systems that are ready, and room to work in."""

    bootstrap_servers: str
    systems: dict[str, System]
    directory: Path
    display: Display
    settings: Settings
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _shares: list[float] = field(default_factory=list)

    def admin(self) -> AdminClient:
        return clients.admin(self.bootstrap_servers)

    @contextmanager
    def job(
        self,
        system: System,
        *,
        input: str,
        guarantee: Guarantee,
        row: str,
        topology: str = "count",
        other: str = "",
        partitions: int = PARTITIONS,
    ) -> Iterator[Job]:
        """A run that shares nothing with any other: own id, own output topic, own state."""
        # The process id keeps runs apart that share a broker given by --bootstrap-servers.
        name = f"bench-{row}-{system.name}-{os.getpid()}-{next(self._numbers):03}".replace("_", "-")
        job = Job(
            bootstrap_servers=self.bootstrap_servers,
            application_id=name,
            input=input,
            output=f"{name}-out",
            guarantee=guarantee,
            state_dir=self.directory / name,
            topology=topology,
            other=other,
        )
        create_topic(self.admin(), job.output, partitions=partitions)
        try:
            yield job
        finally:
            delete_topics(self.admin(), self.left_behind(job, system))
            shutil.rmtree(job.state_dir, ignore_errors=True)

    def changelogs(self, job: Job) -> dict[str, Content]:
        """What a run wrote to its stores' changelogs, by the name of the store."""
        before, after = f"{job.application_id}-", "-changelog"
        return {
            name.removeprefix(before).removesuffix(after): read_all(self.bootstrap_servers, name)
            for name in self.admin().list_topics(timeout=30).topics
            if name.startswith(before) and name.endswith(after)
        }

    def left_behind(self, job: Job, system: System) -> list[str]:
        """The topics of a run: its output, and all that bear its application id."""
        names = self.admin().list_topics(timeout=30).topics
        return [
            name for name in names if job.application_id in name or name == system.changelog(job)
        ]

    def wait_for_quiet(self, label: str) -> None:
        """Let the work of the last run end before the next one, which finds disk and memory ready.

        That is deleted topics and compiled code, and what is not on the disk yet.
        """
        self.display.status(f"{label}: waiting for a quiet machine")
        settle_disk()
        deadline = time.monotonic() + QUIET_WAIT_SECONDS
        while (share := busy_share()) > QUIET_SHARE:
            if time.monotonic() > deadline:
                self.display.warning(
                    f"{label}: others use {share:.0%} of this machine, so this run says little"
                )
                break
        self._shares.append(share)
        # Last: what is free may go back to the host. The oldest of these files make room first.
        fill_memory(self.directory / f"memory-{next(self._numbers):03}", leave=FREE_BYTES)

    def take_busiest(self) -> float:
        """The largest share that others had of the machine as a run began, since the last call."""
        busiest = max(self._shares, default=0.0)
        self._shares.clear()
        return busiest

    def log(self, job: Job) -> Path:
        return self.directory / f"{job.application_id}.log"


def rotated(systems: list[System], round_number: int) -> list[System]:
    """Another system goes first in each round, so that none always has the warmest machine."""
    shift = round_number % len(systems) if systems else 0
    return systems[shift:] + systems[:shift]
