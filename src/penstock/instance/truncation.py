"""What is to be done about a changelog that lost its start: decided, not done."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.changelog.commit_record import ChangelogEnd, CommitRecord, Mark
from penstock.changelog.expiring import (
    least_lasting,
    marked,
    marks_hold,
    shorter,
    start_max,
)
from penstock.changelog.reading import LogRange
from penstock.changelog.restore import recreated, truncated
from penstock.changelog.topics import TOMBSTONES_MS
from penstock.coordination.ids import TaskId
from penstock.instance.protocol import StoreOrder
from penstock.stores.contract import Change, KeyValueStore
from penstock.stores.segments import LAYOUTS, NEVER, SegmentedStore
from penstock.topology.nodes import StoreKind


class KnownStarts:
    """Where the changelogs of a task may begin, by what its commits noted."""

    def __init__(self, task: str, now_ms: Callable[[], int], *, markers: int) -> None:
        self.found: dict[str, int] = {}
        """Where each ended when it was last looked at, by store."""
        self.markers = markers
        """What lies behind the records of a commit, as for `restore`."""
        self._task = task
        self._now_ms = now_ms
        self._starts: dict[str, int] = {}
        self._marks: dict[str, tuple[Mark, ...]] = {}
        self._kept: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._tombstones: dict[str, tuple[int, int]] = {}
        """For how long deletions last, and until when that matters if they last longer now."""
        self._latest: dict[str, int] = {}
        """Of the windows that each store holds, which a user's store need not know; of a store of
        keys, the time of its changelog's last record."""
        self._coming: dict[str, int] = {}
        """The same with the commit that is being written."""

    def read(self, record: CommitRecord) -> None:
        """Go by what the last commit noted."""
        self._starts = {name: each.start for name, each in record.changelogs.items()}
        self._marks = {name: each.marks for name, each in record.changelogs.items()}
        self._kept = {name: each.kept_ms for name, each in record.changelogs.items()}
        self._latest = {name: each.latest for name, each in record.changelogs.items()}
        self._ends = {name: each.end for name, each in record.changelogs.items()}
        self._tombstones = {
            name: (
                TOMBSTONES_MS if each.tombstones_ms < 0 else each.tombstones_ms,
                each.tombstones_until,
            )
            for name, each in record.changelogs.items()
        }

    def tombstones_ms(self, order: StoreOrder) -> int:
        """For how long a store's changelog has kept deletions, at the least."""
        return self._least_lasting(order)[0]

    def _least_lasting(self, order: StoreOrder) -> tuple[int, int]:
        noted = self._tombstones.get(order.name, (order.tombstones_ms, 0))
        return least_lasting(noted, order.tombstones_ms, now_ms=self._now_ms())

    def begin_anew(self) -> None:
        """All that the changelogs are to hold is written from now on."""
        self._starts, self._marks, self._latest = dict(self.found), {}, {}

    def begins_at(self, order: StoreOrder) -> int:
        """From where on the changelog has all that the store holds: what is before was replaced."""
        return self._starts.get(order.name, 0)

    def is_replaced(self, order: StoreOrder, held: int | None) -> bool:
        """Whether a store that holds its changelog up to there is of before that."""
        return held is not None and held < self.begins_at(order)

    def start_max(self, order: StoreOrder, end: int) -> int:
        """Where a store's changelog that ends at `end` begins at the latest, if it lost nothing
        that it should not.
        """
        if not order.expires:
            return self.begins_at(order)
        # Raised since then, it does not bring back what Kafka removed before.
        kept_ms = shorter(self._kept.get(order.name, 0), order.kept_ms)
        holds = marks_hold(kept_ms=kept_ms, retention_ms=order.retention_ms)
        marks = self._marks.get(order.name, ()) if holds else ()
        latest = self._latest.get(order.name, NEVER)
        if latest != NEVER:
            # Where its last record is, the last commit could not know: there at the earliest, and
            # before the end and its marker. Without a marker, both are the same.
            last = max(self._ends.get(order.name, -1), end - 1 - self.markers)
            marks = (*marks, Mark(last, latest))
        return start_max(marks, kept_ms=kept_ms, now_ms=self._now_ms())

    def end_of(
        self, order: StoreOrder, store: KeyValueStore, changes: Collection[Change]
    ) -> ChangelogEnd:
        """What the commit that brings these changes is to note of a store's changelog."""
        held, marks = store.offset(), self._marks.get(order.name, ())
        end, coming = -1 if held is None else held, NEVER
        if order.expires and order.kind in LAYOUTS:
            latest = self._latest.get(order.name, NEVER)
            if isinstance(store, SegmentedStore):
                latest = max(latest, store.latest_time)
            marks = marked(marks, end=end, latest=latest, retention_ms=order.retention_ms)
            coming = max(latest, LAYOUTS[order.kind].latest(key for key, _ in changes))
            self._marks[order.name] = marks
        elif order.expires:
            # Any key may be written again with an earlier time, and then Kafka removes more than
            # the latest time explains. But nothing comes after the last record.
            known = self._latest.get(order.name, NEVER)
            coming = last_time(order.kind, changes) if changes else known
        self._coming[order.name] = coming
        lasting = self._tombstones[order.name] = self._least_lasting(order)
        return ChangelogEnd(
            id=order.changelog_id,
            # Each change is a record, and markers or what was aborted may lie between.
            end=end + len(changes),
            start=self.begins_at(order),
            marks=marks,
            kept_ms=order.kept_ms if marks or coming != NEVER else 0,
            latest=coming,
            tombstones_ms=-1 if lasting == (TOMBSTONES_MS, 0) else lasting[0],
            tombstones_until=lasting[1],
        )

    def applied(self, name: str) -> None:
        """The store holds the changes of the commit that was written last."""
        self._latest[name] = self._coming.get(name, NEVER)

    def can_rebuild(self, order: StoreOrder, log: LogRange) -> bool:
        """Whether an empty store would get all that it should from its changelog."""
        return order.allow_truncated or log.start <= self.start_max(order, log.end)

    def notes(self, order: StoreOrder, log: LogRange, held: int | None) -> list[str]:
        """What is to be said of a changelog that lost its start; `ChangelogError` if it matters."""
        if log.start <= self.start_max(order, log.end):
            return self._forgotten(order, log, held)
        partition = TaskId.parse(self._task).partition
        lost = held is None or held + 1 + self.markers < log.start
        if lost and not self.can_rebuild(order, log):
            raise truncated(order.changelog, partition, log, held)
        store_name = f"store {order.name} of task {self._task}"
        entries = "windows" if order.kind in LAYOUTS else "keys"
        what = (
            f"{entries} that were only before it are lost from {store_name}"
            if lost
            else f"{store_name} is whole on this disk, and could not be rebuilt"
        )
        return [f"{order.changelog} begins at offset {log.start} in partition {partition}: {what}"]

    def _forgotten(self, order: StoreOrder, log: LogRange, held: int | None) -> list[str]:
        """What Kafka removed by its age. Windows leave every store by their age; keys do not, so
        that one that is made anew holds less than one that was on a disk.
        """
        by_age = order.expires and order.kind not in LAYOUTS and held is None
        if not by_age or log.start <= self.begins_at(order):
            return []
        partition = TaskId.parse(self._task).partition
        note = (
            f"{order.changelog} begins at offset {log.start} in partition {partition}: it forgets "
            f"what is old (cleanup.policy), and keys that were not written since are no longer in "
            f"store {order.name} of task {self._task}"
        )
        return [note]


