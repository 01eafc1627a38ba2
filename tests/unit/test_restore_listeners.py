"""What restore listeners are told: every restore once, exactly, and off its path."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import penstock as ps
from penstock.changelog.reading import LogRange
from penstock.changelog.restore import RestoreProgress
from penstock.driver.events import (
    BatchRestored,
    RestoreEnded,
    RestoreEvent,
    RestoreStarted,
    RestoreSuspended,
    TopicPartition,
)
from penstock.driver.restore_listeners import RestoreListeners
from penstock.driver.restores import RestoreBook
from penstock.instance.protocol import RestoreState, RestoreStatus
from penstock.instance.restores import Restores

WHERE = TopicPartition("app-counts-changelog", 2)


def status(
    number: int, restored: int, state: RestoreState = "restoring", *, offset: int | None = None
) -> RestoreStatus:
    return RestoreStatus(
        number=number,
        store="counts",
        topic=WHERE.topic,
        partition=WHERE.partition,
        start=10,
        end=500,
        restored=restored,
        offset=10 + restored if offset is None else offset,
        state=state,
    )


def batches(events: list[RestoreEvent]) -> list[int]:
    return [event.num_restored for event in events if isinstance(event, BatchRestored)]


def test_only_what_is_new_is_told() -> None:
    book = RestoreBook()
    first = book.hear("0_2", (1, 1), [status(1, 0)])
    assert first == [
        RestoreStarted(partition=WHERE, store="counts", starting_offset=10, ending_offset=500)
    ]
    assert book.hear("0_2", (1, 1), [status(1, 0)]) == []
    more = BatchRestored(partition=WHERE, store="counts", batch_end_offset=40, num_restored=30)
    assert book.hear("0_2", (1, 1), [status(1, 30)]) == [more]
    ended = [status(1, 35, "ended")]
    assert book.hear("0_2", (1, 1), ended) == [
        BatchRestored(partition=WHERE, store="counts", batch_end_offset=45, num_restored=5),
        RestoreEnded(partition=WHERE, store="counts", total_restored=35),
    ]
    assert book.hear("0_2", (1, 1), ended) == []
    assert book.lose_all() == []


def test_a_full_restore_starts_at_0_wherever_the_log_begins() -> None:
    [started] = RestoreBook().hear("0_2", (1, 1), [structs.replace(status(1, 0), full=True)])
    assert isinstance(started, RestoreStarted)
    assert (started.starting_offset, started.ending_offset) == (0, 500)


def test_a_restore_that_nobody_saw_is_told_from_its_start_to_its_end() -> None:
    events = RestoreBook().hear("0_2", (1, 1), [status(1, 7, "suspended"), status(2, 9, "ended")])
    assert [type(event) for event in events] == [
        RestoreStarted,
        BatchRestored,
        RestoreSuspended,
        RestoreStarted,
        BatchRestored,
        RestoreEnded,
    ]
    assert batches(events) == [7, 9]


def test_a_lost_owner_suspends_what_was_under_way() -> None:
    book = RestoreBook()
    book.hear("0_2", (1, 1), [status(1, 20)])
    suspended = RestoreSuspended(partition=WHERE, store="counts", total_restored=20)
    # Nobody said that the owner was lost: a status of the next one says so too.
    events = book.hear("0_2", (1, 2), [status(1, 5)])
    assert events[0] == suspended
    assert isinstance(events[1], RestoreStarted)
    assert book.lose("0_2") == [RestoreSuspended(partition=WHERE, store="counts", total_restored=5)]
    assert book.lose("0_2") == []


@given(st.lists(st.integers(0, 50), max_size=30), st.data())
def test_batches_add_up_to_the_total_however_often_someone_asks(
    sizes: list[int], data: st.DataObject
) -> None:
    restores, book = Restores(), RestoreBook()
    events: list[RestoreEvent] = []
    total = 0
    with restores.one("counts", WHERE.topic, WHERE.partition) as told:
        told.move(RestoreProgress(restored=0, remaining=1, bytes=0, start=0, until=sum(sizes)))
        for size in sizes:
            total += size
            told.move(
                RestoreProgress(
                    restored=total, remaining=1, bytes=0, start=0, until=sum(sizes), offset=total
                )
            )
            if data.draw(st.booleans()):
                events += book.hear("0_2", (1, 1), restores.latest())
        told.end()
    events += book.hear("0_2", (1, 1), restores.latest())
    assert sum(batches(events)) == sum(sizes)
    assert isinstance(events[0], RestoreStarted)
    assert events[-1] == RestoreEnded(partition=WHERE, store="counts", total_restored=sum(sizes))


def test_the_latest_restore_of_every_changelog_is_kept() -> None:
    """Whoever follows a task goes on from there, however many stores the task has."""
    restores, log = Restores(), LogRange(0, 7)
    for _ in range(3):
        for number in range(100):
            restores.note_whole(f"s{number}", f"app-s{number}-changelog", 2, log)
    kept = restores.latest()
    assert [each.store for each in kept] == [f"s{number}" for number in range(100)]
    assert [each.number for each in kept] == list(range(201, 301))
    few = Restores()
    for _ in range(100):
        few.note_whole("counts", WHERE.topic, WHERE.partition, log)
    assert [each.number for each in few.latest()] == list(range(37, 101))


def batch(number: int, offset: int) -> BatchRestored:
    return BatchRestored(
        partition=WHERE, store="counts", batch_end_offset=offset, num_restored=number
    )


def test_a_slow_listener_holds_nobody_up_and_misses_nothing() -> None:
    listeners = RestoreListeners()
    goes_on = threading.Event()
    entered = threading.Event()
    heard: list[tuple[object, ...]] = []

    def slow(*what: object) -> None:
        entered.set()
        goes_on.wait()
        heard.append(what)

    listeners.add(BatchRestored, slow)
    listeners.open()
    listeners.tell(batch(1, 0))
    entered.wait()
    for offset in range(1, 1001):
        listeners.tell(batch(1, offset))
        listeners.tell(replace(batch(2, offset), store="sums"))
    goes_on.set()
    listeners.close()
    # What came while it was busy is one batch of each store.
    assert heard == [
        (WHERE, "counts", 0, 1),
        (WHERE, "counts", 1000, 1000),
        (WHERE, "sums", 1000, 2000),
    ]


def test_a_listener_that_raises_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    listeners = RestoreListeners()
    heard: list[int] = []

    def raises(*what: object) -> None:
        heard.append(1)
        raise RuntimeError("no")

    listeners.add(RestoreEnded, raises)
    listeners.open()
    with caplog.at_level(logging.ERROR, logger="penstock"):
        for _ in range(3):
            listeners.tell(RestoreEnded(partition=WHERE, store="counts", total_restored=0))
        listeners.close()
    assert len(heard) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "A restore listener raised; the restore goes on"
    ]


def test_an_object_and_functions_may_listen() -> None:
    heard: list[object] = []

    class Mine(ps.RestoreListener):
        def on_restore_start(
            self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int
        ) -> None:
            heard.append((partition, store, starting_offset, ending_offset))

    listeners = RestoreListeners()
    listeners.set(ps.RestoreListener())
    listeners.set(Mine())
    listeners.add(RestoreSuspended, lambda *what: heard.append(what))
    listeners.open()
    listeners.tell(
        RestoreStarted(partition=WHERE, store="counts", starting_offset=0, ending_offset=9)
    )
    listeners.tell(RestoreEnded(partition=WHERE, store="counts", total_restored=9))
    listeners.tell(RestoreSuspended(partition=WHERE, store="counts", total_restored=4))
    listeners.close()
    assert heard == [(WHERE, "counts", 0, 9), (WHERE, "counts", 4)]
