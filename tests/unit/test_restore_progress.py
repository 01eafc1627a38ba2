"""Restores in the terminal: a bar for each store, or a line at its start and at its end."""

from __future__ import annotations

import io
import re

import pytest
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


@pytest.mark.parametrize("terminal", [True, False])
def test_a_restore_of_nothing_but_the_end_of_a_commit_is_no_news(terminal: bool) -> None:
    where = console(terminal=terminal)
    shown = RestoreProgress(where)
    shown.start(FIRST, "counts", 4, 5)
    shown.end(FIRST, "counts", 0)
    assert bars(shown) == []
    assert ("restored, 0 records" in printed(where)) == (not terminal)
    assert ("restoring, 1 offset\n" in printed(where)) == (not terminal)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("idle_first", [True, False])
def test_instances_that_restore_one_global_table_share_a_bar(
    terminal: bool, idle_first: bool
) -> None:
    where = console(terminal=terminal)
    shown = RestoreProgress(where)
    shown.start(FIRST, "patients", 40, 100)
    shown.start(FIRST, "patients", 100, 100)  # One has all of it already.
    shown.start(FIRST, "patients", 0, 100)
    if idle_first:
        shown.end(FIRST, "patients", 0)
    shown.batch(FIRST, "patients", 49, 50)
    if terminal:
        assert bars(shown) == [("patients 0", 50, 100)]
    shown.end(FIRST, "patients", 60)
    assert len(bars(shown)) == terminal
    shown.suspend(FIRST, "patients", 50)
    assert bars(shown) == []
    if not idle_first:
        shown.end(FIRST, "patients", 0)
    # The next one is not hidden, nor ended, by what is left of them.
    shown.start(FIRST, "patients", 90, 100)
    assert bars(shown) == [("patients 0", 0, 10)] * terminal
    shown.end(FIRST, "patients", 10)
    assert bars(shown) == []
    told = [line for line in printed(where).splitlines() if "restored" in line or "susp" in line]
    assert [re.sub(r".*(?=patients)", "", line) for line in told] == [
        "patients 0: restored, 60 records",
        "patients 0: suspended after 50 records",
        "patients 0: restored, 10 records",
    ]


def bars(shown: RestoreProgress) -> list[tuple[str, float, float | None]]:
    tasks = [] if shown._progress is None else shown._progress.tasks
    return [(each.description, each.completed, each.total) for each in tasks]
