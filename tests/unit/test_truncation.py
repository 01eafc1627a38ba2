"""Changelogs that lost records: what the last commit alone says of that, whatever the store is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from penstock.changelog.commit_record import ChangelogEnd, CommitRecord, Mark
from penstock.changelog.reading import LogRange
from penstock.changelog.restore import check_end
from penstock.errors import ChangelogError
from penstock.instance.open_stores import shaped
from penstock.instance.protocol import StoreOrder
from penstock.instance.truncation import KnownStarts
from penstock.serdes.windowed import session_key, window_key
from penstock.stores.contract import Change, Entry, KeyValueStore, stored_value, version_key
from penstock.stores.memory import MemoryStore

HOUR = 3_600_000
NOW = 1_000 * HOUR
WINDOWS = StoreOrder(
    name="hourly",
    changelog="app-hourly-changelog",
    changelog_id="id",
    kind="window",
    retention_ms=4 * HOUR,
    segment_ms=2 * HOUR,
    expires=True,
    kept_ms=28 * HOUR,
)
SESSIONS = msgspec.structs.replace(WINDOWS, kind="session")
COUNTS = StoreOrder(name="hourly", changelog="app-hourly-changelog", changelog_id="id")


FORGETTING = msgspec.structs.replace(COUNTS, expires=True, kept_ms=28 * HOUR)
"""A user may have a changelog of keys forget what is old, too."""
VERSIONS = msgspec.structs.replace(
    FORGETTING, kind="versioned", retention_ms=HOUR, segment_ms=HOUR // 3
)


class OwnWindows(MemoryStore):
    """A user's store, which arranges windows by itself and does not say how late it is."""

    def fetch(self, key: bytes, first: int, last: int) -> Iterator[Entry]:
        yield from ()


@dataclass
class Log:
    """A changelog and its store: each commit is a transaction, with `markers` behind it."""

    order: StoreOrder
    store: KeyValueStore
    end: int = 0
    markers: int = 1
    known: KnownStarts = field(init=False)
    record: CommitRecord | None = None

    def __post_init__(self) -> None:
        self.known = KnownStarts("0_0", lambda: NOW, markers=1)

    def write(self, *changes: Change) -> CommitRecord:
        """What commits note of changes that are written and not yet applied."""
        end = self.known.end_of(self.order, self.store, changes)
        position = {"in": {0: 1}}
        return CommitRecord(
            n=1, epoch=(1, 1), position=position, previous=position, changelogs={"hourly": end}
        )

    def commit(self, *changes: Change) -> ChangelogEnd:
        """The same, committed."""
        self.record = self.write(*changes)
        self.end += len(changes)
        self.store.apply(changes, offset=self.end - 1)
        self.known.applied("hourly")
        self.end += self.markers
        return self.record.changelogs["hourly"]

    def next_owner(self, *, now_ms: int = NOW) -> KnownStarts:
        """Who knows the last commit and nothing else."""
        assert self.record is not None
        known = KnownStarts("0_0", lambda: now_ms, markers=1)
        known.read(CommitRecord.decode(self.record.encode()))
        return known

    def lost_all(self) -> LogRange:
        """The changelog after all of its records were deleted."""
        return LogRange(self.end, self.end)


def own_log() -> Log:
    return Log(WINDOWS, shaped(OwnWindows("hourly"), WINDOWS))


def our_log(order: StoreOrder = WINDOWS) -> Log:
    return Log(order, shaped(MemoryStore("hourly"), order))


def window(hours_ago: int) -> Change:
    return (window_key(b"a", NOW - hours_ago * HOUR), b"x")


@pytest.mark.parametrize("make", [our_log, own_log])
def test_windows_that_were_lost_after_a_single_commit_are_missed(make: Callable[[], Log]) -> None:
    log = make()
    log.commit(window(2), window(1))
    known = log.next_owner()
    with pytest.raises(ChangelogError, match="begins at offset 3, and an empty store needs more"):
        known.notes(WINDOWS, log.lost_all(), None)
    assert not known.can_rebuild(WINDOWS, log.lost_all())
    # A disk that has them says so, and what Kafka removed by its age nobody misses.
    [note] = known.notes(WINDOWS, log.lost_all(), 1)
    assert "is whole on this disk, and could not be rebuilt" in note
    much_later = log.next_owner(now_ms=NOW + 30 * HOUR)
    assert much_later.notes(WINDOWS, log.lost_all(), None) == []
    # A retention that was raised since brings nothing back, and one that was lowered holds.
    longer, shorter = (msgspec.structs.replace(WINDOWS, kept_ms=h * HOUR) for h in (900, 1))
    assert much_later.notes(longer, log.lost_all(), None) == []
    assert known.notes(shorter, log.lost_all(), None) == []
    # As long as one record is there, its neighbours may have been older. A marker is none.
    assert known.notes(WINDOWS, LogRange(1, log.end), None) == []
    assert not known.can_rebuild(WINDOWS, LogRange(2, log.end))


