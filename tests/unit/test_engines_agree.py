"""A column at a time or record by record: the two ways of computing a slice give the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import UserFunctionError
from penstock.processors import Limits, RecordRun, SliceRun, runs_in_columns
from penstock.processors.running import running_float_sum, running_max, sort_by_slot
from penstock.processors.two_inputs import TableJoinRun
from penstock.serdes import FloatSerde, ListSerde, serde_of
from penstock.testing.stores import DriverState
from penstock.topology import SubTopology
from tests.unit.slices import Row, changes, outputs, records


def _ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def _longest(old: str, new: str | None) -> str | None:
    return None if new == "x" else max(old, new or "")


def _text(key: str, value: str | None, aggregate: str) -> str:
    return f"{aggregate}+{key}{value}"


def _tumbling(stream: ps.KStream[str, str]) -> None:
    windows = ps.tumbling(_ms(10), grace=_ms(5))
    counts = stream.group_by_key().windowed_by(windows).count("counts").to_stream()
    counts.to("out")
    counts.map_values(lambda count: count * 2, value=int).to("twice")


def _hopping(stream: ps.KStream[str, str]) -> None:
    windows = ps.hopping(_ms(10), advance=_ms(4), grace=_ms(0))
    stream.group_by_key().windowed_by(windows).aggregate(
        lambda: "", _text, "texts", value=str
    ).to_stream().to("out")


def _reduced(stream: ps.KStream[str, str]) -> None:
    windows = ps.tumbling(_ms(6), grace=_ms(100))
    table = stream.group_by_key().windowed_by(windows).reduce(_longest, "longest")
    table.filter(lambda key, value: value > "b").to_stream().to("out")


def _suppressed(stream: ps.KStream[str, str]) -> None:
    windows = ps.tumbling(_ms(10), grace=_ms(5))
    table = stream.group_by_key().windowed_by(windows).count("counts", caching=False)
    table.suppress(ps.until_window_closes(), name="final").to_stream().to("out")
    table.to_stream().to("all")


def _delayed(stream: ps.KStream[str, str]) -> None:
    table = stream.group_by_key().count("counts")
    table.suppress(ps.until_time_limit(_ms(7), ps.unbounded()), name="calm").to_stream().to("out")


def _kept_later(stream: ps.KStream[str, str]) -> None:
    table = stream.to_table()
    # Nobody keeps the rows yet: this one cannot know which deletions it need not tell.
    table.filter(lambda _, value: value > "a").to_stream().to("all")
    table.suppress(ps.until_time_limit(_ms(7), ps.unbounded()), name="calm").to_stream().to("out")
    table.filter(lambda _, value: value > "a").to_stream().to("wanted")


def _windows_in_a_table(stream: ps.KStream[str, str]) -> None:
    windows = ps.tumbling(_ms(10), grace=_ms(5))
    counts = stream.group_by_key().windowed_by(windows).count("counts").to_stream()
    latest = counts.to_table("latest")
    latest.suppress(ps.until_window_closes(), name="final").to_stream().to("out")


def _numbers(kind: str) -> Callable[[ps.KStream[str, str]], None]:
    def program(stream: ps.KStream[str, str]) -> None:
        numbers = stream.map_values(
            lambda text: None if text is None else ord(text) - 98, value=int
        )
        getattr(numbers.group_by_key(), kind)("numbers").to_stream().to("out")

    return program


PROGRAMS: dict[str, Callable[[ps.KStream[str, str]], None]] = {
    "tumbling": _tumbling,
    "hopping": _hopping,
    "reduced": _reduced,
    "suppressed": _suppressed,
    "delayed": _delayed,
    "kept later": _kept_later,
    "windows in a table": _windows_in_a_table,
    "sum": _numbers("sum"),
    "min": _numbers("min"),
    "max": _numbers("max"),
    "average": _numbers("average"),
    "collect": _numbers("collect"),
}

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "aa", "", None]),
        st.sampled_from(["a", "b", "c", "x", None]),
        st.integers(0, 60),
    ),
    max_size=40,
)


@dataclass(frozen=True)
class _Slices:
    rows: list[tuple[str | None, str | None, int]]
    size: int

    def __iter__(self) -> Any:
        for first in range(0, len(self.rows), self.size):
            yield [
                Row(
                    first + number,
                    time,
                    None if key is None else key.encode(),
                    None if value is None else value.encode(),
                )
                for number, (key, value, time) in enumerate(self.rows[first : first + self.size])
            ]


def _answers(kind: Any, sub: SubTopology, slices: Iterable[Any], cache: int) -> list[Any]:
    state = DriverState({spec.name: spec for spec in sub.stores})
    limits = Limits(
        cache_max_bytes=cache, partition_counts=dict.fromkeys(sub.output_topics("app"), 4)
    )
    metadata: dict[str, str] = {}
    answers = []
    for rows in slices:
        run = kind(sub, application_id="app", state=state, limits=limits, metadata=metadata)
        run.process(records(rows))
        result = run.finish()
        state.apply(result.changes)
        metadata = dict(result.metadata)
        metadata.pop("stream-time", None)
        answers.append((outputs(result), sorted(changes(result), key=repr), result.dropped))
    return [*answers, {name: state.of(name) for name in limits.partition_counts}, metadata]


@pytest.mark.parametrize("name", PROGRAMS)
@given(rows=ROWS, size=st.integers(1, 20), cache=st.sampled_from([0, 250, 10_000]))
@settings(max_examples=60, deadline=None)
def test_columns_equal_records(name: str, rows: Any, size: int, cache: int) -> None:
    builder = ps.StreamsBuilder()
    PROGRAMS[name](builder.stream("in", key=str, value=str))
    [sub] = builder.build().sub_topologies
    assert runs_in_columns(sub)
    slices = _Slices(rows, size)
    columns = _answers(SliceRun, sub, slices, cache)
    assert columns == _answers(RecordRun, sub, slices, cache)


FLOATS = [0.1, 0.2, -0.3, 1e16, 1.0, 0.0, 1e308, -1e308]
ODD = [-0.0, float("nan"), float("inf"), float("-inf"), None]
INTS = [1, 2, -3, 2**53 + 1, 0]
HUGE = [2**62, -(2**63), 2**63 - 1, None]


def _number_rows(kind: type, odd: bool) -> Any:
    even, strange = (FLOATS, ODD) if kind is float else (INTS, HUGE)
    values = st.sampled_from([*even, *strange] if odd else even)
    return st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), values, st.integers(0, 60)), max_size=40
    )


def _encoded(kind: type, rows: list[tuple[str | None, Any, int]], size: int) -> list[list[Row]]:
    """Slices of rows; one of many equal keys is long."""
    write = serde_of(kind).serialize
    made = [
        Row(number, time, key and key.encode(), None if value is None else write(value))
        for number, (key, value, time) in enumerate(rows)
    ]
    return [made[first : first + size] for first in range(0, len(made), size)]


def _outcome(kind: Any, sub: SubTopology, slices: Iterable[Any], cache: int) -> Any:
    try:
        return _answers(kind, sub, slices, cache)
    except UserFunctionError as error:
        return type(error)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", ["sum", "min", "max", "average"])
@given(data=st.data(), size=st.integers(1, 40), cache=st.sampled_from([0, 250, 10_000]))
@settings(max_examples=60, deadline=None)
def test_numbers_equal_records_to_the_bit(
    name: str, kind: type, windowed: bool, data: Any, size: int, cache: int
) -> None:
    """Sums of floats depend on their order; NaN, the negative zero and nulls on everything."""
    rows = data.draw(_number_rows(kind, odd=data.draw(st.booleans())))
    builder = ps.StreamsBuilder()
    grouped: Any = builder.stream("in", key=str, value=kind).group_by_key()
    if windowed:
        grouped = grouped.windowed_by(ps.hopping(_ms(20), advance=_ms(10), grace=_ms(20)))
    getattr(grouped, name)("numbers").to_stream().to("out")
    [sub] = builder.build().sub_topologies
    assert runs_in_columns(sub)
    slices = _encoded(kind, rows, size)
    columns = _outcome(SliceRun, sub, slices, cache)
    assert columns == _outcome(RecordRun, sub, slices, cache)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("kind", [int, str, dict[str, int]])
@given(data=st.data(), size=st.integers(1, 40), cache=st.sampled_from([0, 150, 400, 10_000]))
@settings(max_examples=30, deadline=None)
def test_lists_equal_records_to_the_byte(
    kind: Any, windowed: bool, data: Any, size: int, cache: int
) -> None:
    """Also where the cache lets some lists go in the middle of a slice, and of old values."""
    values = st.sampled_from([*LISTED[kind], None])
    rows = data.draw(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "c", None]), values, st.integers(0, 60)),
            max_size=60,
        )
    )
    builder = ps.StreamsBuilder()
    grouped: Any = builder.stream("in", key=str, value=kind).group_by_key()
    if windowed:
        grouped = grouped.windowed_by(ps.hopping(_ms(20), advance=_ms(10), grace=_ms(20)))
    lists = grouped.collect("lists")
    lists.to_stream().to("out")
    lists.filter(lambda key, held: len(held) % 3 != 1).to_stream().to("filtered")
    [sub] = builder.build().sub_topologies
    assert runs_in_columns(sub)
    slices = _encoded(kind, rows, size)
    columns = _answers(SliceRun, sub, slices, cache)
    assert columns == _answers(RecordRun, sub, slices, cache)


FOLDED: dict[str, Any] = {
    "plain": None,
    "hopping": ps.hopping(_ms(20), advance=_ms(10), grace=_ms(20)),
    "sliding": ps.sliding(_ms(10), grace=_ms(20)),
    "session": ps.session(_ms(5), grace=_ms(20)),
}


@pytest.mark.parametrize("at_close", [False, True])
@pytest.mark.parametrize("windows", FOLDED)
@given(rows=ROWS, size=st.integers(1, 20), cache=st.sampled_from([0, 250, 10_000]))
@settings(max_examples=15, deadline=None)
def test_lists_are_what_a_function_makes_of_them(
    windows: str, at_close: bool, rows: Any, size: int, cache: int
) -> None:
    """Of records in their order, too, lists are not taken apart."""
    answers = []
    for collects in (True, False):
        builder = ps.StreamsBuilder()
        grouped: Any = builder.stream("in", key=str, value=str).group_by_key()
        if FOLDED[windows] is not None:
            grouped = grouped.windowed_by(FOLDED[windows])
            grouped = grouped.emit_on_window_close() if at_close else grouped
        merger = {"merger": lambda key, one, two: one + two} if windows == "session" else {}
        lists: Any = {"value": ListSerde(serde_of(str)), **merger}
        table = (
            grouped.collect("lists")
            if collects
            else grouped.aggregate(list, _longer, "lists", **lists)
        )
        table.to_stream().to("out")
        table.filter(lambda key, held: len(held) % 3 != 1).to_stream().to("filtered")
        [sub] = builder.build().sub_topologies
        answers.append(_answers(RecordRun, sub, _Slices(rows, size), cache))
    assert answers[0] == answers[1]


def _longer(_key: str, value: str | None, held: list[str]) -> list[str]:
    return held if value is None else [*held, value]


LISTED: dict[Any, list[Any]] = {
    int: [1, -(2**63), 7],
    str: ["", "é", "long" * 9],
    dict[str, int]: [{}, {"a": 1}],
}


ABROAD = timezone(timedelta(hours=5))


def _narrow(stream: Any) -> None:
    """What was rounded is added to: 4 bytes hold less than a float of Python's."""
    thirds = stream.map_values(lambda text: text and ord(text) / 3, value=FloatSerde())
    sums = thirds.group_by_key().reduce(lambda one, two: one + two, "sums").to_stream()
    sums.map_values(repr, value=str).to("out")


