"""Waiting records by topic, taken in the order in which Kafka Streams' own driver takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.testing.topics import RawRecord


class Queues:
    """One queue per topic; next is the record at the head of the queue with the lowest time.

    `time_of` says a record's time, which is asked only of records that compete with others.
    Where times are equal the order is that of a binary heap as Java keeps it: which queue comes
    first depends on how it got there, and Kafka Streams promises nothing. Following it makes the
    two drivers comparable.
    """

    def __init__(self, time_of: Callable[[RawRecord], int]) -> None:
        self._time_of = time_of
        self._queues: dict[str, _Queue] = {}
        self._heap: list[_Queue] = []

    def add(self, record: RawRecord) -> None:
        """Put a record at the end of its topic's queue."""
        queue = self._queues.setdefault(record.topic, _Queue(self._time_of))
        queue.records.append(record)
        if len(queue.records) == 1:
            self._offer(queue)

    def take(self) -> RawRecord | None:
        """The next record; None if none waits."""
        if not self._heap:
            return None
        queue = self._poll()
        record = queue.take()
        if queue.records:
            self._offer(queue)
        return record

    def _offer(self, queue: _Queue) -> None:
        heap = self._heap
        heap.append(queue)
        at = len(heap) - 1
        while at > 0:
            parent = (at - 1) // 2
            if queue.time >= heap[parent].time:
                break
            heap[at], at = heap[parent], parent
        heap[at] = queue

    def _poll(self) -> _Queue:
        heap = self._heap
        first, last = heap[0], heap.pop()
        count, at = len(heap), 0
        if not count:
            return first
        while at < count // 2:
            child = 2 * at + 1
            if child + 1 < count and heap[child].time > heap[child + 1].time:
                child += 1
            if last.time <= heap[child].time:
                break
            heap[at], at = heap[child], child
        heap[at] = last
        return first


class _Queue:
    """A topic's waiting records, and the time of the first."""

    def __init__(self, time_of: Callable[[RawRecord], int]) -> None:
        self.records: deque[RawRecord] = deque()
        self._time_of = time_of
        self._time: int | None = None

    @property
    def time(self) -> int:
        """The first record's time; a user's function may say it, so it is asked once."""
        if self._time is None:
            self._time = self._time_of(self.records[0])
        return self._time

    def take(self) -> RawRecord:
        """The first record, which then waits no more."""
        self._time = None
        return self.records.popleft()
