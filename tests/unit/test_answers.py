"""What a store answers on the wire: every kind of question, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InstanceError
from penstock.instance import answers as module
from penstock.instance import protocol
from penstock.instance.answers import answers
from penstock.instance.client import Client
from penstock.instance.protocol import Question, ReadHeader, Reply
from penstock.instance.server import Server
from penstock.serdes.windowed import session_key, window_key
from penstock.stores.contract import KeyValueStore
from penstock.stores.memory import MemoryStore
from penstock.stores.segments import SegmentedStore


def asked(question: Question, *rows: tuple[Any, ...]) -> pa.RecordBatch:
    schema = protocol.QUESTIONS[question]
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return pa.record_batch(columns, schema=schema)


def told(
    store: KeyValueStore, question: Question, *rows: tuple[Any, ...]
) -> list[list[tuple[Any, ...]]]:
    """The rows of each batch."""
    found = answers(store, question, pa.Table.from_batches([asked(question, *rows)]))
    return [list(zip(*(c.to_pylist() for c in b.columns), strict=True)) for b in found]


def windows(*, indexed: bool) -> SegmentedStore:
    store = SegmentedStore(
        MemoryStore("w"), kind="window", retention_ms=1000, segment_ms=60, indexed=indexed
    )
    entries = [(window_key(key, start), b"%d" % start) for key in (b"a", b"b") for start in (0, 70)]
    store.apply(entries, offset=0)
    return store


def test_each_kind_of_question() -> None:
    store = windows(indexed=True)
    assert told(store, "get", (window_key(b"a", 70),), (window_key(b"c", 0),)) == [
        [(b"70",), (None,)]
    ]
    fetched = told(store, "fetch", (b"b", 0, 100), (b"c", 0, 100), (b"a", 1, 70))
    assert fetched == [
        [
            (0, window_key(b"b", 0), b"0"),
            (0, window_key(b"b", 70), b"70"),
            (2, window_key(b"a", 70), b"70"),
        ]
    ]
    [everything] = told(store, "range", (None, None))
    assert [key for _, key, _ in everything] == sorted(key for _, key, _ in everything)
    assert [len(part) for part in told(store, "range", (b"b", None), (None, b"b"))] == [4]
    assert [value for _, _, value in told(store, "times", (1, 70))[0]] == [b"70", b"70"]


def test_sessions_are_found_by_their_end() -> None:
    store = SegmentedStore(
        MemoryStore("s"), kind="session", retention_ms=1000, segment_ms=60, indexed=False
    )
    store.apply([(session_key(b"a", 10, 20), b"x"), (session_key(b"a", 50, 90), b"y")], offset=0)
    assert told(store, "fetch", (b"a", 20, 89)) == [[(0, session_key(b"a", 10, 20), b"x")]]


@pytest.mark.parametrize(
    ("store", "question", "row"),
    [
        (MemoryStore("counts"), "fetch", (b"a", 0, 1)),
        (MemoryStore("counts"), "times", (0, 1)),
        (windows(indexed=False), "times", (0, 1)),
    ],
)
def test_a_question_that_the_store_cannot_be_asked_is_named(
    store: KeyValueStore, question: Question, row: tuple[Any, ...]
) -> None:
    with pytest.raises(InstanceError, match=store.name):
        told(store, question, row)


def test_batches_are_bounded_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore("counts")
    store.apply([(b"%03d" % n, b"v" * 10) for n in range(100)], offset=0)
    monkeypatch.setattr(module, "BATCH_ROWS", 30)
    assert [len(batch) for batch in told(store, "range", (None, None))] == [30, 30, 30, 10]
    monkeypatch.setattr(module, "BATCH_BYTES", 100)
    sizes = [len(batch) for batch in told(store, "range", (None, None))]
    assert sum(sizes) == 100
    assert max(sizes) == 8
    rows = [(b"%03d" % n,) for n in range(100)]
    got = told(store, "get", *rows)
    assert [value for batch in got for (value,) in batch] == [b"v" * 10] * 100
    assert max(map(len, got)) == 11
    monkeypatch.setattr(module, "GET_ROWS", 3)
    assert {len(batch) for batch in told(store, "get", *rows)} == {3, 1}
    nothing = pa.table([pa.array([], pa.binary())], schema=protocol.QUESTIONS["get"])
    assert [batch.num_rows for batch in answers(store, "get", nothing)] == [0]


class Held:
    """Answers for one store; the reply says what the test says."""

    def __init__(self, store: KeyValueStore) -> None:
        self.store = store
        self.reply = Reply(status="ok")

    def read(self, header: ReadHeader, questions: pa.Table) -> Iterator[pa.RecordBatch | Reply]:
        yield from answers(self.store, header.question, questions)
        yield self.reply

    def commit(self, header: object, batches: object) -> Reply:
        raise AssertionError


def test_answers_of_many_batches_cross_the_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 7)
    store = MemoryStore("counts")
    entries = [(b"%05d" % n, b"v%d" % n) for n in range(1000)]
    store.apply(entries, offset=0)
    held = Held(store)
    location = f"grpc+unix://{tmp_path}/s"
    server = Server(location, token="t", actions={}, rows=held)
    client = Client(location, token="t", timeout_seconds=20)
    header = ReadHeader(task="0_0", epoch=(1, 1), n=1, store="counts", question="range")
    reply, found = client.read(header, asked("range", (None, None)))
    assert reply.status == "ok"
    assert len(found) == 143
    rows = [row for batch in found for row in zip(*batch.to_pydict().values(), strict=True)]
    assert rows == [(0, key, value) for key, value in entries]
    # What was read while a commit went by does not count.
    held.reply = Reply(status="done", n=1)
    assert client.read(header, asked("range", (None, None)))[0].status == "done"
    client.close()
    server.shutdown()
