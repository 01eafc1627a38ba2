"""What a store holds for a question, within its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple

from penstock.errors import QuestionRefusedError
from penstock.instance.query_messages import SCAN_ENTRIES, Cursor, Found, StoreQuestion
from penstock.serdes.windowed import (
    SESSION_TAIL_BYTES,
    WINDOW_TAIL_BYTES,
    split_session_key,
    split_window_key,
)
from penstock.stores.backward import entries_back, fetched_back
from penstock.stores.contract import (
    TIMESTAMP_BYTES,
    Entry,
    KeyValueStore,
    WindowStore,
    pages,
    split_version_key,
)
from penstock.stores.layered import LayeredStore
from penstock.stores.rocksdb import RocksDBStore
from penstock.stores.versioned import VersionsStore

_LONG_MAX = 2**63 - 1
_PAGE_ENTRIES = 500
_TAIL_MAX = b"\x7f" + b"\xff" * (SESSION_TAIL_BYTES - 1)
"""No window's or session's tail comes after this: times are not negative."""


@dataclass(frozen=True)
class Findings:
    """What was found, and how far that went if there may be more."""

    found: list[Found]
    after: Cursor | None = None
    count: int = 0
    size: int = 0


class _Seen(NamedTuple):
    """An entry that was looked at, and whether it is one of those that were asked for."""

    number: int
    key: bytes
    value: bytes
    is_wanted: bool
    until: int | None = None
    """Until when a version was valid."""


def findings(store: KeyValueStore, question: StoreQuestion) -> Findings:
    """The store's answer. Raises `QuestionRefusedError` if its kind has none."""
    match question.kind:
        case "count":
            return Findings([], count=store.approximate_num_entries(), size=_size(store))
        case "get":
            return values_of(store.get_many, question)
        case "as_of":
            return _versions(store, question)
        case "fetch":
            return _gathered(_fetched(store, question), question)
        case "scan":
            return _gathered(_scanned(store, question), question)


def _size(store: KeyValueStore) -> int:
    """Bytes in RocksDB's files and write buffers; 0 if something else keeps the store."""
    keeper = store.keeper if isinstance(store, LayeredStore) else store
    if not isinstance(keeper, RocksDBStore):
        return 0
    return sum(keeper.properties(("live-sst-files-size", "cur-size-all-mem-tables")).values())


def values_of(
    get_many: Callable[[Sequence[bytes]], list[bytes | None]], question: StoreQuestion
) -> Findings:
    """The answer to a question for the values of keys."""
    begin = 0 if question.after is None else question.after.number + 1
    keys = question.keys[begin:]
    values = get_many(keys)
    if sum(len(value) for value in values if value) <= question.bytes_max:
        numbers = range(begin, begin + len(keys))
        return Findings(list(zip(numbers, repeat(b""), values, repeat(None), strict=False)))
    rows = ((begin + i, b"", value, None) for i, value in enumerate(values))
    return _cut(rows, question)


def _versions(store: KeyValueStore, question: StoreQuestion) -> Findings:
    if not isinstance(store, VersionsStore):
        raise _refused(store, question)
    begin = 0 if question.after is None else question.after.number + 1
    oldest = store.latest_time - question.retention_ms
    rows = (
        (number, *_version(store, question.keys[number], question.as_of, oldest))
        for number in range(begin, len(question.keys))
    )
    return _cut(rows, question)


def _version(
    store: VersionsStore, key: bytes, at: int, oldest: int
) -> tuple[bytes, bytes | None, int | None]:
    """What a key was at a time, and until when; as in Kafka Streams nothing, if that is past the
    history and it is something else by now.
    """
    held: Entry | None = None
    for name, value in store.versions(key, at, _LONG_MAX):
        since = split_version_key(name)[1]
        if since > at:
            until = since
            break
        held = (name, value)
    else:
        until = None
    if held is None or len(held[1]) < TIMESTAMP_BYTES or (until is not None and at < oldest):
        return b"", None, None
    return held[0], held[1], until


def _cut(rows: Iterable[Found], question: StoreQuestion) -> Findings:
    """As many rows as an answer may have bytes, and at least one."""
    found: list[Found] = []
    size = 0
    for row in rows:
        size += len(row[2] or b"")
        if found and size > question.bytes_max:
            return Findings(found, after=Cursor(number=found[-1][0]))
        found.append(row)
    return Findings(found)


def _gathered(seen: Iterable[_Seen], question: StoreQuestion) -> Findings:
    found: list[Found] = []
    last: Cursor | None = None
    size = 0
    for looked_at, each in enumerate(seen, start=1):
        if each.is_wanted:
            size += len(each.key) + len(each.value)
            if len(found) == question.limit or (found and size > question.bytes_max):
                return Findings(found, after=last)
            found.append((each.number, each.key, each.value, each.until))
        last = Cursor(number=each.number, key=each.key)
        if looked_at == SCAN_ENTRIES:
            return Findings(found, after=last)
    return Findings(found)


