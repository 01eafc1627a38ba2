"""What Kafka holds for the tasks to read, asked for all input partitions at once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping

from confluent_kafka import IsolationLevel

from penstock.changelog.clients import LogClients
from penstock.changelog.reading import EARLIEST, LATEST, log_offsets, told_offsets

_COMMITTED = IsolationLevel.READ_COMMITTED
_RECENT_SECONDS = 1.0


class InputLogs:
    """The starts and ends of the input partitions.

    With `last_known`, where a leader died and the next one is on its way, the end that was told
    last counts for as long as a question may take. That is enough to plan by, and tasks whose
    leaders live do not wait; it is not enough to say how old a copy is.
    """

    def __init__(
        self, logs: LogClients, inputs: Iterable[tuple[str, int]], *, last_known: bool = False
    ) -> None:
        self._logs = logs
        self._last_known = last_known
        self._partitions = list(inputs)
        self._ends: dict[tuple[str, int], int] = {}
        self._told_at: dict[tuple[str, int], float] = {}

    def ends(self) -> dict[tuple[str, int], int]:
        """The last stable offset of each: what committed readers may read up to.

        Raises `KafkaError`.
        """
        if not self._last_known:
            self._note_ends(log_offsets(self._logs, self._partitions, LATEST, _COMMITTED))
            return dict(self._ends)
        self._note_ends(told_offsets(self._logs, self._partitions, LATEST, _COMMITTED))
        oldest = time.monotonic() - self._logs.ask_timeout.total_seconds()
        late = [each for each in self._partitions if self._told_at.get(each, -math.inf) < oldest]
        if late:
            self._note_ends(log_offsets(self._logs, late, LATEST, _COMMITTED))
        return dict(self._ends)

    def recent_ends(self) -> dict[tuple[str, int], int]:
        """The ends as they were a second ago or less, for those who only watch: any number of
        them ask Kafka no more often than that, and while the driver plans, not at all.

        Raises `KafkaError`.
        """
        oldest = time.monotonic() - _RECENT_SECONDS
        if all(self._told_at.get(each, -math.inf) >= oldest for each in self._partitions):
            return dict(self._ends)
        return self.ends()

    def _note_ends(self, told: Mapping[tuple[str, int], int]) -> None:
        self._ends.update(told)
        self._told_at.update(dict.fromkeys(told, time.monotonic()))

    def starts(self) -> dict[tuple[str, int], int]:
        """The first offset that each still holds."""
        return log_offsets(self._logs, self._partitions, EARLIEST, _COMMITTED)
