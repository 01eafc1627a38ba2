"""The clients that read internal topics: by explicit offsets, committed records only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.changelog.groups import committed_offsets
from penstock.changelog.kafka_failures import is_forbidden, kafka_error, refusals_named
from penstock.changelog.read_ahead import ReadAhead, Readers
from penstock.config import Config
from penstock.errors import KafkaError

ASK_TIMEOUT = timedelta(seconds=10)
"""How long a broker may take to answer one question."""
_REFUSAL_SECONDS = 2.0
_SHORT_FETCH_WAIT_MS = 5
_IDLE_SECONDS = 0.5
"""How long one that has read before may take to answer."""


@dataclass(eq=False)
class LogClients:
    """Makes the clients of one process; the admin client is shared, consumers are the caller's."""

    config: Config
    application_id: str
    ask_timeout: timedelta = ASK_TIMEOUT
    idle_max: int = 0
    """So many consumers are kept for the next short reading."""
    admin: AdminClient = field(init=False)
    readers: Readers = field(init=False)
    """Who reads much is to have a place among these, so that there is memory for it."""
    followers: Readers = field(init=False)
    """The places of those who need not have it soon."""

    def __post_init__(self) -> None:
        self._ahead = ReadAhead.within(self.config.rocksdb_memory_bytes)
        self.readers = Readers(self._ahead.readers)
        self.followers = Readers(self._ahead.readers)
        self._idle: list[Consumer] = []
        self.renew_admin()

    def renew_admin(self) -> None:
        """Ask by a new admin client from now on."""
        with refusals_named():
            self.admin = AdminClient(self.config.client_properties())

    def consumer(self, *, fetch_wait_ms: int = 50) -> Consumer:
        """A consumer for `read_last` and `restore`: never subscribed, never commits.

        An offset that the log does not hold is an error here. Starting elsewhere instead, as
        consumers do by default, would hide lost state. A broker keeps a fetch at the end of a log
        for `fetch_wait_ms` before it says that this is the end.
        """
        properties = self.config.client_properties(
            group_id=self.application_id,
            isolation_level="read_committed",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            enable_partition_eof=True,
            fetch_wait_max_ms=fetch_wait_ms,
            # By default a full queue pauses fetching for a second, in which it runs dry.
            fetch_queue_backoff_ms=5,
            # A queue longer than it needs to be is new memory all the time: a tenth of a restore
            # went into clearing that.
            queued_min_messages=self._ahead.messages,
            queued_max_messages_kbytes=self._ahead.kbytes,
            max_partition_fetch_bytes=self._ahead.fetch_bytes,
        )
        with refusals_named():
            return Consumer(properties)

    @contextlib.contextmanager
    def lent_consumer(self, topic: str) -> Iterator[Consumer]:
        """A consumer for a short reading of that topic, which may be one that has read before.

        To make one and to connect it takes half a tenth of a second on a busy machine. It is asked
        about the topic first: whoever reads with one that does not know the leader, or knows one
        that has gone since, may wait for half a second.
        """
        consumer = self._idle_consumer(topic)
        if consumer is None:
            consumer = self.consumer(fetch_wait_ms=_SHORT_FETCH_WAIT_MS)
            with contextlib.suppress(KafkaException):
                consumer.list_topics(topic, timeout=_IDLE_SECONDS)
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            # It may have been left in the middle of something.
            consumer.close()
            raise
        if len(self._idle) < self.idle_max:
            self._idle.append(consumer)
        else:
            consumer.close()

    def _idle_consumer(self, topic: str) -> Consumer | None:
        with contextlib.suppress(IndexError):
            consumer = self._idle.pop()
            try:
                consumer.list_topics(topic, timeout=_IDLE_SECONDS)
            except KafkaException:
                consumer.close()
            else:
                return consumer
        return None

    def committed(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The offsets that the application's group has committed there, where there are any."""
        wanted = [TopicPartition(topic, partition) for topic, partition in partitions]
        consumer = self.consumer()
        seconds = self.ask_timeout.total_seconds()
        try:
            found = committed_offsets(consumer, wanted, timeout_seconds=seconds)
        except KafkaException as error:
            raise self._offsets_error(error) from error
        finally:
            consumer.close()
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def _offsets_error(self, error: KafkaException) -> KafkaError:
        return kafka_error(
            self._refusal() or error,
            doing="tell a group's offsets",
            bootstrap_servers=self.config.bootstrap_servers,
            where={"group": self.application_id},
        )

    def _refusal(self) -> KafkaException | None:
        """That this client has no right to the group: a consumer asks on until its time is over."""
        asked = self.admin.describe_consumer_groups(
            [self.application_id], request_timeout=_REFUSAL_SECONDS
        )
        try:
            asked[self.application_id].result()
        except KafkaException as error:
            return error if is_forbidden(error) else None
        return None
