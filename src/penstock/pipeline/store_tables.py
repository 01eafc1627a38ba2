"""A store as a table: its rows as bytes, from the running application or from a snapshot, and the
columns of values that its serdes make of them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from penstock.changelog.snapshots import Manifest, SnapshotLocation, copy_snapshot
from penstock.coordination.ids import TaskId
from penstock.errors import DeserializationError, SnapshotError, UnknownStoreError
from penstock.instance.inspection import StoreOnDisk, opened
from penstock.instance.protocol import StoreOrder
from penstock.instance.query_answers import findings
from penstock.instance.query_messages import Found, StoreQuestion
from penstock.queries.contract import LIMIT_MAX, Bound, Question, StoreKind
from penstock.serdes import JsonSerde, Serde
from penstock.serdes.columns import column_form, column_of_bytes
from penstock.serdes.datetimes import DateTimeSerde
from penstock.serdes.scalars import (
    BoolSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UuidSerde,
)
from penstock.serdes.windowed import split_session_key, split_window_key, window_end
from penstock.stores.contract import split_stored_value

_PAGE_ROWS = 10_000
_TIMEOUT = timedelta(seconds=30)
_TIME = pa.timestamp("us", tz="UTC")
_LAST_MS = (2**63 - 1) // 1000
"""Spark counts microseconds: a window that ends with time itself has no end there."""
RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        *((name, pa.int64()) for name in ("timestamp", "start", "end")),
    ]
)
_KNOWN: tuple[Serde[Any], ...] = (
    BytesSerde(),
    StringSerde(),
    LongSerde(),
    IntegerSerde(),
    ShortSerde(),
    DoubleSerde(),
    FloatSerde(),
    BoolSerde(),
    UuidSerde(),
    DateTimeSerde(),
)
_BY_NAME = {serde.name: serde for serde in _KNOWN} | {"json": StringSerde()}


@dataclass(frozen=True, kw_only=True)
class StoreShape:
    """What is known of a store before it is read."""

    name: str
    kind: StoreKind
    partitions: tuple[int, ...]
    key: Serde[Any]
    value: Serde[Any]

    @property
    def has_windows(self) -> bool:
        """Whether rows have a start and an end."""
        return self.kind in ("window", "session")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        windows = ("window_start", "window_end") if self.has_windows else ()
        return pa.schema(
            [
                ("partition", pa.int32()),
                ("key", _column_type(self.key)),
                *((name, _TIME) for name in windows),
                ("value", _column_type(self.value)),
                ("timestamp", _TIME),
            ]
        )


@dataclass(frozen=True, kw_only=True)
class KeyFilter:
    """Which keys are wanted: all that is said here must be true of them."""

    keys: tuple[Any, ...] | None = None
    lower: Any = None
    upper: Any = None
    prefix: Any = None


class StoreTable(Protocol):
    """Where the rows of a store come from; it travels to Spark's workers."""

    def shape(self) -> StoreShape:
        """What there is to read."""
        ...

    def read(self, shape: StoreShape, partition: int, wanted: KeyFilter) -> Iterator[pa.Table]:
        """The rows of a partition, as bytes: tables of the schema `RAW`."""
        ...


def serde_named(name: str) -> Serde[Any]:
    """What reads the values of a serde of that name: JSON stays text, the unknown stays bytes.

    >>> serde_named("long").name, serde_named("json").name, serde_named("avro").name
    ('long', 'string', 'bytes')
    """
    return _BY_NAME.get(name, BytesSerde())


def readable(serde: Serde[Any]) -> Serde[Any]:
    """The serde, or what reads its values for a column where it cannot."""
    if column_form(serde) is not None:
        return serde
    return StringSerde() if isinstance(serde, JsonSerde) else BytesSerde()


