"""Lag and memory by the second, for charts that begin before somebody looks at them."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.console.history import History

SAMPLE_SECONDS = 1.0

_log = logging.getLogger("penstock.driver")


class Sampled(Protocol):
    """A driver that is open."""

    def lag(self) -> int | None:
        """How many offsets of its inputs are to be read; None while that is not known."""
        ...

    def processes(self) -> list[tuple[str, int]]:
        """Its instances' hosts and processes."""
        ...


@contextlib.contextmanager
def sampling(
    history: History,
    sampled: Sampled,
    *,
    wait: Callable[[threading.Event], bool] = lambda stopping: stopping.wait(SAMPLE_SECONDS),
) -> Iterator[None]:
    """Keep a sample a second for as long as the block, in a thread of its own."""
    stopping = threading.Event()

    def work() -> None:
        while True:
            try:
                history.sampled(lag=sampled.lag(), memory_bytes=memory_of(sampled.processes()))
            except Exception:  # noqa: BLE001 - a chart is not worth an application
                _log.debug("A sample for the console could not be had", exc_info=True)
            if wait(stopping):
                return

    thread = threading.Thread(target=work, name="penstock-samples", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Not waited for: it may be asking Kafka, and has nothing to lose.
        stopping.set()


def memory_of(processes: list[tuple[str, int]]) -> int:
    """How much memory this process and those of this machine hold."""
    here = socket.gethostname()
    own = resident_bytes(os.getpid())
    return own + sum(resident_bytes(pid) for host, pid in processes if host == here)


def resident_bytes(pid: int) -> int:
    """How much memory a process of this machine holds; 0 if that cannot be known."""
    try:
        with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123 - no file of ours
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
