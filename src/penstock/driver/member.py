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

from confluent_kafka import Consumer, TopicPartition

from penstock.config import Config
from penstock.coordination.ids import Position

_log = logging.getLogger("penstock.driver")

_POLL_SECONDS = 0.1
_LAST_WRITE_SECONDS = 5.0


class GroupMember:
    """A static member of the application's group, with a thread that alone touches its consumer.

    A driver that starts again takes its dead predecessor's place at once, and a predecessor that
    was only slow learns that it was replaced.
    """

    def __init__(
        self, application_id: str, topic: str, config: Config, *, on_replaced: Callable[[str], None]
    ) -> None:
        self.instance_id = f"{application_id}-driver"
        self._topic = topic
        self._on_replaced = on_replaced
        properties = config.client_properties(
            group_id=application_id,
            group_instance_id=self.instance_id,
            client_id=self.instance_id,
            session_timeout_ms=int(config.session_timeout.total_seconds() * 1000),
            heartbeat_interval_ms=int(config.heartbeat_interval.total_seconds() * 1000),
            enable_auto_commit=False,
            auto_offset_reset="latest",
            partition_assignment_strategy="range",
        )
        self._consumer = Consumer({**properties, "on_commit": self._on_commit})
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, int], int] = {}
        self._writing: dict[tuple[str, int], int] = {}
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

    def _loop(self) -> None:
        pause = {"on_assign": lambda consumer, partitions: consumer.pause(partitions)}
        self._consumer.subscribe([self._topic], **pause)
        while not self._stop.is_set():
            self._write_pending()
            message = self._consumer.poll(_POLL_SECONDS)
            error = message.error() if message is not None else None
            if error is not None and error.fatal():
                self._on_replaced(error.str())
                return
        deadline = time.monotonic() + _LAST_WRITE_SECONDS
        while (self._pending or self._writing) and time.monotonic() < deadline:
            self._write_pending()
            self._consumer.poll(_POLL_SECONDS)

    def _write_pending(self) -> None:
        """Commit without waiting: a synchronous commit beside a rebalance waits for ever."""
        if self._writing:
            return
        with self._lock:
            self._writing, self._pending = self._pending, {}
        if self._writing:
            offsets = [TopicPartition(t, p, offset) for (t, p), offset in self._writing.items()]
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def _on_commit(self, error: Any, partitions: list[TopicPartition]) -> None:
        written, self._writing = self._writing, {}
        if error is not None or any(each.error for each in partitions):
            # A rebalance, most likely. The commit record counts; tools see the lag a moment later.
            _log.info("The group's offsets were not written: %s", error)
            with self._lock:
                self._pending = {**written, **self._pending}
