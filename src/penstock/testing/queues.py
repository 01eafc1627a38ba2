"""Waiting records by topic, taken in the order in which Kafka Streams' own driver takes them."""

from __future__ import annotations

from collections import deque

from penstock.testing.topics import RawRecord


class Queues:
    """One queue per topic; next is the record at the head of the queue with the lowest time.

    Where times are equal the order is that of a binary heap as Java keeps it: which queue comes
    first depends on how it got there, and Kafka Streams promises nothing. Following it makes the
    two drivers comparable.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[RawRecord]] = {}
        self._heap: list[deque[RawRecord]] = []

    def add(self, record: RawRecord) -> None:
        """Put a record at the end of its topic's queue."""
        queue = self._queues.setdefault(record.topic, deque())
        queue.append(record)
        if len(queue) == 1:
            self._offer(queue)

    def take(self) -> RawRecord | None:
        """The next record; None if none waits."""
        if not self._heap:
            return None
        queue = self._poll()
        record = queue.popleft()
        if queue:
            self._offer(queue)
        return record

    def _offer(self, queue: deque[RawRecord]) -> None:
        heap = self._heap
        heap.append(queue)
        at = len(heap) - 1
        while at > 0:
            parent = (at - 1) // 2
            if _time(queue) >= _time(heap[parent]):
                break
            heap[at], at = heap[parent], parent
        heap[at] = queue

    def _poll(self) -> deque[RawRecord]:
        heap = self._heap
        first, last = heap[0], heap.pop()
        count, at = len(heap), 0
        if not count:
            return first
        while at < count // 2:
            child = 2 * at + 1
            if child + 1 < count and _time(heap[child]) > _time(heap[child + 1]):
                child += 1
            if _time(last) <= _time(heap[child]):
                break
            heap[at], at = heap[child], child
        heap[at] = last
        return first


def _time(queue: deque[RawRecord]) -> int:
    return queue[0].timestamp
