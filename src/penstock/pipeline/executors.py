"""Instances on a cluster: a job visits the executors and starts one on each."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from penstock.instance.process import TOKEN_VARIABLE, instance_command
from penstock.pipeline.session import Session

_VISIT_SECONDS = 1.0


def start_on_executors(session: Session, coordinator: str, token: str) -> None:
    """Start an instance on every executor that has none of this run's alive.

    A visit holds its slot for a moment, so that Spark gives the other slots to other executors.
    """
    context = session.spark.sparkContext
    slots = max(session.cores, 1)

    def visit(_: Iterable[int]) -> Iterable[str]:
        yield _start_here(coordinator, token)
        time.sleep(_VISIT_SECONDS)

    context.setJobDescription("start instances")
    context.parallelize(range(slots), slots).mapPartitions(visit).collect()


def _start_here(coordinator: str, token: str) -> str:
    """Start an instance for this executor: its Python daemon is the parent of all its workers."""
    executor = os.getppid()
    run = hashlib.sha256(token.encode()).hexdigest()[:12]
    marker = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}-{run}-{executor}.pid"
    if _is_running(marker):
        return ""
    name = f"{socket.gethostname()}-{executor}-{time.monotonic_ns() // 1_000_000}"
    process = subprocess.Popen(
        instance_command(name, coordinator, slot="*", watch_stdin=False),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, TOKEN_VARIABLE: token},
        # Spark kills a worker with its whole process group; the instance ends by its lease instead.
        start_new_session=True,
    )
    marker.write_text(str(process.pid))
    return name


def _is_running(marker: Path) -> bool:
    try:
        pid = int(marker.read_text())
        os.kill(pid, 0)
        # Its parent lives on and never asks for its end, so a dead one stays listed.
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ValueError, ProcessLookupError):
        return False
    except FileNotFoundError:
        return marker.exists()
