"""What restores have done so far, kept for whoever asks: they are never made to wait for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from msgspec import structs

from penstock.changelog.reading import LogRange
from penstock.changelog.restore import RestoreProgress
from penstock.changelog.whole_topic import TopicRead
from penstock.instance.protocol import RestoreState, RestoreStatus

_KEPT_MAX = 64
"""How many restores are kept for the next who asks: between two questions there are a few. The
latest of each changelog is kept besides, however many stores a task has: who follows them goes on
from there."""


class RestoreMeter(Protocol):
    """What counts restores."""

    def restored(self, records: int, seconds: float) -> None:
        """A batch of so many records was applied."""

    def restore_ended(self, store: str, seconds: float) -> None:
        """A store holds all that it was to get."""


class Restores:
    """The latest restores of a task or of an instance's global tables; any thread may ask.

    >>> restores = Restores()
    >>> with restores.one("counts", "app-counts-changelog", 3) as told:
    ...     told.move(RestoreProgress(restored=0, remaining=9, bytes=0, start=0, until=9))
    ...     told.move(RestoreProgress(restored=5, remaining=4, bytes=0, start=0, until=9, offset=4))
    >>> [(each.restored, each.offset, each.state) for each in restores.latest()]
    [(5, 4, 'suspended')]
    """

    def __init__(self, meter: RestoreMeter | None = None) -> None:
        self.meter = meter
        self._lock = threading.Lock()
        self._begun = 0
        self._latest: OrderedDict[int, RestoreStatus] = OrderedDict()

    @contextlib.contextmanager
    def one(self, store: str, topic: str, partition: int) -> Iterator[OneRestore]:
        """A restore for as long as the block; if it does not say that it ended, it did not."""
        told = OneRestore(self, store, topic, partition)
        try:
            yield told
        finally:
            told.suspend()

    def note_whole(self, store: str, topic: str, partition: int, log: LogRange) -> None:
        """A restore that found nothing to do."""
        with self.one(store, topic, partition) as told:
            at = log.end
            told.move(RestoreProgress(restored=0, remaining=0, bytes=0, start=at, until=at))
            told.end()

    def latest(self) -> list[RestoreStatus]:
        """How far each of the latest is or came, in the order in which they began."""
        with self._lock:
            return list(self._latest.values())

    def number(self) -> int:
        """The number of the next restore."""
        with self._lock:
            self._begun += 1
            return self._begun

    def put(self, status: RestoreStatus) -> None:
        """What is to be known of a restore from now on."""
        with self._lock:
            self._latest[status.number] = status
            if len(self._latest) > _KEPT_MAX:
                last = {(each.topic, each.partition): n for n, each in self._latest.items()}
                replaced = sorted(self._latest.keys() - last.values())
                for number in replaced[: len(self._latest) - _KEPT_MAX]:
                    del self._latest[number]


class OneRestore:
    """What one restore tells; it has begun when it first moves."""

    def __init__(self, restores: Restores, store: str, topic: str, partition: int) -> None:
        self._restores = restores
        self._what = (store, topic, partition)
        self._status: RestoreStatus | None = None
        self._began = self._moved = time.perf_counter()

    def move(self, progress: RestoreProgress) -> None:
        """The restore has begun, or come so far."""
        if self._status is None:
            store, topic, partition = self._what
            self._status = RestoreStatus(
                number=self._restores.number(),
                store=store,
                topic=topic,
                partition=partition,
                start=progress.start,
                end=progress.until,
                full=progress.full,
            )
        self._count(progress.restored - self._status.restored)
        self._status = structs.replace(
            self._status, offset=progress.offset, restored=progress.restored
        )
        self._restores.put(self._status)

    def end(self) -> None:
        """The store holds all that it was to get."""
        if self._restores.meter is not None:
            seconds = time.perf_counter() - self._began
            self._restores.meter.restore_ended(self._what[0], seconds)
        self._close("ended")

    def suspend(self) -> None:
        """The restore stops short of its end; nothing if it has ended."""
        self._close("suspended")

    def _count(self, records: int) -> None:
        now = time.perf_counter()
        if self._restores.meter is not None and records:
            self._restores.meter.restored(records, now - self._moved)
        self._moved = now

    def _close(self, state: RestoreState) -> None:
        if self._status is not None and self._status.state == "restoring":
            self._status = structs.replace(self._status, state=state)
            self._restores.put(self._status)


class TopicRestore:
    """The restore of a store that holds the whole of a topic: one for each of its partitions."""

    def __init__(
        self,
        restores: Restores,
        store: str,
        topic: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        held: Collection[int] = (),
    ) -> None:
        """`held` are the partitions of which the store has something."""
        self.ends = ends
        self.is_over = False
        self._told = {p: OneRestore(restores, store, topic, p) for p in starts}
        self._progress = {
            p: RestoreProgress(
                restored=0,
                remaining=ends[p] - at,
                bytes=0,
                start=at,
                until=ends[p],
                full=p not in held and at < ends[p],
            )
            for p, at in starts.items()
        }
        for partition, told in self._told.items():
            told.move(self._progress[partition])

    def read(self, read: TopicRead) -> None:
        """Records were applied; those that come after the end are of no restore."""
        if self.is_over:
            return
        for partition, count in read.counts.items():
            now = self._progress[partition]
            now = replace(now, restored=now.restored + count, offset=read.offsets[partition])
            self._progress[partition] = now
            self._told[partition].move(now)

    def end(self) -> None:
        """The store holds what the topic held at the start."""
        self.is_over = True
        for told in self._told.values():
            told.end()

    def suspend(self) -> None:
        """The topic is followed no more; nothing if the end was reached."""
        for told in self._told.values():
            told.suspend()
