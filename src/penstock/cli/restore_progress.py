"""How far restores are, on a terminal: a bar for each store's partition; elsewhere, lines."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from penstock.application import Application
from penstock.driver.events import TopicPartition


class RestoreProgress:
    """Shows restores that have something to do; what is up to date already is not worth a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = _progress(console) if console.is_terminal else None
        self._starts: dict[tuple[str, TopicPartition], int] = {}
        self._bars: dict[tuple[str, TopicPartition], TaskID] = {}

    def listen(self, app: Application) -> None:
        """Hear of an application's restores, beside those whom the program itself has listen."""
        app.on_restore_start(self.start)
        app.on_batch_restored(self.batch)
        app.on_restore_end(self.end)
        app.on_restore_suspended(self.suspend)

    def start(self, where: TopicPartition, store: str, start: int, end: int) -> None:
        """A restore begins."""
        if end <= start:
            return
        self._starts[store, where] = start
        if self._progress is None:
            self._say(store, where, f"restoring, {end - start} offsets")
            return
        self._bars[store, where] = self._progress.add_task(_name(store, where), total=end - start)
        self._progress.start()

    def batch(self, where: TopicPartition, store: str, offset: int, number: int) -> None:
        """A restore came so far."""
        if self._progress is not None and (store, where) in self._bars:
            # By offsets: how many of them are records is known only at the end.
            done = offset + 1 - self._starts[store, where]
            self._progress.update(self._bars[store, where], completed=done)

    def end(self, where: TopicPartition, store: str, total: int) -> None:
        """A restore is complete."""
        self._close(where, store, f"restored, {total} records")

    def suspend(self, where: TopicPartition, store: str, total: int) -> None:
        """A restore stopped on its way."""
        self._close(where, store, f"suspended after {total} records")

    def _close(self, where: TopicPartition, store: str, what: str) -> None:
        if self._starts.pop((store, where), None) is None:
            return
        if self._progress is not None:
            self._progress.remove_task(self._bars.pop((store, where)))
            if not self._bars:
                self._progress.stop()
        self._say(store, where, what)

    def _say(self, store: str, where: TopicPartition, what: str) -> None:
        self._console.print(f"{_name(store, where)}: {what}", markup=False)


def _name(store: str, where: TopicPartition) -> str:
    return f"{store} {where.partition}"


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