def test_a_last_record_without_a_marker_is_one() -> None:
    log = our_log()
    log.commit(window(40))
    log.end, log.markers = 1, 0
    log.commit(window(1))
    # Exactly-once from now on; the log holds a record, and no marker.
    assert log.next_owner().notes(WINDOWS, LogRange(1, log.end), None) == []
    assert not log.next_owner().can_rebuild(WINDOWS, log.lost_all())


def put(key: bytes, hours_ago: int) -> Change:
    return (key, stored_value(NOW - hours_ago * HOUR, b"x"))


def test_keys_that_a_changelog_forgot_by_their_age_are_told_where_they_are_missed() -> None:
    log = our_log(FORGETTING)
    log.commit(put(b"a", 40), put(b"b", 39))
    log.commit(put(b"c", 1))
    known, left = log.next_owner(), LogRange(3, log.end)
    [note] = known.notes(FORGETTING, left, None)
    assert "begins at offset 3 in partition 0: it forgets what is old" in note
    assert "no longer in store hourly of task 0_0" in note
    assert known.can_rebuild(FORGETTING, left)
    # A store that has them, or one that is behind and is to be made anew, misses nothing yet.
    assert known.notes(FORGETTING, left, 2) == known.notes(FORGETTING, left, 0) == []
    assert known.notes(FORGETTING, LogRange(0, log.end), None) == []


@pytest.mark.parametrize(
    ("order", "changes"),
    [
        (FORGETTING, [put(b"a", 40), put(b"b", 1)]),
        (FORGETTING, [put(b"a", 1), (b"b", None)]),
        (VERSIONS, [(version_key(b"a", NOW - HOUR), None)]),
    ],
)
def test_a_changelog_of_keys_that_lost_its_last_record_before_its_time_is_missed(
    order: StoreOrder, changes: list[Change]
) -> None:
    log = our_log(order)
    log.commit(put(b"x", 50) if order is FORGETTING else changes[0])
    log.commit(*changes)
    # A commit that writes nothing says what the last one said.
    log.commit()
    with pytest.raises(ChangelogError, match="Keys that were not written since would be lost"):
        log.next_owner().notes(order, log.lost_all(), None)
    assert not log.next_owner().can_rebuild(order, log.lost_all())
    later = log.next_owner(now_ms=NOW + 30 * HOUR)
    assert later.can_rebuild(order, log.lost_all())
    assert len(later.notes(order, log.lost_all(), None)) == 1


def test_a_key_that_is_written_again_with_an_earlier_time_takes_its_later_one_along() -> None:
    # Once it is compacted, nothing in the changelog is as young as this was.
    log = our_log(FORGETTING)
    log.commit(put(b"a", -9_000))
    log.commit(put(b"a", 40))
    assert log.next_owner().can_rebuild(FORGETTING, log.lost_all())
    log.commit(put(b"a", 1), (b"a", None))
    assert log.next_owner().can_rebuild(FORGETTING, log.lost_all())


def test_deletions_lasted_as_long_as_they_did_though_the_topic_keeps_them_longer_now() -> None:
    """A disk that was away meanwhile has missed those that are gone."""
    minute, day = 60_000, 24 * HOUR
    brief, usual = (msgspec.structs.replace(COUNTS, tombstones_ms=each) for each in (minute, day))
    log = our_log(brief)
    assert log.commit().tombstones_ms == minute
    assert log.next_owner().tombstones_ms(usual) == minute
    # It is still known when others have committed since, until a day has passed.
    log.known, log.order = log.next_owner(), usual
    assert log.commit().tombstones_until == NOW + day
    for now_ms, lasted in ((NOW + day - 1, minute), (NOW + day, day)):
        assert log.next_owner(now_ms=now_ms).tombstones_ms(usual) == lasted
    # Less is less at once; and what Kafka does by itself is not worth a word.
    assert log.next_owner(now_ms=NOW + day).tombstones_ms(brief) == minute
    log.known = log.next_owner(now_ms=NOW + day)
    end = log.commit()
    assert (end.tombstones_ms, end.tombstones_until) == (-1, 0)
    log.order = msgspec.structs.replace(COUNTS, tombstones_ms=0)
    assert log.commit().tombstones_ms == 0
    assert log.next_owner().tombstones_ms(usual) == 0
    assert our_log().known.tombstones_ms(brief) == minute
    week = msgspec.structs.replace(COUNTS, tombstones_ms=7 * day)
    assert our_log(week).commit().tombstones_ms == 7 * day


