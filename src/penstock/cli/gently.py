"""Loading a command beside an application that is at work, perhaps on the same two cores."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from concurrent.futures import Future
from types import ModuleType

_NICENESS = 5
"""A third of what others get, if there is not enough for all."""


def import_gently(name: str) -> ModuleType:
    """Import a module in a thread that gives way to others, where a system's threads can.

    A process cannot take back that it gives way; one of its threads can end.
    """
    found: Future[ModuleType] = Future()

    def load() -> None:
        try:
            _give_way()
            found.set_result(importlib.import_module(name))
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
            found.set_exception(error)

    threading.Thread(target=load, name="load", daemon=True).start()
    return found.result()


def _give_way() -> None:
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Whoever gives way more than that may not give way less.
        more = max(os.getpriority(os.PRIO_PROCESS, thread), _NICENESS)
        os.setpriority(os.PRIO_PROCESS, thread, more)
