"""Pages of every kind of store, forwards and backwards, are the whole scan in pieces."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import penstock.instance.query_answers as module
from penstock.errors import PageRefusedError
from penstock.instance.protocol import decode, encode
from penstock.instance.query_answers import findings
from penstock.instance.query_messages import SCAN_ENTRIES, Cursor, Found, StoreQuestion
from penstock.queries.catalogue import AskedStore
from penstock.queries.contract import Question
from penstock.queries.pages import Page, page_of, page_text
from penstock.queries.planning import plan
from penstock.serdes import serde_of
from penstock.serdes.windowed import session_key, split_session_key, split_window_key, window_key
from penstock.stores import backward
from penstock.stores.backward import entries_back, fetched_back, key_between
from penstock.stores.contract import (
    ByteStore,
    Change,
    Entry,
    KeyValueStore,
    WindowStore,
    pages,
    stored_value,
    version_key,
)
from penstock.stores.custom import CustomStore, CustomWindowStore
from penstock.stores.indexed import TimeIndexedKeyValueStore
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.segments import SegmentedStore
from penstock.stores.versioned import VersionsStore
from penstock.stores.whole_topic import WholeTopicStore
from penstock.topology import StoreSpec
from tests.unit.queries_in_memory import made_service, request

KEYS = st.binary(max_size=3)
RETENTION_MS, SEGMENT_MS = 1_000_000, 60


class Forwards(MemoryStore):
    """A user's store: it goes forwards only, and knows how much was read from it."""

    range_back = None  # type: ignore[assignment]
    looked_at = 0
    looks = 0

    def range(
        self, lower: bytes | None = None, upper: bytes | None = None, *, limit: int
    ) -> list[Entry]:
        found = super().range(lower, upper, limit=limit)
        self.looked_at += len(found)
        self.looks += 1
        return found


