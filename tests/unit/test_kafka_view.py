"""The latest records of a partition, over a log in memory; on a broker: tests/integration."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from penstock.changelog.reading import EARLIEST, LogRange, read_committed
from penstock.config import Config
from penstock.driver import kafka_view
from penstock.driver.kafka_view import KafkaView
from penstock.errors import TopicMissingError

END_OF_PARTITION = SimpleNamespace(code=lambda: confluent_kafka.KafkaError._PARTITION_EOF)


class Told:
    """What a consumer is given: a record, or the end."""

    def __init__(self, offset: int, partition: int = 0, *, is_end: bool = False) -> None:
        self._offset, self._partition, self._is_end = offset, partition, is_end

    def error(self) -> Any:
        return END_OF_PARTITION if self._is_end else None

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return (1, self._offset)

    def key(self) -> bytes:
        return b"ann"

    def value(self) -> bytes:
        return b"%d" % self._offset

    def topic(self) -> str:
        return "beats"

    def partition(self) -> int:
        return self._partition


class Log:
    """A log whose offsets lead to an open transaction; those without records are holes."""

    def __init__(self, *, start: int, end: int, holes: range) -> None:
        self.start, self.end, self.holes = start, end, holes
        self.read_from: list[int] = []
        self.closed = 0

    @contextlib.contextmanager
    def lent_consumer(self, topic: str) -> Iterator[Log]:
        try:
            yield self
        finally:
            self.closed += 1

    def assign(self, places: list[Any]) -> None:
        [place] = places
        self.read_from.append(place.offset)
        self._partition = place.partition

    def consume(self, number: int, seconds: float) -> list[Told]:
        if seconds == 0:
            return self._come
        held = [n for n in range(self.read_from[-1], self.end) if n not in self.holes]
        found = [Told(offset, self._partition) for offset in held]
        # What is left of another partition, which it read before, says nothing of this one.
        left = Told(self.end, self._partition + 1, is_end=True)
        self._come = [*found, Told(self.end, self._partition, is_end=True)]
        return [left]

    def close(self) -> None:
        self.closed += 1


def view_of(log: Log, monkeypatch: pytest.MonkeyPatch, *, partitions_now: int = 1) -> KafkaView:
    def offsets(logs: Log, wanted: list[Any], spec: Any, isolation: Any) -> dict[Any, int]:
        return dict.fromkeys(wanted, log.start if spec is EARLIEST else log.end)

    monkeypatch.setattr(kafka_view, "log_offsets", offsets)
    topics = {"beats": SimpleNamespace(partitions=1)}
    prepared: Any = SimpleNamespace(topics=topics, config=Config())
    logs: Any = log
    now: Any = {"beats": SimpleNamespace(partitions=partitions_now)}
    return KafkaView(prepared, logs, lambda topics: {}, describe=lambda names: now)


@pytest.mark.parametrize(
    ("start", "holes", "limit", "shown", "read_from"),
    [
        (0, range(0), 3, [997, 998, 999], [994]),
        # What was aborted is longer than what is looked at first.
        (0, range(990, 1000), 3, [987, 988, 989], [994, 850]),
        (995, range(997, 1000), 5, [995, 996], [995]),
        # There is an end to looking.
        (0, range(100, 1000), 5, [], [990, 750]),
        (1000, range(0), 5, [], []),
    ],
)
def test_the_latest_records_are_found_behind_what_is_none(
    start: int,
    holes: range,
    limit: int,
    shown: list[int],
    read_from: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(start=start, end=1000, holes=holes)
    found = view_of(log, monkeypatch).records("beats", 0, limit)
    assert [each["offset"] for each in found] == shown
    assert log.read_from == read_from
    assert log.closed == len(read_from)


def test_a_topic_that_grew_is_read_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of(Log(start=0, end=9, holes=range(0)), monkeypatch, partitions_now=2)
    assert [each["offset"] for each in view.records("beats", 1, 2)] == [7, 8]
    for topic, partition in (("beats", 2), ("beats", -1), ("others", 0)):
        with pytest.raises(TopicMissingError):
            view.records(topic, partition, 2)


def test_who_reads_all_that_is_committed_begins_where_the_log_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: Any = Log(start=3, end=8, holes=range(4, 6))
    stable = {("beats", 0): LogRange(3, 8)}
    monkeypatch.setattr("penstock.changelog.reading.wait_stable", lambda *_, **__: stable)
    assert [each.offset() for each in read_committed(log, "beats", 0)] == [3, 6, 7]
    assert [each.offset() for each in read_committed(log, "beats", 0, start=6)] == [6, 7]
    assert list(read_committed(log, "beats", 0, start=8)) == []
    assert (log.read_from, log.closed) == ([3, 6], 2)
    # Whoever stops in the middle leaves no client behind.
    reading = read_committed(log, "beats", 0)
    next(iter(reading))
    reading.close()  # type: ignore[attr-defined]
    assert log.closed == 3