def _whole(stream: Any) -> None:
    """An int comes back as a float."""
    numbers = stream.group_by_key().aggregate(lambda: 0, _add_text, "numbers", value=float)
    numbers.to_stream().map_values(repr, value=str).to("out")


def _add_text(_key: str, value: str | None, number: float) -> float:
    return len(f"{number}{value}")


def _moments(stream: Any) -> None:
    """What comes back is in UTC, and has whole milliseconds."""
    start = datetime(2024, 1, 1, 3, 0, 0, 1900, tzinfo=ABROAD)
    times = stream.map_values(lambda text: text and start + _ms(ord(text)), value=datetime)
    latest = times.group_by_key().reduce(
        lambda one, two: two + timedelta(hours=one.hour, microseconds=one.microsecond), "latest"
    )
    latest.to_stream().map_values(lambda time: time and time.isoformat(), value=str).to("out")


@pytest.mark.parametrize("program", [_narrow, _whole, _moments])
@given(rows=ROWS, size=st.integers(1, 20), cache=st.sampled_from([0, 250, 10_000]))
@settings(max_examples=40, deadline=None)
def test_a_fold_is_given_what_a_store_gives_back(
    program: Any, rows: Any, size: int, cache: int
) -> None:
    """Else a result would depend on which records happen to be in one slice."""
    builder = ps.StreamsBuilder()
    program(builder.stream("in", key=str, value=str))
    [sub] = builder.build().sub_topologies
    assert runs_in_columns(sub)
    slices = _Slices(rows, size)
    columns = _answers(SliceRun, sub, slices, cache)
    assert columns == _answers(RecordRun, sub, slices, cache)


