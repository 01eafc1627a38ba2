"""What messages of a topic mean for a store that holds the whole topic."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message

from penstock.changelog.reading import LogRange, is_out_of_range, position_after
from penstock.stores.contract import Change

_TIMESTAMP = struct.Struct(">q")


@dataclass(frozen=True, kw_only=True)
class TopicRead:
    """What one fetch brought, of any number of partitions."""

    changes: list[Change]
    positions: Mapping[int, int]
    """Where the consumer stands now in each partition that it heard of."""
    lost: bool
    """A log does not hold the offset that was asked for."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """How many of the changes came from each partition."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """The offset of the last of them."""


def read_messages(messages: Iterable[Message]) -> TopicRead:
    """The changes in these messages: a null value deletes, and a null key means nothing.

    Raises `KafkaError` if Kafka says anything else than that a log ends here.
    """
    changes: list[Change] = []
    positions: dict[int, int] = {}
    counts: dict[int, int] = {}
    offsets: dict[int, int] = {}
    for message in messages:
        if is_out_of_range(message):
            return TopicRead(changes=[], positions={}, lost=True)
        at, partition = position_after(message), message.partition()
        assert partition is not None
        positions[partition] = at
        key, value = message.key(), message.value()
        if message.error() is None and key is not None:
            assert isinstance(key, bytes)
            assert value is None or isinstance(value, bytes)
            stored = None if value is None else _TIMESTAMP.pack(message.timestamp()[1]) + value
            changes.append((key, stored))
            counts[partition] = counts.get(partition, 0) + 1
            offsets[partition] = at - 1
    return TopicRead(
        changes=changes, positions=positions, lost=False, counts=counts, offsets=offsets
    )


def starts(held: Mapping[int, int], logs: Mapping[int, LogRange]) -> dict[int, int] | None:
    """Where to go on in each log; None if one of them lacks what the store needs next.

    >>> starts({0: 5}, {0: LogRange(2, 9), 1: LogRange(4, 4)})
    {0: 5, 1: 4}
    >>> starts({0: 1}, {0: LogRange(2, 9)})
    >>> starts({0: 10}, {0: LogRange(2, 9)})
    """
    result: dict[int, int] = {}
    for partition, log in logs.items():
        at = held.get(partition, log.start)
        if not log.start <= at <= log.end:
            return None
        result[partition] = at
    return None if held.keys() - logs.keys() else result
