"""What a copy of a store finds: every kind of question, cut into pages, forwards and backwards."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock.errors import QuestionRefusedError, TaskNotHereError
from penstock.instance import query_answers as module
from penstock.instance.query_answers import findings
from penstock.instance.query_messages import Cursor, StoreQuestion
from penstock.serdes.windowed import session_key, split_session_key, split_window_key, window_key
from penstock.stores.backward import BackwardStore, entries_back
from penstock.stores.contract import Entry, KeyValueStore, stored_value, version_key
from penstock.stores.memory import MemoryStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.segments import SegmentedStore
from penstock.stores.steady import Coming, Steady
from penstock.stores.versioned import VersionsStore


def pairs(store: KeyValueStore, question: StoreQuestion, *, limit: int = 1000) -> list[Any]:
    """All that is found, page by page, as numbers and keys."""
    rows: list[Any] = []
    question = structs.replace(question, limit=limit)
    while True:
        found = findings(store, question)
        assert len(found.found) <= limit
        rows += [(number, key) for number, key, _, _ in found.found]
        if found.after is None:
            return rows
        question = structs.replace(question, after=found.after)


def key_value() -> MemoryStore:
    store = MemoryStore("counts")
    store.apply([(b"%02d" % i, stored_value(i, b"v")) for i in range(20)], offset=3)
    return store


def timed(kind: Literal["window", "session"], keys: list[tuple[bytes, int]]) -> SegmentedStore:
    store = SegmentedStore(
        MemoryStore("timed"), kind=kind, retention_ms=1_000_000, segment_ms=60, indexed=False
    )
    made = window_key if kind == "window" else _session
    store.apply([(made(key, start), stored_value(start, b"v")) for key, start in keys], offset=0)
    return store


def _session(key: bytes, start: int) -> bytes:
    return session_key(key, start, start + 500)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 19, 20, 1000])
def test_pages_of_a_scan_leave_nothing_out(reverse: bool, limit: int) -> None:
    question = StoreQuestion(store="counts", kind="scan", lower=b"03", upper=b"17", reverse=reverse)
    expected = [(0, b"%02d" % i) for i in range(3, 17)]
    found = pairs(key_value(), question, limit=limit)
    assert found == (expected[::-1] if reverse else expected)


def test_the_size_of_a_store_is_told_where_rocksdb_keeps_it(tmp_path: Path) -> None:
    question = StoreQuestion(store="counts", kind="count")
    assert (findings(key_value(), question).count, findings(key_value(), question).size) == (20, 0)
    with ExitStack() as stack:
        rocksdb = RocksDBStore("counts", tmp_path / "counts")
        stack.callback(rocksdb.close)
        windows = SegmentedStore(
            rocksdb, kind="window", retention_ms=1_000, segment_ms=60, indexed=False
        )
        before = findings(rocksdb, question).size
        changes = [(window_key(b"%03d" % i, 5), stored_value(5, bytes(1000))) for i in range(100)]
        windows.apply(changes, offset=1)
        assert findings(windows, question).size - before >= 100_000
        rocksdb.flush()
        assert findings(rocksdb, question).size > 0


def test_a_scan_ends_in_time_though_it_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCAN_ENTRIES", 4)
    store = timed("window", [(b"a", i) for i in range(10)])
    question = StoreQuestion(store="timed", kind="scan", layout="window", first=9)
    first = findings(store, question)
    assert first.found == []
    assert first.after is not None
    assert pairs(store, question) == [(0, window_key(b"a", 9))]


class Counting(MemoryStore):
    """Knows how many entries were read from it."""

    read = 0

    def range(self, *bounds: bytes | None, limit: int, **named: bytes | None) -> list[Entry]:
        found = super().range(*bounds, limit=limit, **named)
        self.read += len(found)
        return found

    def range_back(self, *bounds: bytes | None, limit: int, **named: bytes | None) -> list[Entry]:
        found = super().range_back(*bounds, limit=limit, **named)
        self.read += len(found)
        return found


@pytest.mark.parametrize("kind", ["window", "session"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_of_a_key_reads_no_more_than_it_gives(
    kind: Literal["window", "session"], reverse: bool
) -> None:
    inner = Counting("timed")
    store = SegmentedStore(
        inner, kind=kind, retention_ms=1_000_000, segment_ms=60_000, indexed=False
    )
    made = window_key if kind == "window" else _session
    count = 20_000
    changes = [(made(b"a", start), stored_value(start, b"v")) for start in range(count)]
    store.apply(changes, offset=0)
    question = StoreQuestion(store="timed", kind="fetch", layout=kind, keys=[b"a"], limit=5)
    middle = Cursor(number=0, key=made(b"a", count // 2))
    for after in (None, middle):
        inner.read = 0
        asked = structs.replace(question, after=after, reverse=reverse)
        assert len(findings(store, asked).found) == 5
        assert inner.read <= count / 4


def test_values_that_are_too_large_for_one_answer_come_in_several() -> None:
    store = key_value()
    question = StoreQuestion(store="counts", keys=[b"00", b"xx", b"02", b"03"], bytes_max=20)
    first = findings(store, question)
    assert [number for number, *_ in first.found] == [0, 1, 2]
    assert [value is None for *_, value, _ in first.found] == [False, True, False]
    rest = findings(store, structs.replace(question, after=first.after))
    assert ([number for number, *_ in rest.found], rest.after) == ([3], None)


KEYS = st.binary(min_size=0, max_size=3)


@given(
    entries=st.lists(st.tuples(KEYS, st.integers(0, 400)), max_size=30, unique=True),
    lower=st.none() | KEYS,
    upper=st.none() | KEYS,
    first=st.integers(0, 400),
    last=st.integers(0, 400),
    limit=st.integers(1, 10),
    reverse=st.booleans(),
    kind=st.sampled_from(["window", "session"]),
)
def test_windows_of_a_range_of_keys_are_those_and_no_others(
    entries: list[tuple[bytes, int]],
    lower: bytes | None,
    upper: bytes | None,
    first: int,
    last: int,
    limit: int,
    reverse: bool,
    kind: Literal["window", "session"],
) -> None:
    store = timed(kind, entries)
    question = StoreQuestion(
        store="timed",
        kind="scan",
        layout=kind,
        lower=lower,
        upper=upper,
        first=first,
        last=last,
        reverse=reverse,
    )
    split = split_window_key if kind == "window" else split_session_key
    found = [split(key)[:2] for _, key in pairs(store, question, limit=limit)]
    wanted = [
        (key, start)
        for key, start in entries
        if (lower is None or lower <= key) and (upper is None or key < upper)
        if first <= start <= last
    ]
    made = window_key if kind == "window" else _session
    wanted.sort(key=lambda each: made(*each), reverse=reverse)
    assert found == wanted


@pytest.mark.parametrize("kind", ["window", "session"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_keys_are_fetched_one_after_the_other(
    kind: Literal["window", "session"], reverse: bool, limit: int
) -> None:
    keys = [(key, start) for key in (b"a", b"b", b"c") for start in (0, 70, 300)]
    question = StoreQuestion(
        store="timed", kind="fetch", layout=kind, keys=[b"c", b"a"], last=100, reverse=reverse
    )
    split = split_window_key if kind == "window" else split_session_key
    found = [split(key)[:2] for _, key in pairs(timed(kind, keys), question, limit=limit)]
    expected = [(b"c", 0), (b"c", 70), (b"a", 0), (b"a", 70)]
    assert found == (expected[::-1] if reverse else expected)


def test_versions_are_found_as_of_a_time_within_their_history() -> None:
    store = VersionsStore(MemoryStore("prices"), retention_ms=100, segment_ms=1000)
    changes = [(10, b"1"), (30, b"2"), (60, None), (90, b"3")]
    store.apply(
        [
            (version_key(b"tea", at), None if value is None else stored_value(at, value))
            for at, value in changes
        ],
        offset=0,
    )

    def at(time: int) -> tuple[bytes | None, int | None]:
        question = StoreQuestion(
            store="prices", kind="as_of", keys=[b"tea"], as_of=time, retention_ms=100
        )
        [(_, _, stored, until)] = findings(store, question).found
        return None if stored is None else stored[8:], until

    assert [at(time) for time in (5, 10, 59, 60, 90, 500)] == [
        (None, None),
        (b"1", 30),
        (b"2", 60),
        (None, None),
        (b"3", None),
        (b"3", None),
    ]
    store.apply([(version_key(b"cup", 131), stored_value(131, b"9"))], offset=1)
    assert at(30) == (None, None)
    assert at(31) == (b"2", 60)


def test_versions_are_found_that_were_valid_within_a_time() -> None:
    store = VersionsStore(MemoryStore("prices"), retention_ms=100, segment_ms=1000)
    changes = [(10, b"1"), (30, b"2"), (60, None), (90, b"3")]
    store.apply(
        [
            (version_key(b"tea", at), None if value is None else stored_value(at, value))
            for at, value in changes
        ],
        offset=0,
    )

    def found(first: int, last: int, **options: Any) -> list[tuple[bytes, int | None]]:
        question = StoreQuestion(
            store="prices",
            kind="fetch",
            layout="versioned",
            keys=[b"none", b"tea"],
            first=first,
            last=last,
            retention_ms=100,
            **options,
        )
        rows: list[Any] = []
        while True:
            part = findings(store, question)
            rows += part.found
            if part.after is None:
                assert {number for number, *_ in rows} <= {1}
                return [(stored[8:], until) for _, _, stored, until in rows]
            question = structs.replace(question, after=part.after)

    one, two, three = (b"1", 30), (b"2", 60), (b"3", None)
    assert found(0, 500) == [one, two, three]
    assert found(0, 500, reverse=True) == [three, two, one]
    assert found(0, 500, limit=1) == [one, two, three]
    assert found(0, 500, limit=1, reverse=True) == [three, two, one]
    # A version that began earlier was valid still, and the last one ends later.
    assert found(29, 30) == [one, two]
    assert found(30, 59) == [two]
    assert found(60, 89) == found(0, 9) == []
    assert found(90, 90) == found(700, 800) == [three]
    store.apply([(version_key(b"cup", 135), stored_value(135, b"9"))], offset=1)
    # The history begins at 35: the first ended before, and who asks for what was before asks late.
    assert found(0, 500) == [two, three]
    assert found(0, 34) == []
    assert found(0, 35) == [two]


def test_a_store_that_cannot_answer_refuses() -> None:
    for kind in ("fetch", "as_of"):
        question = StoreQuestion(store="counts", kind=kind, keys=[b"a"])
        with pytest.raises(QuestionRefusedError):
            findings(key_value(), question)


@dataclass
class _Plain:
    """A store that only goes forwards, as a user may bring one."""

    store: MemoryStore
    name: str = "plain"

    def range(self, *arguments: Any, **options: Any) -> list[tuple[bytes, bytes]]:
        return self.store.range(*arguments, **options)


@pytest.mark.parametrize("page_size", [1, 7, 100])
def test_all_stores_can_be_read_backwards(tmp_path: Path, page_size: int) -> None:
    entries = [(b"%02d" % i, b"v") for i in range(20)]
    memory, disk = MemoryStore("m"), RocksDBStore("d", tmp_path / "d")
    for each in (memory, disk):
        each.apply(entries, offset=1)
    plain: Any = _Plain(memory)
    assert not isinstance(plain, BackwardStore)
    for store in (memory, disk, plain):
        for lower, upper in ((None, None), (b"05", b"15"), (b"05", None), (None, b"00")):
            expected = [
                entry
                for entry in reversed(entries)
                if (lower is None or lower <= entry[0]) and (upper is None or entry[0] < upper)
            ]
            assert list(entries_back(store, lower, upper, page_size=page_size)) == expected
    disk.close()


def test_a_look_beside_a_writer_never_sees_half_of_a_write() -> None:
    steady = Steady()
    values = [0, 0]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with steady.changing():
                values[0] += 1
                values[1] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(2_000):
            first, second = steady.look(lambda: (values[0], values[1]))
            assert first == second
    finally:
        stop.set()
        thread.join()


def test_a_look_ahead_sees_a_write_from_its_beginning() -> None:
    steady, store = Steady(), MemoryStore("counts")
    store.apply([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], offset=2)
    coming = Coming([(b"a", b"2"), (b"b", None), (b"a", b"3")], offset=5)
    keys = [b"b", b"a", b"c", b"a", b"d"]

    def stored() -> tuple[list[bytes | None], int | None]:
        return store.get_many(keys), store.offset()

    def ahead(coming: Coming) -> tuple[list[bytes | None], int | None]:
        return coming.get_many(store, keys), coming.offset

    assert steady.look(stored, ahead=ahead) == ([b"1", b"1", b"1", b"1", None], 2)
    with steady.changing(coming):
        store.apply(coming.changes[:1], offset=None)
        seen = steady.look(stored, ahead=ahead)
        store.apply(coming.changes[1:], offset=coming.offset)
    assert seen == steady.look(stored, ahead=ahead) == ([None, b"3", b"1", b"3", None], 5)


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_is_coming_is_seen_until_the_next_write_begins(goes_on: bool) -> None:
    steady, store = Steady(), MemoryStore("counts")
    first, second = Coming([(b"a", b"1")], 0), Coming([(b"a", b"2"), (b"b", b"2")], 2)
    under_way = ExitStack()
    under_way.enter_context(steady.changing(first))
    seen: list[int | None] = []

    def ahead(coming: Coming) -> tuple[list[bytes | None], int | None]:
        seen.append(coming.offset)
        # The write ends while it is looked at, and perhaps another goes by.
        store.apply(first.changes, offset=first.offset)
        under_way.close()
        if goes_on:
            with steady.changing(second):
                store.apply(second.changes, offset=second.offset)
        return coming.get_many(store, [b"a", b"b"]), coming.offset

    found = steady.look(lambda: (store.get_many([b"a", b"b"]), store.offset()), ahead=ahead)
    assert seen == [0]
    assert found == (([b"2", b"2"], 2) if goes_on else ([b"1", None], 0))


def test_after_a_write_that_failed_nothing_is_seen() -> None:
    steady = Steady()
    with pytest.raises(ZeroDivisionError), steady.changing():
        raise ZeroDivisionError
    with pytest.raises(TaskNotHereError):
        steady.look(lambda: 1)


def test_what_a_look_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        Steady().look(lambda: 1 // 0)
