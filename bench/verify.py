"""What a run left in Kafka, read back and compared with what must be there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bench import clients
from bench.errors import BenchError

FETCH = 50_000
QUIET_SECONDS = 30.0
PARTITION_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001  (public in all but its name)

Decode = Callable[[bytes], int]


@dataclass(frozen=True)
class Content:
    """The committed records of a topic: how many, and the last value of each key."""

    records: int
    last: dict[bytes, bytes]


@dataclass(frozen=True)
class Fingerprint:
    """How many records there are, and a checksum of keys and values whatever their order."""

    records: int
    checksum: int


def fingerprint(records: Iterable[tuple[bytes, bytes]]) -> Fingerprint:
    """The fingerprint of these keys and values."""
    count = total = 0
    for key, value in records:
        count += 1
        # The key's length keeps apart what would be the same bytes in a row.
        parts = b"%d:%b%b" % (len(key), key, value)
        total += int.from_bytes(blake2b(parts, digest_size=8).digest(), "big")
    return Fingerprint(count, total % (1 << 64))


def read_all(bootstrap_servers: str, topic: str) -> Content:
    """The number of a topic's committed records, and the last value of each key."""
    records = 0
    last: dict[bytes, bytes] = {}
    for key, value in committed(bootstrap_servers, topic):
        records += 1
        last[key] = value
    return Content(records, last)


def committed(bootstrap_servers: str, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a topic from its start to its present end, committed records only."""
    consumer = clients.consumer(
        bootstrap_servers,
        group="bench-verify",
        isolation_level="read_committed",
        # The end is told by the consumer: markers and aborted records take offsets, so comparing
        # positions with watermarks would wait for records that never come.
        enable_partition_eof=True,
        fetch_message_max_bytes=8 << 20,
        queued_max_messages_kbytes=256 << 10,
    )
    try:
        found = consumer.list_topics(topic, timeout=30).topics[topic]
        if found.error is not None:
            raise BenchError(f"topic {topic} cannot be read: {found.error}")
        consumer.assign([TopicPartition(topic, p, 0) for p in found.partitions])
        yield from drain(consumer, topic, open_partitions=set(found.partitions))
    finally:
        consumer.close()


def drain(
    consumer: Consumer, topic: str, *, open_partitions: set[int]
) -> Iterator[tuple[bytes, bytes]]:
    """Consume until every partition has reported its end."""
    quiet_since = time.monotonic()
    while open_partitions:
        # A short wait: consume() holds what it has until it is full or the time is over.
        messages = consumer.consume(FETCH, timeout=0.2)
        quiet_since = time.monotonic() if messages else quiet_since
        if time.monotonic() - quiet_since > QUIET_SECONDS:
            raise BenchError(f"{topic}: no answer for {QUIET_SECONDS:.0f} s before its end")
        for message in messages:
            error = message.error()
            if error is None:
                yield message.key() or b"", message.value() or b""
            elif error.code() == PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)


def differences(
    content: Content, expected: dict[bytes, int], *, key: Callable[[bytes], bytes], value: Decode
) -> list[str]:
    """Where the last values differ from the expected numbers; empty means exact."""
    found = {key(raw): value(last) for raw, last in content.last.items()}
    wrong = [
        f"{name!r}: {found.get(name, 'absent')} instead of {count}"
        for name, count in expected.items()
        if found.get(name) != count
    ]
    surplus = [f"{name!r}: {found[name]}, which no input has" for name in found.keys() - expected]
    return wrong + surplus


def long_value(raw: bytes) -> int:
    """Kafka's long: eight bytes, big-endian."""
    if len(raw) != 8:
        raise BenchError(f"a count has {len(raw)} bytes instead of 8: {raw[:20]!r}")
    return int.from_bytes(raw, "big", signed=True)


def same_key(raw: bytes) -> bytes:
    return raw


def window_of_changelog_key(raw: bytes) -> bytes:
    """Key and start of the window, out of a window store's key: a number of 4 bytes follows."""
    return raw[:-4]
