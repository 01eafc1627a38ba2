"""What every store promises: reads, writes, order, and what outlives it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.changelog.snapshots import (
    Manifest,
    Snapshot,
    copy_snapshot,
    poured,
    read_chunks,
    read_files,
)
from penstock.errors import TaskNotHereError
from penstock.stores.contract import (
    Change,
    CheckpointStore,
    KeyValueStore,
    RangeDeletingStore,
    stored_value,
)
from penstock.stores.custom import missing_methods
from penstock.testing.contract.case import NAME, Case, Promises, content, expect

_MANY = 2_501
"""More than our own stores write at once."""
_ROUNDS = 30
_CAUGHT_UP = 1_790_000_000_123
_OFFSETS = (2**31 - 1, 2**31, 2**32 + 1, 2**53 + 1, 2**62 + 1)
"""Where numbers of 32 bits end, and those that a float holds; and near the last."""


def has_every_method(case: Case) -> None:
    """What the supplier gives has the methods of a store."""
    lacking = missing_methods(case.raw())
    expect(not lacking, f"it lacks {', '.join(lacking)}")


def has_its_name(case: Case) -> None:
    """A store has the name that its supplier was given."""
    found = case.open().name
    expect(found == NAME, f"it was called {NAME!r} and says {found!r}")


def begins_empty(case: Case) -> None:
    """A new store holds nothing, and knows no offset and no owner."""
    store = case.open()
    found = (store.get_many([case.key(1)]), content(store), store.offset(), store.identity())
    expect(found == ([None], [], None, None), f"it holds {found}")
    expect(store.caught_up_at() is None, "it was caught up before anything came")
    expect(store.approximate_num_entries() == 0, "it counts entries")


def answers_in_order(case: Case) -> None:
    """`get_many` answers each key in the order of the questions, None where there is nothing."""
    store = case.open()
    store.apply([case.put(n, n) for n in (5, 1, 3)], offset=0)
    asked = [3, 9, 1, 3, 5, 0]
    found = store.get_many([case.key(n) for n in asked])
    wanted = [case.value(n) if n in (1, 3, 5) else None for n in asked]
    expect(found == wanted, f"asked for {asked} it said {found}")
    expect(store.get_many([]) == [], "asked for nothing it said something")


def later_change_wins(case: Case) -> None:
    """Of several changes of a key the later one wins, within a call and between calls."""
    store, (a, b) = case.open(), (case.key(1), case.key(2))
    changes = [case.put(1, 1), case.put(2, 1), case.put(1, 2), case.drop(2, 2)]
    store.apply(iter(changes), offset=0)
    expect(store.get_many([a, b]) == [case.value(2), None], "within a call it did not")
    store.apply([case.drop(1, 3), case.put(2, 3), case.drop(3, 3)], offset=1)
    expect(store.get_many([a, b]) == [None, case.value(3)], "between calls it did not")
    expect(len(content(store)) == 1, "deleted keys are still found by range")


def keeps_any_bytes(case: Case) -> None:
    """Keys and values are any bytes: empty, with zeros, and long."""
    store = case.open()
    if case.order.kind != "key_value":
        return
    end = case.value(7)[-8:] if case.order.time_index else b""
    keys = [b"", b"\x00", b"\x00\x00", b"\x01", b"a", b"a\x00", b"a\xff", b"b" * 300, b"\xff\xff"]
    entries = [(key, b"\x00" * n + end) for n, key in enumerate(keys)]
    if not case.keeps_offset:
        # A table has a column for the time, with which every value of a task begins.
        entries = [(key, stored_value(n, value)) for n, (key, value) in enumerate(entries)]
    store.apply(reversed(entries), offset=0)
    expect(content(store) == sorted(entries), f"of {entries} it has {content(store)}")
    large = b"\x01" * 1_500_000 + end
    store.apply([(b"large", large)], offset=1)
    expect(store.get_many([b"large"]) == [large], "a value of 1.5 MB does not come back")


def scans_by_key(case: Case) -> None:
    """`range` gives lower <= key < upper in the order of the keys' bytes, at most `limit`."""
    store = case.open()
    store.apply([case.put(n, n) for n in (7, 3, 9, 1, 5)], offset=0)
    for lower, upper, limit, wanted in (
        (None, None, 10, [1, 3, 5, 7, 9]),
        (None, None, 2, [1, 3]),
        (3, 7, 10, [3, 5]),
        (2, 8, 2, [3, 5]),
        (None, 5, 10, [1, 3]),
        (5, None, 10, [5, 7, 9]),
        (1, 9, 0, []),
        (7, 3, 10, []),
        (5, 5, 10, []),
    ):
        bounds = [None if n is None else case.key(n) for n in (lower, upper)]
        found = store.range(*bounds, limit=limit)
        expected = [(case.key(n), case.value(n)) for n in wanted]
        expect(found == expected, f"from {lower} to {upper}, at most {limit}: {found}")


