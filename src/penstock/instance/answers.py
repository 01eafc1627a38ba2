"""What a store says to a read, in Arrow batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from penstock.errors import InstanceError
from penstock.instance import protocol
from penstock.instance.columns import binary_array, int_array
from penstock.instance.protocol import Question
from penstock.stores.contract import (
    Entry,
    KeyValueStore,
    TimeIndexedStore,
    VersionedStore,
    WindowStore,
    pages,
)
from penstock.stores.segments import SegmentedStore

BATCH_ROWS = 20_000
BATCH_BYTES = 4 * 1024 * 1024
GET_ROWS = 200_000
"""Rows of an answer to `get` in one batch, while their bytes allow it."""
PAGE_ENTRIES = 1_000


def answers(
    store: KeyValueStore, question: Question, questions: pa.Table
) -> Iterator[pa.RecordBatch]:
    """The answers of a store to all rows of a read.

    Raises `InstanceError` for a question that this kind of store cannot be asked.
    """
    if question == "get":
        values = store.get_many(questions.column(0).to_pylist())
        return _value_batches(values)
    # Whether a store is of a kind takes longer to find out than many an answer.
    ask = _asked(store, question)
    if question != "range" and any(column.null_count for column in questions.columns):
        raise InstanceError("A question lacks its key or its time", where={"store": store.name})
    rows = zip(*(column.to_pylist() for column in questions.columns), strict=True)
    if question == "fetch" and isinstance(store, SegmentedStore):
        return _entry_batches(store.fetch_all(rows))
    return _entry_batches(
        (number, key, value) for number, row in enumerate(rows) for key, value in ask(*row)
    )


def _asked(store: KeyValueStore, question: Question) -> Callable[..., Iterable[Entry]]:
    """What answers one row of such a read."""
    if question == "range":
        return lambda lower, upper: pages(store, PAGE_ENTRIES, lower=lower, upper=upper)
    if question == "fetch" and isinstance(store, WindowStore):
        return store.fetch
    if question == "fetch" and isinstance(store, VersionedStore):
        return store.versions
    if question == "times" and isinstance(store, TimeIndexedStore):
        return store.fetch_times
    raise InstanceError(
        f"A store of this kind does not answer {question}", where={"store": store.name}
    )


def _value_batches(values: list[bytes | None]) -> Iterator[pa.RecordBatch]:
    start = size = 0
    for end, value in enumerate(values):
        if end - start == GET_ROWS or (size > BATCH_BYTES and end > start):
            yield _batch_of_values(values[start:end])
            start, size = end, 0
        size += len(value or b"")
    yield _batch_of_values(values[start:])


def _batch_of_values(values: list[bytes | None]) -> pa.RecordBatch:
    return pa.record_batch([binary_array(values)], schema=protocol.VALUES)


def _entry_batches(rows: Iterable[tuple[int, bytes, bytes]]) -> Iterator[pa.RecordBatch]:
    numbers: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    size = 0
    for number, key, value in rows:
        numbers.append(number)
        keys.append(key)
        values.append(value)
        size += len(key) + len(value)
        if len(numbers) == BATCH_ROWS or size > BATCH_BYTES:
            yield _batch_of_entries(numbers, keys, values)
            numbers, keys, values, size = [], [], [], 0
    if numbers:
        yield _batch_of_entries(numbers, keys, values)


def _batch_of_entries(
    numbers: list[int], keys: list[bytes | None], values: list[bytes | None]
) -> pa.RecordBatch:
    columns = [int_array(numbers), binary_array(keys), binary_array(values)]
    return pa.record_batch(columns, schema=protocol.ENTRIES)
