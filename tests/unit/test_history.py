"""Filling a store from history: what is refused, where the stream goes on, what becomes of rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

import penstock as ps
from penstock.changelog.commit_record import BootstrapRecord, ChangelogEnd, CommitRecord, Mark
from penstock.changelog.reading import LogRange
from penstock.changelog.topics import ExistingTopic
from penstock.config import Config
from penstock.coordination.history import (
    Columns,
    Found,
    check_columns,
    check_free,
    check_offsets,
    check_others,
    check_windows,
    feeding,
    fillable,
    parse_offsets,
    refuse_half_filled,
)
from penstock.coordination.layout import TaskLayout, lay_out
from penstock.driver.bootstrap import _Filling, filled_end, kept_end, stream_time
from penstock.errors import BootstrapError, BootstrapUnfinishedError
from penstock.pipeline.history import (
    ENTRIES,
    HistoryOrder,
    Tally,
    describe_store,
    encode,
    latest_entries,
    tally,
)
from penstock.serdes.windowed import session_key, window_key
from penstock.topology import StoreSpec, Topology


def topology() -> Topology:
    app = ps.Application("clinic")
    pulses = app.stream("pulses", key=str, value=int)
    pulses.group_by_key().count("counts")
    pulses.group_by_key().count("unlogged", logging=False)
    pulses.group_by_key().count("recent", max_entries=5)
    windows = ps.tumbling(timedelta(minutes=1), grace=timedelta(0))
    pulses.group_by_key().windowed_by(windows).count("windows")
    sessions = ps.session(timedelta(minutes=1), grace=timedelta(0))
    pulses.group_by_key().windowed_by(sessions).count("sessions")
    pulses.group_by(lambda key, value: str(value), key=str).count("values")
    placed = pulses.repartition(name="placed", partitioner=lambda _key, _value, _count: 0)
    placed.group_by_key().count("placed")
    app.global_table("wards", "wards", key=str, value=str)
    return app.build()


def spec(name: str) -> StoreSpec:
    return fillable(topology(), name)[1]


@pytest.mark.parametrize(
    ("store", "text"),
    [
        ("count", "Did you mean 'counts'"),
        ("unlogged", "no changelog"),
        ("recent", "forgets"),
        ("placed", "partitioner"),
        ("wards", "global table"),
    ],
)
def test_stores_that_cannot_be_filled_are_refused_by_name(store: str, text: str) -> None:
    with pytest.raises(BootstrapError, match=text):
        fillable(topology(), store)


def test_windows_want_a_start_and_sessions_an_end_too() -> None:
    start = Columns(window_start="start")
    check_windows(spec("windows"), start)
    check_windows(spec("sessions"), Columns(window_start="start", window_end="end"))
    for store, columns in (("windows", Columns()), ("sessions", start), ("counts", start)):
        with pytest.raises(BootstrapError, match=store):
            check_windows(spec(store), columns)


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ({"value": "bigint", "keys": "string"}, "Did you mean 'keys'"),
        ({"key": "string", "value": "double"}, "wants tinyint or smallint or int or bigint"),
        ({"key": "int", "value": "bigint"}, "'key' is of type int"),
    ],
)
def test_columns_must_be_there_and_of_the_stores_types(types: dict[str, str], text: str) -> None:
    with pytest.raises(BootstrapError, match=text):
        check_columns(spec("counts"), Columns(), types)


def test_bytes_are_always_taken() -> None:
    check_columns(spec("counts"), Columns(), {"key": "binary", "value": "binary"})


def test_what_feeds_a_store_through_a_repartition_topic_belongs_to_it() -> None:
    sub, _ = fillable(topology(), "values")
    assert len(feeding(topology(), sub, "clinic")) == 2
    sub, _ = fillable(topology(), "counts")
    assert len(feeding(topology(), sub, "clinic")) == 1


def found(**changes: Any) -> Found:
    facts: dict[str, Any] = {
        "store": "counts",
        "is_filled": False,
        "is_unfinished": False,
        "was_run": False,
        "others": (),
        "standing": {"pulses": {0: 5}},
    }
    return Found(**{**facts, **changes})


def test_a_store_that_is_not_new_is_replaced_only_if_asked() -> None:
    check_free(found(), replace=False)
    check_free(found(is_filled=True, was_run=True), replace=True)
    # What an unfinished one left is worth nothing.
    check_free(found(is_filled=True, is_unfinished=True), replace=False)
    for changes in ({"is_filled": True}, {"was_run": True}):
        with pytest.raises(BootstrapError, match="not new"):
            check_free(found(**changes), replace=False)


def test_other_stores_of_the_tasks_keep_their_position() -> None:
    check_others(found(others=("sums",)), {"pulses": {0: 5}})
    check_others(found(), {"pulses": {0: 9}})
    with pytest.raises(BootstrapError, match="sums"):
        check_others(found(others=("sums",)), {"pulses": {0: 9}})


def test_what_was_known_of_other_stores_changelogs_stays_known() -> None:
    log = LogRange(5, 9)
    # What was in it before is not the store's any more.
    filled = filled_end("id", log, 70, since=7)
    assert (filled.end, filled.start, filled.latest) == (8, 7, 70)
    # One that lost its start, or was made anew, is not to pass for whole after a bootstrap.
    known = ChangelogEnd(id="old", end=7, marks=(Mark(3, 70),), latest=80, kept_ms=-1)
    assert kept_end(known, "id", log) == known
    assert kept_end(None, "id", log) == ChangelogEnd(id="id", end=8, start=5)


def test_who_feeds_a_store_may_go_on_to_recover_from_its_input() -> None:
    app = ps.Application("clinic")
    pulses = app.stream("pulses", key=str, value=int)
    pulses.group_by_key().count("seen", logging=False, recover_from="input")
    pulses.group_by(lambda key, value: str(value), key=str).count("values")
    feeder, own = lay_out(app.build(), "clinic", {"pulses": 1}).tasks
    topic = ExistingTopic(name="", id="x", partitions=1)
    log = LogRange(0, 0)
    last = CommitRecord(n=4, epoch=(1, 1), position={"pulses": {0: 5}}, previous={})

    def record(task: TaskLayout, at: int, last: CommitRecord | None = None) -> CommitRecord:
        filling = object.__new__(_Filling)
        filling._own_tasks = [own]
        filling._records = {} if last is None else {feeder.name: last}
        filling._order = cast(Any, SimpleNamespace(application_id="clinic"))
        filling._prepared = cast(Any, SimpleNamespace(topics=defaultdict(lambda: topic)))
        filling._lease = cast(Any, SimpleNamespace(record=SimpleNamespace(generation=2)))
        filling._store = own.sub_topology.stores[0]
        filling._changelogs = defaultdict(lambda: log)
        filling.position = {name: {0: at} for name, _ in (*feeder.inputs, *own.inputs)}
        return filling._commit_record(task, defaultdict(lambda: log), {})

    assert record(own, 5).from_history
    # Its store without a changelog holds commit 4, and would be lost with any other number.
    assert record(feeder, 5, last=last) == last
    fresh = record(feeder, 5)
    assert (fresh.begun, fresh.from_history) == ({"pulses": {0: 5}}, False)
    half = msgspec.structs.replace(last, begun={"pulses": {0: 1}}, until={"pulses": {0: 9}})
    moved = record(feeder, 7, last=half)
    assert (moved.n, moved.begun, moved.until) == (5, half.begun, {"pulses": {0: 7}})


def test_an_unfinished_one_stops_every_start_but_its_own() -> None:
    refuse_half_filled(None)
    refuse_half_filled(BootstrapRecord(store="counts", finished=True))
    half = BootstrapRecord(store="counts", finished=False)
    refuse_half_filled(half, store="counts")
    for store in ("", "sums"):
        with pytest.raises(BootstrapUnfinishedError, match="--store counts"):
            refuse_half_filled(half, store=store)


INPUTS = {("pulses", 0), ("pulses", 1)}
LOGS = {each: LogRange(10, 20) for each in INPUTS}


def test_offsets_are_of_all_inputs_and_inside_the_logs() -> None:
    given = parse_offsets("pulses:0=10, pulses:1=20")
    assert check_offsets(given, INPUTS, LOGS) == {"pulses": {0: 10, 1: 20}}
    wrong = {
        "No offset": "pulses:0=12",
        "outside": "pulses:0=12,pulses:1=21",
        "no input": "pulses:0=12,pulses:1=12,pulse:0=3",
    }
    for text, offsets in wrong.items():
        with pytest.raises(BootstrapError, match=text):
            check_offsets(parse_offsets(offsets), INPUTS, LOGS)
    with pytest.raises(BootstrapError, match="no offset"):
        parse_offsets("yesterday")


def order(*, is_timed: bool = True) -> HistoryOrder:
    return HistoryOrder(
        config=Config(),
        store=b"",
        changelog="clinic-counts-changelog",
        tasks=tuple(f"counts-{partition}" for partition in range(7)),
        application_id="clinic",
        now_ms=77,
        is_timed=is_timed,
    )


def rows(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_become_the_stores_bytes_where_kafka_would_put_them() -> None:
    batch = encode(spec("counts"), order(), rows(key=["21"], value=[1], origin=[0], place=[0]))
    assert batch.schema == ENTRIES
    assert batch.to_pylist() == [
        {
            "partition": 3,  # Kafka's own murmur2 of "21" is -973932308.
            "key": b"21",
            "value": (1).to_bytes(8, "big"),
            "timestamp": 77,
            "origin": 0,
            "place": 0,
        }
    ]


def test_windows_lie_where_their_plain_key_does() -> None:
    plain = encode(spec("counts"), order(), rows(key=["21"], value=[1], origin=[0], place=[0]))
    windows = encode(
        spec("windows"),
        order(),
        rows(key=["21"], value=[1], window_start=[60_000], origin=[0], place=[0]),
    )
    sessions = encode(
        spec("sessions"),
        order(),
        rows(key=["21"], value=[1], window_start=[5], window_end=[9], origin=[0], place=[0]),
    )
    assert windows.column("key").to_pylist() == [window_key(b"21", 60_000)]
    assert sessions.column("key").to_pylist() == [session_key(b"21", 5, 9)]
    assert windows.column("partition") == sessions.column("partition") == plain.column("partition")


def test_a_changelog_of_windows_has_their_times_in_its_keys() -> None:
    for store, key in (("windows", window_key(b"21", 7)), ("sessions", session_key(b"21", 5, 9))):
        check_windows(spec(store), Columns(), is_topic=True)
        plain = encode(spec("counts"), order(), rows(key=["21"], value=[1], origin=[0], place=[0]))
        found = encode(spec(store), order(), rows(key=[key], value=[1], origin=[0], place=[0]))
        assert found.column("key").to_pylist() == [key]
        assert found.column("partition") == plain.column("partition")
    # As topics have them that windows were written to: a key and 8 bytes of start.
    others = [window_key(b"21", 7)[:-4], window_key(b"21 and more", 7)[:-4]]
    for store, other in [*(("windows", each) for each in others), ("sessions", b"short")]:
        with pytest.raises(BootstrapError, match="not one of a changelog"):
            encode(spec(store), order(), rows(key=[other], value=[1], origin=[0], place=[0]))
    with pytest.raises(BootstrapError, match="no column says their end"):
        check_windows(spec("sessions"), Columns(window_start="timestamp"), is_topic=True)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"key": [None, "a"], "value": [1, 1], "origin": [0, 0], "place": [0, 0]}, "no key"),
        ({"key": ["a"], "value": [b"short"], "origin": [0], "place": [0]}, "A value is no long"),
        (
            {"key": ["a"], "value": [1], "timestamp": [-1], "origin": [0], "place": [0]},
            "before 1970",
        ),
    ],
)
def test_rows_that_have_no_entry_are_refused(columns: dict[str, list[Any]], text: str) -> None:
    with pytest.raises(BootstrapError, match=text):
        encode(spec("counts"), order(), rows(**columns))


Row = tuple[bytes, int, int, int]
"""Key, origin, time and place."""


def entries(*rows: Row) -> pa.RecordBatch:
    keys, origins, times, places = zip(*rows, strict=True)
    fixed = [[0] * len(rows), keys, [b"v"] * len(rows)]
    return pa.record_batch([*fixed, times, origins, places], schema=ENTRIES)


OLD = -1


def latest(*batches: pa.RecordBatch, is_timed: bool = True) -> list[Row]:
    return [
        (row["key"], row["origin"], row["timestamp"], row["place"])
        for batch in latest_entries(order(is_timed=is_timed), iter(batches))
        for row in batch.to_pylist()
    ]


def test_the_last_entry_of_a_key_counts_even_across_batches() -> None:
    first = entries((b"a", OLD, 99, 0), (b"a", 0, 5, 1), (b"a", 0, 3, 2), (b"b", 0, 1, 1))
    second = entries((b"b", 0, 2, 4), (b"c", 0, 1, 1), (b"d", OLD, 99, 0))
    expected = [(b"a", 0, 3, 2), (b"b", 0, 2, 4), (b"c", 0, 1, 1), (b"d", OLD, 99, 0)]
    assert latest(first, second) == expected


def test_of_partitions_with_the_same_key_the_latest_time_counts() -> None:
    rows: list[Row] = [
        (b"a", OLD, 999, 0),
        (b"a", 0, 2_000, 4),
        (b"a", 0, 2_000, 5),
        (b"a", 1, 9_000, 0),
        (b"a", 2, 1_000, 77),
        (b"b", 0, 7, 1),
        (b"b", 1, 6, 9),
    ]
    for cut in range(1, len(rows)):
        found = latest(entries(*rows[:cut]), entries(*rows[cut:]))
        assert found == [(b"a", 1, 9_000, 0), (b"b", 0, 7, 1)], cut


def test_without_times_a_key_has_one_row_besides_what_it_replaces() -> None:
    old, new = (b"a", OLD, 77, 0), (b"a", 0, 77, 0)
    assert latest(entries(old, old, new), is_timed=False) == [new]
    for batches in ([entries(new, new)], [entries(new), entries(new)]):
        with pytest.raises(BootstrapError, match="several rows"):
            latest(*batches, is_timed=False)


def tallied(store: str, *batches: pa.RecordBatch, is_timed: bool) -> Tally:
    job = replace(order(is_timed=is_timed), store=describe_store(spec(store)))
    [row] = [row for batch in tally(job, iter(batches)) for row in batch.to_pylist()]
    return Tally(entries=row["entries"], time=row["time"], window=row["window"])


def test_stream_time_is_that_of_rows_and_never_the_wall_clock() -> None:
    rows = [entries((b"a", 0, 40, 0)), entries((b"b", 0, 30, 0), (b"c", OLD, 77, 0))]
    timed, untimed = (tallied("counts", *rows, is_timed=each) for each in (True, False))
    assert timed == Tally(entries=3, time=40, window=-1)
    assert stream_time(timed) == {"stream-time": "40"}
    assert untimed.time == -1
    assert stream_time(untimed) == stream_time(None) == {}
    # What is only deleted says nothing of the stream.
    assert tallied("counts", entries((b"c", OLD, 77, 0)), is_timed=True).time == -1


def test_the_latest_window_is_known_without_times() -> None:
    windows = entries((window_key(b"a", 60_000), 0, 77, 0), (window_key(b"b", 5), 0, 77, 0))
    assert tallied("windows", windows, is_timed=False) == Tally(entries=2, time=-1, window=60_000)
