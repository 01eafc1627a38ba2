"""Instances on a cluster: a job visits the executors and starts one on each."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.instance.http_options import HttpOptions
from penstock.instance.process import InstanceOptions
from penstock.instance.tls import TlsFiles
from penstock.pipeline.instances import start_instance
from penstock.pipeline.session import Session

_log = logging.getLogger("penstock.driver")

_VISIT_SECONDS = 1.0
_CHECK_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_CLOSE_SECONDS = 10.0


@dataclass(frozen=True)
class InstancesOrder:
    """What instances on executors are started with."""

    coordinator: str
    token: str = field(repr=False)
    tls: TlsFiles | None = None
    http: HttpOptions | None = None


def start_on_executors(session: Session, order: InstancesOrder, programs: bytes) -> int:
    """Start an instance on every executor that has none of this run's alive; returns how many.

    `programs`, pickled, is what fills global stores: the user's code travels in Spark's closures.

    A visit holds its slot for a moment, so that Spark gives the other slots to other executors.
    """
    context = session.spark.sparkContext
    slots = max(session.cores, 1)

    def visit(_: Iterable[int]) -> Iterable[str]:
        yield _start_here(order, programs)
        time.sleep(_VISIT_SECONDS)

    context.setJobDescription("start instances")
    names = context.parallelize(range(slots), slots).mapPartitions(visit).collect()
    return len(list(filter(None, names)))


def wait_for_executors(
    session: Session, *, seconds: float, should_stop: Callable[[], bool]
) -> bool:
    """Wait for the executors that Spark was asked for; False where it is not known how many.

    A cluster hands them out one by one, and may never have as many.
    """
    expected = session.executors_asked_for
    deadline = time.monotonic() + seconds
    while expected and _executors(session) < expected:
        if should_stop() or time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)
    return expected is not None


class ExecutorVisits:
    """Sees to it that every executor has an instance, also those that Spark starts later."""

    def __init__(
        self,
        session: Session,
        order: InstancesOrder,
        *,
        programs: bytes,
        instances: Callable[[], int],
    ) -> None:
        self._session = session
        self._order, self._programs = order, programs
        self._instances = instances
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="executor-visits", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look now: an instance was lost."""
        self._wake.set()

    def close(self) -> None:
        """Visit no more."""
        self._closed = True
        self._wake.set()
        self._thread.join(_CLOSE_SECONDS)

    def _loop(self) -> None:
        while not self._closed:
            try:
                if _executors(self._session) > self._instances():
                    start_on_executors(self._session, self._order, self._programs)
            except Exception as error:  # noqa: BLE001 - Spark's failures come in many kinds
                _log.info("Executors could not be visited: %s", error)
            self._wake.wait(_CHECK_SECONDS)
            self._wake.clear()


def _executors(session: Session) -> int:
    """How many executors Spark has now; the driver is listed among them."""
    context = session.spark.sparkContext._jsc.sc()  # noqa: SLF001 - Python has no call for it
    return int(context.getExecutorMemoryStatus().size()) - 1


def _start_here(order: InstancesOrder, programs: bytes) -> str:
    """Start an instance for this executor: its Python daemon is the parent of all its workers."""
    executor = os.getppid()
    run = hashlib.sha256(order.token.encode()).hexdigest()[:12]
    marker = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}-{run}-{executor}.pid"
    if _is_running(marker):
        return ""
    name = f"{socket.gethostname()}-{executor}-{time.monotonic_ns() // 1_000_000}"
    options = InstanceOptions(
        name=name,
        coordinator=order.coordinator,
        token=order.token,
        slot="*",
        tags={"host": socket.gethostname()},
        tls=order.tls,
        http=order.http,
    )
    devnull = subprocess.DEVNULL
    process = start_instance(options, programs=programs, stdin=devnull, stdout=devnull)
    marker.write_text(f"{process.pid} {name}")
    return name


def _is_running(marker: Path) -> bool:
    try:
        pid, name = marker.read_text().split()
        os.kill(int(pid), 0)
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if not command:
            # It has only just begun, or it is dead: its parent lives on and never asks for its end.
            return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
        # Its number may be another process's by now.
        return name.encode() in command
    except (ValueError, ProcessLookupError, PermissionError):
        return False
    except FileNotFoundError:
        return marker.exists()
