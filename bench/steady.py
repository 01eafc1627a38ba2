"""Records at a steady rate, and a reader that notes when their results arrive."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Self

import numpy as np
from confluent_kafka import KafkaException, TopicPartition

from bench import clients
from bench.errors import BenchError
from bench.inputs import SEED, key_bytes, value_bytes
from bench.load import send
from bench.timeline import Timeline

TICK_SECONDS = 0.02
READ_SECONDS = 0.02
READ_RECORDS = 20_000


class Feeder:
    """Sends records with keys drawn evenly, so many a second, from `start` to `stop`."""

    def __init__(self, bootstrap_servers: str, topic: str, *, keys: int, rate: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._keys = keys
        self._rate = rate
        self._stop = threading.Event()
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self.counts = np.zeros(keys, dtype=np.int64)
        """How often each key was sent."""

    @property
    def sent(self) -> int:
        """How many records were sent."""
        return int(self.counts.sum())

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send no more, and make sure that all that was sent has arrived."""
        self._stop.set()
        self._thread.join()
        if self._problem:
            raise BenchError(self._problem)

    def _run(self) -> None:
        random = np.random.default_rng(SEED)
        producer = clients.producer(
            self._bootstrap_servers,
            enable_idempotence=True,
            partitioner="murmur2_random",
            linger_ms=5,
        )
        begin = time.perf_counter()
        sent = 0
        while not self._stop.wait(TICK_SECONDS):
            # By the clock: a late tick sends what the ticks before it owe.
            due = int((time.perf_counter() - begin) * self._rate) - sent
            numbers = random.integers(0, self._keys, due)
            if due:
                self.counts += np.bincount(numbers, minlength=self._keys)
                value = value_bytes(sent)
                send(
                    producer,
                    self._topic,
                    [{"key": key_bytes(each), "value": value} for each in numbers.tolist()],
                )
            sent += due
            producer.poll(0)
        if producer.flush(60):
            self._problem = f"the broker did not take all records of {self._topic} within 60 s"


class OutputReader:
    """Notes when committed outputs of each partition arrive."""

    def __init__(self, bootstrap_servers: str, topic: str, *, partitions: Iterable[int]) -> None:
        self.timeline = Timeline()
        self._consumer = clients.consumer(
            bootstrap_servers,
            group="bench-output-reader",
            isolation_level="read_committed",
            fetch_wait_max_ms=10,
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(READ_RECORDS, READ_SECONDS)
            now = time.perf_counter()
            for message in messages:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
            seen = Counter(message.partition() for message in messages)
            for partition, records in seen.items():
                assert partition is not None
                self.timeline.note(partition, now, records)
