"""The input of the count row: made from a seed, loaded once, the same for every system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import clients
from bench.errors import BenchError

PARTITIONS = 4
# A count never looks at the value, so its size weighs on reading only. 64 bytes is a small
# event (an id, a time, a few numbers): large enough that reading is not free, small enough that
# the broker's bandwidth does not hide what the systems do.
VALUE_BYTES = 64
CHUNK = 50_000
IN_FLIGHT_MAX = 400_000


@dataclass(frozen=True, kw_only=True)
class CountInput:
    """Which records a count run reads: a warm-up, the measured part, and a tail.

    The tail keeps the systems busy past the last measured record. Without it a system that
    commits every second would be charged for the idle wait before its last commit.
    """

    warmup: int
    measured: int
    tail: int
    keys: int = 100_000
    seed: int = 20_240_613

    @property
    def total(self) -> int:
        return self.warmup + self.measured + self.tail

    @property
    def topic(self) -> str:
        return f"bench-count-{self.total}-{self.keys}-{self.seed}"

    @cached_property
    def draw(self) -> npt.NDArray[np.int64]:
        """The key number of each record, in order."""
        return np.random.default_rng(self.seed).integers(0, self.keys, self.total)

    def expected(self) -> dict[bytes, int]:
        """The exact count of every key that occurs."""
        counts = np.bincount(self.draw, minlength=self.keys).tolist()
        return {key_bytes(number): count for number, count in enumerate(counts) if count}


def key_bytes(number: int) -> bytes:
    """The key with this number, 12 bytes of text."""
    return b"key-%08d" % number


def value_bytes(number: int) -> bytes:
    """The value that goes with a key: the same bytes every time."""
    return b"%0*d" % (VALUE_BYTES, number)


def create_topic(admin: AdminClient, topic: str, *, partitions: int = PARTITIONS) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def delete_topics(admin: AdminClient, topics: list[str]) -> None:
    """Free the disk that a run used; topics that do not exist are passed over."""
    present = admin.list_topics(timeout=30).topics
    doomed = [topic for topic in topics if topic in present]
    for future in admin.delete_topics(doomed).values() if doomed else ():
        future.result(30)


def ensure_loaded(bootstrap_servers: str, spec: CountInput) -> None:
    """Load the input unless the broker has it; raise if the topic holds anything else."""
    admin = clients.admin(bootstrap_servers)
    if spec.topic not in admin.list_topics(timeout=30).topics:
        create_topic(admin, spec.topic)
        produce(bootstrap_servers, spec)
    held = records_held(bootstrap_servers, spec.topic)
    if held != spec.total:
        raise BenchError(
            f"topic {spec.topic} holds {held} records, not {spec.total}: "
            "delete the topic and run again"
        )


def produce(bootstrap_servers: str, spec: CountInput) -> None:
    """Write the records in order, by a producer that neither repeats nor loses any."""
    producer = clients.producer(
        bootstrap_servers,
        # Not transactional: markers would take offsets, and offsets are what we measure by.
        enable_idempotence=True,
        partitioner="murmur2_random",
        linger_ms=50,
        batch_size=1 << 20,
        batch_num_messages=CHUNK,
        queue_buffering_max_messages=2 * IN_FLIGHT_MAX,
        queue_buffering_max_kbytes=1 << 20,
    )
    for messages in chunks(spec):
        # A full queue refuses single records out of the middle of a batch: never let it fill.
        while len(producer) > IN_FLIGHT_MAX:
            producer.poll(0.02)
        if producer.produce_batch(spec.topic, messages) != len(messages):
            raise BenchError(f"the producer refused records for {spec.topic}")
        producer.poll(0)
    if producer.flush(120):
        raise BenchError(f"the broker did not take all records of {spec.topic} within 120 s")


def chunks(spec: CountInput) -> Iterator[list[dict[str, bytes]]]:
    """The records as `produce_batch` wants them; records of one key share one dict."""
    messages = [{"key": key_bytes(n), "value": value_bytes(n)} for n in range(spec.keys)]
    for start in range(0, spec.total, CHUNK):
        yield [messages[n] for n in spec.draw[start : start + CHUNK].tolist()]


def records_held(bootstrap_servers: str, topic: str) -> int:
    """How many offsets the topic's partitions span."""
    consumer = clients.consumer(bootstrap_servers, group="bench-watermarks")
    try:
        count = 0
        for partition in range(PARTITIONS):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            count += high - low
        return count
    finally:
        consumer.close()
