"""The instances' metrics, asked for when someone reads them."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from penstock.coordination.members import Member
from penstock.driver.coordinator import Coordinator
from penstock.errors import InstanceError, InstanceUnreachableError
from penstock.instance.client import ClientCache
from penstock.instance.protocol import MetricsReply
from penstock.observability import groups
from penstock.observability.readings import Reading, Snapshot

_log = logging.getLogger("penstock.driver")

_CALL_SECONDS = 2.0
"""Less than a scrape may take: an instance that is silent is told as that."""
_ASKED_AT_ONCE = 8


class InstanceReadings:
    """Asks all instances at once; one that does not answer is `up` 0."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        # Clients of its own: those of the driver's loop wait longer.
        self._clients = ClientCache()
        self._pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="metrics")

    def snapshot(self) -> Snapshot:
        """What the metrics of all instances show now."""
        members = [self._coordinator.member(name) for name in self._coordinator.names()]
        there = [member for member in members if member is not None]
        try:
            return [reading for found in self._pool.map(self._ask, there) for reading in found]
        except RuntimeError:
            return []  # Closed meanwhile.

    def close(self) -> None:
        """Ask nobody any more."""
        self._pool.shutdown()

    def _ask(self, member: Member) -> Snapshot:
        location = member.tcp_location or member.unix_location
        up = 1.0
        found: Snapshot = []
        try:
            client = self._clients.get(
                location,
                token=self._coordinator.token,
                timeout_seconds=_CALL_SECONDS,
                trust=self._coordinator.trust,
            )
            found = client.call("metrics", MetricsReply(readings=[]), MetricsReply).readings
        except InstanceUnreachableError:
            self._clients.drop(location)
            up = 0.0
        except InstanceError as error:
            _log.warning("Instance %s cannot tell its metrics: %s", member.name, error)
            up = 0.0
        return [*found, Reading(groups.INSTANCE, "up", (member.name,), up)]
