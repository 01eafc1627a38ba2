"""Penstock itself, as a user would run it."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

from bench.systems import PROGRAMS, Job, System


def system() -> System:
    """The system, in the environment that runs the benchmark."""

    def commands(job: Job) -> list[list[str]]:
        program = str(PROGRAMS / "penstock_rows.py")
        return [[sys.executable, program, *job.arguments(), *job.choice()]]

    return System(
        name="penstock",
        title="Penstock",
        version=version(),
        settings="defaults, RocksDB, cache 10 MiB",
        commands=commands,
    )


def version() -> str:
    try:
        return installed_version("penstock")
    except PackageNotFoundError:
        return "source tree"