def test_long_and_short_runs_of_floats_are_added_in_their_order() -> None:
    random = np.random.default_rng(7)
    slots = np.concatenate([np.zeros(500), random.integers(1, 300, 1_000)]).astype(np.int64)
    random.shuffle(slots)
    numbers = random.normal(size=len(slots)) * 10.0 ** random.integers(-8, 8, len(slots))
    start, known = random.normal(size=300), random.integers(0, 2, 300).astype(np.bool_)
    held: dict[int, float] = {slot: float(start[slot]) for slot in np.flatnonzero(known)}
    expected = []
    for slot, number in zip(slots.tolist(), numbers.tolist(), strict=True):
        held[slot] = held[slot] + number if slot in held else number
        expected.append(held[slot])
    sums = running_float_sum(sort_by_slot(slots), numbers, start[slots], known[slots])
    assert sums.tolist() == expected


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_running_maximum_has_all_64_bits(values: list[int], data: Any) -> None:
    slots = data.draw(
        st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)).map(np.array)
    )
    numbers = np.array(values, dtype=np.int64)
    restart = np.zeros(len(values), dtype=np.bool_)
    found = running_max(sort_by_slot(slots), numbers, np.full(len(values), -(2**63)), restart)
    for row, slot in enumerate(slots):
        assert found[row] == numbers[: row + 1][slots[: row + 1] == slot].max()