def typed(rows: pa.Table, shape: StoreShape, partition: int) -> Iterator[pa.RecordBatch]:
    """The table's columns of rows that are bytes."""
    for batch in rows.combine_chunks().to_batches():
        count = batch.num_rows
        columns = {
            "partition": pa.array([partition] * count, pa.int32()),
            "key": _values(shape.key, batch.column("key"), shape.name),
            "window_start": _time(batch.column("start")),
            "window_end": _time(batch.column("end")),
            "value": _values(shape.value, batch.column("value"), shape.name),
            "timestamp": _time(batch.column("timestamp")),
        }
        yield pa.record_batch([columns[name] for name in shape.schema.names], schema=shape.schema)


def matching(batch: pa.RecordBatch, wanted: KeyFilter) -> pa.RecordBatch:
    """The rows whose keys are wanted; some stores give more than they were asked for."""
    key = batch.column("key")
    conditions = []
    if wanted.keys is not None:
        conditions.append(pc.is_in(key, value_set=pa.array(wanted.keys, key.type)))
    if wanted.lower is not None:
        conditions.append(pc.greater_equal(key, pa.scalar(wanted.lower, key.type)))
    if wanted.upper is not None:
        conditions.append(pc.less_equal(key, pa.scalar(wanted.upper, key.type)))
    if wanted.prefix is not None:
        conditions.append(pc.starts_with(key, pattern=wanted.prefix))
    for condition in conditions[1:]:
        conditions[0] = pc.and_(conditions[0], condition)
    return batch.filter(conditions[0]) if conditions else batch


def _column_type(serde: Serde[Any]) -> pa.DataType:
    form = column_form(serde)
    return pa.binary() if form is None else form.type


def _values(serde: Serde[Any], data: pa.BinaryArray, store: str) -> pa.Array:
    try:
        column = column_of_bytes(serde, data)
        if column is not None:
            return column
        form = column_form(serde)
        return data if form is None else form.column(serde.deserialize_column(data))
    except Exception as error:  # a serde may be the user's own
        raise DeserializationError(
            f"A value cannot be read by the serde {serde.name!r}: {type(error).__name__}",
            where={"store": store},
            hint="Say by option key= or value= which serde wrote it, or name the program",
        ) from error


def _time(milliseconds: pa.Array) -> pa.Array:
    fits = pc.if_else(pc.less_equal(milliseconds, _LAST_MS), milliseconds, None)
    return pc.multiply(fits, 1000).cast(pa.timestamp("us")).cast(_TIME)


# Of a running application.


@dataclass(frozen=True, kw_only=True)
class LiveTable:
    """A store of a running application, asked over HTTP."""

    url: str
    token: str
    store: str
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    serdes: tuple[Serde[Any] | None, Serde[Any] | None] = (None, None)
    """Where the user says what reads keys and values; else the application says by what name."""
    bound: Bound = field(default_factory=Bound)

    def __repr__(self) -> str:
        return f"LiveTable({self.url!r}, {self.store!r})"

    def shape(self) -> StoreShape:
        """What the application says of the store."""
        with contextlib.closing(self._client()) as client:
            stores = {each.name: each for each in client.stores()}
        found = stores.get(self.store)
        if found is None:
            raise UnknownStoreError(
                f"There is no store {self.store!r}",
                hint=f"There is: {', '.join(sorted(stores)) or 'none'}",
            )
        key, value = self.serdes
        return StoreShape(
            name=self.store,
            kind=found.kind,
            partitions=tuple(range(found.partitions)),
            key=readable(key or serde_named(found.key)),
            value=readable(value or serde_named(found.value)),
        )

    def read(self, shape: StoreShape, partition: int, wanted: KeyFilter) -> Iterator[pa.Table]:
        """Page after page of whoever holds the partition."""
        question = question_for(shape, partition, wanted)
        with contextlib.closing(self._client()) as client:
            while True:
                answer = client.table(self.store, question, bound=self.bound)
                rows = answer.table.select(RAW.names)
                # Of keys that were asked for by name, those that are not there have no value.
                yield rows.filter(rows.column("value").is_valid())
                if answer.next_page is None:
                    return
                question = replace(question, page=answer.next_page)

    def _client(self) -> Any:
        from penstock.queries.client import Client

        return Client(
            self.url,
            token=self.token,
            ca_file=self.ca_file,
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            timeout=_TIMEOUT,
        )


