"""Long work shows a bar on a terminal, and says nothing into a pipe."""

from __future__ import annotations

import io
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from penstock.changelog.restore import RestoreProgress
from penstock.cli import state
from penstock.cli.progress import Bar
from penstock.instance.inspection import StoreOnDisk
from penstock.local import jars
from penstock.local.jars import Jar


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, highlight=False)


def printed(where: Console) -> str:
    assert isinstance(where.file, io.StringIO)
    return where.file.getvalue()


def work(where: Console) -> list[int]:
    with Bar("Counting", where) as bar:
        found = list(bar.over(range(2_001), 2_000))
        bar.show(3, 6, "Making them [anew]")
    return found


def test_a_terminal_has_a_bar_that_goes_in_the_end() -> None:
    where = console(terminal=True)
    assert work(where) == list(range(2_001))
    assert "Making them [anew]" in printed(where)
    assert "50 %" in printed(where)
    assert printed(where).endswith("\x1b[2K")  # The line is wiped.


def test_a_pipe_hears_nothing() -> None:
    where = console(terminal=False)
    assert work(where) == list(range(2_001))
    assert printed(where) == ""


def test_nothing_is_shown_where_little_is_to_be_done() -> None:
    where = console(terminal=True)
    with Bar("Fetching", where) as bar:
        assert list(bar.over(range(3), 3)) == [0, 1, 2]
    assert printed(where) == ""


def test_an_estimate_that_was_too_low_makes_no_more_than_all() -> None:
    where = console(terminal=True)
    with Bar("Exporting", where) as bar:
        bar.show(30, 20)
        bar.show(40, 20)
    assert "100 %" in printed(where)
    assert "200 %" not in printed(where)


def test_jars_are_counted_while_they_come(tmp_path: Path) -> None:
    wanted = [Jar("g", name, "1.0", "-") for name in ("one", "two", "three")]
    seen: list[tuple[int, int]] = []
    looked = threading.Event()

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 2:
            looked.set()

    with jars._watched(tmp_path, wanted, progress):
        for name in ("one-1.0.jar", "two-1.0.jar", "three-1.0.jar.part", "other-1.0.jar"):
            (tmp_path / "cache" / name).mkdir(parents=True)
            (tmp_path / "cache" / name / name).touch()
        assert looked.wait(60)
    assert seen[-1] == (2, 3)


def test_a_store_that_is_compared_fills_its_part_of_the_bar() -> None:
    class Heard(Bar):
        told: tuple[float, float | None] = (0, 0)

        def show(self, done: float, total: float | None = None, what: str = "") -> None:
            self.told = (done, total)

    bar = Heard("Comparing", console(terminal=False))
    disk = StoreOnDisk(path=Path("a/0_1/counts"), place="a/0_1/counts")
    far = RestoreProgress(restored=30, remaining=25, bytes=1, start=0, until=100)
    state._show_store(bar, disk, 2, 4, far)
    assert bar.told == (2.75, 4)


_LONG = """
from penstock.cli.progress import Bar
with Bar("Working") as bar:
    bar.show(1, 4)
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_standard_error_decides(terminal: bool) -> None:
    master, inner = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", _LONG],
        stdout=subprocess.PIPE,
        stderr=inner if terminal else subprocess.PIPE,
        check=True,
    )
    assert done.stdout == b""
    if terminal:
        with open(master, "rb", buffering=0, closefd=False) as screen:
            assert b"Working" in screen.read(4096)
    else:
        assert done.stderr == b""
