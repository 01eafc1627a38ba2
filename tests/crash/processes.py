"""The processes of an application under test, found by the crash directory in their environment."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import psutil

INSTANCE = ("penstock.instance.process", "penstock.pipeline.instances")
"""The second one brings programs of the user's, for global stores."""
WORKER = ("penstock.pipeline.daemon",)


def of_application(crash_dir: Path, modules: Collection[str] = ()) -> list[psutil.Process]:
    """The live processes that run such a module for this application; without modules, all."""
    return [process for process, _ in _live(crash_dir, modules)]


def workers(crash_dir: Path) -> list[psutil.Process]:
    """Spark's Python workers: the children of the daemon that forks them."""
    found = _live(crash_dir, WORKER)
    daemons = {process.pid for process, _ in found}
    return [process for process, parent in found if parent in daemons]


def owners(crash_dir: Path, state_dir: Path) -> list[psutil.Process]:
    """The instances that hold tasks, by what the tasks' locks say."""
    holders = set()
    for lock in state_dir.glob("**/[0-9]*_[0-9]*/.lock"):
        # A lock that is being taken is empty for a moment.
        text = lock.read_text()
        holders |= {json.loads(text)["pid"]} if text else set()
    return [each for each in of_application(crash_dir, INSTANCE) if each.pid in holders]


def _live(crash_dir: Path, modules: Collection[str]) -> list[tuple[psutil.Process, int]]:
    found = []
    for process in psutil.process_iter():
        try:
            if modules and not set(modules) & set(process.cmdline()):
                continue
            if process.environ().get("PENSTOCK_CRASH_DIR") != str(crash_dir):
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append((process, process.ppid()))
        except psutil.Error:
            # It ended meanwhile, or is another user's.
            continue
    return found