def question_for(shape: StoreShape, partition: int, wanted: KeyFilter) -> Question:
    """What a running application is asked for a partition's rows."""
    ask = partial(Question, partition=partition, limit=LIMIT_MAX)
    if wanted.keys is not None:
        return ask(kind="fetch" if shape.has_windows else "get", keys=wanted.keys)
    if shape.kind == "versioned" or wanted == KeyFilter():
        return ask(kind="all")
    if shape.has_windows:
        lower = wanted.lower if wanted.prefix is None else wanted.prefix
        return ask(kind="fetch_range", lower=lower, upper=wanted.upper)
    if wanted.prefix is not None:
        return ask(kind="prefix", prefix=wanted.prefix)
    return ask(kind="range", lower=wanted.lower, upper=wanted.upper)


# Of a snapshot.


@dataclass(frozen=True, kw_only=True)
class SnapshotChoice:
    """Which of the snapshots that are kept: by number, 0 being the newest, or as of a time."""

    number: int = 0
    until_ms: int | None = None

    def of(self, history: Sequence[Manifest], partition: int) -> Manifest:
        """The one of these, the newest first. Raises `SnapshotError` if none is old enough."""
        found = [
            each
            for each in history
            # Of one that does not say when it was made nobody knows.
            if self.until_ms is None or 0 < each.written_ms <= self.until_ms
        ]
        if self.number < len(found):
            return found[self.number]
        raise SnapshotError(
            f"There is no snapshot of partition {partition} that is so old: of {len(history)} the "
            f"oldest is of {shown_moment(history[-1].written_ms) if history else 'no time'}",
            hint="snapshot_keep says how many are kept; `penstock state snapshots` lists them",
        )


def shown_moment(milliseconds: int) -> str:
    """A time for people.

    >>> shown_moment(1_767_225_600_000), shown_moment(0)
    ('2026-01-01T00:00:00.000Z', 'an unknown time')
    """
    if not milliseconds:
        return "an unknown time"
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


