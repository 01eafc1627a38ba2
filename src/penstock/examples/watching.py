"""Reading an example's results as any other application would: committed ones, as they arrive."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

from penstock.changelog.kafka_failures import kafka_error, unreachable
from penstock.config import Config
from penstock.examples.catalogue import ExampleTopic

_Partition = tuple[str, int]
_ASK_SECONDS = 10.0
_WAIT_SECONDS = 0.1
_LAST_SECONDS_MAX = 30.0
_AT_ONCE_MAX = 1000
_END = confluent_kafka.KafkaError._PARTITION_EOF  # noqa: SLF001 - it has no other name


@dataclass(frozen=True)
class Result:
    """A record that an example wrote; without a value, its key was deleted."""

    topic: str
    key: Any
    value: Any
    timestamp: int


class Watcher:
    """Reads topics from their beginning. Raises `KafkaError`."""

    def __init__(self, topics: Mapping[str, ExampleTopic], config: Config, group: str) -> None:
        self._topics = topics
        self._servers = config.bootstrap_servers
        self._consumer = Consumer(
            config.client_properties(
                group_id=group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                enable_partition_eof=True,
                # The end is told by an answer without records: it is to come soon.
                fetch_wait_max_ms=50,
            )
        )
        self._read_to: dict[_Partition, int] = {}
        known = self._consumer.list_topics(timeout=_ASK_SECONDS).topics
        self._partitions = [
            TopicPartition(name, partition, 0)
            for name in topics
            for partition in known[name].partitions
        ]
        self._consumer.assign(self._partitions)

    def run(self, should_stop: Callable[[], bool], on_result: Callable[[Result], None]) -> None:
        """Pass on every result until told to stop; then read on to where the topics end then."""
        while not should_stop():
            self._read(on_result)
        ends = {
            (each.topic, each.partition): self._consumer.get_watermark_offsets(
                each, timeout=_ASK_SECONDS
            )[1]
            for each in self._partitions
        }
        deadline = time.monotonic() + _LAST_SECONDS_MAX
        while any(self._read_to.get(each, 0) < end for each, end in ends.items()):
            if time.monotonic() > deadline:
                raise unreachable(self._servers)
            self._read(on_result)
        self._consumer.close()

    def _read(self, on_result: Callable[[Result], None]) -> None:
        for message in self._consumer.consume(_AT_ONCE_MAX, _WAIT_SECONDS):
            error = message.error()
            where = (str(message.topic()), int(message.partition() or 0))
            if error is None:
                on_result(self._result(message))
            elif error.code() == _END:
                # Transactions' markers have offsets too, and no message: only the end tells.
                self._read_to[where] = int(message.offset() or 0)
            else:
                raise kafka_error(error, doing="show results", bootstrap_servers=self._servers)

    def _result(self, message: confluent_kafka.Message) -> Result:
        topic = self._topics[str(message.topic())]
        key, value = message.key(), message.value()
        return Result(
            topic.name,
            None if key is None else topic.key.deserialize(key),
            None if value is None else topic.value.deserialize(value),
            message.timestamp()[1],
        )


def lag(config: Config, application_id: str, inputs: list[str]) -> int:
    """How many records of its inputs, repartition topics too, an application has yet to commit."""
    consumer = Consumer(config.client_properties(group_id=application_id))
    try:
        known = consumer.list_topics(timeout=_ASK_SECONDS).topics
        wanted = [
            TopicPartition(topic, partition)
            for topic in inputs
            if topic in known
            for partition in known[topic].partitions
        ]
        behind = 0
        for each in consumer.committed(wanted, timeout=_ASK_SECONDS):
            _, end = consumer.get_watermark_offsets(each, timeout=_ASK_SECONDS)
            behind += end - max(each.offset, 0)
        return behind
    finally:
        consumer.close()
