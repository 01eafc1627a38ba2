"""Where the state is, for those who ask for it; they are other threads than the driver's loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.coordination.ids import TaskId
from penstock.driver.owners import TaskOwners
from penstock.driver.parts import DriverParts
from penstock.instance.tls import Trust
from penstock.queries.freshness import EndsSeen, Log
from penstock.queries.routing import Holders

_NOBODY = Holders()


class Whereabouts:
    """What the driver knows of who holds what, as `queries.asking.Places`."""

    doubt = "Kafka does not answer the driver, and another driver may have taken over"
    decides = True

    def __init__(self, parts: DriverParts, owners: TaskOwners, ends_seen: EndsSeen) -> None:
        self._parts = parts
        self._coordinator = parts.coordinator
        self._owners = owners
        self.ends_seen = ends_seen

    @property
    def token(self) -> str:
        """What calls to instances bear."""
        return self._coordinator.token

    @property
    def trust(self) -> Trust | None:
        """By what instances on other hosts are known."""
        return self._coordinator.trust

    def holders(self, task: TaskId) -> Holders:
        """Who holds a task."""
        return self._owners.holders.get(task, _NOBODY)

    def holders_since(self, task: TaskId, moment: float) -> Holders:
        """The same: what is decided is decided here, unless another driver may have taken over."""
        del moment
        holders, lease = self.holders(task), self._parts.lease
        return holders if lease.holds() else replace(holders, seen_at=lease.renewed)

    def may_tell(self) -> bool:
        """Whether nobody else can be the driver by now."""
        return self._parts.lease.holds()

    def all_holders(self) -> Mapping[TaskId, Holders]:
        """Who holds what; it is replaced when that changes."""
        return self._owners.holders

    def present(self) -> list[str]:
        """The instances that are there, by name."""
        return sorted(set(self._coordinator.names()) - self._coordinator.away())

    def locations(self) -> dict[str, str]:
        """Where those listen."""
        found = {name: self.location(name) for name in self.present()}
        return {name: location for name, location in found.items() if location is not None}

    def urls(self) -> dict[str, str]:
        """Where those of them answer that have an HTTP service."""
        members = (self._coordinator.member(name) for name in self.present())
        return {each.name: each.http_url for each in members if each is not None and each.http_url}

    def location(self, instance: str) -> str | None:
        """Where an instance listens."""
        member = self._coordinator.member(instance)
        return None if member is None else member.tcp_location or member.unix_location

    def ends(self) -> Mapping[Log, int]:
        """Where all changelogs end now."""
        return self._parts.changelogs.ends()
