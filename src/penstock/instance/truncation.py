"""What is to be done about a changelog that lost its start: decided, not done."""

from __future__ import annotations

from collections.abc import Callable

from penstock.changelog.commit_record import ChangelogEnd, CommitRecord, Mark
from penstock.changelog.expiring import marked, start_max
from penstock.changelog.reading import LogRange
from penstock.changelog.restore import truncated
from penstock.coordination.ids import TaskId
from penstock.instance.protocol import StoreOrder
from penstock.stores.contract import KeyValueStore
from penstock.stores.segments import SegmentedStore


class KnownStarts:
    """Where the changelogs of a task may begin, by what its commits noted."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.found: dict[str, int] = {}
        """Where each began when it was last looked at, by store."""
        self._now_ms = now_ms
        self._starts: dict[str, int] = {}
        self._marks: dict[str, tuple[Mark, ...]] = {}

    def read(self, record: CommitRecord) -> None:
        """Go by what the last commit noted."""
        self._starts = {name: each.start for name, each in record.changelogs.items()}
        self._marks = {name: each.marks for name, each in record.changelogs.items()}

    def begin_anew(self) -> None:
        """All that the changelogs are to hold is written from now on."""
        self._starts, self._marks = dict(self.found), {}

    def start_max(self, order: StoreOrder) -> int:
        """Where a store's changelog begins at the latest, if it lost nothing that it should not."""
        if not order.expires:
            return self._starts.get(order.name, 0)
        marks = self._marks.get(order.name, ())
        return start_max(marks, kept_ms=order.kept_ms, now_ms=self._now_ms())

    def end_of(self, order: StoreOrder, store: KeyValueStore) -> ChangelogEnd:
        """What the next commit is to note of a store's changelog."""
        held, marks = store.offset(), self._marks.get(order.name, ())
        if order.expires and isinstance(store, SegmentedStore) and held is not None:
            latest, span = store.latest_time, order.retention_ms
            marks = marked(marks, end=held, latest=latest, retention_ms=span)
            self._marks[order.name] = marks
        return ChangelogEnd(
            id=order.changelog_id,
            end=-1 if held is None else held,
            start=self._starts.get(order.name, 0),
            marks=marks,
        )


def can_rebuild(order: StoreOrder, log: LogRange, known: int) -> bool:
    """Whether an empty store would get all that it should from a changelog known to begin there."""
    return order.allow_truncated or log.start <= known


def notes_on_start(
    order: StoreOrder, task: str, log: LogRange, *, known: int, held: int | None
) -> list[str]:
    """What is to be said of a changelog that lost its start; `ChangelogError` if it matters."""
    if log.start <= known:
        return []
    partition = TaskId.parse(task).partition
    lost = held is None or held + 1 < log.start
    if lost and not can_rebuild(order, log, known):
        raise truncated(order.changelog, partition, log, held)
    store_name = f"store {order.name} of task {task}"
    entries = "windows" if order.expires else "keys"
    what = (
        f"{entries} that were only before it are lost from {store_name}"
        if lost
        else f"{store_name} is whole on this disk, and could not be rebuilt"
    )
    return [f"{order.changelog} begins at offset {log.start} in partition {partition}: {what}"]
