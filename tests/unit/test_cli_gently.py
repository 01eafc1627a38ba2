"""A command that may join a busy machine is loaded in a thread that gives way."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from penstock.cli.gently import import_gently


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "loaded_gently_for_a_test.py"


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own there")
def test_only_the_thread_that_loads_gives_way(module: Path) -> None:
    module.write_text(
        "import os, threading\n\n"
        "niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())\n"
    )
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    loaded = import_gently(module.stem)
    most = max(own, 5)
    assert loaded.niceness == most
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own


def test_what_loading_raises_is_raised(module: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        import_gently(module.stem + "_that_is_not_there")