@dataclass(frozen=True, kw_only=True)
class SnapshotTable:
    """A store as it was when its tasks were copied to a snapshot location: last, or earlier."""

    location: str
    application_id: str
    store: str
    key: Serde[Any]
    value: Serde[Any]
    window_ms: int | None = None
    """How long a window is, if it is known: the location does not tell."""
    retention_ms: int | None = None
    """How long windows, sessions and versions are found, if it is known; else all that is there."""
    choice: SnapshotChoice = SnapshotChoice()

    def __repr__(self) -> str:
        return f"SnapshotTable({self.application_id!r}, {self.store!r})"

    def shape(self) -> StoreShape:
        """What lies there."""
        tasks = self._tasks()
        if not tasks:
            raise SnapshotError(
                f"There is no snapshot of the store {self.store!r}",
                where={"application": self.application_id},
                hint="Check the names, and that snapshot is what the application has as "
                "snapshot_location",
            )
        if self.choice != SnapshotChoice():
            # Told now, and not by the worker that would read it.
            location = self._open()
            for partition, (name, _) in tasks.items():
                self._manifest(location, name, partition)
        [kind, *others] = {order.kind for _, order in tasks.values()}
        if others:
            raise SnapshotError("Snapshots of the store are of several kinds")
        return StoreShape(
            name=self.store,
            kind=kind,
            partitions=tuple(sorted(tasks)),
            key=readable(self.key),
            value=readable(self.value),
        )

    def read(self, shape: StoreShape, partition: int, wanted: KeyFilter) -> Iterator[pa.Table]:
        """The rows of a task's store, from a copy that is gone afterwards."""
        name, _ = self._tasks()[partition]
        location = self._open()
        manifest = self._manifest(location, name, partition)
        with tempfile.TemporaryDirectory(prefix="penstock-snapshot-") as directory:
            path = Path(directory) / self.store
            copy_snapshot(location.snapshot(name, manifest), path)
            disk = StoreOnDisk(path=path, place=name)
            with opened(disk, retention_ms=self.retention_ms) as found:
                question = store_question(shape, wanted)
                while True:
                    answer = findings(found.store, question)
                    yield _raw(answer.found, question, shape.kind, self.window_ms)
                    if answer.after is None:
                        return
                    question = structs.replace(question, after=answer.after)

    def _manifest(self, location: SnapshotLocation, name: str, partition: int) -> Manifest:
        newest = location.manifest(name, self.store)
        if newest is not None and self.choice == SnapshotChoice():
            return newest
        return self.choice.of(location.history(name, self.store), partition)

    def _open(self) -> SnapshotLocation:
        return SnapshotLocation(self.location, self.application_id)

    def _tasks(self) -> Mapping[int, tuple[str, StoreOrder]]:
        """By partition, the task that has it, and how its store lies."""
        location = self._open()
        newest: dict[int, tuple[int, str, StoreOrder]] = {}
        for name in location.tasks(self.store):
            manifest = location.manifest(name, self.store)
            if manifest is None:
                continue
            partition = TaskId.parse(manifest.identity.task).partition
            order = StoreOrder.of_layout(self.store, manifest.identity.layout)
            # A sub-topology that was renamed leaves an older one behind.
            if partition not in newest or newest[partition][0] < manifest.offset:
                newest[partition] = (manifest.offset, name, order)
        return {partition: (name, order) for partition, (_, name, order) in newest.items()}


def store_question(shape: StoreShape, wanted: KeyFilter) -> StoreQuestion:
    """What a store on disk is asked for its rows."""
    encode = shape.key.serialize
    ask = partial(StoreQuestion, store=shape.name, layout=shape.kind, limit=_PAGE_ROWS)
    if wanted.keys is not None:
        keys = [encode(key) for key in wanted.keys]
        return ask(kind="fetch" if shape.has_windows else "get", keys=keys)
    if wanted.prefix is not None:
        # Other bounds, if there are any, are looked at later.
        prefix = encode(wanted.prefix)
        return ask(kind="scan", lower=prefix, upper=_after(prefix))
    lower = None if wanted.lower is None else encode(wanted.lower)
    # An upper end belongs to what is wanted here, and not there.
    upper = None if wanted.upper is None else encode(wanted.upper) + b"\x00"
    return ask(kind="scan", lower=lower, upper=upper)


def _after(prefix: bytes) -> bytes | None:
    """What comes after all that begins with this; None if nothing does."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _raw(
    found: Iterable[Found], question: StoreQuestion, kind: StoreKind, window_ms: int | None
) -> pa.Table:
    rows: list[tuple[bytes, bytes, int, int | None, int | None]] = []
    for number, key, stored, _ in found:
        if stored is None:
            continue
        start: int | None = None
        end: int | None = None
        if question.kind == "get":
            key = question.keys[number]  # noqa: PLW2901 - a look-up does not repeat it
        elif kind == "window":
            key, start, _ = split_window_key(key)  # noqa: PLW2901 - the key inside
            end = None if window_ms is None else window_end(start, window_ms)
        elif kind == "session":
            key, start, end = split_session_key(key)  # noqa: PLW2901
        timestamp, value = split_stored_value(stored)
        rows.append((key, value, timestamp, start, end))
    columns = zip(*rows, strict=True) if rows else [()] * len(RAW)
    arrays = [pa.array(list(each), field.type) for each, field in zip(columns, RAW, strict=True)]
    return pa.Table.from_arrays(arrays, schema=RAW)
