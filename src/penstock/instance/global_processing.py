"""Global stores that take code of the user's: from messages to what they are to hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from penstock.errors import InstanceError
from penstock.observability.time_of_day import wall_clock_ms
from penstock.processors import HEADERS_TYPE, Entry, Limits, RecordRun, Records
from penstock.stores.contract import Change, KeyValueStore, pages
from penstock.topology import SubTopology

Programs = Mapping[str, SubTopology]
"""What fills each global store that code of the user's fills, by the store's name."""

_TIME_BYTES = 8
_PAGE_ENTRIES = 1_000


def programs_of(subs: Iterable[SubTopology]) -> Programs:
    """The sub-topologies that run code of the user's, by the store that they fill."""
    return {store.name: sub for sub in subs if sub.is_filled_by_code for store in sub.stores}


class GlobalProgram:
    """Runs what fills one global store over what was read of its topic."""

    def __init__(self, sub: SubTopology, application_id: str, *, skips_undecodable: bool) -> None:
        self._sub = sub
        self._application_id = application_id
        self._limits = Limits(
            cache_max_bytes=0, on_bad_record="continue" if skips_undecodable else "fail"
        )

    def changes(self, messages: Iterable[Message], store: KeyValueStore) -> list[Change]:
        """What goes into the store for these messages.

        Raises `UserFunctionError`, `DeserializationError`.
        """
        run = RecordRun(
            self._sub,
            application_id=self._application_id,
            state=_StoreReader(store),
            limits=self._limits,
            now_ms=wall_clock_ms(),
        )
        for records in _records(messages):
            run.process(records)
        changes = run.finish().changes.to_pylist()
        return [(row["key"], _stored(row["value"], row["timestamp"])) for row in changes]


def program_for(programs: Programs, store: str) -> SubTopology:
    """The program of a store. Raises `InstanceError` where this process was given none."""
    if store not in programs:
        raise InstanceError(
            "The global store is filled by code that this instance does not have",
            where={"store": store},
            hint="Start it with `penstock instance --application app.py`",
        )
    return programs[store]


class _StoreReader:
    """One global store, as a slice reads stores."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def get_many(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Each key's stored bytes, null if absent."""
        return pa.array(self._store.get_many(keys.to_pylist()), pa.binary())

    def range_many(
        self, store: str, ranges: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[list[Entry]]:
        """For each (lower, upper): the entries between."""
        return [
            list(pages(self._store, _PAGE_ENTRIES, lower=lower, upper=upper))
            for lower, upper in ranges
        ]

    def fetch_many(
        self, store: str, questions: Sequence[tuple[bytes, int, int]]
    ) -> list[list[Entry]]:
        """Global stores have no windows."""
        raise NotImplementedError

    def fetch_times(self, store: str, first: int, last: int) -> list[Entry]:
        """Global stores have no times."""
        raise NotImplementedError


def _stored(value: bytes | None, timestamp: int) -> bytes | None:
    return None if value is None else timestamp.to_bytes(_TIME_BYTES, "big", signed=True) + value


def _records(messages: Iterable[Message]) -> list[Records]:
    """The records among the messages, in order, by partition."""
    found: dict[tuple[str, int], list[Message]] = {}
    for message in messages:
        if message.error() is None:
            topic, partition = message.topic(), message.partition()
            assert topic is not None
            assert partition is not None
            found.setdefault((topic, partition), []).append(message)
    return [
        Records(
            topic=topic,
            partition=partition,
            offsets=np.array([each.offset() for each in group], dtype=np.int64),
            timestamps=np.array([each.timestamp()[1] for each in group], dtype=np.int64),
            keys=pa.array([each.key() for each in group], pa.binary()),
            values=pa.array([each.value() for each in group], pa.binary()),
            headers=_headers(group),
        )
        for (topic, partition), group in found.items()
    ]


def _headers(group: Sequence[Message]) -> pa.ListArray | None:
    rows: list[Any] = [each.headers() or () for each in group]
    if not any(rows):
        return None
    told = [[{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(told, HEADERS_TYPE)
