"""What a task writes to Kafka: changelog records, outputs, its commit record, the group's offsets.

Under exactly-once all of it is one transaction. librdkafka has no KIP-890, so a call whose outcome
is unknown may take effect later, on the *next* transaction of the same producer: after such a call
the producer is thrown away and the task is taken anew, which fences whatever is still under way.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as NativeError

from penstock.changelog.transactions import connect, send_offsets
from penstock.config import Config
from penstock.errors import FencedError, KafkaError, PenstockError
from penstock.instance.protocol import CHANGE, Positions, Rejection
from penstock.instance.rejections import rejection
from penstock.observability.crash_points import crash_point, crash_point_soon

_FENCED = {
    NativeError._FENCED,  # noqa: SLF001 - it has no other name
    NativeError.INVALID_PRODUCER_EPOCH,
    NativeError.PRODUCER_FENCED,
    NativeError._STATE,  # noqa: SLF001
}
_LOOK_SECONDS = 0.2
BATCH_BYTES = 1_000_000
"""How large a batch of records may be, unless a topic takes less."""
_RECORD_BYTES_MAX = 1_048_576
"""As in Java; the client's own default is less than what a topic takes by default."""


class WriteAbortedError(PenstockError):
    """Nothing of the commit is visible, and the same producer can go on."""


class WriteUnknownError(PenstockError):
    """The commit may or may not have taken effect; the task must be taken anew."""


class WriteRejectedError(PenstockError):
    """Kafka does not take some of the records, and would not take them later either."""

    def __init__(self, rejected: Sequence[Rejection]) -> None:
        first = rejected[0]
        super().__init__(
            f"{len(rejected)} refused: {first.reason}, {first.message}",
            where={"topic": first.topic},
        )
        self.rejected = rejected


