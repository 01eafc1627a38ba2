"""What Kafka holds for the tasks to read, asked for all input partitions at once."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from penstock.changelog.kafka_failures import kafka_error
from penstock.config import Config

_ASK_SECONDS = 10.0


class InputLogs:
    """The starts and ends of the input partitions."""

    def __init__(
        self, config: Config, admin: AdminClient, inputs: Iterable[tuple[str, int]]
    ) -> None:
        self._bootstrap_servers = config.bootstrap_servers
        self._admin = admin
        self._partitions = [TopicPartition(topic, partition) for topic, partition in inputs]

    def ends(self) -> dict[tuple[str, int], int]:
        """The last stable offset of each: what committed readers may read up to."""
        return self._ask(OffsetSpec.latest())

    def starts(self) -> dict[tuple[str, int], int]:
        """The first offset that each still holds."""
        return self._ask(OffsetSpec.earliest())

    def _ask(self, spec: OffsetSpec) -> dict[tuple[str, int], int]:
        futures = self._admin.list_offsets(
            {partition: spec for partition in self._partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_ASK_SECONDS,
        )
        result: dict[tuple[str, int], int] = {}
        for where, future in futures.items():
            try:
                result[where.topic, where.partition] = future.result().offset
            except KafkaException as error:
                raise kafka_error(
                    error,
                    doing="say where a log ends",
                    bootstrap_servers=self._bootstrap_servers,
                    where={"topic": where.topic, "partition": where.partition},
                ) from error
        return result