class Letters(ps.Serde[list[str]]):
    """Text as a list, which functions may change in place."""

    def serialize(self, value: list[str]) -> bytes:
        return "".join(value).encode()

    def deserialize(self, data: bytes) -> list[str]:
        return list(data.decode())


def _grown(value: str | None, row: list[str] | str | None) -> str:
    """What a row would be with one letter more, said by a function that changes it in place."""
    if isinstance(row, list):
        row.append("!")
    return f"{value}-{row}"


def _joined(builder: ps.StreamsBuilder, left: bool, rows: Any) -> None:
    table = builder.table("table", "rows", key=str, value=rows)
    stream = builder.stream("stream", key=str, value=str).flat_map_values(
        lambda value: [] if value == "x" else [value, value and value + "2"], value=str
    )
    joins = stream.left_join if left else stream.join
    joined = joins(table, _grown, value=str)
    joined.to("out")
    joined.group_by_key().count("counts").to_stream().to("counted")
    # What the cache holds back meets the table as it is at the end.
    lasts = stream.to_table("lasts").to_stream()
    lasts.join(table, _grown, value=str).to("late")


PIECES = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["a", "b", "aa", None]),
        st.sampled_from(["a", "b", "x", None]),
        st.integers(0, 20),
    ),
    max_size=30,
)


def _two(kind: Any, sub: SubTopology, slices: Any, more: Any, cache: int) -> list[Any]:
    state = DriverState({spec.name: spec for spec in sub.stores})
    limits = Limits(
        cache_max_bytes=cache, partition_counts=dict.fromkeys(sub.output_topics("app"), 4)
    )
    answers = []
    for inputs in slices:
        run = kind(sub, application_id="app", state=state, limits=limits, metadata={})
        for topic, rows in inputs.items():
            run.process(records(rows, topic))
        result = run.finish(more=more)
        state.apply(result.changes)
        changed = sorted(changes(result), key=repr)
        answers.append((outputs(result), changed, result.dropped, result.ends))
    return answers


@given(
    pieces=PIECES,
    size=st.integers(1, 15),
    left=st.booleans(),
    rows=st.sampled_from([str, Letters()]),
    cache=st.sampled_from([0, 10_000]),
    more=st.sets(st.sampled_from(["table", "stream"])),
)
@settings(max_examples=200, deadline=None)
def test_a_join_with_a_table_equals_records(
    pieces: Any, size: int, left: bool, rows: Any, cache: int, more: set[str]
) -> None:
    builder = ps.StreamsBuilder()
    _joined(builder, left, rows)
    [sub] = builder.build().sub_topologies
    assert runs_in_columns(sub)
    slices = []
    for first in range(0, len(pieces), size):
        inputs: dict[str, list[Row]] = {}
        for number, (is_table, key, value, time) in enumerate(pieces[first : first + size]):
            given = inputs.setdefault("table" if is_table else "stream", [])
            encoded = (None if each is None else each.encode() for each in (key, value))
            given.append(Row(first + number, time, *encoded))
        slices.append(inputs)
    wanted = frozenset((topic, 0) for topic in more)
    columns = _two(TableJoinRun, sub, slices, wanted, cache)
    assert columns == _two(RecordRun, sub, slices, wanted, cache)
