"""Records and results that are known of Kafka Streams, and that no oracle's program says.

A record is written `key:value@time`, with `topic/` before it where there are two, a result
`key=value@time`; `-` is no value. Windows are written `key[start,end]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.observability.groups import Level
from penstock.processors import Limits, SliceResult
from penstock.processors.choice import start_slice
from penstock.processors.record_cache import CONTEXT_BYTES, ENTRY_BYTES, CacheState, EvictingCache
from penstock.serdes import serde_of
from penstock.serdes.murmur3 import murmur3_128
from penstock.serdes.windowed import window_key
from penstock.stores.checkpoint_file import format_checkpoint, parse_checkpoint
from penstock.stores.memory import MemoryStore
from penstock.stores.segments import SegmentedStore
from penstock.testing import TopologyTestDriver
from penstock.testing.stores import DriverState
from penstock.topology.windows import LONG_MAX
from tests.unit.slices import Row, records

GAP = 300_000


def _ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def _pipe(driver: TopologyTestDriver, written: str) -> str:
    """Put records in; what came out."""
    for each in written.split():
        rest, _, time = each.rpartition("@")
        topic, named, pair = rest.rpartition("/")
        key, _, value = pair.partition(":")
        given = driver.input_topic(topic if named else "in", key=str, value=str)
        given.pipe(key, None if value == "-" else value, timestamp=int(time))
    out = driver.output_topic("out", key=str, value=str).read_all()
    return " ".join(
        f"{each.key}={'-' if each.value is None else each.value}@{each.timestamp}" for each in out
    )


def _to_out(table: Any) -> None:
    """A table of windows, with keys and values as texts."""

    def named(window: ps.Windowed[str], value: Any) -> tuple[str, str | None]:
        text = None if value is None else str(value)
        return f"{window.key}[{window.start},{window.end}]", text

    table.to_stream().map(named, key=str, value=str).to("out")


def _add(_key: str, value: str, aggregate: str) -> str:
    return f"{aggregate}+{value}"


def _windowed(windows: Any, *, closes: bool = False, init: str = "0", **options: Any) -> Any:
    builder = ps.StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key().windowed_by(windows)
    grouped = grouped.emit_on_window_close() if closes else grouped
    _to_out(grouped.aggregate(lambda: init, _add, "held", value=str, **options))
    return TopologyTestDriver(builder.build())


def test_windows_that_have_expired_drop_seven_records() -> None:
    windows = ps.hopping(_ms(10), advance=_ms(5), grace=_ms(90))
    driver = _windowed(windows, init="", retention=_ms(100))
    written = "k:100@100 k:0@0 k:1@1 k:2@2 k:3@3 k:4@4 k:5@5 k:6@6 k:105@105 k:106@106"
    assert _pipe(driver, written) == (
        "k[95,105]=+100@100 k[100,110]=+100@100 k[5,15]=+5@5 k[5,15]=+5+6@6"
        " k[100,110]=+100+105@105 k[105,115]=+105@105 k[100,110]=+100+105+106@106"
        " k[105,115]=+105+106@106"
    )
    assert driver.dropped == {"late": 7}


def test_records_past_their_grace_are_seven_dropped() -> None:
    driver = _windowed(ps.tumbling(_ms(10), grace=_ms(90)), init="")
    written = "k:100@200 k:0@100 k:1@101 k:2@102 k:3@103 k:4@104 k:5@105 k:6@6"
    assert _pipe(driver, written) == "k[200,210]=+100@200"
    assert driver.dropped == {"late": 7}


def test_a_new_instance_emits_only_what_closed_since() -> None:
    """Each record of the test driver is a slice of its own, with what the last one left.

    The windows are kept for longer than they can change: a jump of time would let them expire.
    """
    windows = ps.hopping(_ms(10), advance=_ms(5), grace=_ms(5))
    driver = _windowed(windows, closes=True, retention=timedelta(days=1))
    assert _pipe(driver, "A:1@0 B:2@5 C:3@15") == "A[0,10]=0+1@0 B[0,10]=0+2@5"
    assert _pipe(driver, "D:4@25") == "B[5,15]=0+2@5 C[10,20]=0+3@15"


SLIDING = "A:1@10 A:2@10 A:3@14 A:4@15 A:5@20 A:6@22 A:7@30"
SLIDING_RESULTS = {
    0: "0+1@10 0+1+2@10",
    4: "0+1+2+3@14",
    5: "0+1+2+3+4@15",
    10: "0+1+2+3+4+5@20",
    11: "0+3@14 0+3+4@15 0+3+4+5@20",
    12: "0+3+4+5+6@22",
    15: "0+4@15 0+4+5@20 0+4+5+6@22",
    16: "0+5@20 0+5+6@22",
    20: "0+5+6+7@30",
    21: "0+6@22 0+6+7@30",
    23: "0+7@30",
}
EARLY = "A:1@0 A:2@5 A:3@6 A:4@3 A:5@13 A:6@10 A:7@70"
EARLY_FINALS = {
    0: "0+1+2+3+4+5+6@13",
    1: "0+2+3+4+5+6@13",
    4: "0+2+3+5+6@13",
    6: "0+3+5+6@13",
    7: "0+5+6@13",
    11: "0+5@13",
}


def _by_start(told: str) -> dict[int, str]:
    """Each window's results, by its start."""
    found: dict[int, list[str]] = {}
    for each in told.split():
        window, _, result = each.partition("=")
        found.setdefault(int(window.partition("[")[2].partition(",")[0]), []).append(result)
    return {start: " ".join(results) for start, results in sorted(found.items())}


