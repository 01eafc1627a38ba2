"""On what, and from what, the figures were made."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.systems import System

_INFORMATION = Path("/proc/meminfo")
_READ_AT_ONCE = 1024 * 1024


def machine() -> dict[str, Any]:
    """The processor, its cores, memory and operating system."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "os": f"{platform.system()} {platform.release()}",
        "broker": "on the same machine",
    }


def cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def busy_share(seconds: float = 1.0, statistics: Path = Path("/proc/stat")) -> float:
    """How much of all cores something uses now, 0 to 1; 0 where the system does not say."""
    if not statistics.exists():
        return 0.0
    before = core_ticks(statistics.read_text())
    time.sleep(seconds)
    after = core_ticks(statistics.read_text())
    total = after[1] - before[1]
    return (after[0] - before[0]) / total if total else 0.0


def core_ticks(text: str) -> tuple[int, int]:
    """(busy, all) from the first line of Linux's /proc/stat."""
    ticks = [int(field) for field in text.splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def settle_disk() -> None:
    """Have the disk written what is to be written.

    Else the kernel writes what an earlier run left while the next one is measured, and once much
    has gathered it makes whoever writes wait.
    """
    os.sync()


def fill_memory(file: Path, *, leave: int, information: Path = _INFORMATION) -> int:
    """Have a new file's bytes, which are all zero and not on the disk, use the memory that nobody
    uses, but for `leave` bytes; how many it was. They make room for whatever needs some.

    So memory is as on a machine that has run for long. What a virtual machine has not had from its
    host yet, or gave back, costs twenty times as much when it is used first: by that, equal runs
    may differ by more than systems do. And it gives back soon what nobody uses.
    """
    size = max(free_bytes(information) - leave, 0) // _READ_AT_ONCE * _READ_AT_ONCE
    piece = bytearray(_READ_AT_ONCE)
    with file.open("wb+", buffering=0) as data:
        data.truncate(size)
        while data.readinto(piece):
            pass
    return size


def free_bytes(information: Path = _INFORMATION) -> int:
    """How much memory nobody uses, not for files either; 0 where the system does not say."""
    lines = information.read_text().splitlines() if information.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree:")), 0)


def versions(systems: dict[str, System]) -> dict[str, str]:
    """Everything whose version could move a figure."""
    found = {system.name: system.version for system in systems.values()}
    for package in ("pyspark", "confluent-kafka", "rocksdict", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**found, "python": platform.python_version(), "java": java_version()}


def java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    first = (done.stderr or done.stdout).splitlines()[:1]
    return first[0].replace('"', "") if first else "unknown"


def commit(repository: Path) -> str:
    """The commit of the source tree, marked when files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
