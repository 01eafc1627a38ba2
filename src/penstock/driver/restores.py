"""From what instances say of their restores to what listeners are told: each thing once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from penstock.driver.events import (
    BatchRestored,
    RestoreEnded,
    RestoreEvent,
    RestoreStarted,
    RestoreSuspended,
    TopicPartition,
)
from penstock.instance.protocol import RestoreStatus


@dataclass
class _Told:
    """What was told of the restores of one task under one epoch, or of an instance's tables."""

    epoch: Hashable
    open: dict[int, RestoreStatus] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)


class RestoreBook:
    """What was told of every restore; instances say where one stands, never what is new."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def hear(
        self, whose: str, epoch: Hashable, restores: Iterable[RestoreStatus]
    ) -> list[RestoreEvent]:
        """What is new in the restores of a task, or of an instance; another epoch starts anew."""
        events: list[RestoreEvent] = []
        if whose in self._told and self._told[whose].epoch != epoch:
            events += self.lose(whose)
        told = self._told.setdefault(whose, _Told(epoch))
        known = {each.number: each for each in restores}
        told.closed &= known.keys()
        for number, status in known.items():
            if number not in told.closed:
                events += _news(told, status)
        return events

    def open(self, whose: str) -> list[RestoreStatus]:
        """Where the restores stand that are under way."""
        told = self._told.get(whose)
        return [] if told is None else list(told.open.values())

    def lose(self, whose: str) -> list[RestoreEvent]:
        """Nothing more will be heard of these restores: those that were under way stopped."""
        told = self._told.pop(whose, None)
        return [] if told is None else [_suspended(each) for each in told.open.values()]

    def lose_all(self) -> list[RestoreEvent]:
        """The same for all."""
        return [event for whose in list(self._told) for event in self.lose(whose)]


def _news(told: _Told, now: RestoreStatus) -> list[RestoreEvent]:
    events: list[RestoreEvent] = []
    where = TopicPartition(now.topic, now.partition)
    before = told.open.pop(now.number, None)
    if before is None:
        events.append(
            RestoreStarted(
                partition=where,
                store=now.store,
                # A log that lost its head begins behind 0, and is all that there is.
                starting_offset=0 if now.full else now.start,
                ending_offset=now.end,
            )
        )
    new = now.restored - (before.restored if before else 0)
    if new:
        events.append(
            BatchRestored(
                partition=where, store=now.store, batch_end_offset=now.offset, num_restored=new
            )
        )
    if now.state == "restoring":
        told.open[now.number] = now
        return events
    told.closed.add(now.number)
    ended = RestoreEnded(partition=where, store=now.store, total_restored=now.restored)
    return [*events, ended if now.state == "ended" else _suspended(now)]


def _suspended(status: RestoreStatus) -> RestoreSuspended:
    return RestoreSuspended(
        partition=TopicPartition(status.topic, status.partition),
        store=status.store,
        total_restored=status.restored,
    )