class ForwardWindows(Forwards):
    """A user's store that arranges windows or sessions by itself."""

    split = staticmethod(split_window_key)

    def fetch(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        tail = len(window_key(b"", 0)) if self.split is split_window_key else 16
        for name, value in pages(self, 10, lower=key):
            if len(name) == len(key) + tail and name.startswith(key):
                time = int.from_bytes(name[len(key) : len(key) + 8])
                if time > last:
                    return
                if time >= first:
                    yield name, value


class ForwardSessions(ForwardWindows):
    split = staticmethod(split_session_key)


def made(kind: str, keeper: Callable[[str], Any]) -> KeyValueStore:
    """A store of that kind over another one."""
    where: dict[str, object] = {"store": "asked"}
    inner: ByteStore = keeper("asked")
    if isinstance(inner, Forwards):
        inner = CustomStore(inner, name="asked", where=where)
    if kind == "key_value":
        return inner
    if kind == "indexed":
        return TimeIndexedKeyValueStore(inner)
    if kind == "whole topic":
        return WholeTopicStore(inner)
    if kind == "versioned":
        return VersionsStore(inner, retention_ms=RETENTION_MS, segment_ms=SEGMENT_MS)
    is_window = kind == "window"
    if keeper is ForwardWindows:
        own = ForwardWindows if is_window else ForwardSessions
        return CustomWindowStore(own("asked"), name="asked", where=where)
    return SegmentedStore(
        inner,
        kind="window" if is_window else "session",
        retention_ms=RETENTION_MS,
        segment_ms=SEGMENT_MS,
    )


def found_in(store: KeyValueStore, question: StoreQuestion, **bounds: Any) -> list[Found]:
    """All that is found, page by page."""
    rows: list[Found] = []
    question = structs.replace(question, **bounds)
    while True:
        part = findings(store, question)
        assert len(part.found) <= question.limit
        rows += part.found
        if part.after is None:
            return rows
        question = structs.replace(question, after=part.after)


KEEPERS = pytest.mark.parametrize("keeper", [MemoryStore, Forwards])
PAGES = {
    "limit": st.integers(1, 7),
    "bytes_max": st.sampled_from([1, 30, 10_000]),
    "reverse": st.booleans(),
    "scan_entries": st.sampled_from([1, 3, 10_000]),
    "look_entries": st.sampled_from([1, 2, 100]),
}


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the examples set is taken back behind them.
    monkeypatch.setattr(module, "SCAN_ENTRIES", SCAN_ENTRIES)
    monkeypatch.setattr(backward, "LOOK_ENTRIES", backward.LOOK_ENTRIES)


def shorten(scan_entries: int, look_entries: int) -> None:
    module.SCAN_ENTRIES = scan_entries  # type: ignore[attr-defined]
    backward.LOOK_ENTRIES = look_entries


@KEEPERS
@pytest.mark.parametrize("kind", ["key_value", "indexed", "whole topic"])
@given(
    entries=st.dictionaries(KEYS, st.integers(0, 9), max_size=20),
    lower=st.none() | KEYS,
    upper=st.none() | KEYS,
    **PAGES,
)
def test_pages_of_keys_are_the_whole_scan(
    keeper: Any,
    kind: str,
    entries: dict[bytes, int],
    lower: bytes | None,
    upper: bytes | None,
    scan_entries: int,
    look_entries: int,
    **paging: Any,
) -> None:
    shorten(scan_entries, look_entries)
    store = made(kind, keeper)
    store.apply([(key, stored_value(n, b"%08d" % n)) for key, n in entries.items()], offset=0)
    found = found_in(
        store, StoreQuestion(store="asked", kind="scan", lower=lower, upper=upper), **paging
    )
    wanted = [
        (0, key, stored_value(n, b"%08d" % n), None)
        for key, n in sorted(entries.items(), reverse=paging["reverse"])
        if (lower is None or key >= lower) and (upper is None or key < upper)
    ]
    assert found == wanted


TIMES = st.integers(0, 400)


@pytest.mark.parametrize("keeper", [MemoryStore, Forwards, ForwardWindows])
@pytest.mark.parametrize("kind", ["window", "session"])
@given(
    entries=st.sets(st.tuples(KEYS, TIMES, st.integers(0, 90)), max_size=30),
    keys=st.lists(KEYS, max_size=4),
    first=TIMES,
    last=TIMES | st.just(2**63 - 1),
    **PAGES,
)
def test_pages_of_windows_and_sessions_are_the_whole_fetch(
    keeper: Any,
    kind: Literal["window", "session"],
    entries: set[tuple[bytes, int, int]],
    keys: list[bytes],
    first: int,
    last: int,
    scan_entries: int,
    look_entries: int,
    **paging: Any,
) -> None:
    shorten(scan_entries, look_entries)

    def name_of(key: bytes, start: int, more: int) -> bytes:
        # Windows of one start are told apart by their sequence number, sessions by their end.
        if kind == "window":
            return window_key(key, start, more % 3)
        return session_key(key, start, start + more)

    store = made(kind, keeper)
    names = {name_of(*entry): entry for entry in entries}
    store.apply([(name, stored_value(1, b"v")) for name in names], offset=0)
    asked = StoreQuestion(store="asked", kind="fetch", layout=kind, keys=keys)
    found = found_in(store, asked, first=first, last=last, **paging)
    wanted = [
        (number, name)
        for number, key in enumerate(keys)
        for name, (inner, start, _) in sorted(names.items())
        if inner == key and first <= start <= last
    ]
    assert [row[:2] for row in found] == (wanted[::-1] if paging["reverse"] else wanted)


@KEEPERS
@given(
    changes=st.lists(
        st.tuples(st.sampled_from([b"", b"a", b"aa"]), TIMES, st.booleans()), max_size=25
    ),
    keys=st.lists(st.sampled_from([b"", b"a", b"aa", b"b"]), max_size=3),
    first=TIMES,
    last=TIMES | st.just(2**63 - 1),
    retention_ms=st.sampled_from([50, RETENTION_MS]),
    **PAGES,
)
def test_pages_of_versions_are_the_whole_fetch(
    keeper: Any,
    changes: list[tuple[bytes, int, bool]],
    keys: list[bytes],
    first: int,
    last: int,
    retention_ms: int,
    scan_entries: int,
    look_entries: int,
    **paging: Any,
) -> None:
    store = made("versioned", keeper)
    for key, time, is_value in changes:
        value = stored_value(time, b"%d" % time) if is_value else None
        store.apply([(version_key(key, time), value)], offset=0)
    asked = StoreQuestion(
        store="asked",
        kind="fetch",
        layout="versioned",
        keys=keys,
        first=first,
        last=last,
        retention_ms=retention_ms,
    )
    shorten(SCAN_ENTRIES, 100)
    whole = findings(store, asked)
    assert whole.after is None
    assert whole.found == expected_versions(store, asked, [time for _, time, _ in changes])
    shorten(scan_entries, look_entries)
    found = found_in(store, asked, **paging)
    assert found == (whole.found[::-1] if paging["reverse"] else whole.found)


def expected_versions(store: KeyValueStore, asked: StoreQuestion, times: list[int]) -> list[Found]:
    """By asking whenever a key may have become another what it was then."""
    assert isinstance(store, VersionsStore)
    moments = {asked.first, max(store.latest_time - asked.retention_ms, 0), *times}
    rows: dict[tuple[int, bytes], Found] = {}
    for moment in sorted(each for each in moments if asked.first <= each <= asked.last):
        question = structs.replace(asked, kind="as_of", as_of=moment)
        for row in findings(store, question).found:
            if row[2] is not None:
                rows[row[:2]] = row
    return sorted(rows.values(), key=lambda row: row[:2])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("is_value", [True, False])
def test_a_page_of_versions_reads_no_more_than_it_gives_or_may_look_at(
    tmp_path: Path, reverse: bool, is_value: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCAN_ENTRIES", 50)
    inner = RocksDBStore("prices", tmp_path / "prices")
    read = 0
    between = inner._between

    def counted(*arguments: Any, **options: Any) -> list[Entry]:
        nonlocal read
        found = between(*arguments, **options)
        read += len(found)
        return found

    monkeypatch.setattr(inner, "_between", counted)
    store = VersionsStore(inner, retention_ms=RETENTION_MS, segment_ms=RETENTION_MS // 2)
    count = 6_000
    changes: list[Change] = [
        (version_key(b"tea", at), stored_value(at, b"1") if is_value else None)
        for at in range(count)
    ]
    store.apply(changes, offset=0)
    asked = StoreQuestion(
        store="prices", kind="fetch", layout="versioned", keys=[b"tea"], limit=5, reverse=reverse
    )
    asked = structs.replace(asked, retention_ms=RETENTION_MS)
    for _ in range(3):
        read = 0
        part = findings(store, asked)
        assert read <= 2_500
        # Deletions are no rows, and yet the look ends.
        assert len(part.found) == (5 if is_value else 0)
        assert part.after is not None
        asked = structs.replace(asked, after=part.after)
    inner.close()


def test_the_last_of_a_store_that_goes_forwards_are_found_without_reading_it() -> None:
    store = Forwards("counts")
    store.apply([(b"patient-%06d" % n, b"v") for n in range(100_000)], offset=0)
    entries = entries_back(store, None, None, page_size=5)
    last = [key for key, _ in islice(entries, 500)]
    assert last == [b"patient-%06d" % n for n in range(99_999, 99_499, -1)]
    assert store.looked_at <= 20_000
    assert store.looks <= 300
    store.looked_at = 0
    whole = [key for key, _ in entries_back(store, b"patient-01", b"patient-09", page_size=5)]
    assert whole == [b"patient-%06d" % n for n in reversed(range(10_000, 90_000))]
    assert store.looked_at <= 3 * len(whole)


def test_the_last_windows_of_a_store_that_goes_forwards_are_found_without_reading_it() -> None:
    looked_at = 0
    begun = 1_790_000_000_000
    names = [window_key(b"a", begun + 60_000 * n) for n in range(100_000)]

    class Windows(Forwards):
        def fetch(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
            nonlocal looked_at
            start = max(0, -(-(first - begun) // 60_000))
            for name in names[start : (last - begun) // 60_000 + 1 if last >= begun else 0]:
                looked_at += 1
                yield name, b"v"

    store: WindowStore = Windows("windows")

    def time(name: bytes) -> int:
        return split_window_key(name)[1]

    back = fetched_back(store, b"a", 0, 2**63 - 1, time=time)
    assert [name for name, _ in islice(back, 500)] == names[:-501:-1]
    assert looked_at <= 20_000
    assert [name for name, _ in fetched_back(store, b"a", 0, 2**63 - 1, time=time)] == names[::-1]


@given(low=KEYS, high=st.none() | KEYS)
def test_a_key_between_two_is_between_them(low: bytes, high: bytes | None) -> None:
    if high is not None and high <= low:
        return
    middle = key_between(low, high)
    if middle is None:
        assert high == low + b"\x00"
    else:
        assert low < middle
        assert high is None or middle < high


def test_a_page_that_ends_with_a_long_key_is_taken_back() -> None:
    page = Page(partition=3, after=Cursor(key=bytes(500_000)))
    text = page_text(page, b"asked")
    assert page_of(text, b"asked") == page
    # Over HTTP, too; this one is of a service that knows others.
    body = {"kind": "all", "page": "page-" + "0" * len(text)}
    assert request(made_service(), "POST", "/v1/stores/counts/query", body=body).status == 200


@pytest.mark.parametrize("page", [Page(key=-100), Page(partition=-1)])
def test_a_page_that_leads_to_before_the_first_is_refused(page: Page) -> None:
    with pytest.raises(PageRefusedError):
        page_of(page_text(page, b"asked"), b"asked")


@pytest.mark.parametrize("time", [2**63 - 1, 2**63, 2**80, -1, -(2**63), -(2**80)])
def test_times_that_no_record_has_are_asked_about_as_all_others(time: int) -> None:
    def asked(kind: Any) -> AskedStore:
        spec = StoreSpec(
            name="asked",
            key_serde=serde_of(str),
            value_serde=serde_of(str),
            kind=kind,
            retention_ms=RETENTION_MS,
        )
        return AskedStore(spec=spec, sub_topology=0, partitions=1)

    name = window_key(b"a", 5)
    windows = made("window", MemoryStore)
    windows.apply([(name, stored_value(5, b"v"))], offset=0)
    for question, wanted in (
        (Question(kind="fetch", keys=("a",), start=time), time < 5),
        (Question(kind="fetch", keys=("a",), end=time), time > 5),
        (Question(kind="fetch_all", start=time), time < 5),
        (Question(kind="fetch_all", end=time), time > 5),
    ):
        for reverse in (False, True):
            planned = plan(asked("window"), dataclasses.replace(question, reverse=reverse))
            message = structs.replace(planned.message, keys=list(planned.keys))
            message = decode(encode(message), StoreQuestion)
            assert [row[1] for row in findings(windows, message).found] == [name] * wanted
    versions = made("versioned", MemoryStore)
    versions.apply([(version_key(b"a", 5), stored_value(5, b"v"))], offset=0)
    planned = plan(asked("versioned"), Question(kind="as_of", keys=("a",), as_of=time))
    message = structs.replace(planned.message, keys=list(planned.keys))
    [row] = findings(versions, decode(encode(message), StoreQuestion)).found
    assert (row[2] is not None) is (time > 5)