def test_sliding_windows_change_with_every_record() -> None:
    windows = ps.sliding(_ms(10), grace=_ms(5))
    assert _by_start(_pipe(_windowed(windows), SLIDING)) == SLIDING_RESULTS
    closed = _by_start(_pipe(_windowed(windows, closes=True), SLIDING))
    assert closed == {start: SLIDING_RESULTS[start].split()[-1] for start in (0, 4, 5, 10, 11, 12)}


def test_sliding_windows_of_records_that_begin_before_time_does() -> None:
    windows = ps.sliding(_ms(50), grace=_ms(0))
    updates = _by_start(_pipe(_windowed(windows), EARLY))
    finals = {start: results.split()[-1] for start, results in updates.items()}
    assert finals == {**EARLY_FINALS, 20: "0+7@70"}
    assert _by_start(_pipe(_windowed(windows, closes=True), EARLY)) == EARLY_FINALS


def _sliced(builder: ps.StreamsBuilder, written: str, level: Level = "OFF") -> SliceResult:
    """What one slice of these records does, whose cache holds everything until its end."""
    [sub] = builder.build().sub_topologies
    run = start_slice(
        sub,
        application_id="app",
        state=DriverState({spec.name: spec for spec in sub.stores}),
        limits=Limits(cache_max_bytes=10_000_000, partition_counts={"out": 1}, metrics=level),
        metadata={},
        partition=0,
        now_ms=0,
    )
    rows: dict[str, list[Row]] = {}
    for each in written.split():
        rest, _, time = each.rpartition("@")
        topic, named, pair = rest.rpartition("/")
        key, _, value = pair.partition(":")
        given = rows.setdefault(topic if named else "in", [])
        data = None if value == "-" else value.encode()
        given.append(Row(len(given), int(time), key.encode(), data))
    for topic, found in rows.items():
        run.process(records(found, topic))
    return run.finish()


def _told(result: SliceResult) -> list[str]:
    rows = result.outputs.to_pylist()
    return [f"{row['key'].decode()}={row['value'].decode()}@{row['timestamp']}" for row in rows]


def _sessions(written: Iterable[tuple[str, int]], *, closes: bool) -> list[str]:
    builder = ps.StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    sessions = grouped.windowed_by(ps.session(_ms(GAP), grace=_ms(0)))
    _to_out((sessions.emit_on_window_close() if closes else sessions).count("held"))
    return _told(_sliced(builder, " ".join(f"{key}:x@{time}" for key, time in written)))


def test_a_cache_tells_sessions_at_its_flush() -> None:
    one, two = GAP + 1, 2 * (GAP + 1)
    written = [("mel", 0)] + [("mel", one)] * 2 + [("mel", two)] * 3
    known = ["mel[0,0]=1@0", f"mel[{one},{one}]=2@{one}", f"mel[{two},{two}]=3@{two}"]
    assert _sessions(written, closes=False) == known
    assert _sessions(written, closes=True) == known[:2]


