"""Whether a process that was seen before is still the same one."""

from __future__ import annotations

import os
from pathlib import Path


def process_start(pid: int) -> float:
    """When a process started, in the system's own count; 0 where that cannot be told.

    A process id alone is used again sooner or later; together with this it is not.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return float(fields[19])


def is_alive(pid: int, start: float) -> bool:
    """Whether the process with that id and start still runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not start or process_start(pid) == start
