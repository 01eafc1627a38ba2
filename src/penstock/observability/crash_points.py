"""Named points at which a test may kill the process, to prove that nothing is lost there.

A point costs one dictionary look-up unless `PENSTOCK_CRASH_DIR` is set. Then a test arms a point by
writing a file of that name with a number n in it: the n-th hit removes the file and kills the process
with SIGKILL. The file's absence is the proof that the crash happened.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import NoReturn

POINTS = (
    "open.after_lock",
    "open.after_db_open",
    "open.after_identity_check",
    "batch.after_receive",
    "batch.mid_update",
    "batch.after_update",
    "commit.before_changelog_send",
    "commit.after_send_before_ack",
    "commit.after_ack",
    "commit.after_offsets_in_txn",
    "commit.txn_unknown",
    "commit.after_txn_before_store",
    "commit.mid_store_write",
    "commit.after_store_before_reply",
    "commit.after_reply_before_spark_commit",
    "restore.mid_batch",
    "restore.before_running",
    "restore.close_while_restoring",
)
"""The points that exist so far; a test checks that each is named in the code exactly once."""


def crash_point(name: str) -> None:
    """Die here if a test armed this point."""
    directory = os.environ.get("PENSTOCK_CRASH_DIR")
    if directory and _is_due(Path(directory) / name):
        _die()


def crash_point_soon(name: str, *, delay_seconds: float) -> None:
    """Die a moment from now if armed: the call that follows is cut off with its outcome unknown."""
    directory = os.environ.get("PENSTOCK_CRASH_DIR")
    if directory and _is_due(Path(directory) / name):
        threading.Timer(delay_seconds, _die).start()


def _is_due(armed: Path) -> bool:
    try:
        hits_left = int(armed.read_text() or "1")
    except (FileNotFoundError, ValueError):
        return False
    if hits_left > 1:
        armed.write_text(str(hits_left - 1))
        return False
    try:
        armed.unlink()
    except FileNotFoundError:
        # Another process crossed the same point first; one armed point is one crash.
        return False
    return True


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable: SIGKILL cannot be survived")
