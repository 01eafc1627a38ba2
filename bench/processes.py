"""The measured system as child processes: started, watched, stopped, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from bench.errors import BenchError
from penstock.local import leash

STOP_SECONDS = 90.0
LOG_TAIL_CHARS = 4_000


class Running:
    """A system's processes, each in a session of its own, writing to one log."""

    def __init__(
        self, commands: list[list[str]], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._children: list[subprocess.Popen[bytes]] = []
        with log.open("wb") as sink:
            for command in commands:
                child = subprocess.Popen(
                    # On a leash: it ends with the harness even when that is killed.
                    [sys.executable, "-I", "-S", leash.__file__, *command],
                    stdin=subprocess.PIPE,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(environment or {})},
                    start_new_session=True,
                )
                self._children.append(child)

    def check(self) -> None:
        """Raise if a process has ended by itself."""
        for child in self._children:
            if child.poll() is not None:
                raise BenchError(f"the process ended with {child.returncode} before it was done")

    def stop(self) -> float:
        """Ask the processes to end, wait for them, and say how long that took."""
        begin = time.monotonic()
        for child in self._children:
            child.terminate()
        for child in self._children:
            try:
                child.wait(max(0.1, STOP_SECONDS - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                raise BenchError(
                    f"the process did not end within {STOP_SECONDS:.0f} s of SIGTERM"
                ) from None
        return time.monotonic() - begin

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the processes, and to the leashes that hold them."""
        for child in self._children:
            os.killpg(child.pid, number)

    def descendants(self) -> list[psutil.Process]:
        """The processes and all that they have started and that still run."""
        roots = [psutil.Process(child.pid) for child in self._children]
        return [each for root in roots for each in root.children(recursive=True)]

    def log_text(self) -> str:
        """All that the processes have written so far."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """End whatever is left of the processes and of their own children."""
        for child in self._children:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if child.stdin is not None:
                child.stdin.close()

    def cpu_seconds(self) -> float:
        """Processor time so far of the processes and all they started, ended ones included."""
        total = 0.0
        for child in self._children:
            root = psutil.Process(child.pid)
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    total += times.user + times.system + times.children_user
                    total += times.children_system
        return total

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARS:]


@contextmanager
def running(
    commands: list[list[str]], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Run the commands for the length of the block; nothing outlives it.

    What goes wrong within is raised with the end of the processes' log.
    """
    system = Running(commands, log, environment)
    try:
        yield system
    except BenchError as error:
        raise BenchError(f"{log.stem}: {error}\n{system.log_tail()}") from error
    finally:
        system.kill()
