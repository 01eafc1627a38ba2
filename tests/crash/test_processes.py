"""The crash tests find every process of the application that they kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import processes

SLEEP = "import sys; sys.stdin.read()"


@pytest.mark.parametrize("module", processes.INSTANCE)
def test_instances_are_found_however_they_were_started(tmp_path: Path, module: str) -> None:
    command = [sys.executable, "-c", SLEEP, module]
    environment = {**os.environ, "PENSTOCK_CRASH_DIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        [found] = processes.of_application(tmp_path, processes.INSTANCE)
        assert found.pid == process.pid
        assert processes.of_application(tmp_path, processes.WORKER) == []
        assert processes.of_application(tmp_path / "other", processes.INSTANCE) == []
