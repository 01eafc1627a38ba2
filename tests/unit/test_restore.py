"""Restores take turns where there is no memory for all of them to read ahead."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.changelog.read_ahead import MESSAGE_BYTES, SMALL_RECORDS, ReadAhead, Readers
from penstock.changelog.restore import RestoreProgress, restore
from penstock.stores.memory import MemoryStore
from tests.harness import wait_until

MANY = SMALL_RECORDS + 1
MIB = 1024 * 1024


def test_readers_wait_for_their_turn_and_small_ones_do_not() -> None:
    readers = Readers(2)
    inside: list[int] = []
    go_on = threading.Event()

    def read(number: int, records: int) -> None:
        with readers.reading(records, lambda: False):
            inside.append(number)
            go_on.wait()

    threads = [threading.Thread(target=read, args=(n, MANY)) for n in range(5)]
    for each in threads:
        each.start()
    wait_until(lambda: len(inside) == 2, what="two are reading")
    with readers.reading(SMALL_RECORDS, lambda: False):
        assert len(inside) == 2
    go_on.set()
    for each in threads:
        each.join()
    assert sorted(inside) == [0, 1, 2, 3, 4]


def test_one_that_is_told_to_stop_waits_no_longer_and_takes_no_place() -> None:
    readers = Readers(1)
    with readers.reading(MANY, lambda: False):
        for _ in range(2):
            with readers.reading(MANY, lambda: True):
                pass
    with readers.reading(MANY, lambda: False):
        pass


def test_one_that_reads_anew_keeps_its_place() -> None:
    readers, free = Readers(1), list[int]()
    with readers.turn(lambda: False) as reading:
        for records in (SMALL_RECORDS, MANY, MANY):
            with reading(records):
                pass
            free.append(readers._free._value)
    assert (free, readers._free._value) == ([1, 0, 0], 1)


def test_what_is_read_ahead_fits_into_a_quarter_of_the_memory() -> None:
    for memory in (16 * MIB, 96 * MIB, 512 * MIB, 4096 * MIB):
        ahead = ReadAhead.within(memory)
        small = ahead.messages + ahead.fetch_bytes // 32
        assert ahead.readers * small * MESSAGE_BYTES <= memory // 4
        assert ahead.readers * (ahead.kbytes * 1024 + ahead.fetch_bytes) <= memory // 4


@pytest.mark.parametrize(("held", "log"), [(None, (7, 20)), (8, (7, 20)), (None, (20, 20))])
def test_a_restore_is_full_if_the_store_is_empty_and_the_log_is_not(
    held: int | None, log: tuple[int, int]
) -> None:
    store = MemoryStore("counts")
    if held is not None:
        store.apply([(b"a", b"1")], offset=held)
    silent = SimpleNamespace(
        assign=lambda _partitions: None,
        unassign=lambda: None,
        consume=lambda _number, _timeout: [],
        get_watermark_offsets=lambda *_: log,
    )
    told: list[RestoreProgress] = []
    restore(
        store,
        topic="changelog",
        partition=0,
        consumer=cast(Any, silent),
        until=log[1],
        on_progress=told.append,
        stop=lambda: True,
    )
    start = log[0] if held is None else held + 1
    assert [(each.start, each.full) for each in told] == [(start, (held, log) == (None, (7, 20)))]
