"""What transactions ask of Kafka beyond their own records, where the client needs watching."""

from __future__ import annotations

import queue
import threading
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

_GRACE_SECONDS = 1.0


def connect(producer: Producer, *, topic: str, timeout_seconds: float) -> None:
    """Have a producer find the brokers, which fences nobody; `topic` is one that exists.

    One that has no connection yet finds nobody to ask for the transaction's coordinator, and asks
    again half a second later: so it is asked about a topic, which waits for one.
    Twice: the first answer may come from a broker of which only the address is known yet, and that
    one does not count. Of ten takings four waited for the half second; now none does.
    Raises `KafkaException`.
    """
    for _ in range(2):
        producer.list_topics(topic, timeout_seconds)


def init_transactions(producer: Producer, *, topic: str, timeout_seconds: float) -> None:
    """Connect, and fence whoever wrote under the producer's id before. Raises `KafkaException`."""
    connect(producer, topic=topic, timeout_seconds=timeout_seconds)
    producer.init_transactions(timeout_seconds)


def send_offsets(
    producer: Producer, offsets: list[TopicPartition], group: Any, *, timeout_seconds: float
) -> None:
    """Add a group's offsets to the transaction. `group` is what its consumer tells of it.

    librdkafka forgets the time limit while it waits for a group's coordinator whose broker is
    gone (its issue 5456): it would wait until that very broker is back. After the time limit the
    call is left alone with its producer, whose transaction nobody can end any more: throw it away.
    Raises `KafkaException`.
    """
    ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            producer.send_offsets_to_transaction(offsets, group, timeout_seconds)
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits for it
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=ask, name="offsets", daemon=True).start()
    try:
        error = ended.get(timeout=timeout_seconds + _GRACE_SECONDS)
    except queue.Empty:
        reason = "The group's coordinator does not take the offsets in time"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason)) from None  # noqa: SLF001
    if error is not None:
        raise error
