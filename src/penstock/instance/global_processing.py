"""Global stores that take code of the user's: from messages to what they are to hold."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from penstock.errors import InstanceError
from penstock.observability.time_of_day import wall_clock_ms
from penstock.processors import HEADERS_TYPE, Entry, Fetched, Limits, RecordRun, Records
from penstock.processors.records import Int64s, OnError
from penstock.stores.contract import Change, KeyValueStore, pages
from penstock.topology import SubTopology
from penstock.topology.manifest import serde_name

_log = logging.getLogger("penstock.instance")

_TIME_BYTES = 8
_PAGE_ENTRIES = 1_000
_TELL_SECONDS = 60.0
"""Between two lines on dropped records: bad ones may come one by one."""


@dataclass(frozen=True)
class Programs:
    """What fills each global store that code of the user's fills, by the store's name.

    `handler` is what becomes of records on which it fails, where that is a function.
    """

    subs: Mapping[str, SubTopology] = field(default_factory=dict)
    handler: OnError = "fail"


def programs_of(subs: Iterable[SubTopology], handler: OnError = "fail") -> Programs:
    """The sub-topologies that run code of the user's, and who is asked if that fails."""
    filled = (sub for sub in subs if sub.is_filled_by_code)
    return Programs({store.name: sub for sub in filled for store in sub.stores}, handler)


class GlobalProgram:
    """Runs what fills one global store over what was read of its topic."""

    def __init__(
        self,
        sub: SubTopology,
        application_id: str,
        *,
        skips_undecodable: bool,
        on_processing_error: OnError = "fail",
        dead_letter_topic: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sub = sub
        self._clock = clock
        self._dropped: Counter[str] = Counter()
        self._tell_at = clock()
        self._application_id = application_id
        self._limits = Limits(
            cache_max_bytes=0,
            on_bad_record="continue" if skips_undecodable else "fail",
            on_processing_error=on_processing_error,
            # A handler may name the dead letters. None are written: each instance would write one,
            # and again whenever it fills the store anew.
            dead_letter_topic=dead_letter_topic,
        )

    @property
    def filled_as(self) -> str:
        """From what it makes what: a copy that was made otherwise would be misread."""
        read = [(each.key_serde, each.value_serde) for each in self._sub.sources]
        kept = [(each.key_serde, each.value_serde) for each in self._sub.stores]
        names = [f"{serde_name(key)}: {serde_name(value)}" for key, value in (*read, *kept)]
        how = "processor" if self._sub.has_processors else "times"
        return f"{how}, {' -> '.join(names)}"

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
        result = run.finish()
        self._dropped.update(result.dropped)
        self._tell()
        changes = result.changes.to_pylist()
        return [(row["key"], _stored(row["value"], row["timestamp"])) for row in changes]

    def _tell(self) -> None:
        """Log what was dropped since the last line."""
        if not self._dropped or self._clock() < self._tell_at:
            return
        store, dropped = self._sub.stores[0].name, dict(self._dropped)
        _log.warning("Global store %s: records were dropped: %s", store, dropped)
        self._dropped.clear()
        self._tell_at = self._clock() + _TELL_SECONDS


def program_for(programs: Programs, store: str) -> SubTopology:
    """The program of a store. Raises `InstanceError` where this process was given none."""
    if store not in programs.subs:
        raise InstanceError(
            "The global store is filled by code that this instance does not have",
            where={"store": store},
            hint="Start it with `penstock instance --application app.py`",
        )
    return programs.subs[store]


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

    def fetch_columns(
        self, store: str, keys: pa.BinaryArray, first: Int64s, last: Int64s
    ) -> Fetched:
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