def _fetched(store: KeyValueStore, question: StoreQuestion) -> Iterator[_Seen]:
    """The windows, sessions or versions of each key."""
    if not isinstance(store, WindowStore | VersionsStore):
        raise _refused(store, question)
    if question.first > question.last:
        return
    after = question.after or Cursor()
    numbers = range(len(question.keys))
    for number in reversed(numbers) if question.reverse else numbers:
        if number < after.number and not question.reverse:
            continue
        if question.after is not None and number > after.number and question.reverse:
            continue
        resumed = after.key if number == after.number else None
        for each in _of_key(store, question, number, resumed):
            if resumed is None or (each.key < resumed if question.reverse else each.key > resumed):
                yield each


def _of_key(
    store: WindowStore | VersionsStore, question: StoreQuestion, number: int, resumed: bytes | None
) -> Iterable[_Seen]:
    """What there is of one of the keys, in the order that is asked for, from `resumed` on."""
    first = question.first
    # A session's time is its end: one that begins in time may end later.
    last = _LONG_MAX if question.layout == "session" else question.last
    if resumed is not None:
        # What earlier pages had is not gone through again.
        time = _time(resumed, question)
        first, last = (first, min(last, time)) if question.reverse else (max(first, time), last)
    if isinstance(store, VersionsStore):
        valid = _valid_back if question.reverse else _valid
        return valid(store, question, number, first, last)
    key = question.keys[number]
    if question.reverse:
        time_of = partial(_time, question=question)
        found = fetched_back(store, key, first, last, time=time_of)
    else:
        found = store.fetch(key, first, last)
    return (_Seen(number, name, value, _begins_in_time(name, question)) for name, value in found)


def _time(name: bytes, question: StoreQuestion) -> int:
    """The time by which a store finds an entry."""
    if question.layout == "versioned":
        return split_version_key(name)[1]
    if question.layout == "session":
        return split_session_key(name)[2]
    return split_window_key(name)[1]


def _valid(
    store: VersionsStore, question: StoreQuestion, number: int, first: int, last: int
) -> Iterator[_Seen]:
    """What a key was from first to last, but for what is past the history: each with its end."""
    oldest = store.latest_time - question.retention_ms
    held: _Seen | None = None
    held_since = 0
    for name, value in store.versions(question.keys[number], first, _LONG_MAX):
        since = split_version_key(name)[1]
        # A deletion of the time of the value behind it was never seen.
        if held is not None and since > held_since:
            is_kept = last >= oldest and since > oldest
            yield held._replace(until=since, is_wanted=held.is_wanted and is_kept)
        if since > last:
            return
        held, held_since = _seen_version(number, name, value), since
    if held is not None:
        yield held


def _valid_back(
    store: VersionsStore, question: StoreQuestion, number: int, first: int, last: int
) -> Iterator[_Seen]:
    """The same, the last first."""
    oldest = store.latest_time - question.retention_ms
    key = question.keys[number]
    later = (split_version_key(name)[1] for name, _ in store.versions(key, last, _LONG_MAX))
    until = next((since for since in later if since > last), None)
    for name, value in store.versions_back(key, first, last):
        since = split_version_key(name)[1]
        if until is not None and (last < oldest or until <= oldest):
            return
        if since != until:
            yield _seen_version(number, name, value)._replace(until=until)
        until = since


def _seen_version(number: int, name: bytes, value: bytes) -> _Seen:
    """Deletions are looked at and not told."""
    return _Seen(number, name, value, is_wanted=len(value) >= TIMESTAMP_BYTES)


def _scanned(store: KeyValueStore, question: StoreQuestion) -> Iterator[_Seen]:
    """All entries between two keys."""
    is_plain = question.layout in ("key_value", "versioned")
    lower = question.lower
    upper = question.upper if is_plain else _upper_of_windows(question)
    after = None if question.after is None else question.after.key
    if after is not None and question.reverse:
        upper = after if upper is None else min(after, upper)
    elif after is not None:
        lower = max(after + b"\x00", lower or b"")
    if question.reverse:
        entries = entries_back(store, lower, upper, page_size=_page_size(question))
    else:
        entries = pages(store, _page_size(question), lower=lower, upper=upper)
    for key, value in entries:
        yield _Seen(0, key, value, is_plain or _is_wanted_window(key, question))


def _page_size(question: StoreQuestion) -> int:
    return min(question.limit + 1, _PAGE_ENTRIES)


def _upper_of_windows(question: StoreQuestion) -> bytes | None:
    """What comes after the windows of all keys before `upper`, wherever others lie between them.

    A key that another one begins with may have windows behind those of the other.
    """
    upper = question.upper
    if upper is None:
        return None
    shortest = 0 if not question.lower else 1
    starts = (upper[:length] for length in range(shortest, len(upper) + 1))
    return max((start + _TAIL_MAX + b"\x00" for start in starts), default=b"")


def _is_wanted_window(key: bytes, question: StoreQuestion) -> bool:
    tail = WINDOW_TAIL_BYTES if question.layout == "window" else SESSION_TAIL_BYTES
    inner = key[:-tail]
    if question.lower is not None and inner < question.lower:
        return False
    if question.upper is not None and inner >= question.upper:
        return False
    return _begins_in_time(key, question)


def _begins_in_time(key: bytes, question: StoreQuestion) -> bool:
    split = split_window_key if question.layout == "window" else split_session_key
    _, start, _ = split(key)
    return question.first <= start <= question.last


def _refused(store: KeyValueStore, question: StoreQuestion) -> QuestionRefusedError:
    return QuestionRefusedError(
        f"A store of this kind does not answer {question.kind}", where={"store": store.name}
    )
