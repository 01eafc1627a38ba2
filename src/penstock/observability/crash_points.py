"""Named points at which a test may kill the process, to prove that nothing is lost there.

A point costs one dictionary look-up unless `PENSTOCK_CRASH_DIR` is set. Then a test arms a point
by writing a file of that name with a number n in it: the n-th hit removes the file, notes the
moment in `deaths`, and kills the process with SIGKILL. A file that is gone proves that it happened.

With `hold` in the file the process stands still there instead, so that a test can do something
while it is at that point: the file becomes `<name>.held`, with the process's number in it, and the
process goes on when that is removed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import NoReturn

POINTS = (
    "open.after_lock",
    "open.after_db_open",
    "open.after_identity_check",
    "batch.after_receive",
    "batch.mid_update",
    "batch.after_update",
    "commit.mid_stream",
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
    "bootstrap.after_chunk",
    "bootstrap.before_finish",
)
"""The points that exist so far; a test checks that each is named in the code exactly once."""

EXTERNAL_POINTS = (
    "external.before_database",
    "external.in_transaction",
    "external.after_database",
)
"""Points that only a task comes by whose state is kept in a database."""

FOLLOWED_POINTS = ("follow.before_catching_up",)
"""Points that only a task comes by that is followed."""


HOLD = "hold"
DEATHS = "deaths"
"""The file with a line for each crash: the point, the process, and when, in ms since the epoch."""
_HELD_PAUSE_SECONDS = 0.005
_dying = threading.Lock()


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
        order = armed.read_text()
        if order == HOLD:
            _hold(armed)
            return False
        hits_left = int(order or "1")
    except (FileNotFoundError, ValueError):
        return False
    if hits_left > 1:
        write_whole(armed, str(hits_left - 1))
        return False
    # Kept for good by the thread that takes an order: a process dies of one alone. Another thread
    # could take a second one and be killed by the first before it has noted it.
    _dying.acquire()
    try:
        armed.unlink()
    except FileNotFoundError:
        # Another process crossed the same point first; one armed point is one crash.
        _dying.release()
        return False
    _note_death(armed)
    return True


def write_whole(path: Path, text: str) -> None:
    """Write a file that others may read at any moment: they see all of it, or what was there.

    Read half-written, an order to hold would be one to die.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    draft.write_text(text)
    draft.replace(path)


def _hold(armed: Path) -> None:
    # The rename lets one thread of one process in; others find no file and go on.
    held = armed.rename(armed.with_name(f"{armed.name}.held"))
    write_whole(held, str(os.getpid()))
    while held.exists():
        time.sleep(_HELD_PAUSE_SECONDS)


def _note_death(armed: Path) -> None:
    line = f"{armed.name} {os.getpid()} {time.time_ns() // 1_000_000}\n"
    # One write in append mode: several processes may die at once.
    with (armed.parent / DEATHS).open("ab", buffering=0) as deaths:
        deaths.write(line.encode())


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable: SIGKILL cannot be survived")
