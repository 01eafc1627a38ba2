"""The driver's transactions on the commits topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.changelog.transactions import send_offsets
from penstock.coordination.ids import Position
from penstock.errors import FencedError, KafkaError


class DriverWriter:
    """Writes records all or nothing, one transaction after the other.

    It never makes its producer anew: that would fence a driver that took over meanwhile, and only
    the lease can tell whether one did. So an end that no broker confirms in time (its coordinator
    died, and another one takes over) says nothing about who the driver is: the same end is asked
    for again before the next transaction.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._unended: Literal["", "commit", "abort"] = ""

    def write(
        self,
        records: Iterable[tuple[int, bytes, bytes]],
        timeout_seconds: float,
        *,
        group: Consumer | None = None,
        position: Position | None = None,
    ) -> None:
        """Write records (partition, key, value), and the group's offsets.

        Raises `FencedError` if another driver took over. After any other `KafkaError` they may
        become visible until the next transaction, or not.
        """
        if self._unended:
            self._end(self._unended, timeout_seconds)
        try:
            self._producer.begin_transaction()
            for partition, key, value in records:
                self._producer.produce(self._topic, value, key, partition)
            if group is not None:
                offsets = _offsets(position or {})
                metadata = group.consumer_group_metadata()
                send_offsets(self._producer, offsets, metadata, timeout_seconds=timeout_seconds)
        except KafkaException as error:
            if _is_fenced(error):
                raise _refused(error) from error
            self._end("abort", timeout_seconds)
            raise _not_written(error) from error
        self._end("commit", timeout_seconds)

    def _end(self, how: Literal["commit", "abort"], timeout_seconds: float) -> None:
        self._unended = how
        try:
            if how == "commit":
                self._producer.commit_transaction(timeout_seconds)
            else:
                self._producer.abort_transaction(timeout_seconds)
        except KafkaException as error:
            if _is_fenced(error):
                raise _refused(error) from error
            if error.args[0].txn_requires_abort() and how == "commit":
                self._end("abort", timeout_seconds)
            raise _not_written(error) from error
        self._unended = ""


def _is_fenced(error: KafkaException) -> bool:
    """Whether this producer can do nothing more; what it may try again says so itself."""
    native = error.args[0]
    return not (native.retriable() or native.txn_requires_abort())


def _refused(error: KafkaException) -> FencedError:
    return FencedError(f"The driver's record was refused: {error.args[0].str()}")


def _not_written(error: KafkaException) -> KafkaError:
    return KafkaError(f"The driver's record was not written: {error.args[0].str()}")


def _offsets(position: Position) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition, offset)
        for topic, partitions in position.items()
        for partition, offset in partitions.items()
    ]