def test_sessions_count_by_their_end() -> None:
    log = our_log(SESSIONS)
    log.commit((session_key(b"a", NOW - 40 * HOUR, NOW - HOUR), b"x"))
    with pytest.raises(ChangelogError):
        log.next_owner().notes(SESSIONS, log.lost_all(), None)


def test_a_session_that_grows_does_not_make_a_changelog_that_keeps_little_more_look_cut() -> None:
    """What compaction removes, and the age of what is left, are no loss."""
    scarce = msgspec.structs.replace(SESSIONS, kept_ms=SESSIONS.retention_ms + 60_000)
    log, times = our_log(scarce), list[int]()
    minutes = HOUR // 60
    began = NOW - 5 * HOUR
    log.commit((session_key(b"idle", began, began), b"x"))
    times += [began, 0]
    previous = session_key(b"busy", began, began)
    for at in range(began + 10 * minutes, NOW, 10 * minutes):
        grown = session_key(b"busy", began, at)
        log.commit((previous, None), (grown, b"x"))
        # Kafka compacts all but the last segment: of this one nothing is left but its marker.
        times += [0, 0, 0]
        previous = grown
    # So the oldest of the rest decides, and all of it goes at once.
    assert max(times) < NOW - scarce.kept_ms
    left = LogRange(log.end - 3, log.end)
    assert log.record is not None
    assert len(log.record.changelogs["hourly"].marks) > 2
    assert log.next_owner().notes(scarce, left, None) == []
    assert log.next_owner().can_rebuild(scarce, left)
    # If nothing is left, though the last was young, it was lost.
    assert not log.next_owner().can_rebuild(scarce, log.lost_all())


@pytest.mark.parametrize("make", [our_log, own_log])
def test_a_users_windows_are_noted_as_ours_are(make: Callable[[], Log]) -> None:
    log = make()
    assert log.commit(window(9)).marks == ()
    assert log.commit(window(8)).marks == (Mark(0, NOW - 9 * HOUR),)
    assert log.commit().latest == NOW - 8 * HOUR
    # The next owner goes on with what it finds.
    log.known = log.next_owner()
    assert log.commit(window(1)).marks == (Mark(0, NOW - 9 * HOUR), Mark(2, NOW - 8 * HOUR))
    assert log.commit().marks == (Mark(5, NOW - HOUR),)


@pytest.mark.parametrize("make", [our_log, own_log])
def test_what_was_aborted_counts_for_nothing(make: Callable[[], Log]) -> None:
    log = make()
    log.commit(window(9))
    log.write(window(1))
    end = log.commit(window(8))
    assert (end.latest, end.marks) == (NOW - 8 * HOUR, (Mark(0, NOW - 9 * HOUR),))


@pytest.mark.parametrize("make", [our_log, own_log])
def test_a_store_that_is_made_from_the_input_again_is_as_late_as_that(
    make: Callable[[], Log],
) -> None:
    log = make()
    log.commit(window(1))
    log.store = make().store
    log.known.begin_anew()
    end = log.commit(window(9))
    assert (end.latest, end.marks) == (NOW - 9 * HOUR, ())


def test_a_record_of_before_is_read_and_gone_on_from() -> None:
    log = our_log()
    log.commit(window(2))
    assert log.record is not None
    old = msgspec.json.decode(log.record.encode())
    del old["changelogs"]["hourly"]["latest"]
    known = KnownStarts("0_0", lambda: NOW, markers=1)
    known.read(CommitRecord.decode(msgspec.json.encode(old)))
    assert known.notes(WINDOWS, log.lost_all(), None) == []
    log.known = known
    assert log.commit().latest == NOW - 2 * HOUR


@pytest.mark.parametrize("order", [COUNTS, WINDOWS])
def test_a_changelog_that_lost_its_end_is_missed_after_a_single_commit(order: StoreOrder) -> None:
    log = our_log(order)
    known = log.commit(window(2), window(1)).end
    assert known == 1
    check_end("log", 0, LogRange(0, log.end), known)
    with pytest.raises(ChangelogError, match="ends at 1, and offset 1 was committed"):
        check_end("log", 0, LogRange(0, 1), known)
    # Where markers lie between, what is known lags behind them, and never is ahead.
    assert log.commit(window(1)).end == 2
    assert log.store.offset() == 3
