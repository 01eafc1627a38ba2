"""How far long work is: a bar on a terminal, and nothing at all elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

T = TypeVar("T")

_SHOWN_EVERY = 1_000
"""Rows come by the hundred thousand a second; a bar is looked at ten times."""


class Bar:
    """A bar that is there from the first word of `show` until the block ends.

    With a console that is no terminal it says nothing: who reads a pipe wants the answer.
    """

    def __init__(self, what: str, console: Console | None = None) -> None:
        self._what = what
        self._console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown[0].stop()

    def show(self, done: float, total: float | None = None, what: str = "") -> None:
        """So much is done of so much; without a total there is only movement, and the time."""
        if not self._console.is_terminal:
            return
        if self._shown is None:
            progress = _progress(self._console)
            self._shown = (progress, progress.add_task(self._what, total=None, share=""))
            progress.start()
        progress, task = self._shown
        # What was an estimate may have been too little.
        whole = None if total is None else max(total, done)
        share = f"{100 * done / whole:.0f} %" if whole else ""
        progress.update(
            task, completed=done, total=whole, description=what or self._what, share=share
        )

    def over(self, things: Iterable[T], total: float | None = None) -> Iterator[T]:
        """The same things, counted as they go by; a few are done before a bar could be read."""
        for number, each in enumerate(things):
            if number and number % _SHOWN_EVERY == 0:
                self.show(number, total)
            yield each


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[share]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