def scans_by_pages(case: Case) -> None:
    """A scan that goes on from the last key + 0x00 sees every entry once; `all` does just that."""
    store = case.open()
    store.apply(case.changes(23, 1), offset=0)
    whole = content(store)
    for size in (1, 5, 23, 100):
        seen, lower = [], None
        while page := store.range(lower, None, limit=size):
            seen += page
            lower = page[-1][0] + b"\x00"
        expect(seen == whole, f"by pages of {size} it gives {len(seen)} entries of {len(whole)}")
        expect(list(store.all(page_size=size)) == whole, f"all(page_size={size}) differs")


def takes_many_changes(case: Case) -> None:
    """A call may bring any number of changes."""
    store = case.open()
    store.apply(case.changes(_MANY, 1), offset=7)
    found = len(list(store.all()))
    expect(found == _MANY, f"of {_MANY} changes it has {found}")
    expect(store.offset() == case.kept(7), f"its offset is {store.offset()}, not {case.kept(7)}")
    store.apply([], offset=8)
    expect(store.offset() == case.kept(8), "a call without changes does not move the offset")


def moves_its_offset_last(case: Case) -> None:
    """The offset moves when all changes of a call are written, and not with offset=None."""
    store = case.open()

    def cut_off() -> Iterator[Change]:
        yield from case.changes(_MANY, 2)
        raise ConnectionError("the changes end here")

    store.apply(case.changes(3, 1), offset=4)
    store.apply(case.changes(3, 2), offset=None)
    kept = case.kept(4)
    expect(store.offset() == kept, f"offset=None made it {store.offset()}")
    try:
        store.apply(cut_off(), offset=5)
    except ConnectionError:
        pass
    else:
        expect(False, "apply hides that its changes were cut off")
    found = store.offset()
    expect(found == kept, f"after a call that was cut off it is {found}, not {kept}")
    store.apply([], offset=2)
    expect(store.offset() == case.kept(2), "it cannot go back")


def knows_its_owner(case: Case) -> None:
    """A store says whose it is and when it was caught up; neither is an entry."""
    store = case.open()
    store.set_identity(case.identity)
    store.set_caught_up_at(12)
    store.set_caught_up_at(2**50)
    expect(store.identity() == case.identity, f"it belongs to {store.identity()}")
    at = store.caught_up_at()
    expect(at == case.kept(2**50), f"it was caught up at {at}")
    expect(content(store) == [], "its own records are found as entries")
    expect(store.offset() is None, "its own records move the offset")


def survives_being_closed(case: Case) -> None:
    """Opened again a store is what it was; one that keeps nothing has forgotten all."""
    store = case.open()
    store.set_identity(case.identity)
    store.set_caught_up_at(99)
    store.apply(case.changes(50, 1), offset=1)
    store.apply([case.drop(7, 2)], offset=2)
    whole = content(store)
    store.close()
    store = case.open()
    found = (content(store), store.offset(), store.identity(), store.caught_up_at())
    own = (case.kept(2), case.identity, case.kept(99))
    wanted = (whole, *own) if case.persistent else ([], None, None, None)
    expect(found == wanted, f"offset {found[1]}, {len(found[0])} entries, of {found[2]}")


