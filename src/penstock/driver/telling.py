"""What the driver tells instances that answer over HTTP: who holds what, and where logs end."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Protocol

from penstock.coordination.ids import TaskId
from penstock.errors import InstanceError
from penstock.instance import protocol
from penstock.instance.protocol import Message
from penstock.instance.told_messages import (
    HoldersTold,
    LogEndsReply,
    PlacesReply,
    PlacesRequest,
)
from penstock.queries.freshness import EndsSeen, Log
from penstock.queries.routing import Holders


class KnownPlaces(Protocol):
    """What is told of; `whereabouts.Whereabouts`."""

    @property
    def ends_seen(self) -> EndsSeen:
        """Where changelogs were seen to end."""
        ...

    def may_tell(self) -> bool:
        """Whether it is true what is told: nobody else can be the driver."""
        ...

    def all_holders(self) -> Mapping[TaskId, Holders]:
        """Who holds what; it is replaced when that changes."""
        ...

    def locations(self) -> dict[str, str]:
        """Where the instances that are there listen."""
        ...

    def urls(self) -> dict[str, str]:
        """Where those of them answer that have an HTTP service."""
        ...

    def ends(self) -> Mapping[Log, int]:
        """Where all changelogs end now."""
        ...


class PlacesTelling:
    """Answers instances; what they know already is not told again. Any thread may call."""

    def __init__(self, places: KnownPlaces) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._version = 0
        self._holders: Mapping[TaskId, Holders] = {}
        self._locations: dict[str, str] = {}
        self._urls: dict[str, str] = {}

    def places(self, body: bytes) -> Message:
        """Who holds what."""
        request = protocol.decode(body, PlacesRequest)
        if not self._places.may_tell():
            raise InstanceError("Kafka does not answer the driver: another may have taken over")
        with self._lock:
            self._look()
            reply = PlacesReply(version=self._version, ends=self._ends(request))
            if request.version == self._version:
                return reply
            return PlacesReply(
                version=self._version,
                holders={str(task): _told(each) for task, each in self._holders.items()},
                locations=self._locations,
                urls=self._urls,
                ends=reply.ends,
            )

    def log_ends(self, body: bytes) -> Message:
        """Where all changelogs end now."""
        del body
        ends = self._places.ends()
        return LogEndsReply(ends=[(topic, number, end) for (topic, number), end in ends.items()])

    def _look(self) -> None:
        holders, locations = self._places.all_holders(), self._places.locations()
        urls = self._places.urls()
        is_known = holders is self._holders and locations == self._locations and urls == self._urls
        if not is_known or self._version == 0:
            self._version += 1
        self._holders, self._locations, self._urls = holders, locations, urls

    def _ends(self, request: PlacesRequest) -> list[tuple[str, int, int, int]]:
        if not request.with_ends:
            return []
        now = time.monotonic()
        return [
            (topic, partition, end, int((now - at) * 1000) + 1)
            for (topic, partition), (end, at) in self._places.ends_seen.latest().items()
        ]


def _told(holders: Holders) -> HoldersTold:
    return HoldersTold(owner=holders.owner, epoch=holders.epoch, followers=list(holders.followers))
