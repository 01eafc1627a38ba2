"""How far restores are, on a terminal: a bar for each store's partition; elsewhere, lines."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from penstock.application import Application
from penstock.cli.answers import counted
from penstock.driver.events import TopicPartition


@dataclass
class _Restores:
    """Of one store's partition: every instance restores a global table for itself."""

    start: int
    working: int = 0
    idle: int = 0
    """Those that had nothing to do: their ends are told, too."""
    bar: TaskID | None = None

    def end(self, total: int) -> bool:
        """One of them is over, with so many records; whether that is worth a line."""
        # Who it was is not told. Of several, one that brought nothing is one that had nothing.
        if self.idle and (not total or not self.working):
            self.idle -= 1
            return False
        self.working -= 1
        return True


class RestoreProgress:
    """Shows restores that have something to do; what is up to date already is not worth a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = _progress(console) if console.is_terminal else None
        self._restores: dict[tuple[str, TopicPartition], _Restores] = {}

    def listen(self, app: Application) -> None:
        """Hear of an application's restores, beside those whom the program itself has listen."""
        app.on_restore_start(self.start)
        app.on_batch_restored(self.batch)
        app.on_restore_end(self.end)
        app.on_restore_suspended(self.suspend)

    def start(self, where: TopicPartition, store: str, start: int, end: int) -> None:
        """A restore begins."""
        known = self._restores.setdefault((store, where), _Restores(start))
        if end <= start:
            known.idle += 1
            return
        # One bar for all of them shows the one that was heard of last.
        known.start = min(known.start, start) if known.working else start
        known.working += 1
        if self._progress is None:
            self._say(store, where, f"restoring, {counted(end - start, 'offset')}")
        elif known.bar is None:
            known.bar = self._progress.add_task(_name(store, where), total=end - known.start)
            self._progress.start()
        else:
            self._progress.update(known.bar, total=end - known.start)

    def batch(self, where: TopicPartition, store: str, offset: int, number: int) -> None:
        """A restore came so far."""
        known = self._restores.get((store, where))
        if self._progress is not None and known is not None and known.bar is not None:
            # By offsets: how many of them are records is known only at the end.
            self._progress.update(known.bar, completed=offset + 1 - known.start)

    def end(self, where: TopicPartition, store: str, total: int) -> None:
        """A restore is complete."""
        self._close(where, store, total, f"restored, {counted(total, 'record')}")

    def suspend(self, where: TopicPartition, store: str, total: int) -> None:
        """A restore stopped on its way."""
        self._close(where, store, total, f"suspended after {counted(total, 'record')}")

    def _close(self, where: TopicPartition, store: str, total: int, what: str) -> None:
        known = self._restores.get((store, where))
        if known is None:
            return
        told = known.end(total)
        if not known.working and not known.idle:
            del self._restores[store, where]
        if self._progress is not None and known.bar is not None and not known.working:
            self._progress.remove_task(known.bar)
            known.bar = None
            if all(each.bar is None for each in self._restores.values()):
                self._progress.stop()
        # Where its start was not told, one that found nothing but the end of a commit is no news.
        if told and (total or self._progress is None):
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