def is_closed_for_good(case: Case) -> None:
    """Closing twice does nothing, and after it every call raises `TaskNotHereError`."""
    store = case.open()
    store.apply(case.changes(1, 1), offset=1)
    store.close()
    store.close()
    calls: dict[str, Callable[[], object]] = {
        "get_many": lambda: store.get_many([case.key(1)]),
        "apply": lambda: store.apply([], offset=1),
        "offset": store.offset,
        "identity": store.identity,
        "set_identity": lambda: store.set_identity(case.identity),
        "caught_up_at": store.caught_up_at,
        "set_caught_up_at": lambda: store.set_caught_up_at(1),
        "range": lambda: store.range(limit=1),
        "all": lambda: list(store.all()),
        "approximate_num_entries": store.approximate_num_entries,
        "flush": store.flush,
    }
    for name, call in calls.items():
        try:
            call()
        except TaskNotHereError:
            continue
        except Exception as error:
            raise AssertionError(f"{name} raises {type(error).__name__}: {error}") from error
        expect(False, f"{name} answers")


def keeps_large_offsets(case: Case) -> None:
    """Offsets are numbers of 63 bits, and none is rounded, cut or lost when it is opened again."""
    store = case.open()
    for offset in _OFFSETS:
        store.apply([case.put(1, 1)], offset=offset)
        kept = case.kept(offset)
        expect(store.offset() == kept, f"{offset} becomes {store.offset()}")
        if case.persistent:
            store.close()
            store = case.open()
            expect(store.offset() == kept, f"opened again {offset} becomes {store.offset()}")


def keeps_what_was_flushed(case: Case) -> None:
    """What was flushed survives a crash of the process: changes, deletions and its own records."""
    if not case.persistent:
        return
    store = case.open()
    whole = _live(case, store)
    store.flush()
    _expect_state(case, case.open(case.crashed()), whole)


def _live(case: Case, store: KeyValueStore) -> dict[int, int]:
    """What a store goes through between flushes and behind the last; says which key has what."""
    store.set_identity(case.identity)
    store.set_caught_up_at(1)
    store.apply(case.changes(50, 1), offset=1)
    store.flush()
    # Once written, a key is changed, deleted, or deleted and given a value again.
    store.apply([case.put(3, 2), case.drop(4, 2), case.drop(5, 2)], offset=2)
    store.flush()
    store.apply([case.drop(3, 3), case.put(4, 3), case.put(60, 3)], offset=3)
    store.apply([case.put(7, 4), case.drop(8, 4)], offset=None)
    store.set_caught_up_at(_CAUGHT_UP)
    whole = dict.fromkeys(range(50), 1) | {4: 3, 60: 3, 7: 4}
    return {key: number for key, number in whole.items() if key not in (3, 5, 8)}


def _expect_state(case: Case, store: KeyValueStore, wanted: dict[int, int]) -> None:
    """A store is what `_live` made of it."""
    keys = range(70)
    found = store.get_many([case.key(n) for n in keys])
    for n, value in zip(keys, found, strict=True):
        expected = case.value(wanted[n]) if n in wanted else None
        expect(value == expected, f"key {case.key(n)!r} has {value!r} and should have {expected!r}")
    entries = [(case.key(n), case.value(wanted[n])) for n in sorted(wanted)]
    expect(content(store) == entries, "range gives others than get_many")
    own = (store.offset(), store.identity(), store.caught_up_at())
    known = (case.kept(3), case.identity, case.kept(_CAUGHT_UP))
    expect(own == known, f"offset, identity and when it was caught up are {own}")


def holds_no_less_than_its_offset(case: Case) -> None:
    """After a crash a store may hold more than its offset says, and never less."""
    if not case.persistent:
        return
    store = case.open()
    copies = []

    def interrupted(number: int) -> Iterator[Change]:
        for place, change in enumerate(case.changes(_MANY, number)):
            if place == _MANY - 100:
                copies.append((number - 1, case.crashed()))
            yield change

    for number in range(3):
        store.apply(interrupted(number), offset=number)
        copies.append((number, case.crashed()))
        if number == 0:
            store.flush()
    for last, copy in copies:
        again = case.open(copy)
        offset = again.offset()
        expect(offset is None or offset <= last, f"its offset is {offset}, and {last} was the last")
        if offset is not None:
            found = again.get_many([case.key(n) for n in range(_MANY)])
            missing = sum(value is None or value[-8:] < case.value(offset)[-8:] for value in found)
            expect(not missing, f"its offset is {offset}, and {missing} changes before it are lost")
        # What is applied again from there makes it whole.
        for number in range(0 if offset is None else offset + 1, 3):
            again.apply(case.changes(_MANY, number), offset=number)
        expect(content(again) == content(store), "applying the changelog again does not mend it")
        again.close()