def test_a_cache_tells_sessions_in_the_order_of_their_last_writes() -> None:
    half, one = GAP // 2, GAP + 1
    end = one + half
    written = [("a", 0), ("b", 0), ("c", 0), ("d", 0), ("d", half)]
    written += [("a", one), ("b", one), ("a", end), ("c", end)]
    known = ["a[0,0]=1@0", "b[0,0]=1@0", "c[0,0]=1@0", f"d[0,{half}]=2@{half}"]
    later = [f"b[{one},{one}]=1@{one}", f"a[{one},{end}]=2@{end}", f"c[{end},{end}]=1@{end}"]
    assert _sessions(written, closes=False) == known + later
    assert _sessions(written, closes=True) == known


def test_a_buffer_of_200_bytes_emits_early() -> None:
    """The bytes of a record include its topic's name, here the one that Kafka Streams makes."""
    app = ps.Application("suppressscenariotest")
    rows = app.table("in", "rows", key=str, value=str)
    grouped = rows.group_by(lambda key, value: (value, value), key=str, value=str)
    counts = grouped.count("KTABLE-AGGREGATE-STATE-STORE-0000000005")
    limit = ps.until_time_limit(timedelta(days=100_000), ps.max_bytes(200).emit_early_when_full())
    calm = counts.suppress(limit, name="calm").to_stream()
    calm.map_values(str, value=str).to("out")
    driver = TopologyTestDriver(app)
    assert _pipe(driver, "k1:v1@0 k1:v2@1 k2:v1@2") == "v1=0@1 v2=1@1"
    assert _pipe(driver, "x:x@3") == "v1=1@2"


class _At100(ps.Processor[Any, int, Any, int]):
    """Gives every row the time 100."""

    def process(self, record: ps.Record[Any, int]) -> None:
        self.context.forward(ps.Record(record.key, record.value, 100))


def test_a_final_result_of_a_window_that_is_over_does_not_wait() -> None:
    builder = ps.StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    counts = grouped.windowed_by(ps.tumbling(_ms(100), grace=_ms(0))).count("held").to_stream()
    windows = ps.WindowedSerde(serde_of(str), 100)
    late = counts.process(_At100, key=windows, value=int).to_table("late")
    _to_out(late.suppress(ps.until_window_closes(), name="calm"))
    assert _pipe(TopologyTestDriver(builder.build()), "hey:x@5") == "hey[0,100]=1@100"


def _regrouped(mapper: Any, initial: str, adder: Any, subtractor: Any) -> TopologyTestDriver:
    builder = ps.StreamsBuilder()
    rows = builder.table("in", "rows", key=str, value=str)
    grouped = rows.group_by(mapper, key=str, value=str)
    totals = grouped.aggregate(lambda: initial, adder, subtractor, "totals", value=str)
    totals.to_stream().to("out")
    return TopologyTestDriver(builder.build())


def test_rows_without_a_group_are_in_none() -> None:
    def by_value(key: str, value: str) -> Any:
        if key == "NULL":
            return None
        return (None if key == "null" else value), value

    driver = _regrouped(by_value, "0", _add, lambda key, old, total: f"{total}-{old}")
    written = "A:1@10 A:-@15 A:1@12 B:2@20 null:3@25 B:4@23 NULL:5@24 B:7@22"
    assert _pipe(driver, written) == (
        "1=0+1@10 1=0+1-1@15 1=0+1-1+1@15 2=0+2@20 2=0+2-2@23 4=0+4@23 4=0+4-4@23 7=0+7@22"
    )


def test_an_old_row_is_taken_out_before_its_successor_comes_in() -> None:
    driver = _regrouped(
        lambda key, value: (key[0], key[1]),
        "",
        lambda key, new, total: total + new,
        lambda key, old, total: total.replace(old, "", 1),
    )
    assert _pipe(driver, "11:A@10 12:B@8 11:-@12 12:C@6") == "1=1@10 1=12@10 1=2@12 1=2@12"


def test_sets_of_rows_grow_and_shrink() -> None:
    app = ps.Application("sets")
    kind = ps.JsonSerde(set[str])
    rows = app.table("in", key=str, value=kind)
    grouped = rows.group_by(lambda key, row: (key, row), key=str, value=kind)
    grouped.reduce(lambda held, new: held | new, lambda held, old: held - old, "sets")
    driver = TopologyTestDriver(app)
    given = driver.input_topic("in", key=str, value=kind)
    known: list[tuple[set[str] | None, int, tuple[set[str], int]]] = [
        ({"a"}, 10, ({"a"}, 10)),
        ({"b"}, 15, ({"b"}, 15)),
        (None, 12, (set(), 15)),
    ]
    for row, time, expected in known:
        given.pipe("k", row, timestamp=time)
        held = driver.store("sets")
        assert (held["k"], held.timestamp("k")) == expected


