"""Inner joins of streams, a column at a time and record by record: both give the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import UserFunctionError
from penstock.observability import groups
from penstock.processors import Limits, RecordRun, runs_in_columns, start_slice
from penstock.processors.stream_join_run import SEQUENCE_MAX
from penstock.processors.two_inputs import StreamJoinRun
from penstock.serdes.windowed import window_key
from penstock.testing.stores import DriverState
from penstock.topology import JoinWindows, SubTopology
from tests.unit.slices import Row, changes, outputs, records

LONG_MAX = 2**63 - 1
Program = Callable[[ps.KStream[str, str], ps.KStream[str, str], JoinWindows], object]


def _ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def _plain(left: Any, right: Any, windows: JoinWindows) -> None:
    left.join(right, lambda a, b: f"{a}+{b}", windows, value=str, name="pairs").to("out")


def _with_keys(left: Any, right: Any, windows: JoinWindows) -> None:
    pairs = left.join(right, lambda key, a, b: f"{key}:{a}+{b}", windows, value=str, with_key=True)
    pairs.filter(lambda key, value: "+v" in value).map_values(str.upper, value=str).to("out")


def _branched(left: Any, right: Any, windows: JoinWindows) -> None:
    """Rows of one record come from several steps, before the join and behind it."""
    right.to("before")
    many = left.flat_map_values(
        lambda value: [] if value == "x" else [value, value and value + "2"], value=str
    )
    many.filter_not(lambda key, value: value is not None and value.startswith("w")).to("many")
    pairs = many.join(right.filter(lambda key, value: key != "aa"), _both, windows, value=str)
    pairs.to("out")
    pairs.flat_map_values(lambda value: [value, value], value=str).to("twice")
    right.map_values(lambda value: "after", value=str).to("after")


def _numbers(left: Any, right: Any, windows: JoinWindows) -> None:
    """A float serde writes an int: who comes later meets a float, who comes first has an int."""
    ones = left.map_values(lambda value: None if value == "x" else 1, value=float)
    ones.join(right, lambda a, b: f"{a!r}{b}", windows, value=str).to("out")


def _in_memory(left: Any, right: Any, windows: JoinWindows) -> None:
    """Entries expire one by one there, not with a segment."""
    left.join(right, _both, windows, value=str, persistent=False).to("out")


def _both(left: str, right: str) -> str:
    return f"{left}&{right}"


PROGRAMS: dict[str, Program] = {
    "plain": _plain,
    "with keys": _with_keys,
    "branched": _branched,
    "numbers": _numbers,
    "in memory": _in_memory,
}
# Segments have a minute: what is so late is not stored at all.
SPANS = [(0, 2), (0, 12), (0, 30), (0, 400_000), (LONG_MAX - 12, LONG_MAX)]
PIECES = st.sampled_from(SPANS).flatmap(
    lambda span: st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from(["a", "a", "b", "aa", None]),
            st.sampled_from(["v", "v", "w", "x", None]),
            st.integers(*span),
            st.sampled_from([None, None, (("h", b"1"),)]),
        ),
        min_size=25,
        max_size=40,
    )
)
WINDOWS = st.builds(
    lambda before, after, grace: JoinWindows(
        before_ms=before, after_ms=max(after, -before), grace_ms=grace
    ),
    st.integers(-5, 12),
    st.integers(-5, 12),
    st.sampled_from([0, 3, 100, 70_000]),
)


def _sub(program: Program, windows: JoinWindows) -> SubTopology:
    builder = ps.StreamsBuilder()
    left = builder.stream("left", key=str, value=str)
    program(left, builder.stream("right", key=str, value=str), windows)
    [sub] = builder.build().sub_topologies
    return sub


def _slices(pieces: Any, size: int) -> list[dict[str, list[Row]]]:
    slices = []
    for first in range(0, len(pieces), size):
        inputs: dict[str, list[Row]] = {}
        for number, piece in enumerate(pieces[first : first + size]):
            is_left, key, value, time, headers = piece
            rows = inputs.setdefault("left" if is_left else "right", [])
            # Each value is another, so that none can stand for another.
            told = f"{value}{first + number}" if value in ("v", "w") else value
            encoded = (None if each is None else each.encode() for each in (key, told))
            rows.append(Row(first + number, time, *encoded, headers))
        slices.append(inputs)
    return slices


def _answers(
    kinds: list[Any], sub: SubTopology, slices: Any, more: Any, metadata: dict[str, str]
) -> list[Any]:
    """What the slices give if these kinds of runs take turns."""
    state = DriverState({spec.name: spec for spec in sub.stores})
    limits = Limits(
        cache_max_bytes=0,
        partition_counts=dict.fromkeys(sub.output_topics("app"), 4),
        metrics="DEBUG",
    )
    answers: list[Any] = []
    for number, inputs in enumerate(slices):
        kind = kinds[number % len(kinds)]
        run = kind(sub, application_id="app", state=state, limits=limits, metadata=metadata)
        for topic, rows in inputs.items():
            run.process(records(rows, topic))
        result = run.finish(more=more)
        state.apply(result.changes)
        metadata = dict(result.metadata)
        # Each store's changes have an order; there is none between stores.
        changed = sorted(changes(result), key=lambda row: row[0])
        partitions = result.outputs.column("partition").to_pylist()
        kept = dict(metadata)
        answers.append(
            (outputs(result), partitions, changed, result.dropped, result.ends, kept, _went(result))
        )
    return answers


def _went(result: Any) -> dict[Any, float]:
    """How many records went from step to step."""
    return {e.tags: e.tally.count for e in result.meter.entries(0) if e.group == groups.EDGE}


@pytest.mark.parametrize("name", PROGRAMS)
@given(
    pieces=PIECES,
    size=st.integers(3, 20),
    windows=WINDOWS,
    more=st.sampled_from([(), (), (), ("left",), ("left", "right")]),
    sequence=st.sampled_from([0, 5, SEQUENCE_MAX - 3]),
)
@settings(max_examples=40, deadline=None)
def test_a_join_of_streams_equals_records(
    name: str, pieces: Any, size: int, windows: JoinWindows, more: tuple[str, ...], sequence: int
) -> None:
    sub = _sub(PROGRAMS[name], windows)
    assert runs_in_columns(sub)
    slices, wanted = _slices(pieces, size), frozenset((topic, 0) for topic in more)
    metadata = {f"{spec.name}:sequence": str(sequence) for spec in sub.stores}
    by_record = _answers([RecordRun], sub, slices, wanted, metadata)
    assert _answers([StreamJoinRun], sub, slices, wanted, metadata) == by_record
    # After an upgrade one goes on with what the other left.
    assert _answers([RecordRun, StreamJoinRun], sub, slices, wanted, metadata) == by_record


def _told(kind: Any, sub: SubTopology, inputs: dict[str, list[Row]], state: DriverState) -> Any:
    """What an error of the slice says."""
    counts = dict.fromkeys(sub.output_topics("app"), 4)
    limits = Limits(cache_max_bytes=0, partition_counts=counts)
    run = kind(sub, application_id="app", state=state, limits=limits)
    for topic, rows in inputs.items():
        run.process(records(rows, topic))
    with pytest.raises(UserFunctionError) as caught:
        run.finish()
    return caught.value.summary, dict(caught.value.where)


WIDE = JoinWindows(before_ms=10, after_ms=10, grace_ms=0)


def _raises(left: str, right: str) -> str:
    raise ValueError(f"{left}{right}")


@pytest.mark.parametrize("last", ["left", "right"])
@pytest.mark.parametrize("behind", [False, True])
def test_an_error_names_the_record_that_came_last(last: str, behind: bool) -> None:
    def program(left: Any, right: Any, windows: JoinWindows) -> None:
        pairs = left.join(right, _both if behind else _raises, windows, value=str)
        pairs.map_values(lambda value: _raises(value, ""), value=str).to("out")

    sub = _sub(program, WIDE)
    first = "left" if last == "right" else "right"
    inputs = {last: [Row(7, 5, b"a", b"2")], first: [Row(3, 4, b"a", b"1")]}
    state = DriverState({spec.name: spec for spec in sub.stores})
    told = _told(StreamJoinRun, sub, inputs, state)
    assert told == _told(RecordRun, sub, inputs, state)
    assert (told[1]["topic"], told[1]["offset"]) == (last, 7)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_partner_that_cannot_be_read_is_told_alike(side: str) -> None:
    sub = _sub(_plain, WIDE)
    state = DriverState({spec.name: spec for spec in sub.stores})
    for spec in sub.stores:
        for number, value in enumerate([b"good", b"\xff"]):
            state.of(spec.name)[window_key(b"a", 5, number)] = bytes(8) + value
    inputs = {side: [Row(2, 50, b"a", b"v"), Row(3, 6, b"b", b"v"), Row(4, 5, b"a", b"v")]}
    told = _told(StreamJoinRun, sub, inputs, state)
    assert told == _told(RecordRun, sub, inputs, state)
    assert told[1]["offset"] == 4


def test_a_value_that_the_store_refuses_is_told_alike() -> None:
    def program(left: Any, right: Any, windows: JoinWindows) -> None:
        numbers = left.map_values(len, value=str)
        numbers.join(right, _both, windows, value=str).to("out")

    sub = _sub(program, WIDE)
    state = DriverState({spec.name: spec for spec in sub.stores})
    inputs = {"left": [Row(4, 5, b"a", b"v")]}
    told = _told(StreamJoinRun, sub, inputs, state)
    assert told == _told(RecordRun, sub, inputs, state)


def _left_join(left: Any, right: Any, windows: JoinWindows) -> None:
    left.left_join(right, _both, windows, value=str).to("out")


def _self_join(left: Any, right: Any, windows: JoinWindows) -> None:
    left.merge(right).join(left, _both, windows, value=str).to("out")


def _changeable(left: Any, right: Any, windows: JoinWindows) -> None:
    left.map_values(list, value=list[str]).join(right, str, windows, value=str).to("out")


def _counted(left: Any, right: Any, windows: JoinWindows) -> None:
    joined = left.join(right, _both, windows, value=str)
    joined.group_by_key().count("counts").to_stream().to("out")


def _joined_twice(left: Any, right: Any, windows: JoinWindows) -> None:
    left.join(right, _both, windows, value=str).to("out")
    right.join(left, _both, windows, value=str).to("out")


@pytest.mark.parametrize("program", [_left_join, _self_join, _changeable, _counted, _joined_twice])
def test_other_joins_go_record_by_record(program: Program) -> None:
    assert not runs_in_columns(_sub(program, WIDE))


@pytest.mark.parametrize(("count", "kind"), [(64, "RecordRun"), (65, "StreamJoinRun")])
def test_a_few_records_go_one_by_one(
    count: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TakenError(Exception):
        """Says which run was begun."""

    def begin(self: Any, *_: Any, **__: Any) -> None:
        raise TakenError(type(self).__name__)

    for each in (RecordRun, StreamJoinRun):
        monkeypatch.setattr(each, "__init__", begin)
    sub = _sub(_plain, WIDE)
    run = start_slice(
        sub,
        application_id="app",
        state=DriverState({}),
        limits=Limits(cache_max_bytes=0),
        metadata={},
        partition=0,
        now_ms=0,
    )
    run.process(records([Row(number, 0, b"a", b"v") for number in range(count)], "left"))
    with pytest.raises(TakenError, match=kind):
        run.finish()