def last_time(kind: StoreKind, changes: Collection[Change]) -> int:
    """The time of the last of the records that these changes become; -1 if that is not known.

    Times of deletions are in the keys of versions, and else nowhere: then it is that of the last
    change of another key.

    >>> later, earlier = (time.to_bytes(8) + b"x" for time in (7, 5))
    >>> last_time("key_value", [(b"a", later), (b"b", later), (b"a", earlier), (b"b", None)])
    5
    >>> last_time("versioned", [(b"a" + later[:8], None)])
    7
    """
    seen: set[bytes] = set()
    for key, value in reversed(list(changes)):
        if kind == "versioned":
            return max(int.from_bytes(key[-8:], signed=True), NEVER)
        if value is not None and key not in seen:
            return max(int.from_bytes(value[:8], signed=True), NEVER)
        seen.add(key)
    return NEVER


def last_known_end(order: StoreOrder, record: CommitRecord | None) -> int:
    """The offset that the changelog surely reached by the last commit, -1 if that is not known.

    Raises `ChangelogError` if it was made anew since: it would restore to nothing, silently.
    """
    known = record.changelogs.get(order.name) if record else None
    if known is not None and known.id != order.changelog_id:
        raise recreated(
            order.changelog,
            f"its id is {order.changelog_id} and the last commit was written to {known.id}",
        )
    return -1 if known is None else known.end
