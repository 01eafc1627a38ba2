"""The Kafka clients that an instance shares between its tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not re-exported

from penstock.changelog.clients import LogClients
from penstock.changelog.groups import committed_offsets
from penstock.changelog.offset_metadata import OffsetMetadata, offset_metadata
from penstock.changelog.reading import ATTEMPT_SECONDS, EARLIEST, LATEST, log_offsets
from penstock.config import Config
from penstock.coordination.ids import Position
from penstock.errors import KafkaError

_IDLE_MAX = 4
"""Consumers that are kept for whoever takes a task next."""


@dataclass(frozen=True, kw_only=True)
class GroupOffsets:
    """What a group has committed: offsets, and what was written beside them."""

    position: Position
    metadata: Mapping[tuple[str, int], OffsetMetadata]
    """By topic and partition."""


@dataclass(frozen=True)
class SharedClients:
    """Clients that subscribe to nothing: they answer questions."""

    config: Config
    application_id: str
    logs: LogClients = field(init=False)
    group: Consumer = field(init=False)
    """Speaks for the application's group; sees committed records only."""
    raw: Consumer = field(init=False)
    """Sees the ends of logs, open transactions included."""

    def __post_init__(self) -> None:
        properties = self.config.client_properties(
            group_id=self.application_id, enable_auto_commit=False
        )
        committed = {**properties, "isolation.level": "read_committed"}
        uncommitted = {**properties, "isolation.level": "read_uncommitted"}
        object.__setattr__(
            self, "logs", LogClients(self.config, self.application_id, idle_max=_IDLE_MAX)
        )
        object.__setattr__(self, "group", Consumer(committed))
        object.__setattr__(self, "raw", Consumer(uncommitted))

    @property
    def timeout_seconds(self) -> float:
        """How long a question may take."""
        return self.config.session_timeout.total_seconds() / 2

    def stable_range(self, topic: str, partition: int) -> tuple[int, int]:
        """The log's start and its last stable offset."""
        where, level = (topic, partition), IsolationLevel.READ_COMMITTED
        known = self._watermarks(self.group, where)
        return known or (self._offset(where, EARLIEST, level), self._offset(where, LATEST, level))

    def high_watermark(self, topic: str, partition: int) -> int:
        """The log's end, open transactions included."""
        where, level = (topic, partition), IsolationLevel.READ_UNCOMMITTED
        known = self._watermarks(self.raw, where)
        return known[1] if known else self._offset(where, LATEST, level)

    def group_offsets(self, inputs: list[tuple[str, int]]) -> GroupOffsets:
        """The group's committed offsets, stable ones only, where there are any."""
        wanted = [TopicPartition(topic, partition) for topic, partition in inputs]
        try:
            answer = committed_offsets(self.group, wanted, timeout_seconds=self.timeout_seconds)
        except KafkaException as error:
            raise KafkaError(f"The group's offsets cannot be read: {error}") from error
        position: dict[str, dict[int, int]] = {}
        metadata: dict[tuple[str, int], OffsetMetadata] = {}
        for each in answer:
            if each.offset >= 0:
                position.setdefault(each.topic, {})[each.partition] = each.offset
                metadata[each.topic, each.partition] = offset_metadata(each)
        return GroupOffsets(position=position, metadata=metadata)

    def close(self) -> None:
        """Let the connections go."""
        self.group.close()
        self.raw.close()

    def _watermarks(self, consumer: Consumer, where: tuple[str, int]) -> tuple[int, int] | None:
        """What the consumer says; None if it does not know."""
        seconds = min(ATTEMPT_SECONDS, self.timeout_seconds)
        with contextlib.suppress(KafkaException):
            # None when the time is over, which the client's stubs do not know.
            found: tuple[int, int] | None = consumer.get_watermark_offsets(
                TopicPartition(*where), timeout=seconds
            )
            if found is not None and found[1] >= 0:
                return found
        with contextlib.suppress(KafkaException):
            # Else one whose broker has just gone goes on asking it, for minutes.
            consumer.list_topics(where[0], timeout=seconds)
        return None

    def _offset(self, where: tuple[str, int], spec: OffsetSpec, level: IsolationLevel) -> int:
        return log_offsets(self.logs, [where], spec, level)[where]
