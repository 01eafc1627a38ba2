"""What can be read of an application at one time: values by group, name and tags."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from penstock.observability.groups import GROUPS


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """One metric's value; None where nothing was measured lately."""

    group: str
    name: str
    tags: tuple[str, ...]
    """The values of the group's tags, in their order."""
    value: float | str | None


Snapshot = list[Reading]
"""Readings of one process or of several: each has its own tags, so that they are put together by
`+`."""


class MetricName(NamedTuple):
    """A metric by Kafka Streams' words."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...]


def by_name(snapshot: Iterable[Reading]) -> dict[MetricName, float | str]:
    """The values by Kafka Streams' names, groups and tags; not a number is what is not known.

    >>> tags = ("instance.1", "0_1", "rocksdb-state", "counts")
    >>> [name] = by_name([Reading("stream-state-metrics", "put-rate", tags, 2.0)])
    >>> name.tags
    (('thread-id', 'instance.1'), ('task-id', '0_1'), ('rocksdb-state-id', 'counts'))
    """
    return {
        MetricName(reading.group, reading.name, kafka_tags(reading)): (
            math.nan if reading.value is None else reading.value
        )
        for reading in snapshot
    }


def kafka_tags(reading: Reading) -> tuple[tuple[str, str], ...]:
    """The tags as Kafka Streams names them: a store's name is under the name of its scope."""
    tags = list(zip(GROUPS[reading.group].tags, reading.tags, strict=True))
    if GROUPS[reading.group].tags[-2:] == ("scope", "store"):
        tags[-2:] = [(f"{tags[-2][1]}-id", tags[-1][1])]
    return tuple(tags)
