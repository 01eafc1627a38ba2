"""Restores in the terminal: a bar for each store, or a line at its start and at its end."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.cli.restore_progress import RestoreProgress
from penstock.driver.events import TopicPartition

FIRST, SECOND = TopicPartition("app-counts-changelog", 0), TopicPartition("app-counts-changelog", 1)


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, highlight=False)


def restore(shown: RestoreProgress) -> None:
    shown.start(FIRST, "counts", 0, 200)
    shown.start(SECOND, "counts", 7, 7)
    shown.batch(FIRST, "counts", 99, 95)
    shown.end(SECOND, "counts", 0)
    shown.batch(FIRST, "counts", 198, 97)
    shown.end(FIRST, "counts", 192)


def printed(where: Console) -> str:
    assert isinstance(where.file, io.StringIO)
    return where.file.getvalue()


def test_without_a_terminal_there_are_lines_and_none_for_what_is_up_to_date() -> None:
    where = console(terminal=False)
    shown = RestoreProgress(where)
    restore(shown)
    shown.start(FIRST, "counts", 200, 300)
    shown.suspend(FIRST, "counts", 3)
    assert printed(where).splitlines() == [
        "counts 0: restoring, 200 offsets",
        "counts 0: restored, 192 records",
        "counts 0: restoring, 100 offsets",
        "counts 0: suspended after 3 records",
    ]


def test_on_a_terminal_there_is_a_bar_while_it_lasts() -> None:
    where = console(terminal=True)
    restore(RestoreProgress(where))
    text = printed(where)
    assert "━" in text
    assert "counts 1" not in text
    assert text.rstrip().endswith("counts 0: restored, 192 records")
    # What follows is printed on an ordinary screen again: the cursor was given back.
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