def _pair(left: str | None, right: str | None) -> str:
    return f"{left}-{right}"


def test_a_stream_meets_itself() -> None:
    builder = ps.StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    near = ps.join_window(timedelta(seconds=10), grace=timedelta(days=1))
    stream.join(stream, _pair, near, value=str).to("out")
    driver = TopologyTestDriver(builder.build())
    told = [_pipe(driver, f"k:{row}") for row in ["-@1", "A@2", "B@3", "-@4", "C@5", "-@6", "D@7"]]
    pairs = ["", "A-A@2", "B-A A-B B-B@3", "", "C-A C-B A-C B-C C-C@5", ""]
    pairs.append("D-A D-B D-C A-D B-D C-D D-D@7")
    assert told == [_of_k(each) for each in pairs]


def _of_k(pairs: str) -> str:
    """Values of one time, as results of key k."""
    values, _, time = pairs.partition("@")
    return " ".join(f"k={value}@{time}" for value in values.split())


def test_unmatched_records_of_the_right_side_are_not_told_by_a_left_join() -> None:
    builder = ps.StreamsBuilder()
    left, right = (builder.stream(topic, key=str, value=str) for topic in "lr")
    near = ps.join_window(_ms(100), grace=_ms(0))
    left.left_join(right, lambda one, other: f"{one}+{other}", near, value=str).to("out")
    driver = TopologyTestDriver(builder.build())
    assert _pipe(driver, "r/0:A0@1 r/1:A1@2 r/0:B0@3") == ""
    assert _pipe(driver, "l/1:a1@3") == "1=a1+A1@3"
    assert _pipe(driver, "l/2:dummy@401") == ""
    assert _pipe(driver, "r/2:dummy@402") == "2=dummy+dummy@402"


def test_a_left_join_that_looks_back_alone_waits_for_nobody_behind_it() -> None:
    builder = ps.StreamsBuilder()
    left, right = (builder.stream(name, key=str, value=str) for name in ("left", "right"))
    window = ps.join_window(before=_ms(100), after=_ms(0), grace=_ms(0))
    left.left_join(right, lambda a, b: f"{a}+{b}", window, value=str).to("out")
    driver = TopologyTestDriver(builder.build())
    told = "0=A0+None@1000 1=A1+None@1001 2=A2+None@1002"
    assert _pipe(driver, "left/0:A0@1000 left/1:A1@1001 left/2:A2@1002 left/3:A3@1003") == told
    # Each meets all but those whose window was over by then.
    moments = {"a": (999, 0), "b": (1000, 0), "c": (1001, 1), "d": (1002, 2), "e": (1003, 3)}
    for value, (at, first) in {**moments, "f": (1100, 4)}.items():
        given = " ".join(f"right/{key}:{value}{key}@{at}" for key in range(4))
        met = [f"{key}=A{key}+{value}{key}@{1000 + key}" for key in range(first, 4)]
        assert _pipe(driver, given) == " ".join(met)


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_tables_that_change_in_a_cache_end_as_they_do_without_one(kind: str) -> None:
    builder = ps.StreamsBuilder()
    left, right = (builder.table(topic, topic, key=str, value=str) for topic in "lr")
    getattr(left, kind)(right, _pair, store="joined", value=str).to_stream().to("out")
    lefts = "l/k:-@1 l/k:A@3 l/k:B@5 l/k:-@7 l/k:C@9 l/k:-@12 l/k:D@6 l/k:-@2 l/k:E@15 l/k:-@10"
    rights = "r/k:-@2 r/k:a@4 r/k:b@6 r/k:-@8 r/k:c@10 r/k:-@11 r/k:-@13 r/k:d@7 r/k:-@3 r/k:e@14"
    assert _told(_sliced(builder, f"{lefts} l/k:F@4 {rights} r/k:-@9 r/k:f@3")) == ["k=F-f@4"]


