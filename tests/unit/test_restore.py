"""Restores take turns where there is no memory for all of them to read ahead."""

from __future__ import annotations

import threading

from penstock.changelog.read_ahead import MESSAGE_BYTES, SMALL_RECORDS, ReadAhead, Readers
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


def test_what_is_read_ahead_fits_into_a_quarter_of_the_memory() -> None:
    for memory in (16 * MIB, 96 * MIB, 512 * MIB, 4096 * MIB):
        ahead = ReadAhead.within(memory)
        small = ahead.messages + ahead.fetch_bytes // 32
        assert ahead.readers * small * MESSAGE_BYTES <= memory // 4
        assert ahead.readers * (ahead.kbytes * 1024 + ahead.fetch_bytes) <= memory // 4
