"""Instances on a cluster: a job visits the executors and starts one on each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from penstock.pipeline.session import Session

_VISIT_SECONDS = 1.0
_TOKEN_VARIABLE = "PENSTOCK_TOKEN"


def start_on_executors(session: Session, coordinator: str, token: str) -> None:
    """Start an instance on every executor that has none of this run's yet.

    A visit holds its slot for a moment, so that Spark gives the others to other executors. Each
    executor's Python daemon is the parent of its workers: its process id names the executor.
    """
    context = session.spark.sparkContext
    slots = max(context.defaultParallelism, 1)

    def visit(_: Iterator[int]) -> Iterator[str]:
        yield _start_here(coordinator, token)
        time.sleep(_VISIT_SECONDS)

    context.setJobDescription("start instances")
    context.parallelize(range(slots), slots).mapPartitions(visit).collect()


def _start_here(coordinator: str, token: str) -> str:
    name = f"{socket.gethostname()}-{os.getppid()}"
    environment = {**os.environ, _TOKEN_VARIABLE: token}
    subprocess.Popen(
        [sys.executable, "-m", "penstock.instance.process", name, coordinator, "*"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment,
        # The daemon's whole process group is killed with the executor; the instance must outlive
        # neither its lease nor, by accident, its worker.
        start_new_session=True,
    )
    return name