class Writer:
    """The producer of one task, under either guarantee."""

    def __init__(
        self,
        config: Config,
        *,
        transactional_id: str,
        group: Consumer | None,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._transactional = config.exactly_once
        self._group = group
        self._failed: list[str] = []
        self._rejected: list[Rejection] = []
        self.blocked_seconds = 0.0
        """For how long the commit has waited for Kafka."""
        self._id = transactional_id
        self._timeout = config.session_timeout.total_seconds() / 2
        properties = config.client_properties(
            client_id=transactional_id,
            enable_idempotence=True,
            queue_buffering_max_messages=1_000_000,
            batch_num_messages=20_000,
            batch_size=min(batch_bytes, int(config.kafka.get("batch.size", batch_bytes))),
            message_max_bytes=config.kafka.get("message.max.bytes", _RECORD_BYTES_MAX),
            # A topic that is not there is to be told before a flush gives up.
            topic_metadata_propagation_max_ms=config.kafka.get(
                "topic.metadata.propagation.max.ms", int(self._timeout * 500)
            ),
            # Failed deliveries are told one by one; the successes are known from the flush.
            delivery_report_only_error=True,
            # Where a topic is named by a function, the partition is chosen here, as Java would.
            partitioner="murmur2_random",
        )
        if self._transactional:
            properties["transactional.id"] = transactional_id
            milliseconds = int(config.transaction_timeout.total_seconds() * 1000)
            properties["transaction.timeout.ms"] = milliseconds
        self._producer = Producer({**properties, "on_delivery": self._on_delivery})
        self._is_connected = False

    def connect(self, topic: str) -> None:
        """Find the brokers, so that `open` need not; nobody is fenced. `topic` is any that exists.

        Raises `KafkaError`.
        """
        if not self._transactional or self._is_connected:
            return
        try:
            connect(self._producer, topic=topic, timeout_seconds=self._timeout)
        except KafkaException as error:
            found = self._error(error)
            raise KafkaError(found.message, where=found.where) from error
        self._is_connected = True

    def open(self, topic: str) -> None:
        """Fence the previous owner and wait for its pending markers. Step 1 of taking a task.

        `topic` is any that exists.
        """
        self.connect(topic)
        if self._transactional:
            try:
                self._producer.init_transactions(self._timeout)
            except KafkaException as error:
                found = self._error(error)
                if isinstance(found, FencedError):
                    raise found from error
                # Nothing was begun, so that nothing is unknown: whoever takes the task tries again.
                raise KafkaError(found.message, where=found.where) from error

    def begin(self) -> None:
        """Start a commit."""
        self.blocked_seconds = 0.0
        self._failed.clear()
        self._rejected.clear()
        if self._transactional:
            try:
                self._producer.begin_transaction()
            except KafkaException as error:
                raise self._error(error) from error

    def send(
        self, batch: pa.RecordBatch, *, changelogs: Sequence[str], topics: Sequence[str], own: int
    ) -> None:
        """Produce a batch of a commit's rows, in row order; changes go to partition `own`.

        A batch holds changes or outputs, not both. If its rows are numbered, it will be known which
        of them were refused.
        """
        kinds, targets, partitions, keys, values, times, headers, *numbers = batch.columns
        changes = kinds[0].as_py() == CHANGE
        names = changelogs if changes else topics
        rows = zip(
            [names[target] for target in targets.to_pylist()],
            values.to_pylist(),
            keys.to_pylist(),
            itertools.repeat(own) if changes else partitions.to_pylist(),
            # As `callback`: a None there would hide what comes as `on_delivery`.
            self._heard_by_row(numbers[0].to_pylist()) if numbers else itertools.repeat(None),
            itertools.repeat(None),
            # librdkafka takes 0 for "now"; 1 ms past the epoch is the nearest that it can say.
            np.maximum(times.to_numpy(), 1).tolist(),
            _header_lists(headers),
            strict=False,
        )
        try:
            self._produce_all(rows)
        except KafkaException as error:
            raise self._error(error) from error

    def _produce_all(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Call `produce` with each row; by position, which is twice as fast as by keyword."""
        produce = self._producer.produce
        for row in rows:
            try:
                produce(*row)
            except BufferError:
                while True:
                    self._producer.poll(0.1)
                    with contextlib.suppress(BufferError):
                        produce(*row)
                        break
            except KafkaException as error:
                topic, _, key, _, heard = row[:5]
                number = -1 if heard is None else heard.keywords["row"]
                self._refused(error, topic, key, number)

    def send_record(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Produce the commit record.

        Without a transaction it must not be there before all that it stands for: whoever takes the
        task would go on behind records that were never written.
        """
        if not self._transactional:
            self.flush()
        try:
            self._producer.produce(topic, value, key, partition)
        except KafkaException as error:
            self._refused(error, topic, key)

    def _heard_by_row(self, numbers: list[int]) -> list[partial[None]]:
        return [partial(self._on_delivery, row=number) for number in numbers]

    def _refused(self, error: KafkaException, topic: str, key: bytes | None, row: int = -1) -> None:
        """Go on after a record that the client itself refuses: there may be more of them."""
        found = rejection(error.args[0], topic, has_key=key is not None, row=row)
        if found is None:
            raise self._error(error) from error
        self._rejected.append(found)

    def flush(self) -> None:
        """Wait until everything that was sent is acknowledged."""
        crash_point("commit.after_send_before_ack")
        try:
            with self._blocked():
                remaining = self._flushed()
        except (KafkaException, SystemError) as error:
            raise self._told_again(error) from error
        if self._rejected:
            raise WriteRejectedError(list(dict.fromkeys(self._rejected)))
        if remaining or self._failed:
            reason = self._failed[0] if self._failed else "no acknowledgement in time"
            raise self._unknown(f"{remaining or len(self._failed)} records not written: {reason}")
        crash_point("commit.after_ack")

    def _flushed(self) -> int:
        """How many records are not acknowledged when all are, one was refused, or time is over.

        A transaction of which one record was refused sends no more: nobody waits for the others.
        """
        remaining = 0
        step = min(_LOOK_SECONDS, self._timeout)
        for _ in range(math.ceil(self._timeout / step)):
            remaining = self._producer.flush(step)
            if not remaining or self._rejected:
                break
        return remaining

    def commit(self, end: Positions, metadata: Mapping[tuple[str, int], str]) -> None:
        """Add the group's offsets and commit."""
        if not self._transactional:
            return
        offsets = [
            _offset(topic, partition, offset, metadata.get((topic, partition), ""))
            for topic, partitions in end.items()
            for partition, offset in partitions.items()
        ]
        try:
            if offsets and self._group is not None:
                group = self._group.consumer_group_metadata()
                send_offsets(self._producer, offsets, group, timeout_seconds=self._timeout)
            crash_point("commit.after_offsets_in_txn")
            crash_point_soon("commit.txn_unknown", delay_seconds=0.002)
            with self._blocked():
                self._producer.commit_transaction(self._timeout)
        except KafkaException as error:
            raise self._error(error) from error

    def abort(self) -> None:
        """Make sure that nothing of this commit becomes visible."""
        if not self._transactional:
            self._producer.purge()
            return
        try:
            self._producer.abort_transaction(self._timeout)
        except KafkaException as error:
            raise self._unknown(str(error)) from error

    def discard(self) -> None:
        """Throw the producer away with whatever it still holds."""
        self._producer.purge()
        self._producer.flush(0)

    @contextlib.contextmanager
    def _blocked(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.blocked_seconds += time.perf_counter() - began

    def _on_delivery(self, error: NativeError | None, message: Any, *, row: int = -1) -> None:
        if error is None:
            return
        found = rejection(error, message.topic(), has_key=message.key() is not None, row=row)
        if found is not None:
            self._rejected.append(found)
        else:
            self._failed.append(f"{error.str()} ({message.topic()}-{message.partition()})")

    def _told_again(self, error: Exception) -> PenstockError:
        """What a failed flush means.

        The client raises a fatal error while it calls back, where Python may lose it; after one,
        every call of a transaction says it again.
        """
        try:
            self.abort()
        except WriteUnknownError as told:
            if isinstance(told.__cause__, KafkaException):
                return self._error(told.__cause__)
        return self._unknown(f"{type(error).__name__}: {error}")

    def _error(self, error: KafkaException) -> PenstockError:
        """What a failed call means for the task, decided by librdkafka's own flags."""
        native = error.args[0]
        text = f"{native.name()}: {native.str()}"
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.poll(0)  # Why the transaction is in this state, if a record is why.
        if self._rejected:
            return WriteRejectedError(list(dict.fromkeys(self._rejected)))
        if native.code() in _FENCED or native.fatal():
            return FencedError(text, where={"transactional id": self._id})
        if native.txn_requires_abort():
            return WriteAbortedError(text, where={"transactional id": self._id})
        return self._unknown(text)

    def _unknown(self, reason: str) -> WriteUnknownError:
        return WriteUnknownError(reason, where={"transactional id": self._id})


def _offset(topic: str, partition: int, offset: int, metadata: str) -> TopicPartition:
    # An empty string would be written as a byte 0.
    if not metadata:
        return TopicPartition(topic, partition, offset)
    return TopicPartition(topic, partition, offset, metadata=metadata)


def _header_lists(headers: pa.ListArray) -> Iterable[list[tuple[str, bytes]] | None]:
    if headers.null_count == len(headers):
        return itertools.repeat(None)
    return [
        None if row is None else [(each["key"], each["value"]) for each in row]
        for row in headers.to_pylist()
    ]
