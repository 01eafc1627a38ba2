"""Where changelogs end, for those who look at stores from outside."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from confluent_kafka import IsolationLevel

from penstock.changelog.clients import LogClients
from penstock.changelog.reading import LATEST, log_offsets, read_committed
from penstock.changelog.restore import recreated
from penstock.changelog.topic_admin import TopicAdmin
from penstock.changelog.topics import policies
from penstock.config import Config
from penstock.driver.last_run import read_last_run
from penstock.driver.setup import check_broker
from penstock.errors import BrokerUnreachableError
from penstock.observability.time_of_day import wall_clock_ms
from penstock.topology.manifest import TopologyManifest

Changelog = tuple[str, str, int]
"""A topic, its id (empty if unknown), and a partition."""
_COUNTED_MAX = 1_000
"""Up to so many offsets are read, to tell records from the markers of transactions."""


class ChangelogEnds:
    """What Kafka says of an application's changelogs; `unreachable` is why it says nothing."""

    def __init__(self, config: Config, application_id: str) -> None:
        self.config = config
        self.application_id = application_id
        self.unreachable = ""
        self._ends: dict[Changelog, int] = {}

    @classmethod
    def ask(cls, config: Config, changelogs: Iterable[Changelog | None]) -> ChangelogEnds:
        """The ends of those that are there and are what they were."""
        wanted = {each for each in changelogs if each is not None}
        ends = cls(config, "penstock-state")
        if not wanted:
            return ends
        try:
            check_broker(config)
            ends._look_up(wanted)
        except BrokerUnreachableError as error:
            ends.unreachable = error.message
        return ends

    def of(
        self, changelog: Changelog | None, offset: int | None, *, application_id: str
    ) -> dict[str, int | None]:
        """Where a changelog ends, and how many records a store that holds `offset` lacks.

        They are read as the application reads them: its user has no rights to other groups.
        """
        end = None if changelog is None else self._ends.get(changelog)
        if changelog is None or end is None:
            return {"changelog_end": None, "lag": None}
        start = 0 if offset is None else offset + 1
        lag = max(end - start, 0)
        if 0 < lag <= _COUNTED_MAX:
            topic, _, partition = changelog
            clients = LogClients(self.config, application_id)
            lag = sum(1 for _ in read_committed(clients, topic, partition, start=start))
        return {"changelog_end": end, "lag": lag}

    def retention_ms(self, store: str) -> int | None:
        """How long a store's windows were kept when the application last ran."""
        topology = self._last_topology
        known = None if topology is None else topology.stores.get(store)
        return None if known is None else known[1].retention_ms

    def check(self, topic: str, topic_id: str) -> int | None:
        """Raise `ChangelogError` unless the topic is the one that the store was made from.

        Since when (milliseconds) it has all that was written, if it forgets what is old.
        """
        found = TopicAdmin(self.config).require([topic])[topic]
        if found.id != topic_id:
            raise recreated(topic, f"its id is {found.id} and the store was made from {topic_id}")
        kept_ms = int(found.config.get("retention.ms", -1))
        forgets = "delete" in policies(found.config.get("cleanup.policy", "")) and kept_ms >= 0
        return wall_clock_ms() - kept_ms if forgets else None

    @cached_property
    def _last_topology(self) -> TopologyManifest | None:
        logs = LogClients(self.config, self.application_id)
        admin = TopicAdmin(self.config, admin=logs.admin)
        return read_last_run(self.application_id, logs, admin).topology

    def _look_up(self, wanted: set[Changelog]) -> None:
        logs = LogClients(self.config, self.application_id)
        there = TopicAdmin(self.config, admin=logs.admin).describe(name for name, _, _ in wanted)
        same = [
            (topic, topic_id, partition)
            for topic, topic_id, partition in wanted
            if topic in there
            and topic_id in ("", there[topic].id)
            and partition < there[topic].partitions
        ]
        asked = [(topic, partition) for topic, _, partition in same]
        found = log_offsets(logs, asked, LATEST, IsolationLevel.READ_COMMITTED) if asked else {}
        self._ends = {each: found[each[0], each[2]] for each in same}
