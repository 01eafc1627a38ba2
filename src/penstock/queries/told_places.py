"""Where the state is, as the driver tells an instance; and what it told last while it is silent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.coordination.ids import TaskId
from penstock.errors import InstanceError, StoreUnavailableError
from penstock.instance.client import Client
from penstock.instance.tls import Trust
from penstock.instance.told_messages import LogEndsReply, PlacesReply, PlacesRequest
from penstock.queries.freshness import EndsSeen, Log
from penstock.queries.routing import Holders

_log = logging.getLogger("penstock.queries")

_CALL_SECONDS = 1.0
_ENDS_CALL_SECONDS = 5.0
_OLD_SECONDS = 0.25
"""How long a table will do for whoever looks for somebody to ask."""
_ENDS_OLD_SECONDS = 1.0
"""The driver looks as often."""
_RETRY_SECONDS = 0.5
_NOBODY = Holders()


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Who holds what, and when that was asked for."""

    version: int = 0
    seen_at: float = float("-inf")
    holders: Mapping[TaskId, Holders] = field(default_factory=dict)
    locations: Mapping[str, str] = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)


class ToldPlaces:
    """`asking.Places` of an instance.

    One thread asks the driver, when somebody wants to know; all who wait meanwhile get the same.
    """

    doubt = "the driver does not answer, and does not say whether it is still active"
    decides = False

    def __init__(self, coordinator: Client, *, token: str, trust: Trust | None) -> None:
        self.token = token
        self.trust = trust
        self.ends_seen = EndsSeen()
        self._coordinator = coordinator
        self._changed = threading.Condition()
        self._table = _Table()
        self._wanted = float("-inf")
        """The latest moment as of which somebody wants to know."""
        self._tried = float("-inf")
        """When the last try began that has ended."""
        self._is_failing = False
        self._is_closed = False
        self._ends_at = float("-inf")
        self._thread = threading.Thread(target=self._loop, name="penstock-places", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def holders(self, task: TaskId) -> Holders:
        """Who holds a task."""
        return self._of(task, self._recent())

    def holders_since(self, task: TaskId, moment: float) -> Holders:
        """The same as of that moment, or later, if the driver answers."""
        return self._of(task, self._since(moment))

    def present(self) -> list[str]:
        """The instances that are there."""
        return sorted(self._recent().locations)

    def location(self, instance: str) -> str | None:
        """Where an instance listens."""
        return self._recent().locations.get(instance)

    def urls(self) -> Mapping[str, str]:
        """Where instances answer over HTTP, by name."""
        return self._recent().urls

    def ends(self) -> Mapping[Log, int]:
        """Where all changelogs end now. Raises `StoreUnavailableError` without a driver."""
        try:
            reply = self._coordinator.call(
                "log_ends", PlacesRequest(), LogEndsReply, within_seconds=_ENDS_CALL_SECONDS
            )
        except InstanceError as error:
            raise StoreUnavailableError(
                "The driver does not answer, and only it knows where changelogs end",
                hint="Ask again once the application runs",
            ) from error
        return {(topic, partition): end for topic, partition, end in reply.ends}

    def _of(self, task: TaskId, table: _Table) -> Holders:
        return replace(table.holders.get(task, _NOBODY), seen_at=table.seen_at)

    def _recent(self) -> _Table:
        """What is known; the first time what is found out."""
        now = time.monotonic()
        if self._table.seen_at < now - _OLD_SECONDS:
            with self._changed:
                self._want(now)
                if self._table.version == 0:
                    self._wait(now)
        return self._table

    def _since(self, moment: float) -> _Table:
        if self._table.seen_at < moment:
            with self._changed:
                self._want(moment)
                self._wait(moment)
        return self._table

    def _want(self, moment: float) -> None:
        self._wanted = max(self._wanted, moment)
        self._changed.notify_all()

    def _wait(self, moment: float) -> None:
        # Of a driver that is silent nobody waits for the next try: it may well be dead.
        self._changed.wait_for(
            lambda: self._tried >= moment or self._is_failing or self._is_closed,
            timeout=_CALL_SECONDS,
        )

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted > self._tried or self._is_closed)
                if self._is_closed:
                    return
            began = time.monotonic()
            reply = self._ask(began)
            with self._changed:
                if reply is not None:
                    self._take_in(reply, began)
                self._is_failing = reply is None
                self._tried = began
                self._changed.notify_all()
                if reply is None:
                    self._changed.wait_for(lambda: self._is_closed, timeout=_RETRY_SECONDS)

    def _ask(self, now: float) -> PlacesReply | None:
        with_ends = self._ends_at < now - _ENDS_OLD_SECONDS
        request = PlacesRequest(version=self._table.version, with_ends=with_ends)
        try:
            return self._coordinator.call(
                "places", request, PlacesReply, within_seconds=_CALL_SECONDS
            )
        except InstanceError as error:
            if not self._is_failing:
                _log.info("The driver does not say who holds what: %s", error)
            return None

    def _take_in(self, reply: PlacesReply, asked_at: float) -> None:
        for topic, partition, end, age_ms in reply.ends:
            self.ends_seen.note(asked_at - age_ms / 1000, {(topic, partition): end})
            self._ends_at = asked_at
        if reply.holders is None:
            self._table = replace(self._table, seen_at=asked_at)
            return
        holders = {
            TaskId.parse(task): Holders(
                owner=each.owner, epoch=each.epoch, followers=tuple(each.followers)
            )
            for task, each in reply.holders.items()
        }
        self._table = _Table(
            version=reply.version,
            seen_at=asked_at,
            holders=holders,
            locations=reply.locations,
            urls=reply.urls,
        )
