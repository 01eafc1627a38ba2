"""Crash points: each name is used once, an armed one kills once, a held one waits."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import penstock
from penstock.observability.crash_points import (
    DEATHS,
    EXTERNAL_POINTS,
    FOLLOWED_POINTS,
    HOLD,
    POINTS,
)
from tests.harness import wait_until

ROOT = Path(penstock.__file__).parent
USE = re.compile(r"\bcrash_point(?:_soon)?\(\s*\"([^\"]+)\"")
PROGRAM = """
from penstock.observability.crash_points import crash_point
for i in range(3):
    crash_point("commit.after_ack")
    print(i, flush=True)
"""


def run(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={"PENSTOCK_CRASH_DIR": str(directory), "PYTHONPATH": str(ROOT.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_each_point_is_in_the_code_exactly_once() -> None:
    used = Counter(
        name for path in sorted(ROOT.rglob("*.py")) for name in USE.findall(path.read_text())
    )
    assert used == Counter(POINTS + EXTERNAL_POINTS + FOLLOWED_POINTS)


def test_an_armed_point_kills_at_its_nth_hit_and_leaves_a_note(tmp_path: Path) -> None:
    (tmp_path / "commit.after_ack").write_text("2")
    with run(tmp_path) as process:
        assert process.communicate(timeout=60)[0].split() == ["0"]
        assert process.returncode == -9
    assert not (tmp_path / "commit.after_ack").exists()
    assert (tmp_path / DEATHS).read_text().startswith(f"commit.after_ack {process.pid} ")


def test_a_held_point_waits_until_it_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "commit.after_ack").write_text(HOLD)
    held = tmp_path / "commit.after_ack.held"
    with run(tmp_path) as process:
        wait_until(lambda: held.exists() and held.read_text() == str(process.pid), what="it held")
        assert process.poll() is None
        held.unlink()
        assert process.communicate(timeout=60)[0].split() == ["0", "1", "2"]
        assert process.returncode == 0
