"""What Kafka holds for the tasks to read, asked for all input partitions at once."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from penstock.changelog.clients import LogClients
from penstock.changelog.reading import EARLIEST, LATEST, log_offsets


class InputLogs:
    """The starts and ends of the input partitions."""

    def __init__(self, logs: LogClients, inputs: Iterable[tuple[str, int]]) -> None:
        self._logs = logs
        self._partitions = list(inputs)

    def ends(self) -> dict[tuple[str, int], int]:
        """The last stable offset of each: what committed readers may read up to."""
        return self._ask(LATEST)

    def starts(self) -> dict[tuple[str, int], int]:
        """The first offset that each still holds."""
        return self._ask(EARLIEST)

    def _ask(self, spec: OffsetSpec) -> dict[tuple[str, int], int]:
        return log_offsets(self._logs, self._partitions, spec, IsolationLevel.READ_COMMITTED)
