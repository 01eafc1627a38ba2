"""Quix Streams, in an environment of its own: its pinned client differs from Penstock's."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from bench.errors import BenchError
from bench.systems import PROGRAMS, Job, System

LOCK = PROGRAMS.parent / "requirements.lock"


def system(environment: Path, *, processes: int = 1) -> System:
    """The system, installed into `environment` unless it is there already."""
    install(environment)
    python = environment / "bin" / "python"

    def commands(job: Job) -> list[list[str]]:
        program = [str(python), str(PROGRAMS / "quix_count.py"), *job.arguments()]
        # The last --state-dir counts: a directory can be held by one process only.
        return [
            [*program, "--state-dir", str(job.state_dir / str(number))]
            for number in range(processes)
        ]

    return System(
        name="quix_streams",
        title="Quix Streams",
        version=pinned_version(LOCK.read_text()),
        settings=f"{processes} process{'es' if processes > 1 else ''}, RocksDB, changelog on",
        commands=commands,
        changelog=lambda job: f"changelog__{job.application_id}--{job.input}--default",
        changelog_key=changelog_key,
        changelog_value=int,
    )


def install(environment: Path) -> None:
    """Make the environment from the lock file; a second call with the same lock does nothing."""
    stamp = environment / "requirements.sha256"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    venv.create(environment, with_pip=True, clear=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--require-hashes", "--no-deps", "-r", str(LOCK)], stdout=sys.stderr, check=False
    )
    if done.returncode:
        raise BenchError(
            f"Quix Streams cannot be installed from {LOCK.name}: see pip's words above"
        )
    stamp.write_text(wanted)


def pinned_version(lock: str) -> str:
    for line in lock.splitlines():
        if line.startswith("quixstreams=="):
            return line.removeprefix("quixstreams==").split()[0]
    raise BenchError(f"{LOCK.name} does not pin quixstreams")


def changelog_key(raw: bytes) -> bytes:
    """The record key out of `<record key>|"count"`."""
    return raw.rsplit(b"|", 1)[0]
