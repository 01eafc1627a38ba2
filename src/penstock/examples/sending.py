"""Sending an example's test data to Kafka, as fast as its clock says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import Producer

from penstock.changelog.kafka_failures import kafka_error, refusals_named, unreachable
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import TopicSpec
from penstock.config import Config
from penstock.examples.catalogue import Example
from penstock.examples.data import InputRecord

PARTITIONS = 4
HEAD_START_MS = 6 * 60 * 60 * 1000
"""How far back time begins that runs faster than the wall clock: brokers refuse the future."""
_MINUTE_MS = 60_000
_PAUSE_SECONDS = 0.02
_FLUSH_SECONDS_MAX = 30.0


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When records are due: by their own times, or so many a second; never before their time."""

    start_ms: int
    """The wall clock at the first record's sending."""
    time_scale: int = 1
    rate: float | None = None

    @property
    def base_ms(self) -> int:
        """The time of the data's beginning, since the epoch; on a full minute where it is faster.

        >>> Pace(start_ms=100_000_000, time_scale=20).base_ms
        78360000
        """
        if self.time_scale == 1 and self.rate is None:
            return self.start_ms
        return (self.start_ms - HEAD_START_MS) // _MINUTE_MS * _MINUTE_MS

    def is_due(self, at_ms: int, number: int, elapsed_ms: float) -> bool:
        """Whether the record of that time and number is to be sent, so long after the first."""
        if self.base_ms + at_ms > self.start_ms + elapsed_ms:
            return False
        if self.rate is not None:
            return number < self.rate * elapsed_ms / 1000
        return at_ms <= self.time_scale * elapsed_ms


def create_missing_topics(example: Example, config: Config) -> list[str]:
    """Make the example's topics that do not exist; returns their names. Raises `KafkaError`."""
    admin = TopicAdmin(config)
    wanted = sorted({*example.inputs, *example.outputs})
    missing = [name for name in wanted if name not in admin.describe(wanted)]
    factor = config.replication_factor
    admin.create([TopicSpec(name, PARTITIONS, {}, factor) for name in missing])
    return missing


class Sender:
    """Sends an example's test data. Raises `KafkaError` where Kafka does not take it."""

    def __init__(self, example: Example, config: Config) -> None:
        self._data = example.test_data()
        self._topics = example.inputs
        self._time_scale = example.time_scale
        self._servers = config.bootstrap_servers
        self._failed: confluent_kafka.KafkaError | None = None
        with refusals_named():
            self._producer = Producer(
                config.client_properties(partitioner="murmur2_random", linger_ms=20)
            )
        self.sent: int = 0

    def run(
        self,
        should_stop: Callable[[], bool],
        *,
        rate: float | None = None,
        records_max: int | None = None,
        on_sent: Callable[[InputRecord, int], None] = lambda record, timestamp: None,
    ) -> None:
        """Send records when they are due, until told to stop; then wait for Kafka to have them."""
        pace = Pace(start_ms=_now_ms(), time_scale=self._time_scale, rate=rate)
        for record in self._data:
            if self.sent == records_max:
                break
            while not pace.is_due(record.at_ms, self.sent, _now_ms() - pace.start_ms):
                if should_stop():
                    break
                self._producer.poll(_PAUSE_SECONDS)
            if should_stop() or self._failed is not None:
                break
            self._send(record, pace.base_ms + record.at_ms)
            on_sent(record, pace.base_ms + record.at_ms)
        left = self._producer.flush(_FLUSH_SECONDS_MAX)
        if self._failed is not None:
            raise kafka_error(self._failed, doing="take a record", bootstrap_servers=self._servers)
        if left:
            raise unreachable(self._servers)

    def _send(self, record: InputRecord, timestamp: int) -> None:
        topic = self._topics[record.topic]
        key = None if record.key is None else topic.key.serialize(record.key)
        value = topic.value.serialize(record.value)
        while True:
            try:
                self._producer.produce(
                    topic.name, value, key, timestamp=timestamp, on_delivery=self._delivered
                )
                break
            except BufferError:
                # More is waiting than the client keeps; let some of it go.
                self._producer.poll(_PAUSE_SECONDS)
        self._producer.poll(0)
        self.sent += 1

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is not None and self._failed is None:
            self._failed = error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
