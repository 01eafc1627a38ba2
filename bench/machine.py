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