@pytest.mark.parametrize("window", [None, 100])
def test_a_cache_tells_each_key_once(window: int | None) -> None:
    builder = ps.StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    if window is not None:
        _to_out(grouped.windowed_by(ps.tumbling(_ms(window), grace=_ms(0))).reduce(_colon, "held"))
    else:
        grouped.reduce(_colon, "held").to_stream().to("out")
    batches = (" ".join(f"{key}:{key}@{time}" for key in "ABCDE") for time in (210, 250))
    name = "" if window is None else "[200,300]"
    expected = [f"{key}{name}={key}:{key}@250" for key in "ABCDE"]
    assert _told(_sliced(builder, " ".join(batches))) == expected


def _colon(kept: str, new: str) -> str:
    return f"{kept}:{new}"


@pytest.mark.parametrize(
    ("windows", "written", "average", "most"),
    [
        (
            ps.hopping(_ms(10), advance=_ms(5), grace=_ms(90)),
            "k:100@100 k:0@0 k:1@1 k:2@2 k:3@3 k:4@4 k:5@5 k:6@6 k:105@105 k:106@106",
            67.9,
            100,
        ),
        (
            ps.tumbling(_ms(10), grace=_ms(90)),
            "k:100@200 k:0@100 k:1@101 k:2@102 k:3@103 k:4@104 k:5@105 k:6@6",
            97.375,
            194,
        ),
    ],
)
def test_lateness_is_measured(windows: Any, written: str, average: float, most: int) -> None:
    builder = ps.StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    grouped.windowed_by(windows).count("held", retention=_ms(100))
    meter = _sliced(builder, written, level="DEBUG").meter
    assert meter is not None
    [late] = [each.tally for each in meter.entries(0) if each.name == "record-lateness"]
    assert (late.total / late.count, late.most) == (average, most)


def test_an_entry_of_the_cache_takes_its_key_its_value_and_45_bytes_and_its_topic() -> None:
    """Three keys of one byte: 3 * (25 + entry), an entry being value, context and dirtiness."""
    state = CacheState(3 * (1 + 24 + 1 + 20 + len("in") + 8))
    state.grow(np.array([1, 1, 1]), np.full(3, -1))
    sizes = np.array([1 + ENTRY_BYTES + CONTEXT_BYTES + len("in") + 8] * 3)
    assert state.fits(np.array([0, 1, 2]), sizes)
    state.take_in(np.array([0, 1, 2]), sizes, 0)
    assert state.total == state.max_bytes
    # Four bytes more for the last one, and the first one goes, which takes all with it.
    longer = EvictingCache(state, [0, 1, 2], [8] * 3)
    assert longer.write([2], [int(sizes[2]) + 4], [12]) == ([0, 1, 3], [0, 0, 0])
    # A cache of no bytes lets every write through at once.
    none = EvictingCache(_of_nothing(), [], [])
    assert none.write([0, 1, 0], [60] * 3, [8] * 3) == ([0, 1, 2], [0, 1, 2])


def _of_nothing() -> CacheState:
    state = CacheState(0)
    state.grow(np.array([1, 1]), np.full(2, -1))
    return state


def test_a_checkpoint_of_three_partitions() -> None:
    lines = "0\n3\nt 0 0\nt 1 1\nt 2 2\n"
    assert format_checkpoint({("t", number): number for number in range(3)}) == lines
    assert parse_checkpoint("0\n1\nt 0 -1\n") == {}
    assert parse_checkpoint(format_checkpoint({("t", 0): -4})) == {("t", 0): -4}


def test_a_window_at_the_end_of_time_is_in_the_range_up_to_it() -> None:
    key, longer = b"\x0a\x0b\x0c", b"\x0a\x0b\x0c\x7f"
    store = SegmentedStore(
        MemoryStore("w"), kind="window", retention_ms=1000, segment_ms=60_000, indexed=True
    )
    store.apply([(window_key(each, LONG_MAX), each) for each in (key, longer)], offset=0)
    assert list(store.fetch(key, 0, LONG_MAX)) == [(window_key(key, LONG_MAX), key)]


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("21", 5857341059704281894, -5288187638297930763),
        ("foobar", -351361463397418609, 8959716011862540668),
        ("a-little-bit-long-string", 8836256500583638442, -198172363548498523),
        ("abc", 1489494923063836066, -5440978547625122829),
    ],
)
def test_hashes_of_rows_are_javas(text: str, first: int, second: int) -> None:
    data = murmur3_128(text.encode(), seed=123)
    assert int.from_bytes(data[:8], "big", signed=True) == first
    assert int.from_bytes(data[8:], "big", signed=True) == second