def reads_while_it_is_written(case: Case) -> None:
    """Any thread may read while one writes: each key has a value that it was given."""
    store = case.open()
    store.apply(case.changes(200, 0), offset=0)
    given = {case.value(number) for number in range(_ROUNDS)}
    keys = [case.key(n) for n in range(200)]
    problems: list[str] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                seen = store.get_many(keys)
                page = store.range(keys[3], keys[190], limit=100)
                if not set(seen) <= given or not {value for _, value in page} <= given:
                    problems.append("a reader saw what nobody wrote")
                if [key for key, _ in page] != keys[3:103]:
                    problems.append("a reader's range has gaps, or is out of order")
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            problems.append(f"a reader got {type(error).__name__}: {error}")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(_ROUNDS):
            store.apply(case.changes(200, number), offset=number)
            if number % 10 == 0:
                store.flush()
    finally:
        done.set()
        for reader in readers:
            reader.join()
    expect(not problems, problems[0] if problems else "")


def deletes_ranges(case: Case) -> None:
    """`delete_range`, where it is offered, deletes lower <= key < upper, and that stays so."""
    store = case.open()
    if not isinstance(store, RangeDeletingStore):
        return
    store.apply(case.changes(10, 1), offset=1)
    store.delete_range(case.key(3), case.key(7))
    store.delete_range(case.key(8), case.key(8))
    wanted = [case.key(n) for n in (0, 1, 2, 7, 8, 9)]
    expect([key for key, _ in content(store)] == wanted, f"it has {content(store)}")
    store.apply([case.put(4, 2)], offset=2)
    expect(store.get_many([case.key(4)]) == [case.value(2)], "a key cannot be written again")
    if case.persistent:
        store.close()
        found = [key for key, _ in content(case.open())]
        expect(found == sorted([*wanted, case.key(4)]), "opened again it has others")


def copies_itself(case: Case) -> None:
    """`checkpoint`, where it is offered, makes a store of its own, as of that moment, in files."""
    store = case.open()
    if not case.persistent or not _offers_copies(case, store):
        return
    assert isinstance(store, CheckpointStore)
    whole = _live(case, store)
    made = case.directory / "copy" / NAME
    store.checkpoint(made)
    store.apply(case.changes(60, 5), offset=5)
    place = case.directory / "shipped" / NAME
    _ship(case, made, place)
    expect(len(content(store)) == 61, "the store itself is another one afterwards")
    # On another machine there is nothing of the store but its copy.
    store.close()
    for gone in (case.directory / NAME, case.directory / "copy"):
        shutil.rmtree(gone)
    _expect_state(case, case.open(place), whole)


def _ship(case: Case, made: Path, place: Path) -> None:
    """Copy a checkpoint as snapshots and peers do: what they leave out is not there."""
    place.parent.mkdir()
    manifest = Manifest(identity=case.identity, offset=3, files=read_files(made))
    copy_snapshot(
        Snapshot(manifest, lambda file, to: poured(read_chunks(made / file.name), to)), place
    )


def _offers_copies(case: Case, store: KeyValueStore) -> bool:
    if not isinstance(store, CheckpointStore):
        return False
    (case.directory / "copy").mkdir()
    # A store in another one has the method, whatever that one can.
    return isinstance(case.raw(case.directory / "another"), CheckpointStore)


KEY_VALUE: Promises = {
    (each.__doc__ or "").strip(): each
    for each in (
        has_every_method,
        has_its_name,
        begins_empty,
        answers_in_order,
        later_change_wins,
        keeps_any_bytes,
        scans_by_key,
        scans_by_pages,
        takes_many_changes,
        moves_its_offset_last,
        knows_its_owner,
        survives_being_closed,
        keeps_large_offsets,
        is_closed_for_good,
        keeps_what_was_flushed,
        holds_no_less_than_its_offset,
        reads_while_it_is_written,
        deletes_ranges,
        copies_itself,
    )
}
