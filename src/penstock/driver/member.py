"""The driver's place in the consumer group.

While it is there, reset tools and a Java application with the same id are kept out. Under
at-least-once it also writes the group's offsets, which no transaction carries then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.changelog.groups import membership
from penstock.config import Config
from penstock.coordination.ids import Position

_log = logging.getLogger("penstock.driver")

_POLL_SECONDS = 0.1
_LAST_WRITE_SECONDS = 5.0
_ASK_SECONDS = 1.0
_REPLACED = (
    KafkaError._FATAL,  # noqa: SLF001 - it has no other name
    KafkaError.FENCED_INSTANCE_ID,
)
"""That of a message does not say of itself that it is fatal."""
_NOT_LET_IN = (
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.GROUP_MAX_SIZE_REACHED,
)
"""What a broker answers who wants to join, and would answer again."""


class GroupMember:
    """A static member of the application's group, with a thread that alone touches its consumer.

    A driver that starts again takes its dead predecessor's place at once. A predecessor that stood
    still for longer than its session takes it back when it goes on, for its client knows no better:
    so `is_driver` is asked whether a place that was taken is to be had again.
    """

    def __init__(
        self, application_id: str, topic: str, config: Config, *, is_driver: Callable[[], bool]
    ) -> None:
        self.instance_id = f"{application_id}-driver"
        self._topic = topic
        self._is_driver = is_driver
        self._properties = config.client_properties(
            group_id=application_id,
            group_instance_id=self.instance_id,
            client_id=self.instance_id,
            **membership(config),
            enable_auto_commit=False,
            auto_offset_reset="latest",
            partition_assignment_strategy="range",
        )
        self._consumer = self._new_consumer()
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, int], int] = {}
        self._writing: dict[tuple[str, int], int] = {}
        self._told: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="group-member", daemon=True)

    def join(self) -> None:
        """Join the group, in the background."""
        self._thread.start()

    def write(self, position: Position) -> None:
        """Have the group's offsets written soon; later positions replace earlier ones."""
        with self._lock:
            for topic, partitions in position.items():
                for partition, offset in partitions.items():
                    self._pending[topic, partition] = offset

    def close(self) -> None:
        """Write what is left and leave the group."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._consumer.close()

    def _new_consumer(self) -> Consumer:
        return Consumer({**self._properties, "on_commit": self._on_commit})

    def _loop(self) -> None:
        self._subscribe()
        while not self._stop.is_set():
            self._write_pending()
            message = self._consumer.poll(_POLL_SECONDS)
            error = message.error() if message is not None else None
            if error is None:
                continue
            if error.code() in _REPLACED and not self._join_again(error):
                return
            self._tell(error)
        deadline = time.monotonic() + _LAST_WRITE_SECONDS
        while (self._pending or self._writing) and time.monotonic() < deadline:
            self._write_pending()
            self._consumer.poll(_POLL_SECONDS)

    def _subscribe(self) -> None:
        pause = {"on_assign": lambda consumer, partitions: consumer.pause(partitions)}
        self._consumer.subscribe([self._topic], **pause)

    def _tell(self, error: KafkaError) -> None:
        """Nobody else notices: the application runs without its place in the group, too."""
        if error.code() in _NOT_LET_IN and error.code() not in self._told:
            self._told.add(error.code())
            _log.warning(
                "The driver is not let into the consumer group, and so does not keep others out of "
                "it: %s",
                error.str(),
            )

    def _join_again(self, error: KafkaError) -> bool:
        """Take the place back that another one took, if this is the driver; False if it ends."""
        while not self._is_driver():
            if self._stop.wait(_ASK_SECONDS):
                return False
        _log.warning(
            "The driver's place in the group was taken, and is taken back: %s", error.str()
        )
        self._consumer.close()
        self._consumer = self._new_consumer()
        # What was under way is answered by nobody now.
        self._write_later()
        self._subscribe()
        return True

    def _write_pending(self) -> None:
        """Commit without waiting: a synchronous commit beside a rebalance waits for ever."""
        if self._writing:
            return
        with self._lock:
            self._writing, self._pending = self._pending, {}
        if self._writing:
            offsets = [TopicPartition(t, p, offset) for (t, p), offset in self._writing.items()]
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as error:
                self._on_commit(error, [])

    def _on_commit(self, error: Any, partitions: list[TopicPartition]) -> None:
        if error is None and not any(each.error for each in partitions):
            self._writing = {}
            return
        # A rebalance, most likely. The commit record counts; tools see the lag a moment later.
        _log.info("The group's offsets were not written: %s", error)
        self._write_later()

    def _write_later(self) -> None:
        with self._lock:
            self._writing, self._pending = {}, {**self._writing, **self._pending}
